"""One peer of a real overlay, as its owner writes it down: a TOML file (`examples/peer.toml`).

What cannot work is found here, before anything is opened, and said in one sentence.
"""

from pathlib import Path

import msgspec

from wend.drivers.live.addresses import Address, check_listen, parse_address
from wend.drivers.live.paths.source import SOURCES
from wend.drivers.strategies import learn
from wend.matching.filters import parse
from wend.model.choices import Covering, Estimator, Redundancy
from wend.model.error_text import reworded
from wend.model.errors import ConfigError, FilterError
from wend.model.events import PeerId
from wend.model.scenario import read_toml
from wend.model.units import MS, Nanos, parse_duration, parse_short
from wend.protocol.config import PeerConfig
from wend.protocol.membership.table import OVERLAYS
from wend.protocol.ports import Neighbour, Started
from wend.protocol.routing import ROUTING, strategy

MAX_PEER_ID = 2**32 - 1
MIN_DETECTION_NS: Nanos = 20 * MS


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a link plays at being, for tests and demonstrations."""

    delay: str = "0ms"
    loss: float = 0.0


class NeighbourEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: PeerId
    address: str
    delay: str = "20ms"
    """The one-way delay to expect; corrected by measurement."""
    reliability: float = 1.0
    shape: Shape | None = None


class PeerFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file's fields, with their defaults."""

    id: PeerId
    listen: str = "127.0.0.1:7701"
    clients: str = "127.0.0.1:7700"
    insecure: bool = False
    neighbours: tuple[NeighbourEntry, ...] = ()
    advertise: tuple[str, ...] = ()

    strategy: str = "dcrd"
    plan: str | None = None
    redundancy: Redundancy = "tight"
    transmissions: int = 1
    detection: str = "160ms"
    estimator: Estimator = "measured"
    monitoring: str = "5s"
    margin: str = "5ms"

    persistency: bool = False
    store: str | None = None
    sync: bool = False
    keep: int = 10_000
    grace: str = "30s"
    """With persistency: how long after its start events wait for clients that subscribe again."""

    overlay: str | None = None
    """Who of the neighbours is linked; None: all."""
    overlay_k: int = 3
    overlay_period: str = "1s"
    paths: str | None = None
    """How the routers on the way to another peer are known: `trace`, `traceroute`, `none`, or a file. None: `none`."""
    paths_age: str = "10min"
    trees: int = 2
    covering: Covering = "covering"
    reliability: float | None = None
    """The target of subscriptions that state none."""
    fails: float = 0.0
    """How likely this peer is down, as its owner knows it: trees lead around those that often are."""

    experiments: bool = False

    def check(self) -> None:
        if not 0 <= self.id <= MAX_PEER_ID:
            raise ConfigError(f"id must lie in 0..{MAX_PEER_ID}, got {self.id}")
        learn(self.strategy)
        traits = strategy(self.strategy).traits
        if self.plan is not None and not traits.follows_plan:
            others = " or ".join(f'"{name}"' for name, each in ROUTING.items() if each.traits.follows_plan)
            raise ConfigError(f"a plan is followed by strategy = {others}, not by {self.strategy!r}")
        if self.overlay is not None and self.overlay not in OVERLAYS:
            raise ConfigError(f"unknown overlay {self.overlay!r}: choose one of {', '.join(OVERLAYS)}")
        if self.overlay_k < 1 or self.trees < 1 or parse_duration(self.overlay_period) < MIN_DETECTION_NS:
            raise ConfigError(
                f"an overlay needs overlay_k and trees of 1 or more and an overlay_period of 20ms or more, got "
                f"{self.overlay_k}, {self.trees} and {self.overlay_period}"
            )
        if self.reliability is not None and not 0.0 < self.reliability <= 1.0:
            raise ConfigError(f"reliability must lie above 0 and up to 1, got {self.reliability}")
        if not 0.0 <= self.fails < 1.0:
            raise ConfigError(f"fails must be 0 or more and below 1, got {self.fails}")
        if self.transmissions < 1 or self.keep < 1:
            raise ConfigError(f"transmissions and keep start at 1, got {self.transmissions} and {self.keep}")
        if parse_short(self.detection, "detection") < MIN_DETECTION_NS + parse_short(self.margin, "margin"):
            raise ConfigError(f"detection {self.detection} is too short: the margin of {self.margin} needs 20 ms more")
        if parse_duration(self.monitoring) <= 0:
            raise ConfigError(f"monitoring must be above 0, got {self.monitoring}")
        parse_duration(self.grace)
        check_listen(parse_address(self.listen), self.insecure)
        check_listen(parse_address(self.clients), self.insecure)
        if parse_duration(self.paths_age) <= 0:
            raise ConfigError(f"paths_age must be above 0, got {self.paths_age}")
        self._check_neighbours()
        for text in self.advertise:
            try:
                parse(text)
            except FilterError as error:
                raise ConfigError(f"advertise: {error}") from None

    def _check_neighbours(self) -> None:
        ids = [n.id for n in self.neighbours]
        if len({*ids, self.id}) != len(ids) + 1:
            raise ConfigError(f"peer {self.id} and its neighbours need different ids, got {ids}")
        for n in self.neighbours:
            parse_address(n.address)
            if not 0 <= n.id <= MAX_PEER_ID or parse_short(n.delay, "delay") <= 0 or not 0 < n.reliability <= 1:
                raise ConfigError(f"neighbour {n.id} needs a delay above 0 and a reliability in 0..1")
            if n.shape is not None and not (parse_short(n.shape.delay, "delay") >= 0 <= n.shape.loss <= 1):
                raise ConfigError(f"neighbour {n.id}: a shape needs a loss in 0..1, got {n.shape.loss}")

    # ---------------------------------------------------------------- what the driver needs

    @property
    def listen_address(self) -> Address:
        return parse_address(self.listen)

    @property
    def clients_address(self) -> Address:
        return parse_address(self.clients)

    def peer_config(self, incarnation: int) -> PeerConfig:
        return PeerConfig(
            peer=self.id,
            incarnation=incarnation,
            strategy=self.strategy,
            transmissions=self.transmissions,
            estimator=self.estimator,
            monitoring_ns=parse_duration(self.monitoring),
            margin_ns=parse_duration(self.margin),
            persistency=self.persistency,
            stores=self.store is not None,
            retry_limit=self.keep,
            grace_ns=parse_duration(self.grace),
            redundancy=self.redundancy,
            detection_ns=parse_duration(self.detection),
            membership=self.overlay,
            membership_k=self.overlay_k,
            membership_period_ns=parse_duration(self.overlay_period),
            trees=self.trees,
            covering=self.covering,
            trace_paths=self.paths not in (None, "none"),
            reliability=self.reliability,
            failure_probability=self.fails,
        )

    def started(self) -> Started:
        neighbours = (Neighbour(n.id, parse_duration(n.delay), n.reliability) for n in self.neighbours)
        return Started(neighbours=tuple(neighbours), advertisements=self.advertise)


def load(path: Path, *, insecure: bool = False) -> PeerFile:
    """`insecure` is the flag of the command line: it adds to what the file says."""
    fields = read_toml(path)
    try:
        found = msgspec.convert(fields, PeerFile)
        if insecure:
            found = msgspec.structs.replace(found, insecure=True)
        found.check()
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {reworded(error, PeerFile)}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    # Beside the file that names them, wherever the process was started.
    beside = {
        name: str(path.parent / file)
        for name in ("store", "plan", "paths")
        if (file := getattr(found, name)) is not None and not (name == "paths" and file in SOURCES)
    }
    return msgspec.structs.replace(found, **beside)
