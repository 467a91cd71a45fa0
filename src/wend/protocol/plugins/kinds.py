"""The kinds of plug-ins, what each declares, and what the peer asks of it beside `handle`."""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

import msgspec

from wend.model.events import EventId, PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.plugins.ports import Kind, PluginEffect, PluginInput
from wend.protocol.plugins.subscriptions import SubscriptionQueries
from wend.protocol.plugins.view import View

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
    """The same with persistence, where stored events name their destinations."""
    membership: str | None = None
    """Of a routing: the membership to host, unless the configuration names one."""


class NoSettings(Settings, frozen=True, kw_only=True):
    """For plug-ins that have none."""


class Plugin(Protocol):
    """What every plug-in declares and does. It inherits from one of the kinds below."""

    kind: ClassVar[Kind]
    needs: ClassVar[Needs]
    messages: ClassVar[Any]
    """The type of its messages: a tagged msgspec.Struct, or a union of such; None if it sends none."""
    settings: ClassVar[type[Settings]]
    hears_anyone: ClassVar[bool]
    """Whether it gets messages of peers that have no link to this one. Others are refused."""
    about: ClassVar[str]
    """A remark beside its name in lists."""

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
    """Whether peers need no links and join by any peer that they know."""
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
    """The type of the header that its packets carry to the next hop; None where they carry none."""
    effort: ClassVar[float] = 1.0
    """How long a packet takes to simulate, relative to a fixed tree."""

    def __init__(self, config: PeerConfig) -> None: ...

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        raise NotImplementedError

    def status(self) -> dict[str, int]:
        return {}

    def unfinished(self) -> Iterable[EventId]:
        """Events that wait in this plug-in and nowhere else."""
        return ()


class Interest:
    """Knows who wants an event. `handle` decides what it tells to whom; the peer asks `table` about events."""

    kind: ClassVar[Kind] = "interest"
    needs: ClassVar[Needs] = Needs()
    messages: ClassVar[Any] = None
    settings: ClassVar[type[Settings]] = NoSettings
    about: ClassVar[str] = ""
    hears_anyone: ClassVar[bool] = False
    learns_late: ClassVar[bool] = False
    """Whether peers may publish long before it knows all who want an event."""
    names_everyone: ClassVar[bool] = True
    """Whether `targets` are all peers that want an event; else only this peer, and the routing finds the others."""
    takes_packets: ClassVar[bool] = False
    """Whether it gets packets for this peer, as `Arrived`, and repairs losses by itself. Else the peer delivers them,
    and with persistence it stores those for others."""
    durable: ClassVar[bool] = True
    """Whether events survive a crash of their publisher's peer, where persistence is on."""

    table: SubscriptionQueries
    """Answers the peer's questions about subscriptions."""

    def __init__(self, config: PeerConfig, table: SubscriptionQueries) -> None:
        """A subclass has the configuration as its only argument, and makes its table."""
        self.table = table

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        raise NotImplementedError

    def status(self) -> dict[str, int]:
        return {}
