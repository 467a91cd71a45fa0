"""Adaptive, Wend's own strategy: skip links that are down, and hedge where a retry would be too late.

Like dcrd it decides hop by hop and hands a packet back if no route is left. Unlike dcrd

- it probes: if a link is silent or leaves a packet unanswered, the peer skips it until it hears the neighbour
  again, and sends the packets in transit over it by another route at once;
- it orders next hops by the remaining delay, and looks ahead: if a link further on is down, can the next peer
  route around it in time? Is there time here to wait for the ACK and then use the second route? If not, and
  links fail often enough nearby, the peer sends the packet on two routes at once (a hedge). The second route
  avoids the links that are in doubt;
- if the underlay routers of links are known, routes over suspected routers go last, and the two routes of a
  hedge share as few routers as possible (`shared_risk.py`);
- the user chooses the redundancy: `none` never hedges, `tight` hedges once per packet and destination, `free`
  hedges whenever it pays.

After a hedge a peer tries a third next hop only if both copies failed.
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
"""The typical length of an outage. Only the risk of a link that was just heard, or just lost, depends on it."""
DOUBTFUL = 0.5
"""If a route is down with at least this probability, the peer prefers another route that is in time."""
WORTH = {"none": 1.1, "tight": 0.003, "free": 0.0005}
"""A hedge must raise the probability of timely delivery by at least this much per link of the second route."""


class AdaptiveSettings(Settings, frozen=True, kw_only=True):
    """How much redundancy `adaptive` may spend."""

    title: ClassVar[str] = "Strategy adaptive"

    redundancy: Annotated[
        Redundancy,
        setting("Copies sent ahead of a loss: none, tight (once per packet and destination) or free (when it pays)."),
    ] = "tight"


class Packet(msgspec.Struct, frozen=True, gc=False):
    """A packet to forward from here, with the next hops already tried for it."""

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
        self._routes: RouteTable | None = None
        self._shared_risk: SharedRisk | None = None
        """Set only where underlay paths of links are known."""
        self._traced = False
        self._taken = ForwardedCopies()
        self._hedged: dict[tuple[EventId, PeerId], tuple[int, bool]] = {}
        """Per hedged destination: the number of copies without an answer, and whether one was acknowledged."""

    @property
    def routes(self) -> RouteTable | None:
        """The routes for the current graph; None before they are needed."""
        return self._routes

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
                if self._routes is not None and not self._routes.hold(view):
                    self._routes = None
                self._traced, self._shared_risk = self._trace_paths, None
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
        """Count the answer to a copy. Return True if the destination needs a retry: all its copies from here failed."""
        left, good = self._hedged.pop(key, (1, False))
        good = good or acked
        if left > 1:
            self._hedged[key] = (left - 1, good)
            return False
        return not good

    def _next(self, now: Nanos, packet: Packet, view: View) -> list[PluginEffect]:
        if self._routes is None:
            self._routes = RouteTable(view)
        blamed = self._blamed(now, view) if self._traced else []
        links, path, tried = view.links, packet.path, packet.tried
        untried = [hop for hop in links if hop not in path and hop not in tried]
        up = [hop for hop in untried if links[hop].seems_up(now)]
        groups: dict[PeerId, list[tuple[PeerId, int]]] = {}
        stuck: list[tuple[PeerId, int]] = []
        hedges = 0
        for dest, rank in zip(packet.dests, packet.ranks, strict=True):
            open_, shut = _sorted(self._routes.to(dest), untried, up)
            if not open_:
                stuck.append((dest, rank))
                continue
            if blamed and len(open_) > 1:
                open_ = self._doubtful_last(now, dest, open_, blamed, packet, view)
            best = rank
            second = self._second(now, dest, rank, open_, shut, blamed, packet, view)
            if second is not None:
                hedges += 1
                under_way, _ = self._hedged.get((packet.event.id, dest), (0, False))
                self._hedged[packet.event.id, dest] = (under_way + 2, False)
                groups.setdefault(second.hop, []).append((dest, hedge(rank)))
                best = hedge(fork(rank, view.me))  # the better route gets the higher copy
            groups.setdefault(open_[0].hop, []).append((dest, best))
        effects: list[PluginEffect] = [_forward(hop, group, packet) for hop, group in groups.items()]
        if hedges:
            effects.append(Notice("hedge", view.me, hedges))
        if stuck:
            dests, ranks = tuple(d for d, _ in stuck), tuple(m for _, m in stuck)
            self._taken.give_back(packet.event.id, dests)
            effects.append(back(packet.event, packet.born_ns, dests, ranks, packet.path, view))
        return effects

    def _deadline_ns(self, packet: Packet, dest: PeerId, view: View) -> Nanos | None:
        """From publication until the event is due at a destination."""
        found: Nanos | None = view.interest.deadline_ns(packet.event, dest, view.graph)
        return found

    def _blamed(self, now: Nanos, view: View) -> list[Parts]:
        if self._shared_risk is None:
            found = SharedRisk(view)
            if not found.known:
                self._traced = False
                return []
            self._shared_risk = found
        return self._shared_risk.blamed(now, view.links)

    def _doubtful_last(
        self, now: Nanos, dest: PeerId, open_: list[Route], blamed: list[Parts], packet: Packet, view: View
    ) -> list[Route]:
        """Order the routes: those that are in time and not in doubt come first."""
        assert self._shared_risk is not None
        doubtful = [self._shared_risk.doubt(route, blamed) >= DOUBTFUL for route in open_]
        if not any(doubtful):
            return open_
        deadline = self._deadline_ns(packet, dest, view)
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
        """Return the second route of a hedge, if a hedge is worth its cost."""
        level = self._redundancy
        if level == "none" or (level == "tight" and is_hedged(rank)):
            return None
        deadline = self._deadline_ns(packet, dest, view)
        if deadline is None:
            return None
        slack = deadline - (now - packet.born_ns)
        if open_[0].delay_ns > slack:
            return self._perhaps_back(shut, slack, WORTH[level], view)
        if len(open_) == 1 or (self._shared_risk is None and self._retry_in_time(now, open_, slack, view)):
            return None
        rest = [route for route in open_[1:] if route.delay_ns <= slack]
        return self._worthwhile(now, open_[0], rest, slack, WORTH[level], blamed, view) if rest else None

    def _retry_in_time(self, now: Nanos, open_: list[Route], slack: Nanos, view: View) -> bool:
        """Whether no hedge can gain anything: a retry would be in time after any failure, or no other route is.

        The routes are in the order of their delays.
        """
        assert self._routes is not None and view.outages is not None
        first, second = open_[0], open_[1]
        if second.delay_ns > slack:
            return True
        view.outages.outage_share(now)
        retry = view.links[first.hop].timeout_ns + second.delay_ns
        return retry <= slack and self._routes.longest_detour_ns(first) <= slack

    def _perhaps_back(self, shut: list[Route], slack: Nanos, worth: float, view: View) -> Route | None:
        """Return a route over a link that seems down, if only that is in time and the link may well be up again."""
        for route in shut:
            link = view.links[route.hop]
            unknown = link.silence_ns // 2 + link.delay_ns
            if route.delay_ns <= slack and unknown / OUTAGE_NS >= worth * route.hops:
                return route
        return None

    def _worthwhile(
        self, now: Nanos, first: Route, rest: list[Route], slack: Nanos, worth: float, blamed: list[Parts], view: View
    ) -> Route | None:
        assert self._routes is not None and view.outages is not None
        down = view.outages.outage_share(now)
        link = view.links[first.hop]
        around = self._routes.detour_ns
        critical = {
            edge for edge in first.beyond if around(first, edge) > slack and _handed_back_ns(rest, edge, link) > slack
        }
        unhurried = link.timeout_ns + rest[0].delay_ns <= slack
        if unhurried and not critical and self._shared_risk is None:
            return None  # a retry would be in time after any failure: a hedge gains nothing
        if self._shared_risk is None:
            second = min(rest, key=lambda route: (len(critical & route.beyond), route.delay_ns, route.hop))
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
        """Return the gain of the second route with the best balance of gain and cost, and the route itself.

        The gain counts the underlay that the routes do not share.
        """
        assert self._shared_risk is not None
        gains = [
            down * self._shared_risk.apart(critical, route) + self._shared_risk.spared(first, route, blamed)
            for route in rest
        ]
        best = max(range(len(rest)), key=lambda i: (gains[i] - worth * rest[i].hops, -i))
        return gains[best], rest[best]


def _sorted(routes: tuple[Route, ...], untried: list[PeerId], up: list[PeerId]) -> tuple[list[Route], list[Route]]:
    """Split the routes over untried hops into those that seem up and the others. If none seems up, all are open."""
    open_ = [route for route in routes if route.hop in up]
    if len(up) == len(untried):
        return open_, []
    shut = [route for route in routes if route.hop in untried and route.hop not in up]
    return (open_, shut) if open_ else (shut, [])


def _handed_back_ns(rest: list[Route], edge: Edge, link: LinkView) -> float:
    """The delay of the best remaining route if the hop finds a link down and hands the packet back."""
    for route in rest:
        if edge not in route.beyond:
            return 2 * link.delay_ns + route.delay_ns
    return inf


def _forward(hop: PeerId, group: list[tuple[PeerId, int]], packet: Packet) -> Forward:
    dests, ranks = tuple([d for d, _ in group]), tuple([m for _, m in group])
    confirm = any(map(is_hedged, ranks))
    return Forward(hop, packet.event, packet.born_ns, dests, packet.path, None, ranks, packet.tried, 0, confirm)
