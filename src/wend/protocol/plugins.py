"""The shape of a plug-in: a small state machine with a narrow view.

Three kinds plug into a peer: *interest* (who wants this), *routing* (where it goes next), and the
flooded *link state* beside them. Each is told what concerns it, answers with the effects below, and
sees the rest of the peer only through the `View`. The peer turns `Forward` and `Tell` into packets
with numbers and timers; no plug-in sends by itself.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.copy_ranks import Ranks
from wend.protocol.messages import Body, TreeLabel
from wend.protocol.notices import DropReason
from wend.protocol.ports import Drop, Notice, Planned, Refuse

# ---------------------------------------------------------------- what a plug-in is told


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """An event to carry on to `dests`: from a neighbour, or (sender is this peer) from here.

    `born_ns` is when it was published, in this peer's own time: now minus the age it has gathered.
    """

    sender: PeerId
    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    path: tuple[PeerId, ...] = ()
    routes: tuple[tuple[PeerId, ...], ...] = ()
    ranks: Ranks = ()
    lane: TreeLabel | None = None
    """The tree that it came on; then it has no destinations."""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """All transmissions that a `Forward` allowed went unanswered."""

    forward: "Forward"


class Acked(msgspec.Struct, frozen=True, gc=False):
    """A `Forward` that asked to be watched was acknowledged."""

    forward: "Forward"


class Heard(msgspec.Struct, frozen=True, gc=False):
    sender: PeerId
    body: Body


class LinkChanged(msgspec.Struct, frozen=True, gc=False):
    """A neighbour is found down, or is back."""

    peer: PeerId
    up: bool
    fresh: bool = False
    """It may have missed or forgotten what it was told: tell it all."""
    restarted: bool = False
    """It began a new life: what it said in the former one is void."""


class Changed(msgspec.Struct, frozen=True, gc=False):
    """The graph, the link estimates, or the interest is not what it was. Also an effect: "I changed"."""


class Due(msgspec.Struct, frozen=True, gc=False):
    """The alarm that the plug-in set."""


PluginInput = Arrived | Failed | Acked | Heard | LinkChanged | Changed | Due | Planned

# ---------------------------------------------------------------- what a plug-in answers


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Send the event on to a neighbour and watch over it."""

    peer: PeerId
    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    path: tuple[PeerId, ...] = ()
    routes: tuple[tuple[PeerId, ...], ...] = ()
    ranks: Ranks = ()
    tried: tuple[PeerId, ...] = ()
    """Neighbours that did not answer for this packet; the plug-in's own memory, not sent."""
    tries: int = 0
    """Transmissions over this link; 0 means the configured m."""
    watch: bool = False
    """Tell me of the ACK too, not only of its absence."""
    lane: TreeLabel | None = None


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """Nothing more can be done now: kept where persistency is on, else dropped and counted."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    reason: DropReason
    ranks: Ranks = ()


def unanswered(forward: Forward) -> GiveUp:
    """For strategies that know no other way."""
    return GiveUp(forward.event, forward.born_ns, forward.dests, "link does not answer", forward.ranks)


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Control for a neighbour, repeated until acknowledged. A newer one of the same slot replaces it."""

    peer: PeerId
    slot: tuple[str, PeerId] | None
    body: Body


class Alarm(msgspec.Struct, frozen=True, gc=False):
    time_ns: Nanos


PluginEffect = Forward | GiveUp | Tell | Alarm | Changed | Notice | Drop | Refuse

CHANGED = Changed()
DUE = Due()

# ---------------------------------------------------------------- what a plug-in sees


class GraphView(Protocol):
    """The whole overlay as flooded."""

    version: int

    @property
    def costs(self) -> Mapping[PeerId, Mapping[PeerId, Nanos]]: ...

    @property
    def paths(self) -> Mapping[tuple[PeerId, PeerId], Path]:
        """The routers beneath links, lower id first, as far as they were traced."""
        ...

    def distances(self, source: PeerId) -> Mapping[PeerId, Nanos]: ...


class InterestView(Protocol):
    @property
    def filters(self) -> Mapping[str, float]:
        """What is wanted at this peer, and with which reliability."""
        ...

    def need(self, event: Event) -> float:
        """The highest reliability with which anybody is known to want it."""
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
        """The routers beneath it, where they are known."""
        ...

    @property
    def timeout_ns(self) -> Nanos:
        """How long an ACK is waited for."""
        ...

    @property
    def up(self) -> bool: ...

    @property
    def heard_by_neighbour(self) -> bool:
        """Whether the neighbour says that it hears this peer."""
        ...

    @property
    def heard_ns(self) -> Nanos:
        """When it was heard last."""
        ...

    @property
    def silence_ns(self) -> Nanos:
        """The longest silence that a link which is up may keep."""
        ...

    def seems_up(self, now: Nanos) -> bool:
        """For strategies that probe: heard within the detection time, and heard by the other side."""
        ...

    def heard_lately(self, now: Nanos) -> bool:
        """The same for the one direction that this side can tell of."""
        ...


class OutageEstimate(Protocol):
    def outage_share(self, now: Nanos) -> float:
        """What share of the time links are down around here."""
        ...


class View:
    """What a plug-in may look at; nothing here is for it to change."""

    __slots__ = ("config", "graph", "interest", "links", "liveness", "me", "neighbours")

    def __init__(
        self,
        config: PeerConfig,
        links: Mapping[PeerId, LinkView],
        graph: GraphView,
        interest: InterestView,
        liveness: "OutageEstimate | None" = None,
    ) -> None:
        self.me = config.peer
        self.config = config
        self.links = links
        self.neighbours: tuple[PeerId, ...] = ()
        self.graph = graph
        self.interest = interest
        self.liveness = liveness
        """Only for strategies that probe."""


# ---------------------------------------------------------------- what a strategy is


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a strategy before it runs: peers, drivers and commands ask for these, never for its name."""

    probes: bool = False
    """It wants to know which links are down."""
    hop_by_hop: bool = False
    """Each peer finds the next one by what is wanted there, and nobody knows all who want an event."""
    traces: bool = False
    """It heeds what lies beneath the links."""
    follows_plan: bool = False
    """It has to be told a plan."""
    settings: frozenset[str] = frozenset()
    """Fields of a scenario that mean something to it, and nothing to strategies that do not name them."""
    effort: float = 1.0
    """How long a packet takes to simulate, in those of a fixed tree."""
    about: str = ""
    """What to say beside its name to one who has to choose."""


class Routing(Protocol):
    """A strategy inherits from it, and has answers then to what only some are asked for."""

    traits: ClassVar[Traits] = Traits()

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]: ...

    def standing(self) -> dict[str, int]:
        """How it stands at this moment, for who watches the peer: numbers under dotted names."""
        return {}

    def answered_for(self) -> Iterable[EventId]:
        """Events that wait here and in nobody else's hands."""
        return ()
