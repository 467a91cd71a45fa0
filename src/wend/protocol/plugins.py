"""The plug-in API: what a plug-in is told, what it may answer, what it sees and what it declares.

A peer hosts small state machines of four kinds, all of the same shape:

    membership   who are my peers?        makes and ends links; talks to peers that have no link
    graph        who is linked to whom?   the link-state database, sets of spanning trees
    interest     who wants this event?
    routing      where does it go next?

A plug-in is one class in one file. There it declares its messages, its settings, the header that its packets carry and
what it needs of the others. `handle(now, event, view)` gets the inputs below and returns effects; a plug-in never sends
by itself. The host (`host.py`) dispatches by these declarations and checks every answer.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from wend.model.events import Event, EventId, PeerId, SubscriptionId
from wend.model.paths import Path
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.copy_ranks import Ranks
from wend.protocol.notices import DropReason
from wend.protocol.ports import (
    ContactFound,
    Drop,
    FindPath,
    JoinMulticast,
    LeaveMulticast,
    LocalSubscription,
    Multicast,
    MulticastMembers,
    Notice,
    PathFound,
    Planned,
    Refuse,
    Stopping,
)

Kind = Literal["membership", "graph", "interest", "routing"]

# ---------------------------------------------------------------- inputs of every plug-in


class Begun(msgspec.Struct, frozen=True, gc=False):
    """The peer has started. `contacts` are the peers whose addresses it knows."""

    contacts: tuple[PeerId, ...]
    contacts_follow: bool = False
    """Whether the driver still looks for contacts. It tells each as `ContactFound`."""


class Recalled(msgspec.Struct, frozen=True, gc=False):
    """A message that the plug-in asked to `Remember` in a former incarnation. It comes before `Begun`."""

    message: Any


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A message from the same plug-in at another peer."""

    sender: PeerId
    message: Any


class Undelivered(msgspec.Struct, frozen=True, gc=False):
    """Nobody acknowledged a `SendTo` that asked for it. With this peer's own id: a `Multicast` is too large to send."""

    peer: PeerId
    message: Any
    """If it carries an event, its age is that of this moment."""


class Unanswered(msgspec.Struct, frozen=True, gc=False):
    """To the membership: a peer did not acknowledge a `SendTo` of some plug-in. It may be gone."""

    peer: PeerId


class Due(msgspec.Struct, frozen=True, gc=False):
    """The time of a `Timer` has come."""

    name: str = ""


class LinkChanged(msgspec.Struct, frozen=True, gc=False):
    """A link was made, found down, is back, or is gone."""

    peer: PeerId
    up: bool
    fresh: bool = False
    """The neighbour may have missed or forgotten what it was told: tell it all."""
    restarted: bool = False
    """It began a new incarnation: what it said in the former one is void."""


class LinksChanged(msgspec.Struct, frozen=True, gc=False):
    """This peer has other links than before, or their delay, reliability or path is another."""


class Changed(msgspec.Struct, frozen=True, gc=False):
    """As an effect: other plug-ins see something else in this one than before. As an input: another plug-in said so."""

    what: str
    """`links` for the overlay, `interest` for subscriptions, `trees`, `ownership` for the keys that this peer owns;
    plug-ins may add their own."""


# ---------------------------------------------------------------- inputs of interest and routing


class SubscriptionsChanged(msgspec.Struct, frozen=True, gc=False):
    """To the interest: subscriptions or advertisements of this peer changed."""


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """To the routing: an event to forward to `dests`, from a neighbour or (sender is this peer) from here. To the
    interest: the routing has left it to find who wants the event (`LeaveToInterest`), or a packet has reached its
    destination here (`takes_packets`).

    `born_ns` is when it was published, in this peer's own time: now minus its age.
    """

    sender: PeerId
    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    """Empty where the interest does not name destinations."""
    path: tuple[PeerId, ...] = ()
    """The peers that forwarded this packet, in order."""
    header: Any = None
    """What the previous hop's routing wrote for this one; None from here."""
    ranks: Ranks = ()


class Failed(msgspec.Struct, frozen=True, gc=False):
    """To the routing: no transmission that a `Forward` allowed was acknowledged."""

    forward: "Forward"
    congested: bool = False
    """It was not sent: it would have come too late, because others wait for the link."""


class Acked(msgspec.Struct, frozen=True, gc=False):
    """To the routing: a `Forward` with `confirm` was acknowledged."""

    forward: "Forward"


PluginInput = (
    Begun
    | Recalled
    | Heard
    | Undelivered
    | Unanswered
    | Due
    | LinkChanged
    | LinksChanged
    | Changed
    | SubscriptionsChanged
    | Arrived
    | Failed
    | Acked
    | Planned
    | PathFound
    | ContactFound
    | Stopping
)

# ---------------------------------------------------------------- effects of every plug-in


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Send a message to a neighbour, again until it is acknowledged. A newer one of the same slot replaces it."""

    peer: PeerId
    slot: "Slot | None"
    """A message with a slot may be of any length; one without must fit a datagram."""
    message: Any


class SendTo(msgspec.Struct, frozen=True, gc=False):
    """Send a message to any peer whose address is known, with or without a link."""

    peer: PeerId
    message: Any
    acknowledged: bool = False
    """Repeat it until it is acknowledged, a few times; then say `Undelivered`. Else it may get lost."""
    wait_ns: Nanos = 0
    """How long to wait for the first acknowledgement; then twice as long each time. 0: as the link layer does."""
    tries: int = 0
    """How often to send it in all; 0: the usual number."""


class Timer(msgspec.Struct, frozen=True, gc=False):
    """Send `Due(name)` at this time. Every timer fires; there is no cancelling."""

    time_ns: Nanos
    name: str = ""


class Remember(msgspec.Struct, frozen=True, gc=False):
    """Store this message, where persistency is on: the next incarnation gets it as `Recalled`."""

    key: int
    """What it is about, a peer's id for instance: the newest message with a key replaces the others."""
    message: Any
    """If it has a time of the peer, the field's name is one of `records.TIME_FIELDS`."""


# ---------------------------------------------------------------- effects of single kinds


class Forward(msgspec.Struct, frozen=True, gc=False):
    """From the routing: send the event to a neighbour, with retransmission."""

    peer: PeerId
    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    path: tuple[PeerId, ...] = ()
    header: Any = None
    ranks: Ranks = ()
    tried: tuple[PeerId, ...] = ()
    """Neighbours that did not answer for this packet; the plug-in's own memory, not sent."""
    tries: int = 0
    """Transmissions over this link; 0 means the configured number."""
    confirm: bool = False
    """Tell me of the ACK too, not only of its absence."""
    due: tuple[Nanos, ...] = ()
    """By destination: when the packet has to arrive at the neighbour, to be in time; empty where it never is late."""
    retries: int = 0
    """With the failure detector: further transmissions while loss explains a missing ACK better than an outage."""


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """From the routing: no route now. The event is stored and retried where persistency is on, else dropped."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    reason: DropReason
    ranks: Ranks = ()


def unanswered(forward: Forward) -> GiveUp:
    """Give up a `Forward` that failed, for strategies that know no other route."""
    return GiveUp(forward.event, forward.born_ns, forward.dests, "link does not answer", forward.ranks)


class LeaveToInterest(msgspec.Struct, frozen=True, gc=False):
    """From the routing: the interest finds who wants this event by messages of its own. It gets the `Arrived`."""

    arrived: Arrived


class RouteEvent(msgspec.Struct, frozen=True, gc=False):
    """From the interest: forward this event to its destinations. The routing gets the `Arrived`."""

    arrived: Arrived


class DeliverHere(msgspec.Struct, frozen=True, gc=False):
    """From the interest: the event has reached this peer. Deliver it to the subscriptions here that want it."""

    event: Event
    born_ns: Nanos


class InterestLearned(msgspec.Struct, frozen=True, gc=False):
    """From the interest: it knows what this peer wants, for the first time or anew."""

    peer: PeerId
    returned: bool = False
    """Whether it has restarted, and wants what was published meanwhile."""


class MakeLink(msgspec.Struct, frozen=True, gc=False):
    """From the membership: have a link to this peer."""

    peer: PeerId
    path: Path
    """Underlay path from here, as measured or inferred."""


class Reroute(msgspec.Struct, frozen=True, gc=False):
    """From the membership: the underlay path of a link is another by now."""

    peer: PeerId
    path: Path


class EndLink(msgspec.Struct, frozen=True, gc=False):
    """From the membership: end the link to this peer."""

    peer: PeerId


PluginEffect = (
    Tell
    | SendTo
    | Timer
    | Remember
    | Changed
    | Forward
    | GiveUp
    | LeaveToInterest
    | RouteEvent
    | DeliverHere
    | InterestLearned
    | MakeLink
    | Reroute
    | EndLink
    | FindPath
    | JoinMulticast
    | LeaveMulticast
    | Multicast
    | MulticastMembers
    | Notice
    | Drop
    | Refuse
)

_COMMON: frozenset[type] = frozenset({Tell, SendTo, Timer, Remember, Changed, Notice, Drop, Refuse})
_MULTICAST: frozenset[type] = frozenset({JoinMulticast, LeaveMulticast, Multicast, MulticastMembers})
ALLOWED: dict[Kind, frozenset[type]] = {
    "membership": _COMMON | _MULTICAST | {MakeLink, Reroute, EndLink, FindPath},
    "graph": _COMMON,
    "interest": _COMMON | _MULTICAST | {InterestLearned, DeliverHere, RouteEvent, FindPath},
    "routing": _COMMON | {Forward, GiveUp, LeaveToInterest},
}
"""What a plug-in of each kind may answer."""

Slot = tuple[str, PeerId]
"""What a control message is about: only the newest of a slot counts."""

# ---------------------------------------------------------------- what a plug-in sees


class GraphView(Protocol):
    """The whole overlay, as the link-state database has it."""

    version: int

    @property
    def costs(self) -> Mapping[PeerId, Mapping[PeerId, Nanos]]: ...

    @property
    def paths(self) -> Mapping[tuple[PeerId, PeerId], Path]:
        """The routers of links' underlay paths, by (lower id, higher id), as far as they were traced."""
        ...

    @property
    def prices(self) -> Mapping[PeerId, Mapping[PeerId, Nanos]]:
        """What links cost beyond their delay, because they are full; only those that are."""
        ...

    def distances(self, source: PeerId) -> Mapping[PeerId, Nanos]:
        """The shortest delays from a peer."""
        ...


class InterestView(Protocol):
    """Who wants what, as far as this peer knows."""

    @property
    def filters(self) -> Mapping[str, float]:
        """The filters of this peer's subscriptions, each with the reliability that it needs."""
        ...

    def need(self, event: Event) -> float:
        """The highest reliability that any known subscriber of the event needs."""
        ...

    def pairs(self, graph: GraphView) -> dict[tuple[PeerId, PeerId], Nanos | None]:
        """(publisher, subscriber) -> deadline, None where there is none."""
        ...

    def deadline_ns(self, event: Event, subscriber: PeerId, graph: GraphView) -> Nanos | None: ...


class LinkView(Protocol):
    """A link of this peer, to look at."""

    @property
    def delay_ns(self) -> Nanos: ...

    @property
    def reliability(self) -> float: ...

    @property
    def path(self) -> Path:
        """The routers of its underlay path, where they are known."""
        ...

    @property
    def timeout_ns(self) -> Nanos:
        """How long the sender waits for an ACK."""
        ...

    @property
    def up(self) -> bool: ...

    @property
    def heard_by_neighbour(self) -> bool:
        """Whether the neighbour says that it hears this peer."""
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
        """What a route over the link costs beyond its delay, because the link is full."""
        ...

    def seems_up(self, now: Nanos) -> bool:
        """With the failure detector: the neighbour was heard within the detection time, and hears this peer."""
        ...

    def heard_lately(self, now: Nanos) -> bool:
        """With the failure detector: the neighbour was heard within the detection time."""
        ...


class OutageChanceView(Protocol):
    """How often a link fails, and for how long."""

    @property
    def share(self) -> float:
        """The share of time that it is down."""
        ...

    @property
    def length_ns(self) -> float:
        """The mean length of an outage."""
        ...

    def down_after(self, age_ns: float) -> float:
        """The probability that the link is down if it was up so long ago."""
        ...

    def up_after(self, age_ns: float) -> float:
        """The probability that the link is up if it was down so long ago."""
        ...


class OutageEstimate(Protocol):
    def of(self, now: Nanos, peer: PeerId) -> OutageChanceView:
        """Outages of the link to a neighbour."""
        ...

    def of_all(self, now: Nanos) -> OutageChanceView:
        """Outages of links around here."""
        ...


class NewsView(Protocol):
    """Which links of other peers are down, as these say."""

    @property
    def hops(self) -> int:
        """Over how many links news travels."""
        ...

    def down(self, now: Nanos) -> frozenset[tuple[PeerId, PeerId]]:
        """The links of other peers that are believed to be down, as (lower id, higher id). The same object as before
        while nothing changes."""
        ...

    def is_down(self, a: PeerId, b: PeerId, now: Nanos) -> bool: ...


class View:
    """What a plug-in may look at. Nothing here is for it to change."""

    __slots__ = (
        "config", "graph", "graphs", "incarnation", "interest", "links", "loaded", "me", "membership", "neighbours",
        "news",
        "outages", "persistency",
    )  # fmt: skip

    def __init__(self, config: PeerConfig, links: Mapping[PeerId, LinkView], persistency: bool) -> None:
        self.me = config.peer
        self.incarnation = config.incarnation
        self.config = config
        self.persistency = persistency
        self.links = links
        self.neighbours: tuple[PeerId, ...] = ()
        self.loaded = False
        """Whether packets had to wait for links lately."""
        self.graph: GraphView = NO_GRAPH
        """The link-state database; empty where no plug-in asked for it."""
        self.graphs: dict[str, Any] = {}
        """All graph plug-ins that the peer hosts, by name."""
        self.interest: Any = None
        """The interest plug-in: an `InterestView`, and whatever else it offers."""
        self.membership: Any = None
        """The membership plug-in, and whatever it offers; None where links are given."""
        self.outages: OutageEstimate | None = None
        """Only where a plug-in needs the failure detector."""
        self.news: NewsView | None = None
        """Only where a plug-in needs it, and peers tell each other."""


class _NoGraph:
    """The graph of a peer that hosts no link-state database."""

    version = 0
    costs: ClassVar[Mapping[PeerId, Mapping[PeerId, Nanos]]] = {}
    paths: ClassVar[Mapping[tuple[PeerId, PeerId], Path]] = {}
    prices: ClassVar[Mapping[PeerId, Mapping[PeerId, Nanos]]] = {}

    def distances(self, source: PeerId) -> Mapping[PeerId, Nanos]:
        return {}


NO_GRAPH = _NoGraph()

# ---------------------------------------------------------------- what a plug-in declares

LINK_STATE = "link-state"
FLOODED = "flooded"


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a plug-in needs of the peer and of other plug-ins. What nobody needs does not run."""

    graphs: tuple[str, ...] = ()
    """Graph plug-ins, by name."""
    failure_detector: bool = False
    """Hellos over quiet links; links then go down and come back."""
    news: bool = False
    """With the failure detector: hellos that tell neighbours which links are down."""
    congestion_control: bool = False
    """Packets wait for the congestion window of their link, and those that are too late come back (`Failed`)."""
    paths: bool = False
    """It uses the underlay paths of links, where they are traced."""
    plan: bool = False
    """It has to be told a plan."""
    interest: str = FLOODED
    """Of a routing: the interest to host, unless the configuration names one."""
    durable_interest: str = FLOODED
    """The same with persistency, where stored events name their destinations."""
    membership: str | None = None
    """Of a routing: the membership to host, unless the configuration names one."""


class NoSettings(Settings, frozen=True, kw_only=True):
    """For plug-ins that have none."""


class Plugin:
    """The base class of all plug-ins. Every kind has a subclass of its own below."""

    kind: ClassVar[Kind]
    needs: ClassVar[Needs] = Needs()
    messages: ClassVar[Any] = None
    """The type of its messages: a tagged msgspec.Struct, or a union of such; None where it sends none."""
    settings: ClassVar[type[Settings]] = NoSettings
    hears_anyone: ClassVar[bool] = False
    """Whether it gets messages of peers that have no link to this one. Others are refused."""
    about: ClassVar[str] = ""
    """A remark beside its name in lists."""

    def __init__(self, config: PeerConfig) -> None:
        """A subclass reads its own settings by `config.of(ItsSettings)`."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        raise NotImplementedError

    def status(self) -> dict[str, int]:
        """Its section of the peer's status snapshot: numbers under dotted names."""
        return {}


class Membership(Plugin):
    """Decides who this peer's neighbours are."""

    kind: ClassVar[Kind] = "membership"
    hears_anyone: ClassVar[bool] = True
    joins: ClassVar[bool] = False
    """Whether peers need no links and join by any peer that they know."""
    strategy: ClassVar[str | None] = None
    """The strategy of a peer whose configuration names this membership alone; None: the default."""

    def informants(self) -> tuple[PeerId, ...]:
        """Some peers that know many others. A driver asks them for addresses that it does not know."""
        return ()


class Graph(Plugin):
    """Knows who is linked to whom, beyond this peer's own links."""

    kind: ClassVar[Kind] = "graph"


class Routing(Plugin):
    """Decides where an event goes next."""

    kind: ClassVar[Kind] = "routing"
    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,))
    header: ClassVar[Any] = None
    """The type of the header that its packets carry to the next hop; None where they carry none."""
    effort: ClassVar[float] = 1.0
    """How long a packet takes to simulate, relative to a fixed tree."""

    def unfinished(self) -> Iterable[EventId]:
        """Events that wait in this plug-in and nowhere else."""
        return ()


Notify = tuple[tuple[SubscriptionId, Nanos | None], ...]
"""Local subscriptions, each with its deadline."""


class Interest(Plugin):
    """Knows who wants an event. `handle` decides what it tells to whom."""

    kind: ClassVar[Kind] = "interest"
    learns_late: ClassVar[bool] = False
    """Whether peers may publish long before it knows all who want an event."""
    names_everyone: ClassVar[bool] = True
    """Whether `targets` are all peers that want an event; else only this peer, and the routing finds the others."""
    takes_packets: ClassVar[bool] = False
    """Whether it gets packets for this peer, as `Arrived`, and repairs losses by itself. Else the peer delivers them,
    and with persistency it stores those for others."""
    durable: ClassVar[bool] = True
    """Whether events survive a crash of their publisher's peer, where persistency is on."""

    def targets(self, event: Event) -> tuple[PeerId, ...]:
        """The peers, sorted, that want the event, as far as this one knows."""
        raise NotImplementedError

    def local(self, event: Event, view: View) -> Notify:
        """This peer's subscriptions that want the event, each with its deadline."""
        raise NotImplementedError

    def widened(self, event: Event) -> bool:
        """Whether this peer has asked for such events although none of its subscriptions may want them."""
        return False

    def members(self, event: Event) -> dict[str, tuple[PeerId, ...]]:
        """By queue group that wants the event: the peers, sorted, with members."""
        return {}

    def ordered(self, event: Event) -> tuple[PeerId, ...]:
        """The peers, sorted, with subscriptions that want the event in its publisher's order."""
        return ()

    def expiry_ns(self, event: Event, subscriber: PeerId, graph: GraphView) -> Nanos | None:
        """The age at which no subscription of a peer wants the event any more; None: never."""
        return None

    def stayed_away(self, peer: PeerId, now: Nanos) -> bool:
        """Whether a peer that stopped is away for longer than it announced, so that nobody stores events for it."""
        return False

    def knows(self, peers: tuple[PeerId, ...]) -> bool:
        """Whether each of these peers has told what it wants."""
        return True

    @property
    def origins(self) -> frozenset[PeerId]:
        """The peers that have told what they want."""
        return frozenset()

    def subscribe(self, wanted: LocalSubscription, me: PeerId) -> None:
        """Raises FilterError. `SubscriptionsChanged` follows."""
        raise NotImplementedError

    def unsubscribe(self, number: int) -> None:
        raise NotImplementedError

    def advertise(self, text: str) -> None:
        """Raises FilterError. `SubscriptionsChanged` follows."""

    def advertises(self, event: Event) -> bool:
        """Whether this peer has advertised such events."""
        return True

    @property
    def advertised(self) -> tuple[int, int]:
        """How many advertisements this peer has, and how many characters they take."""
        return 0, 0

    def withdraw(self) -> None:
        """Forget all subscriptions and advertisements of this peer."""
        raise NotImplementedError

    def will_be_back(self, away_ns: Nanos) -> None:
        """This peer stops, and will be back within this time. What it announces next says so, where others can use
        that."""
