"""Nodes on one machine: network namespaces with an address and a host name each, for `mpirun` to start ranks in.

    with Nodes(4, delay=1e-4) as nodes:
        nodes.run(16, ["python", "-m", "mpies", "train", ...])

Needs root and the `ip` command.  The nodes are connected by a switch in this process, which forwards each frame so many
seconds after it came.
"""

import collections
import fcntl
import os
import select
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from mpies.comm import mpiexec

NETWORK = "10.217.83"
TUNSETIFF, TAP = 0x400454CA, 0x0002 | 0x1000  # an Ethernet device, frames without a header; linux/if_tun.h
FRAME = 65536
MTU = 9000

# What mpirun calls in place of ssh: agent ADDRESS COMMAND...
AGENT = """#!/bin/sh
node=$1; shift
exec ip netns exec {prefix}${{node##*.}} unshare --uts sh -c "hostname {prefix}${{node##*.}}; $*"
"""


def ip(*words: object) -> str:
    """Standard output of the `ip` command."""
    return subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True).stdout


class Nodes:
    """`count` nodes.  delay: seconds that a frame takes from one to another."""

    def __init__(self, count: int, delay: float) -> None:
        self.count, self.delay, self.prefix = count, delay, f"mpies{os.getpid() % 10000}-"
        self._taps, self._ended = [], False
        self._switch: threading.Thread | None = None

    def __enter__(self) -> "Nodes":
        self._folder = tempfile.TemporaryDirectory()
        self.agent = Path(self._folder.name) / "agent"
        self.agent.write_text(AGENT.format(prefix=self.prefix))
        self.agent.chmod(0o755)
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _build(self) -> None:
        for node in range(1, self.count + 1):
            name, inside = self.name(node), f"tmpies{os.getpid() % 10000}-{node}"
            ip("netns", "add", name)
            self._taps.append(open_tap(inside))
            ip("link", "set", inside, "netns", name)
            ip("-n", name, "link", "set", inside, "name", "eth0", "mtu", MTU)
            ip("-n", name, "addr", "add", f"{NETWORK}.{node}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        self._switch = threading.Thread(target=self._forward, daemon=True)
        self._switch.start()  # not where one of the commands above has failed

    def __exit__(self, *_: object) -> None:
        self._ended = True
        if self._switch:
            self._switch.join()
        for tap in self._taps:
            os.close(tap)
        for node in range(1, self.count + 1):
            subprocess.run(["ip", "netns", "del", self.name(node)], capture_output=True)
        self._folder.cleanup()

    def name(self, node: int) -> str:
        """Of a node's namespace; nodes count from 1."""
        return f"{self.prefix}{node}"

    def _forward(self) -> None:
        """Forward frames until the end, each `delay` seconds after it came."""
        queue, homes = collections.deque(), {}
        while not self._ended:
            now = time.monotonic()
            while queue and queue[0][0] <= now:
                _, source, frame = queue.popleft()
                home = homes.get(frame[:6])
                for tap in [home] if home else [tap for tap in self._taps if tap != source]:
                    try:
                        os.write(tap, frame)
                    except OSError:  # a full queue drops frames, as real ones do
                        continue
                now = time.monotonic()
            wait = min(queue[0][0] - now, 0.1) if queue else 0.1
            for tap in select.select(self._taps, [], [], max(0.0, wait))[0]:
                try:
                    while True:
                        frame = os.read(tap, FRAME)
                        homes[frame[6:12]] = tap
                        queue.append((time.monotonic() + self.delay, tap, frame))
                except BlockingIOError:
                    continue

    def run(
        self, ranks: int, arguments: Sequence[object], timeout: float = 600, **variables: object
    ) -> subprocess.CompletedProcess:
        """Run a command on `ranks` ranks, the same number on each node.  variables: of the environment."""
        each, rest = divmod(ranks, min(ranks, self.count))
        if rest:
            raise ValueError(f"{ranks} ranks do not spread evenly over {self.count} nodes")
        hosts = ",".join(f"{NETWORK}.{node}:{each}" for node in range(1, min(ranks, self.count) + 1))
        flags = ["--host", hosts, "--map-by", "slot", "--bind-to", "none", "--prtemca", "plm_ssh_agent", self.agent]
        flags += ["--prtemca", "prte_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"]
        flags += [word for name in variables for word in ("-x", name)]
        launch = [mpiexec.find(), "-n", str(ranks), *flags, *arguments]
        inside = ["sh", "-c", f'hostname {self.name(1)}; exec "$@"', "sh", *map(str, launch)]
        return subprocess.run(
            ["ip", "netns", "exec", self.name(1), "unshare", "--uts", *inside],
            env=mpiexec.environment() | {name: str(value) for name, value in variables.items()},
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )


def open_tap(name: str) -> int:
    """The file descriptor of a new TAP device."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP))
    return tap
