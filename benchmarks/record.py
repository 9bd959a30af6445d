"""Record a run as results/NAME, where `mpies reproduce NAME` finds it; NAME is RECIPE or RECIPE-VARIANT.

python benchmarks/record.py runs/cartpole cartpole [--mark RETURN] [KEY=VALUE ...]    the overrides it was trained with

--mark is the mean return that counts as reached; by default the target, which may hold a margin.  Prints what goes
behind "Status:" in the recipe, configs/RECIPE.yaml; then `make docs`.
"""

import argparse

from mpies.tools.reproduce import describe, record_run

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("run")
parser.add_argument("name")
parser.add_argument("overrides", nargs="*")
parser.add_argument("--mark", type=float)
options = parser.parse_args()
record = record_run(options.run, options.name, options.overrides, mark=options.mark)
print("reached here:" if record["reached"] else "not reached:", describe(record))
