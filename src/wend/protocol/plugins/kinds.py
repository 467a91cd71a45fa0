"""The kinds of plug-ins, with the declarations and queries of each beside `handle`."""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.plugins.ports import Kind, PluginEffect, PluginInput
from wend.protocol.plugins.subscriptions import SubscriptionQueries
from wend.protocol.plugins.view import GraphView, View

LINK_STATE = "link-state"
FLOODED = "flooded"
OUTSIDE = ":"
"""The separator in the name of a plug-in from outside the tree: `MODULE:CLASS`."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of a plug-in of the peer and of other plug-ins. A part that no plug-in needs does not run."""

    graphs: tuple[str, ...] = ()
    """The names of graph plug-ins."""
    failure_detector: bool = False
    """Hellos over quiet links; links then go down and come back."""
    news: bool = False
    """With the failure detector: hellos that report to neighbours which links are down."""
    congestion_control: bool = False
    """Packets wait for the congestion window of their link, and late packets are returned (`Failed`)."""
    paths: bool = False
    """The underlay paths of links, if they are traced."""
    plan: bool = False
    """A plan to follow."""
    interest: str = FLOODED
    """For a routing from outside the tree: the interest to host, unless the configuration names one."""
    durable_interest: str = FLOODED
    """The same with persistence, since stored events name their destinations."""
    membership: str | None = None
    """For a strategy from outside the tree: the membership to host, unless the configuration names one."""


class NoSettings(Settings, frozen=True, kw_only=True):
    """The settings of plug-ins that have none."""


class Plugin(Protocol):
    """The interface of every plug-in. A plug-in inherits from one of the kinds below."""

    kind: ClassVar[Kind]
    needs: ClassVar[Needs]
    messages: ClassVar[Any]
    """The type of its messages: a tagged msgspec.Struct or a union of them; None if it sends none."""
    settings: ClassVar[type[Settings]]
    hears_anyone: ClassVar[bool]
    """Whether it gets messages from peers without a link to this one. If not, they are refused."""
    about: ClassVar[str]
    """A remark about the plug-in for lists."""

    def __init__(self, config: PeerConfig) -> None:
        """A subclass reads its own settings by `config.of(ItsSettings)`."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]: ...

    def status(self) -> dict[str, int]:
        """Its section of the peer's status snapshot: numbers under dotted names."""
        ...


class Membership:
    """Decides who this peer's neighbours are."""

    kind: ClassVar[Kind] = "membership"
    needs: ClassVar[Needs] = Needs()
    messages: ClassVar[Any] = None
    settings: ClassVar[type[Settings]] = NoSettings
    about: ClassVar[str] = ""
    hears_anyone: ClassVar[bool] = True
    joins: ClassVar[bool] = False
    """Whether peers need no configured links, and join through any peer that they know."""
    domain_setting: ClassVar[str | None] = None
    """The setting that names the peer's routing domain. A live driver fills it in from the peer's address."""
    strategy: ClassVar[str | None] = None
    """The strategy of a peer whose configuration names this membership alone; None: the default."""

    def __init__(self, config: PeerConfig) -> None: ...

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        raise NotImplementedError

    def status(self) -> dict[str, int]:
        return {}

    def informants(self) -> tuple[PeerId, ...]:
        """Some peers that know many others. A driver asks them for addresses that it does not know."""
        return ()


class Graph:
    """Knows who is linked to whom, beyond this peer's own links."""

    kind: ClassVar[Kind] = "graph"
    needs: ClassVar[Needs] = Needs()
    messages: ClassVar[Any] = None
    settings: ClassVar[type[Settings]] = NoSettings
    about: ClassVar[str] = ""
    hears_anyone: ClassVar[bool] = False

    def __init__(self, config: PeerConfig) -> None: ...

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        raise NotImplementedError

    def status(self) -> dict[str, int]:
        return {}


class Routing:
    """Decides where an event goes next."""

    kind: ClassVar[Kind] = "routing"
    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,))
    messages: ClassVar[Any] = None
    settings: ClassVar[type[Settings]] = NoSettings
    about: ClassVar[str] = ""
    hears_anyone: ClassVar[bool] = False
    header: ClassVar[Any] = None
    """The type of the header that its packets carry to the next hop; None if they carry none."""
    effort: ClassVar[float] = 1.0
    """How long a packet takes to simulate, relative to a fixed tree."""

    def __init__(self, config: PeerConfig) -> None: ...

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        raise NotImplementedError

    def status(self) -> dict[str, int]:
        return {}

    def unfinished(self) -> Iterable[EventId]:
        """Events that wait only in this plug-in."""
        return ()


class Interest:
    """Knows which peers want an event. `handle` exchanges subscriptions; the peer queries `table` about events."""

    kind: ClassVar[Kind] = "interest"
    needs: ClassVar[Needs] = Needs()
    messages: ClassVar[Any] = None
    settings: ClassVar[type[Settings]] = NoSettings
    about: ClassVar[str] = ""
    hears_anyone: ClassVar[bool] = False
    knows_all_subscribers: ClassVar[bool] = True
    """Whether `targets` are all peers that want an event. If not, they are at most this peer, and the others are found
    on the way: by the routing, or by the interest if the strategy has no routing or the interest has a `header`."""
    learns_late: ClassVar[bool] = False
    """Whether it may learn of subscribers long after peers begin to publish."""
    header: ClassVar[Any] = None
    """The type of the header of packets that it hands to the routing (`RouteEvent`). With one, the interest gets events
    published here and packets for this peer (`Arrived`), and those without a route (`GiveUp`); it repairs losses."""
    durable: ClassVar[bool] = True
    """Whether events survive a crash of their publisher's peer if persistence is on."""

    table: SubscriptionQueries
    """Answers the peer's questions about subscriptions."""

    def __init__(self, config: PeerConfig, table: SubscriptionQueries) -> None:
        """A subclass has the configuration as its only argument, and makes its table."""
        self.table = table

    def deadline_ns(self, event: Event, origin: PeerId, dest: PeerId, graph: GraphView) -> Nanos | None:
        """With a `header`: when a packet from a peer is due at a destination; None if it is never late."""
        return self.table.deadline_ns(event, dest, graph)

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        raise NotImplementedError

    def status(self) -> dict[str, int]:
        return {}
