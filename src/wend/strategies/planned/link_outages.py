"""The links that are down, as the peers at their ends flood it."""

import msgspec

from wend.model.events import PeerId
from wend.model.units import MS, Nanos
from wend.protocol.plugins import LinkChanged, LinkView, PluginEffect, Refuse, Tell, Timer, View
from wend.strategies.planned.shares import Edge, make_edge

CHECK_NS: Nanos = 200 * MS
"""How often a peer checks whether a link of its own that was down works again."""
MAX_DOWN = 1024
"""The most links that a peer may say are down."""


class LinkOutages(msgspec.Struct, frozen=True, gc=False, tag="o"):
    """The neighbours that a peer cannot reach; flooded."""

    origin: PeerId
    version: tuple[int, int]
    """Incarnation and count of changes; a higher one replaces a lower one."""
    down: tuple[PeerId, ...]


class FailedLinks:
    """The links that are down, as far as this peer knows. Both ends of a link flood its failure."""

    def __init__(self, me: PeerId, incarnation: int) -> None:
        self.down: frozenset[Edge] = frozenset()
        self._own = LinkOutages(me, (incarnation, 0), ())
        self._others: dict[PeerId, LinkOutages] = {}
        """By origin: the last message."""
        self._has_timer = False
        """Whether a timer is set to check the links."""

    def on_link_changed(self, now: Nanos, event: LinkChanged, view: View) -> list[PluginEffect]:
        effects: list[PluginEffect] = []
        if event.up and event.fresh:
            known = [self._own, *(self._others[origin] for origin in sorted(self._others))]
            effects += [Tell(event.peer, ("o", each.origin), each) for each in known]
        others = set(self._own.down) - {event.peer}
        return [*effects, *self._announce(now, others if event.up else {*others, event.peer}, view)]

    def check_links(self, now: Nanos, view: View) -> list[PluginEffect]:
        """Check whether links that were down work again. An ACK may show it, and no event reports that."""
        self._has_timer = False
        working = {peer for peer in self._own.down if peer in view.links and _works(view.links[peer])}
        return self._announce(now, set(self._own.down) - working, view)

    def _announce(self, now: Nanos, down: set[PeerId], view: View) -> list[PluginEffect]:
        """Flood the links of this peer that are down, if they have changed. Set a timer while some are down."""
        own_down = tuple(sorted(down & view.links.keys()))[:MAX_DOWN]
        timer: list[PluginEffect] = [] if self._has_timer or not own_down else [Timer(now + CHECK_NS, "links")]
        self._has_timer = self._has_timer or bool(own_down)
        if own_down == self._own.down:
            return timer
        incarnation, count = self._own.version
        self._own = LinkOutages(view.me, (incarnation, count + 1), own_down)
        self._update_down()
        return [*(Tell(peer, ("o", view.me), self._own) for peer in view.neighbours), *timer]

    def on_outages(self, sender: PeerId, outages: LinkOutages, view: View) -> list[PluginEffect]:
        if len(outages.down) > MAX_DOWN:
            return [Refuse(sender, "invalid-news")]
        former = self._others.get(outages.origin)
        if outages.origin == view.me or (former is not None and former.version >= outages.version):
            return []
        self._others[outages.origin] = outages
        self._update_down()
        return [Tell(peer, ("o", outages.origin), outages) for peer in view.neighbours if peer != sender]

    def _update_down(self) -> None:
        latest = (self._own, *self._others.values())
        self.down = frozenset(make_edge(each.origin, peer) for each in latest for peer in each.down)


def _works(link: LinkView) -> bool:
    return link.is_up and link.heard_by_neighbour
