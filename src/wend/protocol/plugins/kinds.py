"""The kinds of plug-ins, what each declares, and what the peer asks of it beside `handle`."""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from wend.model.events import Event, EventId, PeerId, SubscriptionId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.plugins.ports import Kind, PluginEffect, PluginInput
from wend.protocol.plugins.view import GraphView, View
from wend.protocol.ports import LocalSubscription

LINK_STATE = "link-state"
FLOODED = "flooded"
OUTSIDE = ":"
"""It stands in the name of a plug-in from outside the tree: `MODULE:CLASS`."""


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
    domain_setting: ClassVar[str | None] = None
    """The setting that names the peer's routing domain. A live driver fills it in from the peer's address."""
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
