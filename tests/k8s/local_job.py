"""Runs an MPIJob of rendered manifests on this machine: every pod is a container in its own network namespace.

What MPI Operator v0.8 adds to a pod is added here: hostfile, key, host names, variables, and its answers to a
pod that is gone.  The pod's own part (command, variables, volumes, user, capabilities, read-only root) comes
from the manifest.  There is no API server, no scheduler, and no limit of CPU or memory.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

NETWORK = "10.77.8"
BRIDGE = "mpies-k8s"
OPERATOR_ENV = {  # on the launcher, meant for Open MPI 4
    "K_MPI_JOB_ROLE": "launcher",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
}


def run(*command, check=True, **options):
    """A command to its end, its output as text."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done


def podman(*arguments):
    """A podman command line; in a mount namespace that has cgroup2 alone, as crun refuses a mixture."""
    setup = 'umount -R /sys/fs/cgroup 2>/dev/null; mount -t cgroup2 none /sys/fs/cgroup; exec podman "$@"'
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", setup, "podman", *map(str, arguments)]


class LocalJob:
    """The MPIJob among `documents` (rendered manifests), with its volumes in `folder`; a context.

    attempts: exit code of each launcher.  log: what they printed.
    """

    def __init__(self, documents, folder):
        self.folder = Path(folder)
        self.configs = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}
        self.deployments = {
            d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in documents if d["kind"] == "Deployment"
        }
        (self.job,) = [document for document in documents if document["kind"] == "MPIJob"]
        self.name, self.spec = self.job["metadata"]["name"], self.job["spec"]
        replicas = self.spec["mpiReplicaSpecs"]["Worker"]["replicas"]
        self.launcher = f"{self.name}-launcher"
        self.workers = [f"{self.name}-worker-{number}" for number in range(replicas)]
        self.pods = [self.launcher, *self.workers, *self.deployments]
        self.addresses = {pod: f"{NETWORK}.{10 + number}" for number, pod in enumerate(self.pods)}
        self.attempts, self.log = [], ""

    def __enter__(self):
        self.write_what_the_operator_writes()
        try:
            run("ip", "link", "add", BRIDGE, "type", "bridge")
            run("ip", "address", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
            run("ip", "link", "set", BRIDGE, "up")
            for number, pod in enumerate(self.pods):
                run("ip", "netns", "add", pod)
                outer = f"{BRIDGE}-{number}"
                run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", pod)
                run("ip", "link", "set", outer, "master", BRIDGE, "up")
                run("ip", "-n", pod, "address", "add", f"{self.addresses[pod]}/24", "dev", "eth0")
                for device in ("eth0", "lo"):
                    run("ip", "-n", pod, "link", "set", device, "up")
            for worker in self.workers:
                self.start_worker(worker)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for number, pod in enumerate(self.pods):
            run(*podman("rm", "--force", "--time", "0", pod), check=False)
            run("ip", "link", "delete", f"{BRIDGE}-{number}", check=False)  # a pod that dies slowly keeps its network
            run("ip", "netns", "delete", pod, check=False)
        run("ip", "link", "delete", BRIDGE, check=False)

    def write_what_the_operator_writes(self):
        """Hostfile, key pair, and the names that the headless Service gives."""
        for part in ("mpi", "ssh", "volumes"):
            (self.folder / part).mkdir(parents=True)
        slots, service = self.spec["slotsPerWorker"], f"{self.name}.default.svc"
        lines = [f"{worker}.{service} slots={slots}\n" for worker in self.workers]
        (self.folder / "mpi/hostfile").write_text("".join(lines))
        key = self.folder / "ssh/id_rsa"
        run("ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", key)
        shutil.copy(f"{key}.pub", self.folder / "ssh/authorized_keys")
        for file in (self.folder / "ssh").iterdir():  # a Secret's files are root's, and fsGroup's to read
            os.chown(file, 0, 1000)
            file.chmod(0o640)
        hosts = [f"{self.addresses[pod]} {pod}.{service} {pod}.{self.name} {pod}\n" for pod in self.pods]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(hosts))

    def command(self, pod, spec, added=(), env=()):
        """The podman arguments that run the first container of a pod's spec."""
        (container,) = spec["containers"]
        user, security = spec["securityContext"], container["securityContext"]
        arguments = ["run", "--rm", "--replace", "--name", pod, "--pull=never", "--cgroups=disabled"]
        arguments += ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
        arguments += [f"--network=ns:/run/netns/{pod}", "--hostname", pod, "-v", f"{self.folder}/hosts:/etc/hosts:ro"]
        arguments += ["--user", f"{user['runAsUser']}:{user['runAsGroup']}"]
        arguments += [f"--cap-drop={name}" for name in security["capabilities"]["drop"]]
        if not security["allowPrivilegeEscalation"]:
            arguments.append("--security-opt=no-new-privileges")
        if security["readOnlyRootFilesystem"]:
            arguments += ["--read-only", "--read-only-tmpfs=false"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            arguments += self.volume(pod, volumes[mount["name"]], mount["mountPath"], mount.get("readOnly", False))
        variables = {entry["name"]: entry["value"] for entry in container.get("env", [])} | dict(env)
        arguments += [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
        arguments += [*added, "--entrypoint", json.dumps(container["command"])]
        return [*arguments, container["image"], *container.get("args", [])]

    def volume(self, pod, volume, path, read_only):
        """The arguments that mount a volume of a pod."""
        match volume:
            case {"configMap": {"name": name}}:
                folder = self.folder / "volumes" / name
                folder.mkdir(exist_ok=True)
                for file, text in self.configs[name].items():
                    (folder / file).write_text(text)
            case {"persistentVolumeClaim": {"claimName": name}}:
                folder = self.claim(name)
            case {"emptyDir": {"medium": "Memory", "sizeLimit": size}} if path == "/dev/shm":
                return [f"--shm-size={size.removesuffix('i').lower()}"]
            case {"name": name, "emptyDir": _}:  # it outlives the pod's containers
                folder = self.folder / "empty" / pod / name
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o1777)
            case _:
                raise ValueError(f"this runner has no volume like {volume}")
        return ["-v", f"{folder}:{path}:{'ro' if read_only else 'rw'}"]

    def claim(self, name):
        """The folder of a persistent volume, writable for fsGroup."""
        folder = self.folder / "volumes" / name
        if not folder.exists():
            folder.mkdir()
            os.chown(folder, 0, 1000)
            folder.chmod(0o2775)
        return folder

    def template(self, role):
        return self.spec["mpiReplicaSpecs"][role]["template"]["spec"]

    def start_worker(self, worker):
        """A worker, waited for until it is ready as its readinessProbe says."""
        run("ip", "-n", worker, "link", "set", "eth0", "up")
        spec = self.template("Worker")
        secret = ["-v", f"{self.folder}/ssh:{self.spec['sshAuthMountPath']}:ro"]
        run(*podman(*self.command(worker, spec, ["--detach", *secret], {"K_MPI_JOB_ROLE": "worker"})))
        (container,) = spec["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        port = ports[container["readinessProbe"]["tcpSocket"]["port"]]
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((self.addresses[worker], port), 1):
                return
            time.sleep(0.05)
        raise RuntimeError(f"{worker} is not ready: {run(*podman('logs', worker), check=False).stderr}")

    def start_deployment(self, name):
        """One pod of a Deployment, at once; whether it is ready is for the caller to find out."""
        run(*podman(*self.command(name, self.deployments[name], ["--detach"])))

    def start_launcher(self):
        """The launcher as a Popen, its output going to folder/launcher.log."""
        added = ["-v", f"{self.folder}/mpi:/etc/mpi:ro", "-v", f"{self.folder}/ssh:{self.spec['sshAuthMountPath']}:ro"]
        env = OPERATOR_ENV | {"OMPI_MCA_orte_set_default_slots": str(self.spec["slotsPerWorker"])}
        command = podman(*self.command(self.launcher, self.template("Launcher"), added, env))
        with open(self.folder / "launcher.log", "ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, disturb=None, timeout=1200):
        """Launchers one after the other until one succeeds or backoffLimit is reached; returns the last exit code.

        disturb: called once with this job while the first launcher runs.
        """
        deadline = time.monotonic() + timeout
        while True:
            process = self.start_launcher()
            try:
                if disturb:
                    disturb(self)
                    disturb = None
                self.attempts.append(process.wait(timeout=deadline - time.monotonic()))
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                self.log = (self.folder / "launcher.log").read_text(errors="replace")
            if self.attempts[-1] == 0 or len(self.attempts) > self.spec["runPolicy"]["backoffLimit"]:
                return self.attempts[-1]
            for worker in self.workers:  # the operator makes a worker that is gone again, under the same name
                if run(*podman("container", "exists", worker), check=False).returncode:
                    self.start_worker(worker)

    def kill(self, pod, silently=False):
        """End a pod at once; silently: as when its node loses power, so that no connection is closed."""
        if silently:
            run("ip", "-n", pod, "link", "set", "eth0", "down")
        run(*podman("kill", "--signal", "KILL", pod))
        while not run(*podman("container", "exists", pod), check=False).returncode:
            time.sleep(0.1)

    def execute(self, pod, *command):
        """A command in a running pod, as kubectl exec."""
        return run(*podman("exec", pod, *command))
