"""A wide-area network on one machine: each host a namespace, each link two TUN devices and a delay queue between.

    with Lab.up(overlay, name="trial") as lab:
        with lab.inside(0):
            here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)   # a socket of host 0
        lab.popen(1, ["nats-server", ...])                            # a process on host 1
        lab.schedule([(link, 1 * SECOND, 2 * SECOND)], time.monotonic_ns())
        lab.counters()

The overlay's peers are the nodes, by the same numbers, and its links the links. All times are CLOCK_MONOTONIC,
`time.monotonic_ns()`. Everything goes away with `close`, and what a crash left with `clean`.
"""

import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

from wend.lab import emulator, namespaces, state
from wend.lab.addresses import Host, Way, nodes, shortest_routes
from wend.lab.control import FAILURES, MARKER, Control, Counter, Failure, Status, outages, read_failures
from wend.lab.state import Removed, clean
from wend.model.errors import LabError
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.topology.faults import Intervals, Outage
from wend.topology.graph import Overlay

__all__ = ["Counter", "Failure", "Host", "Lab", "Removed", "Routes", "Status", "Way", "clean"]

Routes = Literal["shortest", "neighbours"]
_TUN = Path("/dev/net/tun")
_EPOCH = "epoch"
_ENDING_S = 2.0


class Lab:
    """A lab that is up."""

    def __init__(self, known: state.State) -> None:
        """Of a lab that exists; `up` makes one, `attach` finds one."""
        self.name = known.name
        self.overlay = known.overlay
        self.nodes = known.nodes
        """Hosts and routers, by number."""
        self.hosts = tuple(node for node in known.nodes if not node.router)
        """Without routers the same as `nodes`."""
        self.folder = state.folder_of(known.name)
        self._control = Control(self.folder)
        self._processes: list[subprocess.Popen[Any]] = []
        self._emulator: subprocess.Popen[bytes] | None = None

    @classmethod
    def up(
        cls,
        overlay: Overlay,
        *,
        name: str = state.DEFAULT,
        routes: Routes = "shortest",
        seed: int = 1,
        loss: float | None = None,
        rate_bps: int = 0,
        queue_bytes: int = emulator.QUEUE_BYTES,
        routers: Iterable[PeerId] = (),
    ) -> "Lab":
        """Make a network; when this returns, packets flow. If it fails, nothing of it is left.

        `seed` decides which packets are lost, and `loss` takes the place of the links' own. With a rate, a packet
        that finds more than `queue_bytes` before it is dropped; without one (0) a link takes everything at once.
        """
        if routes not in get_args(Routes):
            raise LabError(f"routes are {' or '.join(get_args(Routes))}, not {routes!r}")
        if rate_bps < 0 or queue_bytes < namespaces.MTU:
            raise LabError(f"a rate is 0 or more and a queue holds a packet of {namespaces.MTU} bytes at least")
        network = nodes(name, overlay, routers)
        ways = shortest_routes(overlay, network) if routes == "shortest" else [[] for _ in network]
        plan = emulator.plan(overlay, network, seed=seed, loss=loss, rate_bps=rate_bps, queue_bytes=queue_bytes)
        _require_system()
        with state.making(name) as folder:
            program = emulator.build(state.PROGRAMS)
            (folder / "plan").write_text(plan)
            namespaces.make(host.namespace for host in network)
            for host in network:
                namespaces.prepare(host)
            process = emulator.start(program, folder)
            for host in network:
                namespaces.connect(host, ways[host.number])
            known = state.State(name, overlay.peers, overlay.links, overlay.names, network, routes, seed)
            state.save(folder, known)
            lab = cls(known)
            lab._emulator = process
            return lab

    @classmethod
    def attach(cls, name: str = state.DEFAULT) -> "Lab":
        """A lab that another process has made."""
        return cls(state.load(name))

    # ------------------------------------------------------------ on the hosts

    def popen(self, host: PeerId, argv: Sequence[str], **kw: Any) -> "subprocess.Popen[Any]":
        """A process on a host; it ends with the lab at the latest. Its pid is the program's own."""
        process = subprocess.Popen(namespaces.command(self._node(host).namespace, argv), **kw)
        self._processes = [p for p in self._processes if p.poll() is None] + [process]
        return process

    @contextmanager
    def inside(self, host: PeerId) -> Iterator[None]:
        """Within, this thread is on the host: sockets made here belong to it for as long as they live."""
        with namespaces.inside(self._node(host).namespace):
            yield

    # ------------------------------------------------------------ the links

    def control(self, command: str) -> dict[str, Any]:
        """One command of the emulator, as a line of text, and its answer."""
        return self._control.ask(command)

    def cut(self, link: int) -> None:
        """Down until healed; packets in flight still arrive."""
        self._control.ask(f"cut {link}")

    def heal(self, link: int) -> None:
        """Up now, also out of a scheduled outage."""
        self._control.ask(f"heal {link}")

    def schedule(self, planned: Iterable[Outage], at_ns: Nanos) -> None:
        """Outages (link, from, until) counted from `at_ns`; they take the place of those scheduled before."""
        wanted = sorted(planned)
        for link, start, _ in wanted:
            if not 0 <= link < len(self.overlay.links) or start < 0:
                raise LabError(f"there is no link {link}, or its outage begins before the schedule ({start} ns)")
        self._control.schedule(Intervals(len(self.overlay.links), wanted).outages(), at_ns)
        (self.folder / _EPOCH).write_text(str(at_ns))

    def unschedule(self) -> None:
        """Forget what was scheduled; what is down by schedule is up again."""
        self._control.ask("unschedule")

    def failures(self) -> list[Failure]:
        """Every change of a link so far, in order. Read it before `close`: the log goes with the folder."""
        return read_failures(self.folder / FAILURES)

    def outages(self) -> list[Outage]:
        """What failed so far, counted from the start of the last schedule, or of the log where there was none."""
        log = self.failures()
        try:
            epoch = int((self.folder / _EPOCH).read_text())
        except FileNotFoundError:
            epoch = log[0].at_ns if log else 0
        return outages(log, epoch, max(epoch, time.monotonic_ns()))

    # ------------------------------------------------------------ the figures

    def status(self) -> Status:
        return self._control.status()

    def counters(self) -> list[Counter]:
        """Since the start or the last `reset`, by link, direction and port."""
        return self._control.counters()

    def reset(self) -> None:
        self._control.ask("reset")

    def mark(self, marker: bytes = MARKER) -> None:
        """From now on packets that hold these bytes count as data."""
        self._control.ask(f"mark {marker.hex()}")

    # ------------------------------------------------------------ the end

    def close(self) -> Removed:
        """Take the lab down: processes, emulator, namespaces, folder. Safe to repeat."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + _ENDING_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        self._control.close()
        removed = state.remove(self.name)
        for process in [*self._processes, *([self._emulator] if self._emulator else [])]:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_S)
        return removed

    def __enter__(self) -> "Lab":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _node(self, number: PeerId) -> Host:
        if not 0 <= number < len(self.nodes):
            raise LabError(f"there is no host {number}: lab {self.name!r} has {len(self.nodes)} nodes, from 0")
        return self.nodes[number]


def _require_system() -> None:
    state.require_root()
    if not _TUN.exists():
        raise LabError(f"a lab needs TUN devices, and this system has no {_TUN}")
    for program in ("ip", "nsenter", "cc"):
        namespaces.require(program)
