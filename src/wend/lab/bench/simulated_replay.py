"""Replays the lab's windows in the simulator, with the same topology, workload and failure log.

This validates the simulator against real sockets: the two on-time ratios of a window should agree within one point.
The peers have the same configuration in both. The remaining differences are the machine (scheduling, late packets in
the emulator) and the times at which peers happen to send hellos.
"""

import msgspec

from wend.drivers.recorded import LIVE_DEFAULTS
from wend.drivers.sim.detection import compute_bfd_rate_hz
from wend.drivers.sim.run import play_world
from wend.drivers.world import World
from wend.lab.bench.cell import Cell
from wend.model.units import Nanos, seconds
from wend.topology.faults import Intervals
from wend.topology.graph import Overlay

STRATEGIES = {
    "wend-dcrd": ("dcrd", "tight"),
    "wend-none": ("adaptive", "none"),
    "wend": ("adaptive", "tight"),
    "wend-free": ("adaptive", "free"),
    "wend-sealed": ("adaptive", "tight"),
    "udp-tree": ("d-tree", "tight"),
}
"""The systems that the simulator can replay, with strategy and redundancy. A tree needs no ACKs to compare."""


class CellReplay(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one window in the simulator, beside the lab's. Ratios are shares of the expected deliveries."""

    cell: Cell
    on_time: float
    delivery: float
    data: float
    """Data packets per expected delivery."""
    known_ms: float | None
    """Mean time from the start of an outage until one end of the link detects it; None without failure detection."""
    bfd_hz: tuple[float, float] | None
    """Packets per second with which BFD would detect as soon, for detection multipliers 2 and 3."""

    @property
    def difference(self) -> float:
        """By how many percentage points the lab's on-time ratio is higher."""
        return 100 * (self.cell.metrics.on_time_ratio - self.on_time)


def replay_cell(cell: Cell) -> CellReplay | None:
    """Simulate a window again; None if the simulator does not have the system."""
    if cell.settings.system not in STRATEGIES:
        return None
    strategy, redundancy = STRATEGIES[cell.settings.system]
    built = cell.settings.world()
    persistence = cell.settings.system.startswith("wend")
    scenario = built.scenario.with_values(
        {"strategy": strategy, "redundancy": redundancy, "persistence": persistence, **LIVE_DEFAULTS}
    )
    world = World(scenario, built.overlay)
    world.faults = Intervals(len(world.overlay.links), [(link, a, b) for link, a, b in cell.outages])
    outcome = play_world(world)
    expected = max(1, outcome.summary.expected)
    delays = outcome.trace.deliveries.column("delay_ns")
    cutoff: Nanos = seconds(cell.settings.cutoff_s)
    known_ms = outcome.summary.outage_known_ms.mean
    return CellReplay(
        cell=cell,
        on_time=outcome.summary.on_time,
        delivery=sum(delay <= cutoff for delay in delays if isinstance(delay, int)) / expected,
        data=outcome.summary.data_packets / expected,
        known_ms=known_ms,
        bfd_hz=None if known_ms is None else _bfd_range(world.overlay, known_ms),
    )


def _bfd_range(overlay: Overlay, known_ms: float) -> tuple[float, float] | None:
    two, three = compute_bfd_rate_hz(overlay, known_ms, 2), compute_bfd_rate_hz(overlay, known_ms, 3)
    return None if two is None or three is None else (two, three)
