"""Take a trained policy elsewhere: `python examples/export.py`.

The file cartpole_policy.py that this writes needs NumPy and nothing else.  `.npz` holds the bare arrays, and `.onnx` is
for other runtimes (`pip install "mpies[onnx]"`).
"""

import importlib.util
from pathlib import Path

import numpy as np

import mpies


def main(folder="runs"):
    policy = mpies.Policy.load("cartpole")  # the trained policy that comes with the recipe; a run's path works too
    path = Path(folder) / "cartpole_policy.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    policy.export(path)
    policy.export(path.with_suffix(".npz"))
    print(f"{path} and {path.with_suffix('.npz')} are written")

    # What another program does with the file.
    spec = importlib.util.spec_from_file_location("cartpole_policy", path)
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    observation = np.array([0.0, 0.1, 0.02, -0.1])
    print("actions of both:", policy(observation), exported.Policy()(observation))


if __name__ == "__main__":
    main()
