"""A Slurm cluster of real daemons on one machine: a slurmctld, and a slurmd on each of a few nodes.

A node is a process with network, hostname, processes, /tmp and /dev/shm of its own; all share the other files, as
nodes of a cluster do.  Needs root and Debian's slurm-wlm, munge, libpmix2 and iproute2.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.support import HOME, wait_for

PMIX = Path("/usr/lib/x86_64-linux-gnu/pmix2/lib")
BRIDGE, NETWORK, CONTROLLER = "mpies-slurm", "10.77.9", "mpies-slurmctld"

CONFIGURATION = """
ClusterName=mpies
SlurmctldHost={controller}({network}.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=3
SlurmdTimeout=10
MessageTimeout=60
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdParameters=config_overrides
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=60:00 PriorityTier=1
PartitionName=ended Nodes=ALL MaxTime=60:00 PriorityTier=1 PreemptMode=CANCEL
PartitionName=urgent Nodes=ALL MaxTime=60:00 PriorityTier=2 PreemptMode=OFF
"""

# The controller has the bridge's name, so that it listens on the bridge alone.
CONTROL = """
set -e
hostname $1
mount --bind $D/hosts /etc/hosts
exec slurmctld -D -f $SLURM_CONF
"""

# What turns a process into a node: arguments are its name, and the folders below /tmp that it must see.
NODE = """
set -e
mkdir -p $D/$1/cgroup $D/$1/tmp
hostname $1
mount --bind $D/hosts /etc/hosts
mount --rbind $D/cgroup /sys/fs/cgroup   # ip netns gave the node a /sys of its own, without them
mount -t tmpfs tmpfs /dev/shm
mount --bind $D/pmix $PMIX
name=$1; shift
for folder in "$@"; do
    mkdir -p $D/$name$folder
    mount --rbind $folder $D/$name$folder
done
mount --rbind $D/$name/tmp /tmp
exec slurmd -D -f $SLURM_CONF -N $name
"""


def missing():
    """Why there can be no cluster here, in words; '' where there can."""
    if os.geteuid() != 0:
        return "a Slurm cluster in network namespaces needs root"
    programs = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "unshare")
    absent = [name for name in programs if shutil.which(name) is None]
    if absent or not PMIX.exists():
        return f"there is no {' '.join(absent) or 'libpmix2'}; make test-slurm installs what Debian has"
    trial = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return f"namespaces are forbidden here: {trial.stderr.strip()}" if trial.returncode else ""


class Cluster:
    """nodes: how many, with `cpus` each.  folder: for all state; not below /tmp, which each node has its own of."""

    def __init__(self, folder, nodes, cpus):
        self.folder, self.nodes = Path(folder), [f"n{number}" for number in range(1, nodes + 1)]
        self.environment = os.environ | {"SLURM_CONF": f"{folder}/slurm.conf", "D": str(folder), "PMIX": str(PMIX)}
        # The nodes share the processors of one machine: ranks that wait must not spin.
        self.environment |= {"OMPI_MCA_mpi_yield_when_idle": "1"}
        self._daemons: dict = {}
        self._write(cpus)

    def _write(self, cpus):
        """Configuration, hosts and the copy of the PMIx library under the name that only its -dev package has."""
        addresses = {name: f"{NETWORK}.{10 + number}" for number, name in enumerate(self.nodes)}
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={address} Port=16818 CPUs={cpus} RealMemory=4000"
            for name, address in addresses.items()
        )
        text = CONFIGURATION.format(controller=CONTROLLER, network=NETWORK, folder=self.folder, nodes=nodes)
        (self.folder / "slurm.conf").write_text(text)
        hosts = {"localhost": "127.0.0.1", CONTROLLER: f"{NETWORK}.1", **addresses}
        (self.folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in hosts.items()))
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir()
        shutil.copytree(PMIX, self.folder / "pmix", symlinks=True)
        with contextlib.suppress(FileExistsError):
            (self.folder / "pmix" / "libpmix.so").symlink_to("libpmix.so.2")
        (self.folder / "cgroup").mkdir()
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        self.folder.chmod(0o755)

    def start(self):
        """Bring everything up.  Fails where the nodes do not answer."""
        self._call("mount", "--rbind", "/sys/fs/cgroup", self.folder / "cgroup")
        self._take_down()  # what tests that were killed left behind
        self._call("ip", "link", "add", BRIDGE, "type", "bridge")
        self._call("ip", "addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        self._call("ip", "link", "set", BRIDGE, "up")
        names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{ending}" for option, ending in names.items()]
        self._daemon("munged", "munged", "--foreground", "--force", *options)
        self._wait((self.folder / "munge.socket").exists)
        spaces = ["--uts", "--mount", "--propagation", "private"]
        self._daemon("slurmctld", "unshare", *spaces, "bash", "-c", CONTROL, "controller", CONTROLLER)
        for number, node in enumerate(self.nodes):
            space = f"mpies-{node}"
            self._call("ip", "netns", "add", space)
            self._call("ip", "link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
            self._call("ip", "link", "set", space, "master", BRIDGE, "up")
            self._call("ip", "-n", space, "addr", "add", f"{NETWORK}.{10 + number}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                self._call("ip", "-n", space, "link", "set", device, "up")
            self.boot(node)
        self.wait_until_idle()

    def boot(self, node):
        """Start a node's slurmd, in new namespaces, where it does not run."""
        if node in self._daemons and self._daemons[node].poll() is None:
            return
        visible = [str(path) for path in {HOME, Path(sys.prefix)} if path.is_relative_to("/tmp")]
        spaces = ["--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside = ["ip", "netns", "exec", f"mpies-{node}", "unshare", *spaces, "--propagation", "private"]
        self._daemon(node, *inside, "bash", "-c", NODE, "node", node, *visible)

    @contextlib.contextmanager
    def without(self, node):
        """Kill a node's slurmd, and with it all its processes; boot it at the end where it is not up again."""
        self._daemons[node].kill()
        self._daemons[node].wait()
        try:
            yield
        finally:
            self.boot(node)

    def stop(self):
        for process in self._daemons.values():
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._take_down()
        subprocess.run(["umount", "--recursive", "--lazy", self.folder / "cgroup"])

    def _take_down(self):
        """Remove the network, as far as there is one."""
        for node in self.nodes:
            for kind in ("netns", "link"):  # with its namespace the link would go only later
                subprocess.run(["ip", kind, "del", f"mpies-{node}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", BRIDGE], stderr=subprocess.DEVNULL)

    def run(self, *command, **more):
        """Standard output of a Slurm command.  Raises RuntimeError with what it said where it fails."""
        options = {"env": self.environment, "capture_output": True, "text": True, "timeout": 300} | more
        done = subprocess.run([str(word) for word in command], **options)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def job(self, number):
        """What Slurm says of a job, as a dict; {} where it does not know it."""
        text = self.run("scontrol", "--oneliner", "show", "job", str(number)).splitlines()[0]
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def state_of(self, node):
        """What Slurm thinks of a node, such as IDLE or DOWN*."""
        return self.run("sinfo", "--noheader", "--Node", f"--nodes={node}", "--partition=batch", "--format=%T").upper()

    def wait_until_idle(self):
        self._wait(self.is_idle)

    def is_idle(self):
        command = ["sinfo", "--noheader", "--partition=batch", "--states=idle", "--format=%D"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stdout.strip() == str(len(self.nodes))

    def _daemon(self, name, *command):
        """Start a process that ends when this one does, however that ends."""
        command = ["setpriv", "--pdeathsig", "KILL", *map(str, command)]
        with open(self.folder / f"{name}.log", "ab") as log:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._daemons[name] = subprocess.Popen(command, env=self.environment, **pipes)

    def _call(self, *command):
        subprocess.run([str(word) for word in command], check=True)

    def _wait(self, condition):
        def logs():
            return {path.name: path.read_text(errors="replace")[-800:] for path in self.folder.glob("*.log")}

        wait_for(condition, pause=0.1, explain=logs)
