"""Groups on a DHT: what `scribe` and `hermes` share.

The peer that owns the key of a topic is the root of its tree. Subscriptions travel towards it and leave reverse paths;
an event travels to the root, and from there down the paths. Filters that name no single topic belong to one group for
everything else, to which every event goes as well.
"""

from collections.abc import Callable

import msgspec

from wend.matching.filters import Filter
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import DeliverHere, Drop, Notice, PluginEffect, SendTo
from wend.strategies.ring.key_based import HOP_TRIES, LAST_TRIES, MOST_HOPS, Seen

EVERYTHING = "everything"


def group_of(wanted: Filter) -> str:
    """The group of a filter: its topic, if it is of the form `topic = '…'`."""
    return EVERYTHING if wanted.topic is None else f"topic {wanted.topic}"


def groups_of(event: Event) -> list[str]:
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
    """Passes events on to the root of their group, and down its tree once.

    `next_hop(group, avoid)` is the next peer towards the root, None at the root itself. `children(group, event)` are
    the peers to which an event goes from here, with this peer's own id for its own subscribers. `to_hop(peer, message,
    tries)` sends a message.
    """

    def __init__(
        self,
        me: PeerId,
        next_hop: Callable[[str, tuple[PeerId, ...]], PeerId | None],
        children: Callable[[str, Event], list[PeerId]],
        to_hop: Callable[[PeerId, ToRoot | DownTree, int], SendTo],
    ) -> None:
        self._me = me
        self._next_hop = next_hop
        self._children = children
        self._to_hop = to_hop
        self._passed = Seen()

    def publish(self, now: Nanos, event: Event, born_ns: Nanos) -> list[PluginEffect]:
        effects: list[PluginEffect] = []
        for group in groups_of(event):
            effects += self.climb(now, ToRoot(group, event, 0, 0), born_ns)
        return effects

    def climb(self, now: Nanos, message: ToRoot, born_ns: Nanos, avoid: tuple[PeerId, ...] = ()) -> list[PluginEffect]:
        """Pass an event on towards the root, or down from there."""
        group, event, hops = message.group, message.event, message.hops
        hop = self._next_hop(group, avoid)
        if hop is None:
            return self.descend(now, group, event, born_ns, hops)
        if hops >= MOST_HOPS:
            return [Drop(event.id, (hop,), "routing-loop")]
        return [self._to_hop(hop, ToRoot(group, event, now - born_ns, hops + 1), HOP_TRIES)]

    def descend(self, now: Nanos, group: str, event: Event, born_ns: Nanos, hops: int) -> list[PluginEffect]:
        """Pass an event on to the children, and to this peer's own subscribers."""
        if not self._passed.add((group, event.id)):
            return [Notice("duplicate", self._me)]
        effects: list[PluginEffect] = []
        for peer in self._children(group, event):
            if peer != self._me:
                onward = DownTree(group, event, now - born_ns, hops + 1)
                effects.append(self._to_hop(peer, onward, LAST_TRIES))
            elif event.id.publisher != self._me:  # the publisher's own subscribers have it already
                effects.append(DeliverHere(event, born_ns))
        return effects
