"""The inputs and effects of `Plugin.handle`."""

from typing import Any, Literal

import msgspec

from wend.model.events import Event, PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.notices import DropCode
from wend.protocol.plugins.copy_ranks import Ranks
from wend.protocol.ports import (
    ContactFound,
    Drop,
    FindPath,
    JoinMulticast,
    LeaveMulticast,
    Multicast,
    MulticastMembers,
    Notice,
    PathFound,
    PeerForgotten,
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
    """Whether the driver still looks for contacts. It reports each as `ContactFound`."""


class Recalled(msgspec.Struct, frozen=True, gc=False):
    """A message that the plug-in asked to `Remember` in an earlier incarnation. It precedes `Begun`."""

    message: Any


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A message from the same plug-in at another peer."""

    sender: PeerId
    message: Any


class Undelivered(msgspec.Struct, frozen=True, gc=False):
    """A `SendTo` with `acknowledged` got no ACK. With this peer's own id: a `Multicast` is too large to send."""

    peer: PeerId
    message: Any
    """The message. An event in it has its current age."""


class Unanswered(msgspec.Struct, frozen=True, gc=False):
    """To the membership: a peer did not acknowledge a `SendTo` of some plug-in. It may be gone."""

    peer: PeerId


class Due(msgspec.Struct, frozen=True, gc=False):
    """The time of a `Timer` has come."""

    name: str = ""


class LinkChanged(msgspec.Struct, frozen=True, gc=False):
    """A link was made, went down, came back, or ended."""

    peer: PeerId
    up: bool
    fresh: bool = False
    """Whether the neighbour may lack earlier messages and so needs the full state."""
    restarted: bool = False
    """Whether the neighbour began a new incarnation, so that its earlier messages are void."""


class LinksChanged(msgspec.Struct, frozen=True, gc=False):
    """The links of this peer, or their delays, reliabilities or paths, have changed."""


class Changed(msgspec.Struct, frozen=True, gc=False):
    """As an effect: other plug-ins can see a change in this one. As an input: another plug-in has changed."""

    what: str
    """The changed state: `links` for the overlay, `interest` for subscriptions, `trees`, or `ownership` for the keys
    that this peer owns. Plug-ins may add their own."""


# ---------------------------------------------------------------- inputs of interest and routing


class SubscriptionsChanged(msgspec.Struct, frozen=True, gc=False):
    """To the interest: subscriptions or advertisements of this peer changed."""


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """To the routing: an event to forward to `dests`, from a neighbour or (sender is this peer) from here. To the
    interest, if the strategy has no routing or packets carry a `header` of the interest: an event that was published
    here, without `dests`, or a packet for this peer.

    `born_ns` is when it was published, in this peer's own time: now minus its age.
    """

    sender: PeerId
    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    """Empty if the interest does not know all subscribers."""
    path: tuple[PeerId, ...] = ()
    """The peers that forwarded this packet, in order."""
    header: Any = None
    """The header from the routing of the previous hop; None for an event from here."""
    ranks: Ranks = ()


class Failed(msgspec.Struct, frozen=True, gc=False):
    """To the routing: no transmission that a `Forward` allowed was acknowledged."""

    forward: "Forward"
    congested: bool = False
    """Whether it was not sent because it would have been late, behind others that wait for the link."""


class Acked(msgspec.Struct, frozen=True, gc=False):
    """To the routing: a `Forward` with `confirm` was acknowledged."""

    forward: "Forward"


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """From the routing: there is no route now. With persistence the peer stores the event and retries it; without, it
    drops it. If packets carry a header of the interest, the interest gets this as an input instead."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    code: DropCode
    ranks: Ranks = ()
    header: Any = None
    """The header of the interest; the host adds it."""


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
    | GiveUp
    | Planned
    | PathFound
    | ContactFound
    | Stopping
    | PeerForgotten
)

# ---------------------------------------------------------------- effects of every plug-in

Slot = tuple[str, PeerId]
"""The subject of a control message: a newer message replaces an older one of the same slot."""


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Send a message to a neighbour, and repeat it until it is acknowledged or a newer one of the slot replaces it."""

    peer: PeerId
    slot: Slot | None
    """A message with a slot may be of any length; one without must fit a datagram."""
    message: Any


class SendTo(msgspec.Struct, frozen=True, gc=False):
    """Send a message to any peer whose address is known, with or without a link."""

    peer: PeerId
    message: Any
    acknowledged: bool = False
    """Whether to repeat it a few times until it is acknowledged, and report `Undelivered` if it never is."""
    wait_ns: Nanos = 0
    """The first timeout, which doubles with each repetition; 0: that of the link layer."""
    tries: int = 0
    """The number of transmissions; 0: the usual number."""


class Timer(msgspec.Struct, frozen=True, gc=False):
    """Send `Due(name)` at this time. Every timer fires; there is no cancelling."""

    time_ns: Nanos
    name: str = ""


class Remember(msgspec.Struct, frozen=True, gc=False):
    """Store this message if persistence is on: the next incarnation gets it as `Recalled`."""

    key: int
    """The subject of the message, for example a peer's id. A newer message replaces an older one of the same key."""
    message: Any
    """The message. A field with a time of the peer has one of the names in `records.TIME_FIELDS`."""


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
    """Neighbours that did not acknowledge this packet; the plug-in's own memory, not sent."""
    tries: int = 0
    """Transmissions over this link; 0 means the configured number."""
    confirm: bool = False
    """Whether to report `Acked` when the ACK arrives, beside `Failed` when it does not."""
    due: tuple[Nanos, ...] = ()
    """By destination: when the packet has to arrive at the neighbour to be in time; empty if it is never late."""
    retries: int = 0
    """With the failure detector: further transmissions while loss explains a missing ACK better than an outage."""


def give_up_failed(forward: Forward) -> GiveUp:
    """Give up a `Forward` that failed, for strategies that know no other route."""
    return GiveUp(forward.event, forward.born_ns, forward.dests, "no-answer", forward.ranks)


class RouteEvent(msgspec.Struct, frozen=True, gc=False):
    """From the interest: forward this event to its destinations. The routing gets the `Arrived`."""

    arrived: Arrived


class DeliverHere(msgspec.Struct, frozen=True, gc=False):
    """From the interest: the event has reached this peer. Deliver it to the subscriptions here that want it."""

    event: Event
    born_ns: Nanos


class InterestLearned(msgspec.Struct, frozen=True, gc=False):
    """From the interest: it has received the subscriptions of this peer, for the first time or again."""

    peer: PeerId
    returned: bool = False
    """Whether the peer has restarted, and wants the events published meanwhile."""


class MakeLink(msgspec.Struct, frozen=True, gc=False):
    """From the membership: make a link to this peer."""

    peer: PeerId
    path: Path
    """The underlay path from here, as measured or inferred."""


class Reroute(msgspec.Struct, frozen=True, gc=False):
    """From the membership: the underlay path of a link has changed."""

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
    "routing": _COMMON | {Forward, GiveUp},
}
"""The effects allowed for each kind of plug-in."""
