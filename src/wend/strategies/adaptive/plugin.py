"""Adaptive, Wend's own strategy: skip links that are down, and hedge where a retry would be too late.

Like dcrd it decides hop by hop and hands a packet back if no route is left. Unlike dcrd

- it skips links that are down: its own, which the failure detector finds, and those of other peers, of which
  hellos bring news (`link/news.py`). Packets in transit over a link that goes down take another route at once;
- it compares the shortest routes that are in time, each by the probability of being late (`scores.py`) and by
  the links that it costs. Links that carry the packet to other destinations cost nothing;
- if a second copy (a hedge) makes the event punctual with a probability that is worth its links, it sends one;
- it sends a packet again over the same link, if loss explains a missing ACK better than an outage;
- the user chooses the redundancy: `none` never hedges, `tight` hedges once per packet and destination, `free`
  hedges whenever it pays.

After a hedge a peer tries a third next hop only if both copies failed.
"""

from typing import Annotated, Any, ClassVar

import msgspec

from wend.model.choices import Redundancy
from wend.model.events import Event, EventId, PeerId
from wend.model.settings import Settings, everyday
from wend.model.units import FOREVER, Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    Acked,
    Arrived,
    Changed,
    Failed,
    Forward,
    ForwardedCopies,
    GiveUp,
    LinkSettings,
    Needs,
    Notice,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Ranks,
    Routing,
    View,
    fork,
    hedge,
    is_hedged,
    return_upstream,
)
from wend.strategies.adaptive.load_spreading import WORTH_NS, PricedRoutes, Spreading, class_of, weight_of
from wend.strategies.adaptive.routes import FAR, NONE, Edge, Route, RouteTable, UsableRoutes
from wend.strategies.adaptive.scores import ScoredRoute, Scorer
from wend.strategies.adaptive.shared_risk import Parts, SharedRisk
from wend.strategies.adaptive.spread_trees import Branch, SpreadTree, SpreadTrees, branches_of

PRICE = {"none": 0.0033, "tight": 0.0033, "free": 0.0005}
"""What a link of a route costs, as a probability of being late. A hedge has to gain that much for each of its links."""
ROUTES = 3
"""How many routes to a destination a peer compares."""
RETRIES = 2
"""How often it sends a packet again over the same link, where loss explains a missing ACK better than an outage."""


Group = list[tuple[PeerId, int, Nanos]]
"""Destinations of one packet: peer, rank, and when the packet has to arrive at the next hop."""
Groups = dict[PeerId, Group]
Copies = tuple[EventId, PeerId, int]
"""The copies of an event for a destination that one visit of the packet made here. The last part is the length of its
path before: if the packet comes back, an answer to an earlier copy says nothing about the later ones."""


class AdaptiveSettings(Settings, frozen=True, kw_only=True):
    """How much redundancy `adaptive` may spend."""

    title: ClassVar[str] = "Strategy adaptive"

    redundancy: Annotated[
        Redundancy,
        everyday("Copies sent ahead of a loss: none, tight (once per packet and destination) or free (when it pays)."),
    ] = "tight"


class Packet(msgspec.Struct, frozen=True, gc=False):
    """A packet to forward from here, with the next hops already tried for it."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    ranks: Ranks
    path: tuple[PeerId, ...]
    tried: tuple[PeerId, ...]
    tree: SpreadTree | None = None
    """The tree that the publisher chose, under load."""


class Adaptive(Routing):
    needs: ClassVar[Needs] = Needs(
        graphs=(LINK_STATE,), failure_detector=True, news=True, congestion_control=True, paths=True
    )
    settings: ClassVar[type[Settings]] = AdaptiveSettings
    header: ClassVar[Any] = SpreadTree
    effort: ClassVar[float] = 6.0
    about: ClassVar[str] = "Wend's own"

    def __init__(self, config: PeerConfig) -> None:
        self._redundancy = config.of(AdaptiveSettings).redundancy
        self._trace_paths = config.of(LinkSettings).trace_paths
        self._routes: RouteTable | None = None
        self._usable: UsableRoutes | None = None
        """The same without links that are down."""
        self._priced: PricedRoutes | None = None
        """The routes under load; None before they are needed."""
        self._trees: SpreadTrees | None = None
        """The trees of this peer's own events under load."""
        self._shared_risk: SharedRisk | None = None
        """Set only where underlay paths of links are known."""
        self._traced = False
        self._taken = ForwardedCopies()
        self._hedged: dict[Copies, tuple[int, bool]] = {}
        """Per hedged destination: the number of copies without an answer, and whether one was acknowledged."""

    @property
    def routes(self) -> RouteTable | None:
        """The routes for the current graph; None before they are needed."""
        return self._routes

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if type(event) is Arrived:
            return self._arrived(now, event, view)
        match event:
            case Failed(forward, congested):
                return self._unsent(now, forward, view) if congested else self._failed(now, forward, view)
            case Acked(forward):
                for dest in forward.dests:
                    self._settle((forward.event.id, dest, len(forward.path)), True)
            case Changed():
                if self._routes is not None and not self._routes.hold(view):
                    self._routes = self._usable = None
                self._traced, self._shared_risk = self._trace_paths, None
                self._priced = None
        return []

    def _arrived(self, now: Nanos, packet: Arrived, view: View) -> list[PluginEffect]:
        dests, ranks = packet.dests, packet.ranks
        if packet.sender != view.me and view.me not in packet.path:
            dests, ranks = self._taken.take(packet.event.id, dests, ranks)
        on = []
        if dests:
            ranks = ranks or (0,) * len(dests)
            tree = packet.header if type(packet.header) is SpreadTree else None
            on = self._next(now, Packet(packet.event, packet.born_ns, dests, ranks, packet.path, (), tree), view)
        if len(dests) < len(packet.dests):
            on.append(Notice("duplicate", packet.sender))
        return on

    def _failed(self, now: Nanos, failed: Forward, view: View) -> list[PluginEffect]:
        if failed.tries:
            return [GiveUp(failed.event, failed.born_ns, failed.dests, "return route down", failed.ranks)]
        open_ = [
            (dest, fork(rank, view.me))
            for dest, rank in zip(failed.dests, failed.ranks, strict=True)
            if self._settle((failed.event.id, dest, len(failed.path)), False)
        ]
        if not open_:
            return [Notice("copy-superseded", failed.peer)]
        dests, ranks = tuple(d for d, _ in open_), tuple(m for _, m in open_)
        tried = (*failed.tried, failed.peer)
        again = self._next(now, Packet(failed.event, failed.born_ns, dests, ranks, failed.path, tried), view)
        return [Notice("reroute", failed.peer), *again]

    def _unsent(self, now: Nanos, unsent: Forward, view: View) -> list[PluginEffect]:
        """Too many others wait for a link: use another one that is in time. Else the event is late, but delivered."""
        id_, visit = unsent.event.id, len(unsent.path)
        again = [i for i, dest in enumerate(unsent.dests) if self._settle((id_, dest, visit), False)]
        if not again:
            return [Notice("copy-superseded", unsent.peer)]
        dests, ranks = tuple([unsent.dests[i] for i in again]), tuple([unsent.ranks[i] for i in again])
        tried = (*unsent.tried, unsent.peer)
        return self._next(now, Packet(unsent.event, unsent.born_ns, dests, ranks, unsent.path, tried), view, True)

    def _settle(self, key: Copies, acked: bool) -> bool:
        """Count the answer to a copy. Return True if the destination needs a retry: all its copies from here failed."""
        left, good = self._hedged.pop(key, (1, False))
        good = good or acked
        if left > 1:
            self._hedged[key] = (left - 1, good)
            return False
        return not good

    def _next(self, now: Nanos, packet: Packet, view: View, loaded: bool = False) -> list[PluginEffect]:
        """`loaded`: links work that were tried, but too many packets wait for them."""
        only = self._only_way(now, packet, view)
        if only is not None:
            return [only]
        if loaded or view.graph.prices or packet.tree is not None or (view.loaded and _queue(view)):
            return self._spread(now, packet, view)
        self._priced = self._trees = None
        table = self._table(now, view)
        links, path, tried = view.links, packet.path, packet.tried
        untried = [hop for hop in links if hop not in path and hop not in tried]
        up = [hop for hop in untried if links[hop].seems_up(now)]
        if len(packet.dests) == 1 and self._deadline_ns(packet, packet.dests[0], view) is None:
            shortest = table.best(packet.dests[0], up, 1)
            if shortest:  # nothing to weigh
                return [_forward(shortest[0].hop, [(packet.dests[0], packet.ranks[0], FOREVER)], packet)]
        blamed = self._blamed(now, view) if self._traced else []
        scorer = Scorer(now, view, table, self._shared_risk, blamed)
        found: list[tuple[Nanos, PeerId, int, list[Route]]] = []
        stuck: list[tuple[PeerId, int]] = []
        for dest, rank in zip(packet.dests, packet.ranks, strict=True):
            open_ = table.best(dest, up, ROUTES)
            if open_:
                found.append((open_[0].delay_ns, dest, rank, open_))
                continue
            open_ = self._at_worst(dest, untried, up)
            if open_:
                found.append((FAR, dest, rank, open_))
            else:
                stuck.append((dest, rank))
        if len(found) > 1:  # the nearest first: a route to others may lead over it
            found.sort(key=_by_delay)
        groups: Groups = {}
        used: set[Edge] = set()
        hedges = 0
        for delay, dest, rank, open_ in found:
            slack = self._slack_ns(now, dest, packet, view)
            first, second = self._choose(dest, rank, delay, slack, open_, untried, scorer, packet, used)
            best = rank
            used |= first.links
            if second is not None:
                used |= second.links
                hedges += 1
                key = (packet.event.id, dest, len(packet.path))
                under_way, _ = self._hedged.get(key, (0, False))
                self._hedged[key] = (under_way + 2, False)
                groups.setdefault(second.hop, []).append((dest, hedge(rank), FOREVER))
                best = hedge(fork(rank, view.me))  # the better route gets the higher copy
            due = FOREVER
            if slack != FAR and slack >= first.delay_ns:
                due = now + slack - first.delay_ns + links[first.hop].delay_ns
            groups.setdefault(first.hop, []).append((dest, best, due))
        effects: list[PluginEffect] = [_forward(hop, group, packet) for hop, group in groups.items()]
        if hedges:
            effects.append(Notice("hedge", view.me, hedges))
        return effects + self._stuck(packet, stuck, view) if stuck else effects

    def _only_way(self, now: Nanos, packet: Packet, view: View) -> Forward | None:
        """The packet to the only neighbour of this peer, if it is for that one alone; None where there is a choice."""
        dests = packet.dests
        if len(dests) != 1 or len(view.links) != 1 or packet.path or packet.tried or packet.tree is not None:
            return None
        (dest,) = dests
        link = view.links.get(dest)
        if link is None or not link.seems_up(now):
            return None
        deadline = self._deadline_ns(packet, dest, view)
        if deadline is None:
            return _forward(dest, [(dest, packet.ranks[0], FOREVER)], packet)
        due = packet.born_ns + deadline
        if due < now + link.delay_ns + link.queue_ns:  # it is late, so others go first
            due = FOREVER
        return _forward(dest, [(dest, packet.ranks[0], due)], packet, timed=True)

    def _spread(self, now: Nanos, packet: Packet, view: View) -> list[PluginEffect]:
        """Forward a packet while links are full: along its tree, and by the prices of now where that would be late."""
        links, born = view.links, packet.born_ns
        up = [hop for hop in links if hop not in packet.path and links[hop].seems_up(now)]
        untried = [hop for hop in up if hop not in packet.tried]
        near = view.graph.distances(view.me)
        left = dict(sorted(zip(packet.dests, packet.ranks, strict=True), key=lambda one: near.get(one[0], 0)))
        deadlines = {dest: self._deadline_ns(packet, dest, view) for dest in left}
        groups: Groups = {}
        trees: dict[PeerId, SpreadTree] = {}
        for hop, dests, tree in self._branches(now, packet, deadlines, up, view):
            if hop in untried:
                trees[hop] = tree
                earliest = now + links[hop].delay_ns + links[hop].queue_ns
                for dest, rest in dests:
                    deadline = deadlines[dest]
                    due = FOREVER if deadline is None or rest == FOREVER else born + deadline - rest
                    if due >= earliest:
                        groups.setdefault(hop, []).append((dest, left.pop(dest), due))
        stuck: list[tuple[PeerId, int]] = []
        if left:
            if self._priced is None:
                self._priced = PricedRoutes(view)
            spreading = Spreading(self._priced, view, weight_of(class_of(packet.event.id)))
            worth = FOREVER if packet.tried else WORTH_NS
            for dest, rank in left.items():  # the far ones join routes of the near
                deadline = deadlines[dest]
                slack = FOREVER if deadline is None else deadline - now + born
                route = spreading.choose(dest, untried, slack, worth)
                due = FOREVER
                if route is None:  # it is late on every route, so others go first
                    route = spreading.choose(dest, up, FOREVER)
                elif deadline is not None:
                    due = born + deadline - route[1]
                if route is None:
                    stuck.append((dest, rank))
                else:
                    groups.setdefault(route[0], []).append((dest, rank, due))
            for hop in groups:
                trees[hop] = _joined(trees.get(hop), spreading.tree(hop))
        effects: list[PluginEffect] = []
        for hop, group in groups.items():
            timed = any(deadlines[dest] is not None for dest, _, _ in group)
            effects.append(_forward(hop, group, packet, trees[hop], timed))
        if stuck:
            effects += self._stuck(packet, stuck, view)
        return effects

    def _branches(
        self, now: Nanos, packet: Packet, deadlines: dict[PeerId, Nanos | None], up: list[PeerId], view: View
    ) -> list[Branch]:
        """The tree of a packet from here on: chosen here if this peer published it, else by its publisher."""
        if packet.tree is not None:
            return branches_of(packet.tree, view.me, tuple(deadlines), view)
        if packet.path or packet.tried:
            return []
        if self._trees is None:
            self._trees = SpreadTrees(view.me)
        wanted = tuple([(dest, FOREVER if due is None else due) for dest, due in deadlines.items()])
        return self._trees.branches(now, class_of(packet.event.id), wanted, up, view)

    def _table(self, now: Nanos, view: View) -> UsableRoutes:
        """The routes without the links that are down by the news of other peers."""
        if self._routes is None:
            self._routes, self._usable = RouteTable(view), None
        down = NONE if view.news is None else view.news.down(now)
        found = self._usable
        if found is None or (found.without is not down and found.without != down):
            found = self._usable = UsableRoutes(self._routes, down)
        return found

    def _at_worst(self, dest: PeerId, untried: list[PeerId], up: list[PeerId]) -> list[Route]:
        """The routes to try if none seems up: those that only the news of others rules out, else all."""
        assert self._routes is not None
        routes = [route for route in self._routes.to(dest) if route.hop in untried]
        return [route for route in routes if route.hop in up] or routes

    def _slack_ns(self, now: Nanos, dest: PeerId, packet: Packet, view: View) -> Nanos:
        """How long from now the event is due at a destination; FAR where it has no deadline."""
        deadline = self._deadline_ns(packet, dest, view)
        return FAR if deadline is None else deadline - (now - packet.born_ns)

    def _stuck(self, packet: Packet, left: list[tuple[PeerId, int]], view: View) -> list[PluginEffect]:
        """Hand a packet back for the destinations that no link is left for."""
        dests, ranks = tuple([d for d, _ in left]), tuple([m for _, m in left])
        self._taken.give_back(packet.event.id, dests)
        return [return_upstream(packet.event, packet.born_ns, dests, ranks, packet.path, view)]

    def _deadline_ns(self, packet: Packet, dest: PeerId, view: View) -> Nanos | None:
        """From publication until the event is due at a destination."""
        found: Nanos | None = view.interest.table.deadline_ns(packet.event, dest, view.graph)
        return found

    def _blamed(self, now: Nanos, view: View) -> list[Parts]:
        if self._shared_risk is None:
            found = SharedRisk(view)
            if not found.known:
                self._traced = False
                return []
            self._shared_risk = found
        return self._shared_risk.blamed(now, view.links)

    def _choose(
        self,
        dest: PeerId,
        rank: int,
        delay_ns: Nanos,
        slack: Nanos,
        open_: list[Route],
        untried: list[PeerId],
        scorer: Scorer,
        packet: Packet,
        used: set[Edge],
    ) -> tuple[Route, Route | None]:
        """Return the route to take, and the second route of a hedge if a hedge is worth its cost.

        `used` has the links that carry a copy for other destinations: they cost nothing.
        """
        if slack == FAR:
            return open_[0], None
        level = self._redundancy
        hedges = level == "free" or (level == "tight" and not is_hedged(rank))
        price = PRICE[level]
        if packet.tried and level != "none":
            # few packets meet a failure, and failures come together: one more copy is cheap
            hedges, price = True, PRICE["free"]
        price *= scorer.sends
        if delay_ns > slack:
            second = self._perhaps_back(dest, open_[0], slack, price, untried, scorer) if hedges else None
            return open_[0], second
        if delay_ns == FAR:
            return open_[0], None
        first = open_[0]
        best = scorer.score(first, open_[1] if len(open_) > 1 else None, slack)
        least = best.late + price * len(first.links - used)
        scored: dict[PeerId, ScoredRoute] = {first.hop: best}
        for route in open_[1:]:
            cost = price * len(route.links - used)
            if cost < least and route.delay_ns <= slack:
                each = scored[route.hop] = scorer.score(route, first, slack)
                if each.late + cost < least:
                    best, least = each, each.late + cost
        if not hedges:
            return best.route, None
        used = used | best.route.links
        second, least = None, best.late
        for route in open_:
            cost = price * len(route.links - used)
            if cost < least and route is not best.route and route.delay_ns <= slack:
                found = scored.get(route.hop) or scorer.score(route, first, slack)
                cost += scorer.both_late(best, found)
                if cost < least:
                    second, least = route, cost
        return best.route, second

    def _perhaps_back(
        self, dest: PeerId, first: Route, slack: Nanos, price: float, untried: list[PeerId], scorer: Scorer
    ) -> Route | None:
        """Return a route over links that seem down, if only such a route is in time and they may well be up again."""
        assert self._routes is not None
        best, most = None, 0.0
        for route in self._routes.to(dest):
            if route.delay_ns <= slack and route.hop in untried and route.hop != first.hop:
                gain = scorer.perhaps_up(route) - price * route.hops
                if gain > most:
                    best, most = route, gain
        return best


def _by_delay(found: tuple[Nanos, PeerId, int, list[Route]]) -> Nanos:
    return found[0]


def _queue(view: View) -> bool:
    return any(link.queue_ns for link in view.links.values())


def _joined(tree: SpreadTree | None, links: tuple[Edge, ...]) -> SpreadTree:
    """A tree with more links, each to a peer that it does not reach yet."""
    if tree is None:
        return SpreadTree(links)
    reached = {b for _, b in tree.links}
    return SpreadTree((*tree.links, *(link for link in links if link[1] not in reached)))


def _forward(hop: PeerId, group: Group, packet: Packet, tree: SpreadTree | None = None, timed: bool = False) -> Forward:
    """`timed`: the packet has deadlines, though it may be too late for all of them."""
    dests, ranks = tuple([d for d, _, _ in group]), tuple([m for _, m, _ in group])
    confirm = any(map(is_hedged, ranks))
    due = tuple([due for _, _, due in group])
    if not timed and min(due) == FOREVER:
        due = ()
    where = (hop, packet.event, packet.born_ns, dests, packet.path, tree, ranks, packet.tried)
    return Forward(*where, 0, confirm, due, RETRIES)
