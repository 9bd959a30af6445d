# Two commands: `make train` and `make test`; both do their own set-up.
.DEFAULT_GOAL := help
.PHONY: help install train test test-page check benchmark docs clean

# An interpreter that other users can read too, with the parts that make a venv.
PYTHON ?= $(shell for p in /usr/bin/python3.11 /usr/local/bin/python3.11 python3.11 /usr/bin/python3 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(not sys.version_info >= (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
RANKS ?= $(shell nproc)
CONFIG ?= configs/lunar_lander.yaml

# Open MPI: allow root where we are root, allow hardware threads as ranks, no noise about absent hardware.
export PRTE_MCA_rmaps_default_mapping_policy ?= :oversubscribe
export OMPI_MCA_osc ?= ^ucx
ifeq ($(shell id -u),0)
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
endif

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/installed: setup.cfg pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then echo "make: no CPython >= 3.11 with venv found;" \
		"install one (Debian: apt-get install python3 python3-venv) or say make PYTHON=/path/to/python3" >&2; exit 2; fi
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev]'
	touch $@

install: $(VENV)/installed ## build .venv with everything, the MPI included

train: install ## train CONFIG (default: the lunar lander) on all cores until it is solved
	$(BIN)/mpirun -n $(RANKS) $(BIN)/mpies train $(CONFIG)

test: install ## run the tests
	$(BIN)/python -m pytest -q -m 'not browser' tests

test-page: install ## run the tests of the live page in a headless Chromium, installing one if need be
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev,page]'
	command -v chromium >/dev/null || $(BIN)/playwright install --with-deps --only-shell chromium \
		|| { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; } \
		|| echo "make: no Chromium could be installed; the tests say so and are skipped" >&2
	$(BIN)/python -m pytest -q -rs -m browser tests/page

check: install ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install ## write docs/keys.md from the code
	$(BIN)/mpies check --keys > docs/keys.md

benchmark: install ## measure rollouts and the work between them on this machine
	$(BIN)/mpirun -n $(RANKS) $(BIN)/python benchmarks/rollouts.py configs/lunar_lander.yaml
	$(BIN)/mpirun -n $(RANKS) $(BIN)/python benchmarks/between_rollouts.py

clean: ## remove what the other targets made, but no runs
	rm -rf $(VENV) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
