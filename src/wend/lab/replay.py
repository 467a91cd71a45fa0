"""The lab's windows again, in the simulator: the same topology, workload and failure log, under virtual time.

What the simulator proves is what the wire does, or this is where it shows: the two on-time ratios of a window should
agree within a point. The peers are configured as in the lab, so what is left are the machine (scheduling, the
emulator's lateness) and the moments at which hellos happen to fall.
"""

import msgspec

from wend.drivers.sim.detection import bfd_hz
from wend.drivers.sim.run import play
from wend.drivers.world import World
from wend.lab.cell import Cell
from wend.model.units import MS, SECOND, Nanos, seconds
from wend.protocol.config import LinkSettings
from wend.topology.faults import Intervals
from wend.topology.graph import Overlay

AS_SHIPPED = LinkSettings()
STRATEGIES = {
    "wend-dcrd": ("dcrd", "tight"),
    "wend-none": ("adaptive", "none"),
    "wend": ("adaptive", "tight"),
    "wend-free": ("adaptive", "free"),
    "udp-tree": ("d-tree", "tight"),
}
"""What the simulator can play of the lab's systems: strategy and redundancy. A tree needs no ACKs to be a tree."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A window in the lab and in the simulator. Ratios are of what was expected."""

    cell: Cell
    on_time: float
    delivery: float
    data: float
    """Data packets per expected delivery."""
    known_ms: float | None
    """From the beginning of an outage until an end of the link knew of it, on average; None where nobody looks."""
    bfd_hz: tuple[float, float] | None
    """What BFD would send to know as soon, with detection multipliers of 2 and 3."""

    @property
    def difference(self) -> float:
        """Points by which the lab was better."""
        return 100 * (self.cell.figures.on_time_ratio - self.on_time)


def replay(cell: Cell) -> Replay | None:
    """None where the simulator does not know the system."""
    if cell.settings.system not in STRATEGIES:
        return None
    strategy, redundancy = STRATEGIES[cell.settings.system]
    built = cell.settings.world()
    scenario = built.scenario.with_(
        strategy=strategy,
        redundancy=redundancy,
        persistency=cell.settings.system.startswith("wend"),
        estimator="measured",
        monitor_s=AS_SHIPPED.monitoring_ns / SECOND,
        margin_ms=AS_SHIPPED.margin_ns / MS,
    )
    world = World(scenario, built.overlay)
    world.faults = Intervals(len(world.overlay.links), [(link, a, b) for link, a, b in cell.outages])
    outcome = play(world)
    expected = max(1, outcome.summary.expected)
    delays = outcome.trace.deliveries.column("delay_ns")
    cutoff: Nanos = seconds(cell.settings.cutoff_s)
    known = outcome.summary.outage_known_ms.mean
    return Replay(
        cell=cell,
        on_time=outcome.summary.on_time,
        delivery=sum(delay <= cutoff for delay in delays if isinstance(delay, int)) / expected,
        data=outcome.summary.transmissions / expected,
        known_ms=known,
        bfd_hz=None if known is None else _beside(world.overlay, known),
    )


def _beside(overlay: Overlay, known_ms: float) -> tuple[float, float] | None:
    two, three = bfd_hz(overlay, known_ms, 2), bfd_hz(overlay, known_ms, 3)
    return None if two is None or three is None else (two, three)
