"""The interface of a measured system, and helpers for all systems: processes and configuration templates.

A system's servers are processes in the hosts' namespaces. Its publishers and subscribers are client connections of the
bench process. The bench opens each of them in the namespace of its host, to the server on that host. So no client
connection crosses an emulated link, and one clock measures both ends.
"""

import asyncio
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from wend.drivers.world import World
from wend.lab.address_plan import LabNode
from wend.lab.lab import Lab
from wend.model.errors import LabError
from wend.model.events import PeerId
from wend.model.units import Nanos

Routes = Literal["shortest", "neighbours"]
Arrive = Callable[[PeerId, bytes, Nanos], None]

START_S = 20.0
STOP_S = 3.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

THIN_TCP = {"tcp_rto_min_us": "50000", "tcp_rto_max_ms": "1000", "tcp_thin_linear_timeouts": "1"}
"""TCP settings for few small messages on long links: early retransmission, but after a delayed ACK (40 ms)."""


class RunContext(msgspec.Struct, frozen=True):
    """The lab and workload on which a system runs, and the callback for its deliveries."""

    lab: Lab
    world: World
    folder: Path
    """For configurations, logs and stores."""
    arrive: Arrive
    """The system calls it for every delivery: (host, payload, time)."""


class System(Protocol):
    """A publish/subscribe system that the bench can measure."""

    name: str
    about: str
    """One clause for the report: the system and its configuration."""
    routes: Routes
    """`shortest`: the lab has static routes to every host. `neighbours`: hosts reach only their neighbours."""
    processes: "Processes"
    """All processes that it started."""

    def missing(self) -> str | None:
        """A sentence on the program or module that is not installed; None if everything is."""
        ...

    def version(self) -> str: ...

    async def start(self, context: RunContext) -> None:
        """Start the processes, connect the clients and subscribe. The bench waits for convergence."""
        ...

    async def publish(self, topic: int, payload: bytes) -> None: ...

    async def stop(self) -> None: ...


@runtime_checkable
class CountsData(Protocol):
    """A system that can count its own data packets, because the lab finds no marker in what is encrypted."""

    async def data_packets(self) -> int | None:
        """Data packets that its processes have sent so far. None: they are not encrypted, and the lab counts them."""
        ...


class Processes:
    """The processes of one system, each with its own log file."""

    def __init__(self) -> None:
        self._running: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def spawn(
        self, context: RunContext, host: LabNode, argv: Sequence[str], what: str, **options: Any
    ) -> subprocess.Popen[bytes]:
        label = f"{what}-{host.number}"
        path = context.folder / f"{label}.log"
        with path.open("wb") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **options}
            process: subprocess.Popen[bytes] = context.lab.popen(host.number, list(argv), **options)
        self._running.append((label, process, path))
        return process

    def cpu_s(self) -> float:
        """CPU time so far."""
        return sum(_cpu_s(process.pid) for _, process, _ in self._running)

    def exited(self) -> list[str]:
        """The processes that ended before `stop`."""
        return [label for label, process, _ in self._running if process.poll() is not None]

    def check_running(self) -> None:
        """Raise LabError if a process has ended, with the last line of its log."""
        for label, process, log in self._running:
            if process.poll() is not None:
                raise LabError(f"{label} ended with code {process.returncode}: {_last_line(log)}")

    async def wait_until_listening(self, context: RunContext, host: LabNode, port: int) -> None:
        """Wait until a server in this namespace accepts connections on its loopback."""
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up:
            with context.lab.inside(host.number), socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            self.check_running()
            await asyncio.sleep(0.05)
        raise LabError(f"nothing listens on port {port} of host {host.number} after {START_S:g} s")

    async def stop(self) -> None:
        for _, process, _ in self._running:
            with suppress(ProcessLookupError):
                process.terminate()
        give_up = time.monotonic() + STOP_S
        while any(process.poll() is None for _, process, _ in self._running) and time.monotonic() < give_up:
            await asyncio.sleep(0.05)
        for _, process, _ in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
        self._running.clear()


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def machine_cpu_s() -> float:
    """CPU time that this machine has used so far, all cores together."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty"


def tune_tcp(context: RunContext) -> None:
    """Write `THIN_TCP` to every namespace. The settings disappear with the lab."""
    for host in context.lab.hosts:
        with context.lab.inside(host.number):
            for name, value in THIN_TCP.items():
                with suppress(FileNotFoundError):  # not every kernel has every setting per namespace
                    Path(f"/proc/sys/net/ipv4/{name}").write_text(value)


def write_config(context: RunContext, template: str, name: str, **values: object) -> Path:
    path = context.folder / name
    path.write_text(render_template(template, **values), encoding="utf-8")
    return path


def render_template(template: str, **values: object) -> str:
    text = (resources.files("wend.lab.systems") / "configs" / template).read_text(encoding="utf-8")
    return Template(text).substitute({name: str(value) for name, value in values.items()})


def find_missing_program(programs: Sequence[str], package: str) -> str | None:
    absent = [
        p for p in programs if shutil.which(p, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/lib/frr") is None
    ]
    return f"{', '.join(absent)} is not installed: apt-get install {package}" if absent else None


def find_missing_module(modules: Sequence[str]) -> str | None:
    absent = [m for m in modules if not _is_installed(m)]
    return f"the Python module {', '.join(absent)} is not installed: pip install 'wend[lab]'" if absent else None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def read_first_line(argv: Sequence[str]) -> str:
    """The first line that a program prints."""
    result = subprocess.run(list(argv), capture_output=True, text=True, check=False, timeout=10)
    lines = (result.stdout or result.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"
