"""A cell: everything that decides one measured run, and everything that came of it.

Settings draw the world by themselves: the topology and the workload from one seed, the failures from another, so
that systems meet the very same ones. A cell is a file when it is finished; its name is the hash of its settings.
"""

import hashlib

import msgspec

from wend.drivers.world import World, build
from wend.lab.systems.table import SYSTEMS
from wend.lab.workload import MIN_BYTES, Figures, Late
from wend.model.errors import ConfigError
from wend.model.scenario import Scenario
from wend.model.units import Nanos
from wend.topology import faults

METHOD = 2
"""Cells of another method are not compared with these."""
LEAD_S = 1.0
"""From the end of the warm-up to the first publication and failure."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides a cell; its hash is the cell's name."""

    system: str
    topology_seed: int = 1
    failure_seed: int = 1
    pf: float = 0.06
    rate_hz: float = 1.0
    size_bytes: int = 64
    peers: int = 20
    degree: int = 5
    delay_ms: tuple[float, float] = (10.0, 50.0)
    topics: int = 10
    factor: float = 3.0
    duration_s: float = 60.0
    cutoff_s: float = 10.0
    """A publication that takes longer than this counts as lost."""

    def __post_init__(self) -> None:
        if self.system not in SYSTEMS:
            raise ConfigError(f"unknown system {self.system!r}: choose from {', '.join(SYSTEMS)}")
        if self.size_bytes < MIN_BYTES:
            raise ConfigError(f"a publication needs at least {MIN_BYTES} bytes, got {self.size_bytes}")
        self.scenario()  # checks the rest

    def key(self) -> str:
        text = msgspec.json.encode((METHOD, msgspec.structs.asdict(self)), order="sorted")
        return hashlib.sha256(text).hexdigest()[:16]

    def scenario(self) -> Scenario:
        return Scenario(
            topology="regular",
            peers=self.peers,
            degree=self.degree,
            delay_ms=self.delay_ms,
            topics=self.topics,
            rate_hz=self.rate_hz,
            pace="moving",
            factor=self.factor,
            payload_bytes=self.size_bytes,
            pf=self.pf,
            seed=self.topology_seed,
            warmup_s=LEAD_S,
            duration_s=self.duration_s,
            drain_s=self.cutoff_s,
        )

    def world(self) -> World:
        """The workload and, apart from it, the failures, each by its own seed."""
        world = build(self.scenario())
        world.faults = faults.PerSecond(
            len(world.overlay.links), self.pf, begin=world.begin_ns, end=world.end_ns, seed=self.failure_seed
        )
        return world


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Packets put on links, the canary's apart. A packet that a down link swallowed was put there too."""

    data: int
    """Packets that hold publications, until the cut-off."""
    control: int
    """All others, while publishers publish."""
    bytes: int


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    figures: Figures
    oracle: Figures
    oracle_packets: int
    canary: Figures
    traffic: Traffic
    cpu_share: float
    """Of one core, all processes of the system together, while publishers publish."""
    others_share: float | None = None
    """Of one core, what had nothing to do with the lab, while publishers publish: how idle the machine was."""
    discards: list[float]
    """The canary's gaps of the windows that were thrown away."""
    kept_anyway: bool
    """The last window allowed was kept although its canary was late."""
    fallen: list[str]
    converged_s: float
    version: str
    machine: str
    outages: list[tuple[int, Nanos, Nanos]]
    """As they were, by the lab's log; 0 is the start of the world, publishing begins at `LEAD_S`."""
    late: list[Late]
    """The first ones, with times of the world."""
    canary_late: list[Late]
