"""The view of a plug-in: its peer, the peer's links and the other plug-ins, all read-only."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig


class GraphView(Protocol):
    """The whole overlay, as the link-state database describes it."""

    version: int

    @property
    def costs(self) -> Mapping[PeerId, Mapping[PeerId, Nanos]]: ...

    @property
    def paths(self) -> Mapping[tuple[PeerId, PeerId], Path]:
        """The routers on the underlay paths of links, by (lower id, higher id), as far as they were traced."""
        ...

    @property
    def prices(self) -> Mapping[PeerId, Mapping[PeerId, Nanos]]:
        """The costs that routing adds to the delays of congested links; other links are absent."""
        ...

    def distances(self, source: PeerId) -> Mapping[PeerId, Nanos]:
        """The shortest delays from a peer."""
        ...


class LinkView(Protocol):
    """A link of this peer, read-only."""

    @property
    def delay_ns(self) -> Nanos: ...

    @property
    def reliability(self) -> float: ...

    @property
    def path(self) -> Path:
        """The routers on the underlay path of the link, if they are known."""
        ...

    @property
    def timeout_ns(self) -> Nanos:
        """The timeout for an ACK."""
        ...

    @property
    def is_up(self) -> bool: ...

    @property
    def heard_by_neighbour(self) -> bool:
        """Whether the neighbour reports that it hears this peer."""
        ...

    @property
    def heard_ns(self) -> Nanos:
        """When this peer last heard the neighbour."""
        ...

    @property
    def silence_ns(self) -> Nanos:
        """The longest silence of a link that is up."""
        ...

    @property
    def queue_ns(self) -> Nanos:
        """How long a packet would wait for the link now, behind others that are due."""
        ...

    @property
    def price_ns(self) -> Nanos:
        """The cost that routing adds to the delay of a congested link."""
        ...

    def is_working(self, now: Nanos) -> bool:
        """Whether the neighbour was heard within the detection time, and hears this peer. Only for strategies that use
        the failure detector."""
        ...

    def is_heard(self, now: Nanos) -> bool:
        """Whether the neighbour was heard within the detection time. Only for strategies that use the failure
        detector."""
        ...


class OutageChanceView(Protocol):
    """An estimate of how often a link fails, and for how long."""

    @property
    def share(self) -> float:
        """The share of time that the link is down."""
        ...

    @property
    def length_ns(self) -> float:
        """The mean length of an outage."""
        ...

    def down_after(self, age_ns: float) -> float:
        """The probability that the link is down if it was up this long ago."""
        ...

    def up_after(self, age_ns: float) -> float:
        """The probability that the link is up if it was down this long ago."""
        ...


class OutageEstimate(Protocol):
    def estimate(self, now: Nanos, peer: PeerId) -> OutageChanceView:
        """Estimate the outages of the link to a neighbour."""
        ...

    def estimate_all(self, now: Nanos) -> OutageChanceView:
        """Estimate the outages of a link that this peer does not observe."""
        ...


class NewsView(Protocol):
    """The links of other peers that are down, as hellos report."""

    @property
    def hops(self) -> int:
        """How many links news travels at most."""
        ...

    def down(self, now: Nanos) -> frozenset[tuple[PeerId, PeerId]]:
        """The links of other peers that are believed to be down, as (lower id, higher id). The same object as before
        while nothing changes."""
        ...

    def is_down(self, a: PeerId, b: PeerId, now: Nanos) -> bool: ...


class View:
    """The state that a plug-in may read. A plug-in must not change it."""

    __slots__ = (
        "config", "graph", "graphs", "incarnation", "interest", "links", "loaded", "me", "membership", "neighbours",
        "news",
        "outages", "persistence",
    )  # fmt: skip

    def __init__(self, config: PeerConfig, links: Mapping[PeerId, LinkView], persistence: bool) -> None:
        self.me = config.peer
        self.incarnation = config.incarnation
        self.config = config
        self.persistence = persistence
        self.links = links
        self.neighbours: tuple[PeerId, ...] = ()
        self.loaded = False
        """Whether packets recently had to wait for links."""
        self.graph: GraphView = NO_GRAPH
        """The link-state database; empty if no plug-in asked for it."""
        self.graphs: dict[str, Any] = {}
        """All graph plug-ins that the peer hosts, by name."""
        self.interest: Any = None
        """The interest plug-in. `view.interest.table` knows subscriptions."""
        self.membership: Any = None
        """The membership plug-in; None if the driver gives the links."""
        self.outages: OutageEstimate | None = None
        """None unless a plug-in needs the failure detector."""
        self.news: NewsView | None = None
        """The news of failures; None unless a plug-in needs it and peers exchange news."""


class _NoGraph:
    """The graph of a peer that hosts no link-state database."""

    version = 0
    costs: ClassVar[Mapping[PeerId, Mapping[PeerId, Nanos]]] = {}
    paths: ClassVar[Mapping[tuple[PeerId, PeerId], Path]] = {}
    prices: ClassVar[Mapping[PeerId, Mapping[PeerId, Nanos]]] = {}

    def distances(self, source: PeerId) -> Mapping[PeerId, Nanos]:
        return {}


NO_GRAPH = _NoGraph()
