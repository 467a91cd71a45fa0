"""What the bench asks of a system, and what every system needs: processes and templates.

A system's servers are processes inside the hosts' namespaces; its publishers and subscribers are client
connections of the bench itself, each opened inside the namespace of its host and leading to the server
there. So no client crosses an emulated link, and one clock stamps both ends.
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
from typing import Any, Literal, Protocol

import msgspec

from wend.drivers.world import World
from wend.lab.network import Host, Lab
from wend.model.errors import LabError
from wend.model.events import PeerId
from wend.model.units import Nanos

Routes = Literal["shortest", "neighbours"]
Arrive = Callable[[PeerId, bytes, Nanos], None]

START_S = 20.0
STOP_S = 3.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

THIN_TCP = {"tcp_rto_min_us": "50000", "tcp_rto_max_ms": "1000", "tcp_thin_linear_timeouts": "1"}
"""Few, small messages on a long way: retransmit soon (but not before a delayed ACK, 40 ms), and back off little."""


class Field(msgspec.Struct, frozen=True):
    """Where a system is tried."""

    lab: Lab
    world: World
    folder: Path
    """For configurations, logs and stores."""
    arrive: Arrive
    """To be told of every delivery: at which host, what, and when."""


class System(Protocol):
    name: str
    about: str
    """One clause for the report: what it is and how it is set."""
    routes: Routes
    """Whether hosts reach each other over static shortest paths, or only their neighbours."""

    def missing(self) -> str | None:
        """The sentence that a user needs when something is not installed."""
        ...

    def version(self) -> str: ...

    async def start(self, field: Field) -> None:
        """Processes run, clients are connected, subscriptions made; the bench waits for it to converge."""
        ...

    async def publish(self, topic: int, payload: bytes) -> None: ...

    async def stop(self) -> None: ...

    def cpu_s(self) -> float:
        """What its processes have used so far."""
        ...

    def fallen(self) -> list[str]:
        """Processes that ended by themselves."""
        ...


class Processes:
    """The processes of one system, each with a log of its own."""

    def __init__(self) -> None:
        self._running: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def spawn(
        self, field: Field, host: Host, argv: Sequence[str], what: str, **options: Any
    ) -> subprocess.Popen[bytes]:
        label = f"{what}-{host.number}"
        path = field.folder / f"{label}.log"
        with path.open("wb") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **options}
            process: subprocess.Popen[bytes] = field.lab.popen(host.number, list(argv), **options)
        self._running.append((label, process, path))
        return process

    def cpu_s(self) -> float:
        return sum(_cpu_s(process.pid) for _, process, _ in self._running)

    def fallen(self) -> list[str]:
        return [label for label, process, _ in self._running if process.poll() is not None]

    def check(self) -> None:
        """Raise if one has ended, with the last that it said: what it wrote down goes with the lab."""
        for label, process, log in self._running:
            if process.poll() is not None:
                raise LabError(f"{label} ended with code {process.returncode}: {_last_line(log)}")

    async def listening(self, field: Field, host: Host, port: int) -> None:
        """Until a server in this namespace answers on its loopback."""
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up:
            with field.lab.inside(host.number), socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            self.check()
            await asyncio.sleep(0.05)
        raise LabError(f"host {host.number} does not listen on port {port} after {START_S:g} s")

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


def busy_s() -> float:
    """CPU time that this machine has used so far, all cores together."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def tune_tcp(field: Field) -> None:
    """The kernel's settings are per namespace, and the namespaces end with the lab."""
    for host in field.lab.hosts:
        with field.lab.inside(host.number):
            for name, value in THIN_TCP.items():
                with suppress(FileNotFoundError):  # kernels differ in what they let a namespace decide
                    Path(f"/proc/sys/net/ipv4/{name}").write_text(value)


def write_config(field: Field, template: str, name: str, **values: object) -> Path:
    path = field.folder / name
    path.write_text(render(template, **values), encoding="utf-8")
    return path


def render(template: str, **values: object) -> str:
    text = (resources.files("wend.lab.systems") / "configs" / template).read_text(encoding="utf-8")
    return Template(text).substitute({name: str(value) for name, value in values.items()})


def missing_programs(programs: Sequence[str], package: str) -> str | None:
    absent = [
        p for p in programs if shutil.which(p, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/lib/frr") is None
    ]
    return f"{', '.join(absent)} is not installed: apt-get install {package}" if absent else None


def missing_modules(modules: Sequence[str]) -> str | None:
    absent = [m for m in modules if not _installed(m)]
    return f"the Python module {', '.join(absent)} is not installed: pip install 'wend[lab]'" if absent else None


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def said(argv: Sequence[str]) -> str:
    """The first line that a program says about itself."""
    done = subprocess.run(list(argv), capture_output=True, text=True, check=False, timeout=10)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"
