"""Lose nodes and get them back while a run goes on: 3 nodes of 2 ranks, each in a network of its own with an sshd.

    python benchmarks/lost_nodes.py --losses 30 --json FILE            as root; half killed, half with the network cut
    python benchmarks/lost_nodes.py --every 20 --minutes 15            a node lost or back every 20 s
    python benchmarks/lost_nodes.py --losses 2 --cut-at-stop           and one cut off when the run is asked to stop
    python benchmarks/lost_nodes.py --losses 2 --rank-at-start         and a rank killed before all are connected

Prints a line for each loss and return, then medians and the longest, and compares the digests with those of an
undisturbed run on one rank.  Victims and moments come from --seed.
"""

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssh_nodes import SshNodes, missing

from mpies.comm import mpiexec
from mpies.runs.formats.metrics import read_digests, read_metrics

NODES, SLOTS = 3, 2
PATIENCE = 120.0  # seconds that a run may take to go on before the campaign gives up
CONFIG = """
environment: {{id: CartPole-v1, max_steps: 200}}
policy: {{hidden: [16]}}
solver: {{population: {population}, sigma: 0.05}}
noise: {{size: 1000000}}
evaluation: {{every: 0, episodes: 5}}
checkpoint: {{every: 50}}
stop: {{generations: 1000000, target: null}}
"""


class Campaign:
    """A run on nodes that come and go.  out: what the supervisor says."""

    def __init__(self, nodes: SshNodes, folder: Path, population: int, rng: random.Random) -> None:
        self.nodes, self.rng, self.run = nodes, rng, folder / "run"
        self.config, self.out = folder / "config.yaml", folder / "out.txt"
        self.config.write_text(CONFIG.format(population=population))
        self.events: list[dict[str, Any]] = []
        hosts = ",".join(f"{name}:{SLOTS}" for name in nodes.names)
        command = [sys.executable, "-m", "mpies", "train", self.config, "--out", self.run, "--hosts", hosts]
        with open(self.out, "wb") as out:
            self.process = nodes.start(
                [*command, "--wait", "60", "--restarts", "1000"], stdout=out, stderr=subprocess.STDOUT, cwd=folder
            )

    def rows(self) -> list[dict[str, str]]:
        return read_metrics(self.run)

    def wait(self, condition: Callable[[], bool], what: str) -> float:
        """Seconds until the condition holds.  Raises RuntimeError where that takes too long."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > PATIENCE or self.process.poll() is not None:
                raise RuntimeError(f"{what}: waited {time.monotonic() - began:.0f} s\n{self.out.read_text()[-3000:]}")
            time.sleep(0.05)
        return time.monotonic() - began

    def has_ranks(self, count: int) -> bool:
        """Whether the newest generation was made by so many ranks, SLOTS on each node."""
        rows = self.rows()
        return bool(rows) and (int(rows[-1]["ranks"]), int(rows[-1]["nodes"])) == (count, count // SLOTS)

    def lose(self, name: str, how: str) -> None:
        """Lose a node, and wait for the next generation."""
        before, began = len(self.rows()), time.time()
        (self.nodes.kill if how == "killed" else self.nodes.cut)(name)
        left = SLOTS * (NODES - 1)
        self.wait(lambda: self.has_ranks(left), f"{name} was {how}")
        rows = self.rows()
        first = next(int(row["generation"]) for row in rows[before:] if int(row["ranks"]) == left)
        self.note(event="loss", how=how, node=name, generation=first, seconds=time.time() - began)

    def bring_back(self, name: str, how: str) -> None:
        """Bring a node back, and wait until its ranks take part."""
        began = time.time()
        (self.nodes.boot if how == "killed" else self.nodes.heal)(name)
        self.wait(lambda: self.has_ranks(SLOTS * NODES), f"{name} is back")
        self.note(event="return", how=how, node=name, generation=len(self.rows()), seconds=time.time() - began)

    def note(self, **event: Any) -> None:
        self.events.append(event)
        words = f"{event['node']} {event['how']}"
        print(f"{len(self.events):3} {event['event']:6} {words:10} {event['seconds']:6.1f} s", flush=True)

    def stop(self) -> int:
        """End the run by SIGTERM.  Returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def one_after_the_other(campaign: Campaign, losses: int) -> None:
    """Each loss is followed by the return of the same node."""
    ways = ["killed", "cut"] * ((losses + 1) // 2)
    campaign.rng.shuffle(ways)
    for how in ways[:losses]:
        time.sleep(campaign.rng.uniform(0.0, 3.0))
        name = campaign.rng.choice(campaign.nodes.names)
        campaign.lose(name, how)
        time.sleep(campaign.rng.uniform(0.0, 3.0))
        campaign.bring_back(name, how)


def in_fast_motion(campaign: Campaign, every: float, minutes: float) -> None:
    """Every few seconds a node is lost, or one comes back; one node always stays.  Nobody waits for the run."""
    until, lost = time.monotonic() + 60 * minutes, dict[str, str]()
    while time.monotonic() < until:
        time.sleep(every)
        there = [name for name in campaign.nodes.names if name not in lost]
        if lost and (len(there) == 1 or campaign.rng.random() < 0.5):
            name = campaign.rng.choice(sorted(lost))
            (campaign.nodes.boot if lost.pop(name) == "killed" else campaign.nodes.heal)(name)
            print(f"{name} is back", flush=True)
        else:
            name, how = campaign.rng.choice(there), campaign.rng.choice(["killed", "cut"])
            lost[name] = how
            (campaign.nodes.kill if how == "killed" else campaign.nodes.cut)(name)
            print(f"{name} was {how}", flush=True)


def summarize(campaign: Campaign, seconds: float, folder: Path) -> dict[str, Any]:
    """What came out, digests compared with an undisturbed run of as many generations."""
    rows, found = campaign.rows(), read_digests(campaign.run)
    alone, count = folder / "alone", f"stop.generations={len(found)}"
    command = [sys.executable, "-m", "mpies", "train", str(campaign.config), "--out", str(alone), count]
    subprocess.run(command, check=True, capture_output=True, env=mpiexec.environment())
    numbers = [int(row["generation"]) for row in rows]
    summary: dict[str, Any] = {
        "generations": len(rows),
        "useful share": float(rows[-1]["seconds"]) / seconds if rows else 0.0,
        "digests equal": found == read_digests(alone),
        "played once": numbers == list(range(1, len(rows) + 1)),
    }
    for kind in ("loss", "return"):
        for how in ("killed", "cut"):
            times = [event["seconds"] for event in campaign.events if (event["event"], event["how"]) == (kind, how)]
            if times:
                summary[f"{kind} {how}"] = {"median": statistics.median(times), "longest": max(times), "n": len(times)}
    return summary


def main() -> None:
    """Run a campaign and print what came out.  The exit code is 0 where the digests are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", type=int, default=30)
    parser.add_argument("--every", type=float, help="seconds; a node is lost or back so often, for --minutes")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--cut-at-stop", action="store_true", help="cut a node off when the run is asked to stop")
    parser.add_argument("--rank-at-start", action="store_true", help="kill a rank before all ranks are connected")
    parser.add_argument("--population", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--log", type=Path, help="keep what the supervisor says")
    given = parser.parse_args()
    if reason := missing():
        raise SystemExit(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # takes the nodes down
    # /tmp may be each node's own.
    with tempfile.TemporaryDirectory(prefix="mpies-nodes-", dir="/var/tmp") as name:
        folder = Path(name)
        with SshNodes(folder, NODES) as nodes:
            campaign = Campaign(nodes, folder, given.population, random.Random(given.seed))
            try:
                if given.rank_at_start:
                    nodes.kill_rank(nodes.names[-1])
                campaign.wait(lambda: campaign.has_ranks(SLOTS * NODES), "the start")
                began = time.monotonic()
                if given.every:
                    in_fast_motion(campaign, given.every, given.minutes)
                else:
                    one_after_the_other(campaign, given.losses)
                seconds = time.monotonic() - began
                if given.cut_at_stop:
                    nodes.cut(nodes.names[-1])
                stopped = time.monotonic()
                code = campaign.stop()
                stopped = time.monotonic() - stopped
                if code != 75:
                    print(campaign.out.read_text()[-3000:])
            finally:
                if given.log and campaign.out.exists():
                    given.log.write_bytes(campaign.out.read_bytes())
        summary = {**summarize(campaign, seconds, folder), "exit code": code, "stop": stopped, "seconds": seconds}
    for key, value in summary.items():
        print(f"{key}: {value}")
    if given.json:
        given.json.write_text(json.dumps({"summary": summary, "events": campaign.events}, indent=1))
    raise SystemExit(not (summary["digests equal"] and summary["played once"] and code == 75))


if __name__ == "__main__":
    main()
