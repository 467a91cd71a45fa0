"""The configuration of a peer: its identity, the plug-ins that it hosts, and the settings of all its parts.

The settings of the link layer and of delivery are declared here. A plug-in declares its own, in its own file.
`PeerConfig` takes all values by field name, and gives each part its struct (`of`).
"""

from typing import Annotated, Any, ClassVar, TypeVar

from wend.model.blocks import BLOCK_BYTES, check_coding
from wend.model.choices import DEFAULT_STRATEGY, Ack, Congestion, Estimator
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.settings import Rule, Settings, everyday, setting
from wend.model.units import MS, SECOND, Nanos

S = TypeVar("S", bound=Settings)


class LinkSettings(Settings, frozen=True, kw_only=True):
    """Retransmission, estimators and the failure detector."""

    title: ClassVar[str] = "Links"

    transmissions: Annotated[
        int, setting("Transmissions of a packet over a link before the sender tries another route.", low=1)
    ] = 1
    ack: Annotated[
        Ack, setting("How ACKs travel: round-trip over the link, or free, at once and without loss (simulation only).")
    ] = "round-trip"
    estimator: Annotated[
        Estimator, setting("Whether peers measure delay and loss of links, or trust their nominal values.")
    ] = "measured"
    monitoring_ns: Annotated[
        Nanos, setting("How often a peer adopts what it measured of its links.", unit="s", low=0.001, high=1e8)
    ] = 5 * SECOND
    margin_ns: Annotated[
        Nanos,
        setting("Time that a timer allows on top of the round trip, for the jitter of the host.", low=0, high=1e11),
    ] = 5 * MS
    detection_ns: Annotated[
        Nanos,
        everyday(
            "How soon a peer notices a dead link, for strategies that use the failure detector.", low=1, high=1e11
        ),
    ] = 160 * MS
    news_hops: Annotated[
        int,
        setting(
            "Over how many links hellos carry news of failures, for strategies that use it; 0: no news.", low=0, high=8
        ),
    ] = 2
    congestion_control: Annotated[
        Congestion,
        setting(
            "How a peer finds the capacity of a link, for strategies that ask for it: copa (by queueing delay), aimd "
            "(by loss, as TCP does) or none."
        ),
    ] = "copa"
    send_queue_limit: Annotated[
        int,
        setting("Bytes of the events that wait for one link, at most; the peer gives up the next one.", low=64 * 1024),
    ] = 4 * 1024 * 1024
    trace_paths: Annotated[
        bool, setting("Whether a peer traces the underlay paths of its links, for strategies that use them.")
    ] = False


class DeliverySettings(Settings, frozen=True, kw_only=True):
    """Store-and-forward, and the defaults of subscriptions."""

    title: ClassVar[str] = "Delivery"

    persistence: Annotated[
        bool,
        everyday("Whether peers store events that they are responsible for, and retry them until they are delivered."),
    ] = False
    retry_limit: Annotated[
        int, setting("Events that wait for a retry, at most; the one with the oldest deadline is dropped first.", low=1)
    ] = 10_000
    store_limit: Annotated[
        int,
        setting(
            "Bytes of the events that wait for a retry, at most; the one with the oldest deadline is dropped first. "
            "The same for events that wait for clients to reconnect, and for peers that are not yet known.",
            low=512 * 1024,
        ),
    ] = 256 * 1024 * 1024
    grace_ns: Annotated[
        Nanos,
        setting("How long after its start a peer with persistence holds events for clients that reconnect.", unit="s"),
    ] = 30 * SECOND
    order_wait_ns: Annotated[
        Nanos,
        setting(
            "How long an ordered subscription waits for a missing event before it goes on without it. Durable ones "
            "wait 12 times as long if the publisher sets no ttl.",
            unit="s",
        ),
    ] = 5 * SECOND
    reliability: Annotated[
        float | None,
        setting(
            "The share of events that subscribers need at the first attempt, if they state none; strategies on "
            "trees then use no more trees than that takes.",
            above=0.0,
            high=1.0,
        ),
    ] = None
    coding: Annotated[
        str,
        setting(
            "How adaptive, multipath, mrst and spt-k send large events. K/N: in blocks over N routes, of which any K "
            "carry enough of them. auto: adaptive codes if links lose packets, others send whole events. off: whole.",
            check=check_coding,
            replaced_by=Rule(("persistence",), "peers with persistence store and send whole events"),
        ),
    ] = "auto"
    coding_least_bytes: Annotated[
        int,
        setting("The smallest payload that is coded. Each block repeats the rest of the event.", unit="bytes", low=2),
    ] = BLOCK_BYTES + 1


class PeerConfig:
    """The configuration of one peer.

    `stores`: whether the next incarnation of this peer gets the records that this one stores. `seed` is for random
    draws of memberships. Every other argument is the value of a setting, by field name.
    """

    __slots__ = ("_structs", "_values", "incarnation", "interest", "membership", "peer", "seed", "stores", "strategy")

    def __init__(
        self,
        *,
        peer: PeerId,
        incarnation: int = 1,
        strategy: str = DEFAULT_STRATEGY,
        interest: str | None = None,
        membership: str | None = None,
        stores: bool = True,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self.strategy = strategy
        self.interest = interest
        """None: the interest that the strategy asks for."""
        self.membership = membership
        """None: the driver gives the links."""
        self.stores = stores
        self.seed = seed
        self._values = settings
        self._structs: dict[type[Settings], Settings] = {}

    def of(self, group: type[S]) -> S:
        """The settings of one part of the peer."""
        struct = self._structs.get(group)
        if struct is None:
            values = {name: value for name, value in self._values.items() if name in group.__struct_fields__}
            struct = self._structs[group] = group(**values)
        return struct  # type: ignore[return-value]

    def with_(self, **changes: Any) -> "PeerConfig":
        """A copy with some arguments changed."""
        fixed = {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}
        return PeerConfig(**{**fixed, **self._values, **changes})

    def has_other_settings(self, groups: tuple[type[Settings], ...]) -> bool:
        """Whether there are values of settings that none of these groups declares."""
        return not all(any(name in group.__struct_fields__ for group in groups) for name in self._values)

    def check(self, groups: tuple[type[Settings], ...]) -> None:
        """Raise ConfigError for a value that none of these groups declares."""
        known = {name for group in groups for name in group.__struct_fields__}
        unknown = sorted(self._values.keys() - known)
        if unknown:
            raise ConfigError(f"there is no setting {unknown[0]!r}")
