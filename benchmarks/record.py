"""Record a run as results/NAME, where `mpies reproduce NAME` finds it; NAME is RECIPE or RECIPE-VARIANT.

python benchmarks/record.py runs/cartpole cartpole [KEY=VALUE ...]      the overrides that it was trained with

Prints what goes behind "Status:" in the recipe, configs/RECIPE.yaml; then `make docs`.
"""

import sys

from mpies.reproduce import describe, record_run

run, name, *overrides = sys.argv[1:]
record = record_run(run, name, overrides)
print("reached here:" if record["reached"] else "not reached:", describe(record))
