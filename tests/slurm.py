"""A Slurm cluster on this machine: munged, slurmctld and a slurmd per node, run from a temporary folder.

Nothing of the system is read or written: no systemd, no /etc/slurm, no cgroups. GPUs are files that Slurm counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "srun",
    "squeue",
    "scontrol",
    "scancel",
    "sinfo",
)
NODES = {"cpu1": 0, "gpu1": 1, "gpu2": 2}
"""GPUs by node."""
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_MARK = "KERNEL_LADDER_CLUSTER"  # in the environment of every process of a cluster
_PATIENCE_S = 30.0

CONFIGURATION = """
ClusterName=ladder
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
# Nodes have more cores than this machine.
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/finished
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=6
KillWait=2
MinJobAge=600
"""


def why_no_slurm() -> str | None:
    """Why no cluster can be started here, or run what snakemake submits, or None."""
    if " " in sys.executable:
        return "snakemake's Slurm plugin does not quote the path of Python, which has a space here"
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"no {', '.join(missing)} (Debian: slurm-wlm and munge)" if missing else None


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def wait_for(
    what: str, true: Callable[[], object], seconds: float = _PATIENCE_S
) -> None:
    """Wait until something is true, and fail after some time."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, f"waited {seconds:g} s for {what}"
        time.sleep(0.1)


@dataclass
class Cluster:
    """A running cluster. Jobs of those who run their commands in its `environment` go there."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What processes need in order to use the cluster."""
        path = f"{self.folder / 'bin'}:{_PATH}"
        return {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": path,
            _MARK: str(self.folder),
        }

    def ask(self, *command: str, check: bool = True) -> str:
        """What a command of Slurm prints."""
        given = {**os.environ, **self.environment}
        done = subprocess.run(
            command, env=given, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0 or not check, (command, done.stdout, done.stderr)
        return done.stdout

    def jobs(self) -> list[dict[str, str]]:
        """All jobs that the controller remembers, with their fields as scontrol shows them."""
        text = self.ask("scontrol", "--oneliner", "show", "jobs", "--detail")
        return [
            dict(re.findall(r"(\S+?)=(\S*)", line))
            for line in text.splitlines()
            if "JobId=" in line
        ]

    # Life and death.

    def start(self) -> None:
        """Start it. Fails with the logs where it does not come up."""
        try:
            self._start()
        except BaseException as error:
            logs = "\n".join(
                f"{log.name}: {log.read_text()}" for log in self.folder.rglob("*.log")
            )
            self.stop()
            raise AssertionError(
                f"the cluster does not start: {error}\n{logs[-8000:]}"
            ) from error

    def _start(self) -> None:
        # Nobody but we and our processes read in here; munged and others insist on it.
        for name in (
            "munge",
            "state",
            "bin",
            "gpus",
            *(f"spool-{node}" for node in NODES),
        ):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge/key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        port, *ports = _free_ports(1 + len(NODES))
        host = socket.gethostname()
        user = getpass.getuser()
        text = CONFIGURATION.format(
            folder=self.folder, host=host.partition(".")[0], user=user, port=port
        )
        gres = ["AutoDetect=off"]
        for (node, gpus), own_port in zip(NODES.items(), ports, strict=True):
            text += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={own_port} "
            text += f"CPUs=32 RealMemory=256000 Weight={1 + gpus}{f' Gres=gpu:{gpus}' if gpus else ''}\n"
            for number in range(gpus):
                (self.folder / "gpus" / f"{node}-{number}").symlink_to("/dev/null")
            if gpus:
                files = (
                    self.folder / "gpus" / f"{node}-[0-{gpus - 1}]"
                    if gpus > 1
                    else self.folder / "gpus" / f"{node}-0"
                )
                gres.append(f"NodeName={node} Name=gpu File={files}")
        text += "PartitionName=all Nodes=ALL Default=YES PriorityTier=1 State=UP\n"
        text += "PartitionName=urgent Nodes=ALL PriorityTier=2 State=UP\n"
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text("\n".join([*gres, ""]))
        # The executor of snakemake's job steps forgets where the configuration is.
        srun = self.folder / "bin/srun"
        real = shutil.which("srun", path=_PATH)
        srun.write_text(
            f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {real} "$@"\n'
        )
        srun.chmod(0o755)

        munge = self.folder / "munge"
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "seed")]
        options = [*files, f"--log-file={munge}/munged.log", f"--socket={munge}/socket"]
        self._daemon("munged", "--foreground", "--force", *options)
        wait_for("munge", (munge / "socket").exists)
        self._daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node, name=node)
        wait_for(
            "the nodes",
            lambda: (
                set(self.ask("sinfo", "-h", "-o", "%T", check=False).split())
                == {"idle"}
            ),
        )

    def _daemon(self, program: str, *arguments: str, name: str | None = None) -> None:
        command = [str(shutil.which(program, path=_PATH)), *arguments]
        log = self.folder / f"{name or program}.out.log"
        with log.open("wb") as out:
            self.daemons[name or program] = subprocess.Popen(
                command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def fail_node(self, node: str) -> None:
        """Have a node go down without a word: all its processes are killed."""
        self.daemons[node].kill()
        self.daemons.pop(node).wait()
        _kill(self.processes(f"SLURMD_NODENAME={node}"))

    def processes(self, *more: str) -> list[int]:
        """Every process of the cluster, its jobs among them, that has `more` in its environment as well."""
        marks = {entry.encode() for entry in (f"{_MARK}={self.folder}", *more)}
        found = list[int]()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if marks <= {*path.read_bytes().split(b"\0")}:
                    found.append(int(path.parent.name))
        return found

    def stop(self) -> None:
        """End all of it, whatever state it is in."""
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait(timeout=5)
        self.daemons.clear()
        until = time.monotonic() + 10
        # A job may start a process meanwhile.
        while (left := self.processes()) and time.monotonic() < until:
            _kill(left)
            time.sleep(0.1)


def _kill(processes: Sequence[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster in a temporary folder of its own; none of its processes outlives it."""
    # Short: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(
        prefix="ladder-slurm-", ignore_cleanup_errors=True
    ) as name:
        cluster = Cluster(Path(name).resolve())
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
