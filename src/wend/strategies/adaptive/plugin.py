"""Adaptive, Wend's own strategy: skip links that are down, and hedge if a retry would be too late.

Like dcrd it decides hop by hop and hands a packet back if no route is left. Unlike dcrd

- it skips links that are down. The failure detector detects failures of this peer's links; hellos report failures of
  other links (`link/news.py`). Packets in transit over a link that goes down take another route at once;
- it compares the shortest routes that are in time by their probability of being late (`scores.py`) and by the number
  of links that they need. Links that carry the packet to other destinations anyway do not count;
- it sends a second copy (a hedge) if the higher probability of being in time is worth the links;
- it retransmits a packet over the same link if loss explains a missing ACK better than an outage;
- it sends large events in blocks with parity, instead of hedges, while links lose packets (`parity.py`);
- the user chooses the redundancy: `none` never hedges, `tight` hedges once per packet and destination, `free`
  hedges whenever it pays.

After a hedge a peer tries a third next hop only if both copies failed.
"""

from typing import Annotated, Any, ClassVar

from wend.model.blocks import cut_event
from wend.model.choices import Redundancy
from wend.model.events import Event, PeerId
from wend.model.settings import Settings, everyday
from wend.model.units import FOREVER, Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    Acked,
    Arrived,
    Changed,
    Coder,
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
    Routing,
    View,
    copy_key,
    fork,
    hedge,
    is_hedged,
    return_upstream,
)
from wend.strategies.adaptive.hedges import Hedges
from wend.strategies.adaptive.packets import Group, Groups, Packet
from wend.strategies.adaptive.parity import choose_parity
from wend.strategies.adaptive.route_choice import PRICE, RouteChoice
from wend.strategies.adaptive.routes import FAR, NO_EDGES, Edge, Route, RouteTable, UsableRoutes
from wend.strategies.adaptive.scores import Scorer
from wend.strategies.adaptive.shared_risk import Parts, SharedRisk
from wend.strategies.adaptive.spread_forwarding import SpreadForwarding
from wend.strategies.adaptive.spread_trees import SpreadTree

RETRIES = 2
"""How often a peer retransmits a packet over the same link, if loss explains a missing ACK better than an outage."""

ROUTES = 3
"""How many routes to a destination a peer compares."""

Candidate = tuple[Nanos, PeerId, int, list[Route]]
"""A destination to place: the delay of its shortest route, its peer, its rank and its routes."""


class AdaptiveSettings(Settings, frozen=True, kw_only=True):
    """How much redundancy `adaptive` may spend."""

    title: ClassVar[str] = "Strategy adaptive"

    redundancy: Annotated[
        Redundancy,
        everyday("Copies sent ahead of a loss: none, tight (once per packet and destination) or free (when it pays)."),
    ] = "tight"


class Adaptive(Routing):
    """Avoids links that are down, and sends a second copy if time is short."""

    needs: ClassVar[Needs] = Needs(
        graphs=(LINK_STATE,), failure_detector=True, news=True, congestion_control=True, paths=True
    )
    settings: ClassVar[type[Settings]] = AdaptiveSettings
    header: ClassVar[Any] = SpreadTree
    effort: ClassVar[float] = 6.0
    about: ClassVar[str] = "Wend's own"

    def __init__(self, config: PeerConfig) -> None:
        redundancy = config.of(AdaptiveSettings).redundancy
        self._choice = RouteChoice(redundancy)
        self._coder = Coder(config)
        self._price: float | None = None if redundancy == "none" else PRICE[redundancy]
        """Of a copy of an event on a link; None if there may be no copies."""
        self._hedges = Hedges()
        self._spreading = SpreadForwarding()
        self._trace_paths = config.of(LinkSettings).trace_paths
        self._routes: RouteTable | None = None
        self._usable: UsableRoutes | None = None
        """The routes without links that are down."""
        self._shared_risk: SharedRisk | None = None
        """None if no underlay paths of links are known."""
        self._has_traced_paths = False
        self._forwarded = ForwardedCopies()

    @property
    def routes(self) -> RouteTable | None:
        """The routes for the current graph; None before they are needed."""
        return self._routes

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if type(event) is Arrived:
            return self._on_arrived(now, event, view)
        match event:
            case Failed(forward, congested):
                return self._on_failed(now, forward, congested, view)
            case Acked(sent):
                for dest in sent.dests:
                    self._hedges.count_answer((copy_key(sent.event), dest, len(sent.path)), True)
            case Changed():
                if self._routes is not None and not self._routes.is_valid(view):
                    self._routes = self._usable = None
                self._has_traced_paths, self._shared_risk = self._trace_paths, None
                self._spreading.forget_routes()
        return []

    def _on_arrived(self, now: Nanos, packet: Arrived, view: View) -> list[PluginEffect]:
        dests, ranks = packet.dests, packet.ranks
        if len(packet.event.payload) >= self._coder.least and packet.sender == view.me:
            whole = Packet(packet.event, packet.born_ns, dests, ranks or (0,) * len(dests), (), ())
            blocks = self._cut(now, whole, view)
            if blocks:
                return self._forward_blocks(now, whole, blocks, view)
        if packet.sender != view.me and view.me not in packet.path:
            dests, ranks = self._forwarded.record(copy_key(packet.event), dests, ranks)
        effects: list[PluginEffect] = []
        if dests:
            ranks = ranks or (0,) * len(dests)
            tree = packet.header if type(packet.header) is SpreadTree else None
            effects = self._forward(
                now, Packet(packet.event, packet.born_ns, dests, ranks, packet.path, (), tree), view
            )
        if len(dests) < len(packet.dests):
            effects.append(Notice("duplicate", packet.sender))
        return effects

    def _cut(self, now: Nanos, packet: Packet, view: View) -> list[Event]:
        """The blocks of a large event that is published here; empty if it had better stay whole."""
        if not self._coder.can_cut(packet.event, view):
            return []
        if not self._coder.is_auto:
            return self._coder.cut(packet.event, view)
        if self._price is None:
            return []
        table = self._find_usable_routes(now, view)
        scorer = Scorer(now, view, table, self._shared_risk, [])
        losses, links = self._route_losses(now, packet, table, scorer, view)
        needed = self._coder.needed_blocks(packet.event)
        parity = choose_parity(needed, losses, self._price * scorer.sends * links / needed)
        return cut_event(packet.event, needed, needed + parity) if parity else []

    def _route_losses(
        self, now: Nanos, packet: Packet, table: UsableRoutes, scorer: Scorer, view: View
    ) -> tuple[list[float], int]:
        """The probabilities that loss makes a packet late, for the destinations that can be reached in time; and how
        many links their routes have."""
        up = [hop for hop, link in view.links.items() if link.is_working(now)]
        losses: list[float] = []
        used: set[Edge] = set()
        for dest in packet.dests:
            deadline = _deadline_ns(packet, dest, view)
            slack = FAR if deadline is None else deadline - (now - packet.born_ns)
            for route in table.best_routes(dest, up, 1):
                used |= route.links
                if deadline is not None and route.delay_ns <= slack:
                    losses.append(min(1.0, scorer.loss_risk(route, slack)))
        return losses, len(used)

    def _forward_blocks(self, now: Nanos, packet: Packet, blocks: list[Event], view: View) -> list[PluginEffect]:
        effects: list[PluginEffect] = [Notice("coded", view.me)]
        for block in blocks:
            effects += self._forward(now, Packet(block, packet.born_ns, packet.dests, packet.ranks, (), ()), view)
        return effects

    def _on_failed(self, now: Nanos, failed: Forward, congested: bool, view: View) -> list[PluginEffect]:
        """Send a packet over another route. `congested`: the link works, but too many packets wait for it."""
        if failed.tries and not congested:
            return [GiveUp(failed.event, failed.born_ns, failed.dests, "no-return-route", failed.ranks)]
        key, visit = copy_key(failed.event), len(failed.path)
        again = [i for i, dest in enumerate(failed.dests) if self._hedges.count_answer((key, dest, visit), False)]
        if not again:
            return [Notice("copy-superseded", failed.peer)]
        dests, ranks = tuple([failed.dests[i] for i in again]), tuple([failed.ranks[i] for i in again])
        tried = (*failed.tried, failed.peer)
        if congested:
            return self._forward(
                now, Packet(failed.event, failed.born_ns, dests, ranks, failed.path, tried), view, True
            )
        ranks = tuple([fork(rank, view.me) for rank in ranks])
        rerouted = self._forward(now, Packet(failed.event, failed.born_ns, dests, ranks, failed.path, tried), view)
        return [Notice("reroute", failed.peer), *rerouted]

    def _forward(self, now: Nanos, packet: Packet, view: View, is_congested: bool = False) -> list[PluginEffect]:
        """Choose routes and forward a packet. `is_congested`: the links already tried work, but too many packets wait
        for them."""
        only = self._forward_to_only_neighbour(now, packet, view)
        if only is not None:
            return [only]
        if is_congested or view.graph.prices or packet.tree is not None or (view.loaded and _has_queue(view)):
            return self._forward_by_price(now, packet, view)
        self._spreading.clear()
        table = self._find_usable_routes(now, view)
        links, path, tried = view.links, packet.path, packet.tried
        untried = [hop for hop in links if hop not in path and hop not in tried]
        up = [hop for hop in untried if links[hop].is_working(now)]
        if len(packet.dests) == 1 and _deadline_ns(packet, packet.dests[0], view) is None:
            shortest = table.best_routes(packet.dests[0], up, 1)
            if shortest:  # there is no trade-off
                return [_forward_effect(shortest[0].hop, [(packet.dests[0], packet.ranks[0], FOREVER)], packet)]
        return self._forward_by_score(now, packet, table, untried, up, view)

    def _forward_by_score(
        self, now: Nanos, packet: Packet, table: UsableRoutes, untried: list[PeerId], up: list[PeerId], view: View
    ) -> list[PluginEffect]:
        """Forward a packet over the routes most likely to be in time, with hedges if they pay off."""
        assert self._routes is not None
        causes = self._possible_causes(now, view) if self._has_traced_paths else []
        is_block = packet.event.block is not None
        scorer = Scorer(now, view, table, self._shared_risk, causes, is_block=is_block)
        candidates, stuck = self._find_candidates(packet, table, untried, up)
        groups: Groups = {}
        used: set[Edge] = set()
        hedges = 0
        for delay, dest, rank, routes in candidates:
            deadline = _deadline_ns(packet, dest, view)
            slack = FAR if deadline is None else deadline - (now - packet.born_ns)
            first, second = self._choice.choose(rank, slack, delay, routes, untried, self._routes, scorer, packet, used)
            used |= first.links
            if second is not None:
                used |= second.links
                hedges += 1
                self._hedges.add((copy_key(packet.event), dest, len(packet.path)))
                groups.setdefault(second.hop, []).append((dest, hedge(rank), FOREVER))
                rank = hedge(fork(rank, view.me))  # the better route gets the higher copy
            due = FOREVER
            if slack != FAR and slack >= first.delay_ns:
                due = now + slack - first.delay_ns + view.links[first.hop].delay_ns
            groups.setdefault(first.hop, []).append((dest, rank, due))
        effects: list[PluginEffect] = [_forward_effect(hop, group, packet) for hop, group in groups.items()]
        if hedges:
            effects.append(Notice("hedge", view.me, hedges))
        return effects + self._hand_back(packet, stuck, view) if stuck else effects

    def _find_candidates(
        self, packet: Packet, table: UsableRoutes, untried: list[PeerId], up: list[PeerId]
    ) -> tuple[list[Candidate], list[tuple[PeerId, int]]]:
        """The routes to each destination, the nearest destination first, and the destinations without a route."""
        candidates: list[Candidate] = []
        stuck: list[tuple[PeerId, int]] = []
        for dest, rank in zip(packet.dests, packet.ranks, strict=True):
            routes = table.best_routes(dest, up, ROUTES)
            if routes:
                candidates.append((routes[0].delay_ns, dest, rank, routes))
                continue
            routes = self._fallback_routes(dest, untried, up)
            if routes:
                candidates.append((FAR, dest, rank, routes))
            else:
                stuck.append((dest, rank))
        if len(candidates) > 1:  # a route to a farther destination may lead over the nearest one
            candidates.sort(key=_by_delay)
        return candidates, stuck

    def _forward_by_price(self, now: Nanos, packet: Packet, view: View) -> list[PluginEffect]:
        """Forward a packet along routes chosen by price, while links are full."""
        deadlines = {dest: _deadline_ns(packet, dest, view) for dest in packet.dests}
        groups, trees, stuck = self._spreading.assign(now, packet, deadlines, view)
        effects: list[PluginEffect] = []
        for hop, group in groups.items():
            has_deadlines = any(deadlines[dest] is not None for dest, _, _ in group)
            effects.append(_forward_effect(hop, group, packet, trees[hop], has_deadlines))
        return effects + self._hand_back(packet, stuck, view) if stuck else effects

    def _forward_to_only_neighbour(self, now: Nanos, packet: Packet, view: View) -> Forward | None:
        """Forward a packet whose only destination is this peer's only neighbour; None if there is a choice of
        routes."""
        dests = packet.dests
        if len(dests) != 1 or len(view.links) != 1 or packet.path or packet.tried or packet.tree is not None:
            return None
        (dest,) = dests
        link = view.links.get(dest)
        if link is None or not link.is_working(now):
            return None
        deadline = _deadline_ns(packet, dest, view)
        if deadline is None:
            return _forward_effect(dest, [(dest, packet.ranks[0], FOREVER)], packet)
        due = packet.born_ns + deadline
        if due < now + link.delay_ns + link.queue_ns:  # it is late, so other packets go first
            due = FOREVER
        return _forward_effect(dest, [(dest, packet.ranks[0], due)], packet, has_deadlines=True)

    def _find_usable_routes(self, now: Nanos, view: View) -> UsableRoutes:
        """The routes without the links that other peers reported down; recomputed if the graph or the reports
        changed."""
        if self._routes is None:
            self._routes, self._usable = RouteTable(view), None
        down = NO_EDGES if view.news is None else view.news.down(now)
        usable = self._usable
        if usable is None or (usable.without is not down and usable.without != down):
            usable = self._usable = UsableRoutes(self._routes, down)
        return usable

    def _fallback_routes(self, dest: PeerId, untried: list[PeerId], up: list[PeerId]) -> list[Route]:
        """The routes to try if none seems up: those ruled out only by reports of other peers, else all untried
        routes."""
        assert self._routes is not None
        routes = [route for route in self._routes.find_routes(dest) if route.hop in untried]
        return [route for route in routes if route.hop in up] or routes

    def _hand_back(self, packet: Packet, stuck: list[tuple[PeerId, int]], view: View) -> list[PluginEffect]:
        """Hand a packet back for the destinations to which every link was tried."""
        dests, ranks = tuple([dest for dest, _ in stuck]), tuple([rank for _, rank in stuck])
        self._forwarded.give_back(copy_key(packet.event), dests)
        return [return_upstream(packet.event, packet.born_ns, dests, ranks, packet.path, view)]

    def _possible_causes(self, now: Nanos, view: View) -> list[Parts]:
        if self._shared_risk is None:
            shared_risk = SharedRisk(view)
            if not shared_risk.has_paths:
                self._has_traced_paths = False
                return []
            self._shared_risk = shared_risk
        return self._shared_risk.find_causes(now, view.links)


def _forward_effect(
    hop: PeerId, group: Group, packet: Packet, tree: SpreadTree | None = None, has_deadlines: bool = False
) -> Forward:
    """The effect that forwards a packet to a group. `has_deadlines`: the packet has some, even if all have passed."""
    dests, ranks = tuple([d for d, _, _ in group]), tuple([m for _, m, _ in group])
    confirm = any(map(is_hedged, ranks))
    due = tuple([due for _, _, due in group])
    if not has_deadlines and min(due) == FOREVER:
        due = ()
    where = (hop, packet.event, packet.born_ns, dests, packet.path, tree, ranks, packet.tried)
    return Forward(*where, 0, confirm, due, RETRIES)


def _by_delay(candidate: Candidate) -> Nanos:
    return candidate[0]


def _has_queue(view: View) -> bool:
    return any(link.queue_ns for link in view.links.values())


def _deadline_ns(packet: Packet, dest: PeerId, view: View) -> Nanos | None:
    """The deadline of the event at a destination."""
    interest, event, graph = view.interest, packet.event, view.graph
    deadline: Nanos | None
    if interest.header is None:
        deadline = interest.table.deadline_ns(event, dest, graph)
    else:
        deadline = interest.deadline_ns(event, packet.path[0] if packet.path else view.me, dest, graph)
    return deadline
