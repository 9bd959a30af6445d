"""Report a run to MLflow: `pip install mlflow`, then `python examples/mlflow_callback.py`.

A callback is a function of the run and of the newest row of metrics.csv.  It is called on rank 0 after each generation.
The same shape serves any other tracker.
"""

import sys
from pathlib import Path

import mpies

try:
    import mlflow
except ImportError:
    sys.exit('mlflow_callback.py: mlflow is not installed; install it with: pip install "mlflow>=2.10"')


def report(run, row):
    """Send what a row has: names of columns to numbers, None where a cell is empty."""
    numbers = {name: value for name, value in row.items() if value is not None}
    mlflow.log_metrics(numbers, step=int(row["generation"]))


def main(out="runs/mlflow_cartpole", store="runs/mlflow.db"):
    Path(store).parent.mkdir(parents=True, exist_ok=True)
    mlflow.set_tracking_uri(f"sqlite:///{Path(store).absolute()}")
    mlflow.set_experiment("cartpole")
    with mlflow.start_run(run_name=Path(out).name):
        mlflow.log_params({"solver.sigma": 0.2, "solver.population": 32})
        run = mpies.train(
            "cartpole",
            "solver={sigma: 0.2, population: 32}",
            "stop={generations: 10}",
            out=out,
            callbacks=report,
        )
        mlflow.set_tag("reason", run.reason)
    runs = mlflow.search_runs(experiment_names=["cartpole"])
    print("MLflow has", len(runs), "run; its last mean return is", runs["metrics.return_mean"].iloc[0])


if __name__ == "__main__":
    main()
