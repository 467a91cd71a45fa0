"""A cell: the settings of one measured run, and its results.

The settings alone determine the world: one seed draws the topology and the workload, another the failures. So all
systems meet the same failures. The bench stores a finished cell in a file named after the hash of its settings.
"""

import hashlib

import msgspec

from wend.drivers.scenarios import Scenario
from wend.drivers.world import World, build_world
from wend.lab.bench.delivery_log import MIN_BYTES, DeliveryMetrics, LateDelivery
from wend.lab.systems.system_table import SYSTEMS
from wend.model.errors import ConfigError
from wend.model.units import Nanos
from wend.topology import faults

METHOD = 3
"""The version of measurement and file format. The bench does not mix cells of different methods."""
LEAD_S = 1.0
"""Time from the end of the warm-up to the first publication and failure."""


class CellSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a cell. Their hash is the cell's name."""

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
    """A publication with a longer delay counts as lost."""

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
            delay=[f"{each}ms" for each in self.delay_ms],
            topics=self.topics,
            rate=self.rate_hz,
            pace="moving",
            factor=self.factor,
            payload_bytes=self.size_bytes,
            pf=self.pf,
            seed=self.topology_seed,
            warmup=f"{LEAD_S}s",
            duration=f"{self.duration_s}s",
            drain=f"{self.cutoff_s}s",
        )

    def world(self) -> World:
        """The topology and workload by one seed, with the failures by the other."""
        world = build_world(self.scenario())
        world.faults = faults.PerSecond(
            len(world.overlay.links), self.pf, begin=world.begin_ns, end=world.end_ns, seed=self.failure_seed
        )
        return world


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Packets that the system put on links, including those that a link dropped because it was down."""

    data: int
    """Packets with publications, until the cut-off."""
    control: int
    """All other packets, while publishers publish."""
    bytes: int


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One finished cell: settings and results."""

    settings: CellSettings
    metrics: DeliveryMetrics
    oracle: DeliveryMetrics
    oracle_packets: int
    canary: DeliveryMetrics
    traffic: Traffic
    cpu_share: float
    """CPU of all processes of the system while publishers publish, as a share of one core."""
    others_share: float | None = None
    """CPU of all processes outside the lab in the same time, as a share of one core."""
    discards: list[float]
    """The canary's gap in each discarded window."""
    kept_anyway: bool
    """The bench accepted the last allowed window although its canary was late."""
    exited: list[str]
    """Processes of the system that ended before the bench stopped them."""
    converged_s: float
    version: str
    machine: str
    outages: list[tuple[int, Nanos, Nanos]]
    """The outages in the lab's log. Time 0 is the start of the world; publishing begins at `LEAD_S`."""
    late: list[LateDelivery]
    """The first late deliveries, in times of the world."""
    canary_late: list[LateDelivery]
