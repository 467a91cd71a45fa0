"""An emulated wide-area network: each host is a namespace, each link two TUN devices and a delay queue.

    with Lab.up(overlay, name="trial") as lab:
        with lab.inside(0):
            here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)   # a socket on host 0
        lab.popen(1, ["nats-server", ...])                            # a process on host 1
        lab.schedule([(link, 1 * SECOND, 2 * SECOND)], time.monotonic_ns())
        lab.counters()

The overlay's peers become the nodes, with the same numbers, and its links the links. All times are CLOCK_MONOTONIC,
`time.monotonic_ns()`. `close` removes the lab; `clean` removes the remains of a crashed one.
"""

import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Unpack, get_args

from wend.lab import emulator, lab_state, namespaces
from wend.lab.address_plan import LabNode, find_shortest_routes, make_nodes
from wend.lab.emulator_control import (
    FAILURES,
    EmulatorClient,
    EmulatorStatus,
    LinkChange,
    LinkCounter,
    outages,
    read_failures,
)
from wend.lab.lab_state import RemovedLabs
from wend.model.errors import LabError
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.topology.faults import Intervals, Outage
from wend.topology.graph import Overlay

Routes = Literal["shortest", "neighbours"]
TUN = Path("/dev/net/tun")
_EPOCH = "epoch"
ENDING_S = 2.0
"""How long `close` waits for processes after SIGTERM, before it kills them."""


class Lab:
    """A running lab."""

    def __init__(self, state: lab_state.LabState) -> None:
        """Use `up` to create a lab and `attach` to find one."""
        self.name = state.name
        self.overlay = state.overlay
        self.nodes = state.nodes
        """Hosts and routers, by number."""
        self.hosts = tuple(node for node in state.nodes if not node.router)
        """The nodes without the routers."""
        self.folder = lab_state.lab_folder(state.name)
        self._control = EmulatorClient(self.folder)
        self._processes: list[subprocess.Popen[Any]] = []
        self._emulator: subprocess.Popen[bytes] | None = None

    @classmethod
    def up(
        cls,
        overlay: Overlay,
        *,
        name: str = lab_state.DEFAULT,
        routes: Routes = "shortest",
        routers: Iterable[PeerId] = (),
        **settings: Unpack[emulator.EmulatedLinkSettings],
    ) -> "Lab":
        """Create a network. On return, packets flow. If it fails, it removes everything that it created."""
        if routes not in get_args(Routes):
            raise LabError(f"routes are {' or '.join(get_args(Routes))}, not {routes!r}")
        network = make_nodes(name, overlay, routers)
        tables = find_shortest_routes(overlay, network) if routes == "shortest" else [[] for _ in network]
        plan = emulator.write_plan(overlay, network, **settings)
        _check_system()
        with lab_state.new_lab_folder(name) as folder:
            program = emulator.build_emulator(lab_state.PROGRAMS)
            (folder / "plan").write_text(plan)
            namespaces.make_namespaces(host.namespace for host in network)
            for host in network:
                namespaces.write_kernel_settings(host)
            process = emulator.start_emulator(program, folder)
            for host in network:
                namespaces.configure_devices(host, tables[host.number])
            state = lab_state.LabState(name, overlay.peers, overlay.links, overlay.names, network)
            lab_state.save_state(folder, state)
            lab = cls(state)
            lab._emulator = process
            return lab

    @classmethod
    def attach(cls, name: str = lab_state.DEFAULT) -> "Lab":
        """A lab that another process created."""
        return cls(lab_state.load_state(name))

    # ------------------------------------------------------------ hosts

    def popen(self, host: PeerId, argv: Sequence[str], **kw: Any) -> "subprocess.Popen[Any]":
        """Start a process on a host. `close` ends it. Its pid is that of the program itself."""
        process = subprocess.Popen(namespaces.wrap_command(self._node(host).namespace, argv), **kw)
        self._processes = [p for p in self._processes if p.poll() is None] + [process]
        return process

    @contextmanager
    def inside(self, host: PeerId) -> Iterator[None]:
        """Move this thread to the host, and back at the end. Sockets that it opens meanwhile stay on the host."""
        with namespaces.inside(self._node(host).namespace):
            yield

    # ------------------------------------------------------------ links

    def cut(self, link: int) -> None:
        """Take a link down until `heal`. Packets in flight still arrive."""
        self._control.ask(f"cut {link}")

    def heal(self, link: int) -> None:
        """Bring a link up, even during a scheduled outage."""
        self._control.ask(f"heal {link}")

    def schedule(self, planned: Iterable[Outage], at_ns: Nanos) -> None:
        """Replace the schedule by outages (link, from, until). Their times count from `at_ns`."""
        ordered = sorted(planned)
        for link, start, _ in ordered:
            if not 0 <= link < len(self.overlay.links) or start < 0:
                raise LabError(f"there is no link {link}, or its outage starts before the schedule ({start} ns)")
        self._control.schedule(Intervals(len(self.overlay.links), ordered).outages(), at_ns)
        (self.folder / _EPOCH).write_text(str(at_ns))

    def clear_schedule(self) -> None:
        """Remove the schedule. Links that are down by schedule come up."""
        self._control.ask("unschedule")

    def failures(self) -> list[LinkChange]:
        """Every change of a link so far, in order. Read it before `close`, which removes the log."""
        return read_failures(self.folder / FAILURES)

    def outages(self) -> list[Outage]:
        """The outages so far. Times count from the start of the last schedule, or from the first change without one."""
        log = self.failures()
        try:
            epoch = int((self.folder / _EPOCH).read_text())
        except FileNotFoundError:
            epoch = log[0].at_ns if log else 0
        return outages(log, epoch, max(epoch, time.monotonic_ns()))

    # ------------------------------------------------------------ counters

    def status(self) -> EmulatorStatus:
        return self._control.status()

    def counters(self) -> list[LinkCounter]:
        """Packets since the start or the last `reset`, by link, direction and port."""
        return self._control.counters()

    def reset_counters(self) -> None:
        self._control.ask("reset")

    # ------------------------------------------------------------ removal

    def close(self) -> RemovedLabs:
        """Remove the lab: processes, emulator, namespaces and folder. A second call does nothing."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + ENDING_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        self._control.close()
        removed = lab_state.remove_lab(self.name)
        for process in [*self._processes, *([self._emulator] if self._emulator else [])]:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)
        return removed

    def __enter__(self) -> "Lab":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _node(self, number: PeerId) -> LabNode:
        if not 0 <= number < len(self.nodes):
            raise LabError(f"there is no host {number}: lab {self.name!r} has {len(self.nodes)} nodes, from 0")
        return self.nodes[number]


def _check_system() -> None:
    lab_state.check_root()
    if not TUN.exists():
        raise LabError(f"a lab needs TUN devices, and this system has no {TUN}")
    for program in ("ip", "nsenter", "cc"):
        namespaces.find_program(program)
