"""Wend's own strategy: skip what is known to be down, and hedge where a failure could not be mended in time.

Like dcrd it decides hop by hop and hands back what cannot go on. Unlike dcrd

- it probes: a link that is silent, or leaves a packet unanswered, is skipped until it is heard again,
  and what was under way over it is sent another way at once;
- it orders next hops by the delay that is left from there, and looks ahead: if a link further on is down,
  can the next peer still go round it in time? Is there time here to wait for the ACK and then take the
  second best? Where the answer is no, and links fail often enough around here, the packet goes two ways
  at once (a hedge), the second avoiding the links that are in doubt;
- where the routers beneath links are known, ways over what seems to have failed go last, and hedges go apart
  (`suspicion.py`);
- how much it may spend is the user's choice: `none` never hedges, `tight` hedges once per packet and
  destination, `free` as often as it seems worth it.

A hedged hop tries a third way only if both were in vain.
"""

from math import inf
from typing import Annotated, ClassVar

import msgspec

from wend.model.choices import Redundancy
from wend.model.events import Event, EventId, PeerId
from wend.model.settings import Settings, setting
from wend.model.units import SECOND, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.copy_ranks import ForwardedCopies, Ranks, fork, hedge, is_hedged
from wend.protocol.plugins import (
    LINK_STATE,
    Acked,
    Arrived,
    Changed,
    Failed,
    Forward,
    GiveUp,
    LinkView,
    Needs,
    PluginEffect,
    PluginInput,
    Routing,
    View,
)
from wend.protocol.ports import Notice
from wend.protocol.routing.dcrd import back
from wend.protocol.routing.routes import Edge, Route, RouteTable
from wend.protocol.routing.shared_risk import Parts, SharedRisk

OUTAGE_NS: Nanos = SECOND
"""About how long an outage lasts; only the risk of a link that was just heard, or lost, depends on it."""
DOUBTFUL = 0.5
"""A way that is more likely broken than not is left aside where another is in time."""
WORTH = {"none": 1.1, "tight": 0.003, "free": 0.0005}
"""A hedge must raise the chance of being on time by at least this much for each link that the second way costs."""


class AdaptiveSettings(Settings, frozen=True, kw_only=True):
    """How much redundancy `adaptive` may spend."""

    title: ClassVar[str] = "Strategy adaptive"

    redundancy: Annotated[
        Redundancy,
        setting("Copies sent ahead of a loss: none, tight (once per packet and destination) or free (when it pays)."),
    ] = "tight"


class Packet(msgspec.Struct, frozen=True, gc=False):
    """What is to be carried on from here, and what was tried for it already."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    ranks: Ranks
    path: tuple[PeerId, ...]
    tried: tuple[PeerId, ...]


class Adaptive(Routing):
    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,), failure_detector=True, paths=True)
    settings: ClassVar[type[Settings]] = AdaptiveSettings
    effort: ClassVar[float] = 6.0
    about: ClassVar[str] = "Wend's own"

    def __init__(self, config: PeerConfig) -> None:
        self._redundancy = config.of(AdaptiveSettings).redundancy
        self._trace_paths = config.of(LinkSettings).trace_paths
        self._ways: RouteTable | None = None
        self._suspicion: SharedRisk | None = None
        """Only where paths beneath links are known."""
        self._traced = False
        self._taken = ForwardedCopies()
        self._twins: dict[tuple[EventId, PeerId], tuple[int, bool]] = {}
        """Per hedged destination: copies not yet answered for, and whether one was acknowledged."""

    @property
    def routes(self) -> RouteTable | None:
        """The routes that it computed for the graph as it is; None before it needs them."""
        return self._ways

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if type(event) is Arrived:
            return self._arrived(now, event, view)
        match event:
            case Failed(forward):
                return self._failed(now, forward, view)
            case Acked(forward):
                for dest in forward.dests:
                    self._settle((forward.event.id, dest), True)
            case Changed():
                if self._ways is not None and not self._ways.hold(view):
                    self._ways = None
                self._traced, self._suspicion = self._trace_paths, None
        return []

    def _arrived(self, now: Nanos, packet: Arrived, view: View) -> list[PluginEffect]:
        dests, ranks = packet.dests, packet.ranks
        if packet.sender != view.me and view.me not in packet.path:
            dests, ranks = self._taken.take(packet.event.id, dests, ranks)
        on = []
        if dests:
            ranks = ranks or (0,) * len(dests)
            on = self._next(now, Packet(packet.event, packet.born_ns, dests, ranks, packet.path, ()), view)
        if len(dests) < len(packet.dests):
            on.append(Notice("duplicate", packet.sender))
        return on

    def _failed(self, now: Nanos, failed: Forward, view: View) -> list[PluginEffect]:
        if failed.tries:
            return [GiveUp(failed.event, failed.born_ns, failed.dests, "return route down", failed.ranks)]
        open_ = [
            (dest, fork(rank, view.me))
            for dest, rank in zip(failed.dests, failed.ranks, strict=True)
            if self._settle((failed.event.id, dest), False)
        ]
        if not open_:
            return [Notice("copy-superseded", failed.peer)]
        dests, ranks = tuple(d for d, _ in open_), tuple(m for _, m in open_)
        tried = (*failed.tried, failed.peer)
        again = self._next(now, Packet(failed.event, failed.born_ns, dests, ranks, failed.path, tried), view)
        return [Notice("reroute", failed.peer), *again]

    def _settle(self, key: tuple[EventId, PeerId], acked: bool) -> bool:
        """True if the destination needs another try: no copy of it is on its way from here any more."""
        left, good = self._twins.pop(key, (1, False))
        good = good or acked
        if left > 1:
            self._twins[key] = (left - 1, good)
            return False
        return not good

    def _next(self, now: Nanos, packet: Packet, view: View) -> list[PluginEffect]:
        if self._ways is None:
            self._ways = RouteTable(view)
        blamed = self._blamed(now, view) if self._traced else []
        links, path, tried = view.links, packet.path, packet.tried
        untried = {hop for hop in links if hop not in path and hop not in tried}
        up = {hop for hop in untried if links[hop].seems_up(now)}
        groups: dict[PeerId, list[tuple[PeerId, int]]] = {}
        stuck: list[tuple[PeerId, int]] = []
        hedges = 0
        for dest, rank in zip(packet.dests, packet.ranks, strict=True):
            open_, shut = _sorted(self._ways.to(dest), untried, up)
            if not open_:
                stuck.append((dest, rank))
                continue
            if blamed and len(open_) > 1:
                open_ = self._doubtful_last(now, dest, open_, blamed, packet, view)
            best = rank
            second = self._second(now, dest, rank, open_, shut, blamed, packet, view)
            if second is not None:
                hedges += 1
                under_way, _ = self._twins.get((packet.event.id, dest), (0, False))
                self._twins[packet.event.id, dest] = (under_way + 2, False)
                groups.setdefault(second.hop, []).append((dest, hedge(rank)))
                best = hedge(fork(rank, view.me))  # the better way carries the higher copy
            groups.setdefault(open_[0].hop, []).append((dest, best))
        effects: list[PluginEffect] = [_forward(hop, group, packet) for hop, group in groups.items()]
        if hedges:
            effects.append(Notice("hedge", view.me, hedges))
        if stuck:
            dests, ranks = tuple(d for d, _ in stuck), tuple(m for _, m in stuck)
            self._taken.give_back(packet.event.id, dests)
            effects.append(back(packet.event, packet.born_ns, dests, ranks, packet.path, view))
        return effects

    def _blamed(self, now: Nanos, view: View) -> list[Parts]:
        if self._suspicion is None:
            found = SharedRisk(view)
            if not found.known:
                self._traced = False
                return []
            self._suspicion = found
        return self._suspicion.blamed(now, view.links)

    def _doubtful_last(
        self, now: Nanos, dest: PeerId, open_: list[Route], blamed: list[Parts], packet: Packet, view: View
    ) -> list[Route]:
        """Ways over what seems to have failed come after those that are in time without."""
        assert self._suspicion is not None
        doubtful = [self._suspicion.doubt(way, blamed) >= DOUBTFUL for way in open_]
        if not any(doubtful):
            return open_
        deadline = view.interest.deadline_ns(packet.event, dest, view.graph)
        slack = inf if deadline is None else deadline - (now - packet.born_ns)
        order = sorted(range(len(open_)), key=lambda i: (open_[i].delay_ns > slack, doubtful[i], i))
        return [open_[i] for i in order]

    def _second(
        self,
        now: Nanos,
        dest: PeerId,
        rank: int,
        open_: list[Route],
        shut: list[Route],
        blamed: list[Parts],
        packet: Packet,
        view: View,
    ) -> Route | None:
        """The way of a hedge, where one is worth its price."""
        level = self._redundancy
        if level == "none" or (level == "tight" and is_hedged(rank)):
            return None
        deadline = view.interest.deadline_ns(packet.event, dest, view.graph)
        if deadline is None:
            return None
        slack = deadline - (now - packet.born_ns)
        if open_[0].delay_ns > slack:
            return self._perhaps_back(shut, slack, WORTH[level], view)
        rest = [way for way in open_[1:] if way.delay_ns <= slack]
        return self._worthwhile(now, open_[0], rest, slack, WORTH[level], blamed, view) if rest else None

    def _perhaps_back(self, shut: list[Route], slack: Nanos, worth: float, view: View) -> Route | None:
        """Only a link that is thought down would be in time: it may be back, and that not be known yet."""
        for way in shut:
            link = view.links[way.hop]
            unknown = link.silence_ns // 2 + link.delay_ns
            if way.delay_ns <= slack and unknown / OUTAGE_NS >= worth * way.hops:
                return way
        return None

    def _worthwhile(
        self, now: Nanos, first: Route, rest: list[Route], slack: Nanos, worth: float, blamed: list[Parts], view: View
    ) -> Route | None:
        assert self._ways is not None and view.outages is not None
        down = view.outages.outage_share(now)
        link = view.links[first.hop]
        around = self._ways.detour_ns
        critical = {
            edge for edge in first.beyond if around(first, edge) > slack and _handed_back_ns(rest, edge, link) > slack
        }
        unhurried = link.timeout_ns + rest[0].delay_ns <= slack
        if unhurried and not critical and self._suspicion is None:
            return None  # whatever fails can be mended: nothing is gained
        if self._suspicion is None:
            second = min(rest, key=lambda way: (len(critical & way.beyond), way.delay_ns, way.hop))
            gain = down * len(critical - second.beyond)
        else:
            gain, second = self._most_apart(first, rest, critical, down, worth, blamed)
        if not unhurried:
            # the link from here was heard a moment ago: it can only have failed since
            gain += down * min(1.0, (now - link.heard_ns + 2 * link.delay_ns) / OUTAGE_NS)
        return second if gain >= worth * second.hops else None

    def _most_apart(
        self, first: Route, rest: list[Route], critical: set[Edge], down: float, worth: float, blamed: list[Parts]
    ) -> tuple[float, Route]:
        """What is gained by the way that is worth its price most, where it is known what ways have in common."""
        assert self._suspicion is not None
        gains = [
            down * self._suspicion.apart(critical, way) + self._suspicion.spared(first, way, blamed) for way in rest
        ]
        best = max(range(len(rest)), key=lambda i: (gains[i] - worth * rest[i].hops, -i))
        return gains[best], rest[best]


def _sorted(ways: tuple[Route, ...], untried: set[PeerId], up: set[PeerId]) -> tuple[list[Route], list[Route]]:
    """Ways over hops that were not tried: those that seem up, and the others. If none seems up, any will do."""
    open_ = [way for way in ways if way.hop in up]
    if len(up) == len(untried):
        return open_, []
    shut = [way for way in ways if way.hop in untried and way.hop not in up]
    return (open_, shut) if open_ else (shut, [])


def _handed_back_ns(rest: list[Route], edge: Edge, link: LinkView) -> float:
    """The delay if the hop finds a link further on down and hands the packet back, for the best way that is left."""
    for way in rest:
        if edge not in way.beyond:
            return 2 * link.delay_ns + way.delay_ns
    return inf


def _forward(hop: PeerId, group: list[tuple[PeerId, int]], packet: Packet) -> Forward:
    dests, ranks = tuple([d for d, _ in group]), tuple([m for _, m in group])
    confirm = any(map(is_hedged, ranks))
    return Forward(hop, packet.event, packet.born_ns, dests, packet.path, None, ranks, packet.tried, 0, confirm)
