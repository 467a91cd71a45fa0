"""Groups on a DHT: what `scribe` and `hermes` share.

The peer that owns the key of a topic is the root of its tree. Subscriptions travel towards it and leave reverse paths.
An event travels to the root, and from there down the paths. Filters that name no single topic belong to one group for
everything else, to which every event goes, too.
"""

from collections.abc import Callable

import msgspec

from wend.matching.filters import Filter
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import DeliverHere, Notice
from wend.strategies.ring.bounded import RecentItems
from wend.strategies.ring.key_based import LAST_TRIES, MAX_HOPS, KeyBasedInterest

EVERYTHING = "everything"


def find_group(filter_: Filter) -> str:
    """The group of a filter: its topic, if it is of the form `topic = '…'`."""
    return EVERYTHING if filter_.topic is None else f"topic {filter_.topic}"


def find_groups(event: Event) -> list[str]:
    """The groups to which an event goes."""
    topic = event.attributes.get("topic")
    return [f"topic {topic}", EVERYTHING] if isinstance(topic, str) else [EVERYTHING]


class ToRoot(msgspec.Struct, frozen=True, gc=False, tag="gp"):
    """An event on its way to the root of the group."""

    group: str
    event: Event
    age_ns: Nanos
    hops: int


class DownTree(msgspec.Struct, frozen=True, gc=False, tag="gd"):
    """An event on its way down the tree of the group."""

    group: str
    event: Event
    age_ns: Nanos
    hops: int


class GroupEvents:
    """Forwards events to the root of their group, and once down its tree.

    `children(group, event)` are the peers to which an event goes from here, with this peer's own id for its own
    subscribers.
    """

    def __init__(self, interest: KeyBasedInterest, children: Callable[[str, Event], list[PeerId]]) -> None:
        self._interest = interest
        self._children = children
        self._forwarded = RecentItems()

    def publish(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        if not self._interest.ring.has_joined:
            self._interest.drop_too_early(event.id)
            return
        for group in find_groups(event):
            self._forward_to_root(now, ToRoot(group, event, 0, 0), born_ns)

    def on_event(self, now: Nanos, sender: PeerId, message: ToRoot | DownTree) -> None:
        born_ns = self._interest.publication_time_ns(now, sender, message.age_ns)
        if isinstance(message, ToRoot):
            self._forward_to_root(now, message, born_ns)
        else:
            self._forward_to_children(now, message.group, message.event, born_ns, message.hops)

    def reroute(self, now: Nanos, dead: PeerId, message: ToRoot) -> None:
        """Forward an event over another hop than the peer that does not answer."""
        self._interest.out.append(Notice("reroute", dead))
        self._forward_to_root(now, message, now - message.age_ns, (dead,))

    def _forward_to_root(self, now: Nanos, message: ToRoot, born_ns: Nanos, avoid: tuple[PeerId, ...] = ()) -> None:
        """Forward an event towards the root, or down the tree if this peer is the root."""
        group, event, hops = message.group, message.event, message.hops
        hop = self._interest.next_hop_to(group, avoid)
        if hop is None:
            self._forward_to_children(now, group, event, born_ns, hops)
        elif hops >= MAX_HOPS:
            self._interest.drop_circling(event.id, hop)
        else:
            self._interest.send(hop, ToRoot(group, event, now - born_ns, hops + 1))

    def _forward_to_children(self, now: Nanos, group: str, event: Event, born_ns: Nanos, hops: int) -> None:
        """Forward an event to the children, and deliver it to this peer's own subscribers."""
        interest = self._interest
        if not self._forwarded.add((group, event.id)):
            interest.out.append(Notice("duplicate", interest.me))
            return
        for peer in self._children(group, event):
            if peer != interest.me:
                interest.send(peer, DownTree(group, event, now - born_ns, hops + 1), LAST_TRIES)
            elif event.id.publisher != peer:  # the publisher's own subscribers have it already
                interest.out.append(DeliverHere(event, born_ns))
