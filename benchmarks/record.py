"""Record a run as results/RECIPE, where `mpies reproduce RECIPE` finds it.

python benchmarks/record.py runs/cartpole cartpole [KEY=VALUE ...]      the overrides that it was trained with
"""

import sys

import yaml

from mpies.reproduce import record_run

run, recipe, *overrides = sys.argv[1:]
print(yaml.safe_dump(record_run(run, recipe, overrides), sort_keys=False))
