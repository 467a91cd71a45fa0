"""The configuration of one peer of a real overlay: a TOML file (`examples/peer.toml`).

This module declares the driver's own settings; every other key of the file is a setting of the peer. The checks find
mistakes before anything is opened.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import msgspec

from wend.drivers.live.access.grants import Grant
from wend.drivers.live.addressing.addresses import Address, check_listen_address, parse_address, resolve_address
from wend.drivers.live.logs.settings import EventLogEntry
from wend.drivers.live.paths.source import NONE, SOURCES
from wend.drivers.live.transport.multicast import AUTO, MulticastOptions, check_interface, parse_multicast
from wend.drivers.settings import ByName, Configuration
from wend.matching.filters import parse
from wend.model.choices import PluginChoices
from wend.model.errors import ConfigError, FilterError
from wend.model.events import PeerId
from wend.model.scenario import read_toml
from wend.model.settings import Rule, check_rules, declared_settings, everyday, setting
from wend.model.units import HOUR, MS, SECOND, Nanos, parse_duration, parse_milliseconds
from wend.protocol.config import DeliverySettings, LinkSettings, PeerConfig
from wend.protocol.plugins import Membership
from wend.protocol.ports import Neighbour, Started
from wend.strategies.registry import (
    MEMBERSHIP,
    STRATEGIES,
    find_membership,
    follows_plan,
    hosted_plugins,
    joins_by_contacts,
    plugin,
)

MAX_PEER_ID = 2**32 - 1
MIN_DETECTION_NS: Nanos = 20 * MS
MIB = 1024 * 1024
KEYS = Rule(("keys",), "= true needs keys: make some with `wend key new`")


def network_prefix(address: ipaddress.IPv4Address | ipaddress.IPv6Address, prefix_bits: int) -> str:
    """The network of an address, such as `10.1.0.0/16`. Raises ValueError if the address has fewer bits."""
    if not 0 <= prefix_bits <= address.max_prefixlen:
        raise ValueError(f"an address of {address.max_prefixlen} bits has no prefix of {prefix_bits}")
    return str(ipaddress.ip_network((address, prefix_bits), strict=False))


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Delay, loss and other faults that a link emulates, for tests and demonstrations."""

    delay: str = "0ms"
    loss: float = 0.0
    corruption: float = 0.0
    """The probability that one bit of a datagram changes."""
    reordering: float = 0.0
    """The probability that a datagram is held back, so that later ones overtake it."""
    reordering_delay: str = "50ms"
    """The longest time for which a datagram is held back."""

    def check(self, neighbour: PeerId) -> None:
        for name, value in (("delay", self.delay), ("reordering_delay", self.reordering_delay)):
            if parse_milliseconds(value, name) < 0:
                raise ConfigError(f"neighbour {neighbour}: a shape needs a {name} of 0 or more, got {value}")
        for name, share in (("loss", self.loss), ("corruption", self.corruption), ("reordering", self.reordering)):
            if not 0 <= share <= 1:
                raise ConfigError(f"neighbour {neighbour}: a shape needs a {name} in 0..1, got {share}")


class NeighbourEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another peer that this one can reach."""

    id: PeerId
    address: str
    delay: str = "20ms"
    """The expected one-way delay; measurements correct it."""
    reliability: float = 1.0
    shape: Shape | None = None

    def check(self) -> None:
        """Raise ConfigError for an invalid entry."""
        parse_address(self.address)
        delay_ns = parse_milliseconds(self.delay, "delay")
        if not 0 <= self.id <= MAX_PEER_ID or delay_ns <= 0 or not 0 < self.reliability <= 1:
            raise ConfigError(f"neighbour {self.id} needs a delay above 0 and a reliability in 0..1")
        if self.shape is not None:
            self.shape.check(self.id)

    def make_neighbour(self) -> Neighbour:
        """The link as the peer sees it."""
        return Neighbour(self.id, parse_duration(self.delay), self.reliability)


def _check_grants(name: str, grants: Mapping[str, Grant]) -> None:
    for group, grant in grants.items():
        grant.check(group)


def _check_multicast(name: str, text: str) -> None:
    parse_multicast(text)


def _check_filters(name: str, filters: Sequence[str]) -> None:
    for text in filters:
        try:
            parse(text)
        except FilterError as error:
            raise ConfigError(f"{name}: {error}") from None


class PeerFile(Configuration, PluginChoices, metaclass=ByName, kw_only=True):
    """The settings of a live peer, made from names as its file has them: `PeerFile(id=1, detection="90ms")`."""

    title: ClassVar[str] = "Live peer"
    undeclared: ClassVar[frozenset[str]] = frozenset({"settings"})

    id: Annotated[PeerId, everyday("The peer's number, unique in the overlay.", low=0, high=MAX_PEER_ID)]
    listen: Annotated[str, everyday("The UDP address at which other peers reach this one.")] = "127.0.0.1:7701"
    clients: Annotated[str, everyday("The TCP address at which applications connect.")] = "127.0.0.1:7700"
    keys: Annotated[
        str | None,
        everyday(
            "The folder with the peer's certificate and keys (`wend key`), relative to the peer's file. Without it, "
            "other peers and clients are not authenticated."
        ),
    ] = None
    tls: Annotated[
        bool | None,
        everyday(
            "Whether clients connect by TLS (wends://). With keys they do, unless clients is a loopback address.",
            requires=KEYS,
        ),
    ] = None
    insecure: Annotated[
        bool,
        everyday(
            "Whether the peer may listen on other addresses than loopback without keys. Anybody who can reach them can "
            "then pretend to be a neighbour or a client."
        ),
    ] = False
    sign: Annotated[
        bool,
        everyday(
            "Whether the peer signs the events that its clients publish, for subscribers anywhere.", requires=KEYS
        ),
    ] = False
    grants: Annotated[
        dict[str, Grant],
        everyday(
            "What groups of clients and peers may do: a table for each group. Without grants, every client may do "
            "everything.",
            check=_check_grants,
        ),
    ] = msgspec.field(default_factory=dict)
    grants_folder: Annotated[
        str | None, setting("A folder of TOML files with further grants, relative to the peer's file.")
    ] = None
    neighbours: Annotated[
        tuple[NeighbourEntry, ...],
        everyday("The peers to which this one has links: tables of id, address, delay, reliability and shape."),
    ] = ()
    join: Annotated[
        tuple[str, ...],
        everyday(
            "Addresses of peers of the overlay to join, such as 127.0.0.1:7701. If links are given, the peer links "
            "with these peers; otherwise the membership decides. The first peer of a ring joins nobody."
        ),
    ] = ()
    admit: Annotated[
        bool,
        setting(
            "Whether other peers may join through this one, if links are given. A membership admits every peer that "
            "finds it."
        ),
    ] = True
    cluster_prefix: Annotated[
        int | None,
        setting(
            "How many leading bits of the listen address name the peer's cluster, if neither cluster nor a traced path "
            "does; 24, or 64 for IPv6.",
            low=1,
            high=128,
        ),
    ] = None
    multicast_address: Annotated[
        str,
        setting(
            "Where plug-ins multicast to other peers: auto (the address follows from the name of the group), one "
            "ADDRESS:PORT for all groups, or off.",
            check=_check_multicast,
        ),
    ] = AUTO
    multicast_ttl: Annotated[int, setting("Routers that a multicast packet may pass, plus one.", low=0, high=255)] = 1
    multicast_interface: Annotated[
        str | None, setting("The IPv4 address of the interface for multicast, if not the one that listen names.")
    ] = None
    advertise: Annotated[
        tuple[str, ...],
        everyday(
            "Filters of the events that this peer will publish. It announces others when it publishes them.",
            check=_check_filters,
        ),
    ] = ()
    store: Annotated[
        str | None, everyday("The file in which a peer with persistence stores events, relative to the peer's file.")
    ] = None
    sync: Annotated[bool, setting("Whether stored events also survive a loss of power. This is slower.")] = False
    logs: Annotated[
        tuple[EventLogEntry, ...],
        everyday(
            "Logs of events, to be read again: tables of name, filter, sync, and what they keep: keep (7d), bytes "
            "(20GiB) or events.",
            requires=Rule(("store",), "need a store, so that a restart of the peer loses nothing"),
        ),
    ] = ()
    logs_folder: Annotated[
        str | None, setting("The folder of the logs, relative to the peer's file; by default logs-ID.")
    ] = None
    away_ns: Annotated[
        Nanos,
        everyday(
            "How long other peers keep events for this peer's durable subscriptions after a graceful shutdown; 0 if it "
            "leaves for good.",
            unit="min",
        ),
    ] = 24 * HOUR
    paths: Annotated[
        str | None,
        everyday("How the peer finds underlay paths: trace (it measures), traceroute (the program), a file, or none."),
    ] = None
    telemetry: Annotated[
        str | None,
        everyday("A folder for telemetry, relative to the peer's file: segments that `wend data` reads."),
    ] = None
    telemetry_sample: Annotated[
        float, everyday("The share of events that peers write about. All peers choose the same events.", low=0, high=1)
    ] = 0.01
    telemetry_period_ns: Annotated[
        Nanos, setting("How often the peer writes about its links and counters.", unit="s", above=0)
    ] = SECOND
    telemetry_bytes: Annotated[
        int, setting("The disk space for closed segments. Beyond it, the oldest are removed.", low=MIB)
    ] = 1024 * MIB
    telemetry_segment_age_ns: Annotated[Nanos, setting("The age at which a segment is closed.", unit="s", above=0)] = (
        60 * SECOND
    )
    experiments: Annotated[bool, setting("Whether clients may cut and heal links (client.cut, client.heal).")] = False

    settings: dict[str, Any]
    """The peer's other settings that the file states, typed, by name."""

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Read the fields of a file. If they name an interest or a membership but no strategy, the file gets the
        strategy that goes with it."""
        if "strategy" not in fields and (strategy := implied_strategy(fields)) is not None:
            fields = {**fields, "strategy": strategy}
        return super().read(fields)

    @property
    def is_open(self) -> bool:
        """Whether peers that the file does not name may join."""
        if self._needs_contacts:
            return bool(self.join) or not self.neighbours
        return bool(self.join) or self.admit

    @property
    def _needs_contacts(self) -> bool:
        """Whether the membership starts from contacts instead of neighbours."""
        decides = find_membership(self.strategy, self.membership)
        return decides is not None and joins_by_contacts(decides)

    def check(self) -> None:
        """Raise ConfigError for a configuration that cannot work."""
        check_rules(declared_settings(PeerFile), self.own_values())
        self._check_plugins()
        self._check_links()
        self._check_addresses()
        self._check_neighbours()
        self._check_logs()
        self._own_cluster()

    def _check_plugins(self) -> None:
        hosted_plugins(self.strategy, self.interest, self.membership, self.of(DeliverySettings).persistence)
        if self.plan is not None and not follows_plan(self.strategy):
            others = " or ".join(f'"{name}"' for name in STRATEGIES if follows_plan(name))
            raise ConfigError(f"a plan is followed by strategy = {others}, not by {self.strategy!r}")

    def _check_links(self) -> None:
        links = self.of(LinkSettings)
        if links.ack == "free":
            raise ConfigError('ack = "free" is for simulations: no real ACK takes no time')
        if links.detection_ns < MIN_DETECTION_NS + links.margin_ns:
            detection, margin = f"{links.detection_ns / MS:g}ms", f"{links.margin_ns / MS:g}ms"
            raise ConfigError(f"detection {detection} is too short: the margin of {margin} needs 20 ms more")
        for name, needs_paths in (
            ("trace_paths", links.trace_paths),
            ("inferred_topology", self.inferred_topology is not None),
        ):
            if needs_paths and self.paths in (None, NONE):
                raise ConfigError(f'{name} needs a source of paths: say paths = "trace", "traceroute" or a file')

    def _check_addresses(self) -> None:
        is_protected = self.insecure or self.keys is not None
        check_listen_address(parse_address(self.listen), is_protected)
        check_listen_address(parse_address(self.clients), self.insecure or self.uses_tls)
        for text in self.join:
            parse_address(text)
        if self.multicast_interface is not None:
            check_interface(self.multicast_interface, is_protected)

    @property
    def uses_tls(self) -> bool:
        """Whether clients connect by TLS."""
        if self.keys is None or self.tls is not None:
            return self.keys is not None and bool(self.tls)
        host, _ = resolve_address(parse_address(self.clients))
        return not ipaddress.ip_address(host.partition("%")[0]).is_loopback

    def _own_cluster(self) -> str | None:
        """The name of the peer's cluster, if it follows from its address."""
        decides = find_membership(self.strategy, self.membership)
        membership = None if decides is None else plugin("membership", decides)
        if membership is None or not issubclass(membership, Membership) or membership.domain_setting is None:
            return None
        if getattr(self.of(membership.settings), membership.domain_setting) or self.paths not in (None, NONE):
            return None
        host, _ = resolve_address(self.listen_address)
        address = ipaddress.ip_address(host.partition("%")[0])
        if address.is_unspecified:
            raise ConfigError(f"a peer that listens on {host} has no address that names its cluster: say cluster")
        bits = self.cluster_prefix or (24 if address.version == 4 else 64)
        try:
            return network_prefix(address, bits)
        except ValueError as error:
            raise ConfigError(f"cluster_prefix: {error}") from None

    def _check_neighbours(self) -> None:
        ids = [n.id for n in self.neighbours]
        if len({*ids, self.id}) != len(ids) + 1:
            raise ConfigError(f"peer {self.id} and its neighbours need different ids, got {ids}")
        for n in self.neighbours:
            n.check()

    def _check_logs(self) -> None:
        names = [each.name for each in self.logs]
        for each in self.logs:
            each.check()
        if len({*names}) < len(names):
            raise ConfigError(f"the logs of a peer need different names, got {', '.join(names)}")
        if self.logs and not self.of(DeliverySettings).persistence:
            raise ConfigError("logs need persistence = true, so that a restart of the peer loses nothing")

    # ---------------------------------------------------------------- for the driver

    @property
    def logs_path(self) -> Path:
        """The folder of the logs."""
        return Path(self.logs_folder or f"logs-{self.id}")

    @property
    def listen_address(self) -> Address:
        return parse_address(self.listen)

    @property
    def clients_address(self) -> Address:
        return parse_address(self.clients)

    @property
    def join_addresses(self) -> tuple[Address, ...] | None:
        """Where the peer looks for others; None if it speaks only with its neighbours."""
        return tuple(parse_address(text) for text in self.join) if self.is_open else None

    @property
    def multicast_options(self) -> MulticastOptions:
        on, address = parse_multicast(self.multicast_address)
        return MulticastOptions(on, address, self.multicast_ttl, self.multicast_interface or "")

    def peer_config(self, incarnation: int) -> PeerConfig:
        values = self.field_values()
        if "trace_paths" not in self.settings and self.paths not in (None, NONE):
            values["trace_paths"] = True
        if (cluster := self._own_cluster()) is not None:
            values["cluster"] = cluster
        return PeerConfig(
            peer=self.id,
            incarnation=incarnation,
            strategy=self.strategy,
            interest=self.interest,
            membership=self.membership,
            stores=self.store is not None,
            **values,
        )

    def make_started(self) -> Started:
        return Started(neighbours=tuple(n.make_neighbour() for n in self.neighbours), advertisements=self.advertise)

    def settings_needing_restart(self, other: "PeerFile") -> list[str]:
        """The settings that differ in another file and that need a restart."""
        names = [name for name in self.__struct_fields__ if name not in ("neighbours", "grants", "settings")]
        changed = [name for name in names if getattr(self, name) != getattr(other, name)]
        settings = sorted({*self.settings, *other.settings})
        return changed + [name for name in settings if self.settings.get(name) != other.settings.get(name)]


FILES = ("store", "plan", "paths", "inferred_topology", "keys", "grants_folder", "telemetry", "logs_folder")
"""The settings that name a file or a folder."""


def implied_strategy(fields: Mapping[str, Any]) -> str | None:
    """The strategy of a file that names an interest or a membership, but no strategy; None: the default."""
    interest, membership = fields.get("interest"), MEMBERSHIP.get(str(fields.get("membership")))
    if interest is None:
        return membership.strategy if membership is not None and issubclass(membership, Membership) else None
    needing = (name for name, each in STRATEGIES.items() if each.interest == interest and each.membership)
    return next(needing, None)


def load_peer_file(path: Path, *, insecure: bool = False, join: Sequence[str] = ()) -> PeerFile:
    """Read and check a peer's file. `insecure` and `join` are flags of the command line; they add to the file."""
    fields: dict[str, Any] = read_toml(path)
    if insecure:
        fields["insecure"] = True
    try:
        file = PeerFile.read(fields)
        file = msgspec.structs.replace(file, join=(*file.join, *join))
        file.check()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", code=error.code) from None
    # Files are relative to the file that names them, not to the folder in which the process was started.
    file = msgspec.structs.replace(file, logs_folder=str(file.logs_path)) if file.logs else file
    beside = {
        name: str(path.parent / place)
        for name in FILES
        if (place := getattr(file, name)) is not None and not (name == "paths" and place in SOURCES)
    }
    return msgspec.structs.replace(file, **beside)
