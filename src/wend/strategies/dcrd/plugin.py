"""Delay-Cognizant Reliable Delivery (DCRD) as in the paper: the named baseline.

Algorithm 2 (section III-D): for every destination a peer tries the neighbours of the sending list in order,
with one copy of the packet per next hop. If none is left, it hands the packet back to the peer it first came
from. Three rules fill gaps in the text. A peer remembers for each packet the neighbours that did not answer,
since the routing path does not list them. It retries the return hop a bounded number of times. It suppresses
a second copy of a packet that it has already forwarded (`copy_ranks.py` says when).
"""

from typing import Any, ClassVar

from wend.model.events import Event, PeerId
from wend.model.units import MS, Nanos
from wend.protocol.plugins import (
    Arrived,
    Changed,
    Due,
    Failed,
    Forward,
    ForwardedCopies,
    GiveUp,
    Heard,
    LinkChanged,
    LinkSettings,
    Notice,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Ranks,
    Refuse,
    Routing,
    Tell,
    Timer,
    View,
    fork,
    return_upstream,
)
from wend.strategies.dcrd.expectations import Expectations, ExpectationTable, is_valid

COLLECT_NS = 50 * MS
"""A peer collects changes of <d, r> for this long, then sends them in one batch per neighbour."""


class Dcrd(Routing):
    """Routes each packet by the sending lists of its (publisher, subscriber) pairs."""

    messages: ClassVar[Any] = Expectations
    effort: ClassVar[float] = 1.5

    def __init__(self, config: PeerConfig) -> None:
        self._transmissions = config.of(LinkSettings).transmissions
        self.table = ExpectationTable()
        self._forwarded = ForwardedCopies()
        self._is_stale = True
        self._update_ns: Nanos | None = None

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if type(event) is Arrived:  # most inputs, so not the last of seven patterns
            return self._on_arrived(now, event, view)
        match event:
            case Failed(forward):
                return self._on_failed(now, forward, view)
            case Heard(sender, batch):
                if not is_valid(batch):
                    return [Refuse(sender, "invalid-expectations")]
                return self._schedule_update(now) if self.table.store(sender, batch) else []
            case Changed():
                self._is_stale = True
                self.table.drop_former_neighbours(view.links)
                return self._schedule_update(now)
            case LinkChanged(peer, up=True, fresh=True, restarted=restarted):
                if restarted:
                    self.table.forget(peer)
                return [
                    *self._schedule_update(now),
                    *(Tell(peer, None, batch) for batch in self.table.all_announcements()),
                ]
            case Due():
                return self._send_updates(view)
        return []

    # ---- Algorithm 1

    def _schedule_update(self, now: Nanos) -> list[PluginEffect]:
        if self._update_ns is not None:
            return []
        self._update_ns = now + COLLECT_NS
        return [Timer(self._update_ns)]

    def _send_updates(self, view: View) -> list[PluginEffect]:
        self._update_ns = None
        if self._is_stale:
            self._is_stale = False
            pairs = view.interest.table.pairs(view.graph)
            distances = {p: view.graph.distances(p) for p in sorted({p for p, _ in pairs})}
            self.table.rebuild(view.me, pairs, distances, view.links, self._transmissions)
        batches = self.table.update()
        told: list[PluginEffect] = [Tell(n, None, batch) for batch in batches for n in view.neighbours]
        if self.table.unstable_pairs:
            told.append(Notice("unstable-pairs", view.me, self.table.unstable_pairs))
        return told

    # ---- Algorithm 2

    def _on_arrived(self, now: Nanos, packet: Arrived, view: View) -> list[PluginEffect]:
        dests, ranks, me = packet.dests, packet.ranks, view.me
        if packet.sender == me or me in packet.path:  # from here, or handed back
            return self._forward(packet.event, packet.born_ns, dests, ranks, packet.path, (), view)
        event = packet.event
        fresh, ranks = self._forwarded.record(event.id, dests, ranks)
        on = self._forward(event, packet.born_ns, fresh, ranks, packet.path, (), view) if fresh else []
        if fresh is not dests and len(fresh) < len(dests):
            on.append(Notice("duplicate", packet.sender))
        return on

    def _on_failed(self, now: Nanos, failed: Forward, view: View) -> list[PluginEffect]:
        event, dests = failed.event, failed.dests
        if failed.tries:
            return [GiveUp(event, failed.born_ns, dests, "no-return-route", failed.ranks)]
        tried = (*failed.tried, failed.peer)
        ranks = tuple(fork(rank, view.me) for rank in failed.ranks or (0,) * len(dests))
        again = self._forward(event, failed.born_ns, dests, ranks, failed.path, tried, view)
        return [Notice("reroute", failed.peer), *again]

    def _forward(
        self,
        event: Event,
        born_ns: Nanos,
        dests: tuple[PeerId, ...],
        ranks: Ranks,
        path: tuple[PeerId, ...],
        tried: tuple[PeerId, ...],
        view: View,
    ) -> list[PluginEffect]:
        """Forward one copy per next hop, in the order of the first destination that needs it."""
        publisher, lists = event.id[0], self.table.lists
        if len(dests) == 1:  # most packets, after the last branch
            for hop in lists.get((publisher, dests[0])) or self._neighbours_by_delay(dests[0], view):
                if hop not in path and hop not in tried:
                    return [Forward(hop, event, born_ns, dests, path, None, ranks, tried)]
        groups, stuck = self._group_by_next_hop(publisher, dests, path, tried, view)
        if len(groups) == 1 and not stuck:
            return [Forward(hop, event, born_ns, dests, path, None, ranks, tried) for hop in groups]
        rank_of = dict(zip(dests, ranks, strict=False)) if ranks else {}
        effects: list[PluginEffect] = [
            Forward(
                hop,
                event,
                born_ns,
                tuple(group),
                path,
                None,
                tuple([rank_of[d] for d in group]) if ranks else (),
                tried,
            )
            for hop, group in groups.items()
        ]
        if stuck:
            its_ranks = tuple([rank_of.get(dest, 0) for dest in stuck])
            effects.append(return_upstream(event, born_ns, tuple(stuck), its_ranks, path, view))
            self._forwarded.give_back(event.id, tuple(stuck))
        return effects

    def _group_by_next_hop(
        self,
        publisher: PeerId,
        dests: tuple[PeerId, ...],
        path: tuple[PeerId, ...],
        tried: tuple[PeerId, ...],
        view: View,
    ) -> tuple[dict[PeerId, list[PeerId]], list[PeerId]]:
        """The destinations by next hop, and those to which no neighbour is left."""
        lists = self.table.lists
        groups: dict[PeerId, list[PeerId]] = {}
        stuck: list[PeerId] = []
        for dest in dests:
            for hop in lists.get((publisher, dest)) or self._neighbours_by_delay(dest, view):
                if hop not in path and hop not in tried:
                    if hop in groups:
                        groups[hop].append(dest)
                    else:
                        groups[hop] = [dest]
                    break
            else:
                stuck.append(dest)
        return groups, stuck

    def _neighbours_by_delay(self, dest: PeerId, view: View) -> tuple[PeerId, ...]:
        """The next hops of a pair without a list: the neighbours by their delay to the destination."""
        distance = view.graph.distances(dest)
        near = [(view.links[n].delay_ns + distance[n], n) for n in view.neighbours if n in distance]
        return tuple(n for _, n in sorted(near))
