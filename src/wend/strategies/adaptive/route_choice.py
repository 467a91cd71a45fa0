"""The choice of a route to one destination, and of a second route if another copy is worth its links."""

from wend.model.choices import Redundancy
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import is_hedged
from wend.strategies.adaptive.packets import Packet
from wend.strategies.adaptive.routes import FAR, Edge, Route, RouteTable
from wend.strategies.adaptive.scores import ScoredRoute, Scorer

PRICE = {"none": 0.0033, "tight": 0.0033, "free": 0.0005}
"""The cost of a link of a route, as a probability of being late. A hedge has to gain as much for each of its links."""


class RouteChoice:
    """Chooses the route of one destination, and the second route of a hedge."""

    def __init__(self, redundancy: Redundancy) -> None:
        self._redundancy = redundancy

    def choose(
        self,
        rank: int,
        slack: Nanos,
        delay_ns: Nanos,
        routes: list[Route],
        untried: list[PeerId],
        table: RouteTable,
        scorer: Scorer,
        packet: Packet,
        used: set[Edge],
    ) -> tuple[Route, Route | None]:
        """Return the route to take, and the second route of a hedge if a hedge is worth its cost.

        `used` holds the links that carry a copy to other destinations: they cost nothing more.
        """
        first = routes[0]
        if slack == FAR:
            return first, None
        level = self._redundancy
        hedges = level == "free" or (level == "tight" and not is_hedged(rank))
        price = PRICE[level]
        if packet.tried and level != "none":
            # few packets meet a failure, and failures come together, so one more copy is cheap
            hedges, price = True, PRICE["free"]
        price *= scorer.sends
        if delay_ns > slack:
            return first, _suspected_route(first, slack, price, untried, table, scorer) if hedges else None
        if delay_ns == FAR:
            return first, None
        best = scorer.score(first, routes[1] if len(routes) > 1 else None, slack)
        least = best.late + price * len(first.links - used)
        scored: dict[PeerId, ScoredRoute] = {first.hop: best}
        for route in routes[1:]:
            cost = price * len(route.links - used)
            if cost < least and route.delay_ns <= slack:
                scored_route = scored[route.hop] = scorer.score(route, first, slack)
                if scored_route.late + cost < least:
                    best, least = scored_route, scored_route.late + cost
        return best.route, _second_route(best, routes, slack, price, scored, scorer, used) if hedges else None


def _second_route(
    best: ScoredRoute,
    routes: list[Route],
    slack: Nanos,
    price: float,
    scored: dict[PeerId, ScoredRoute],
    scorer: Scorer,
    used: set[Edge],
) -> Route | None:
    """The second route that lowers the probability of being late the most, beyond its cost."""
    used = used | best.route.links
    second, least = None, best.late
    for route in routes:
        cost = price * len(route.links - used)
        if cost < least and route is not best.route and route.delay_ns <= slack:
            cost += scorer.both_late_probability(best, scored.get(route.hop) or scorer.score(route, routes[0], slack))
            if cost < least:
                second, least = route, cost
    return second


def _suspected_route(
    first: Route, slack: Nanos, price: float, untried: list[PeerId], table: RouteTable, scorer: Scorer
) -> Route | None:
    """The best route over links that seem down but may be up again; None if no such route is in time and
    worth its cost."""
    best, most = None, 0.0
    for route in table.find_routes(first.dest):
        if route.delay_ns <= slack and route.hop in untried and route.hop != first.hop:
            gain = scorer.up_probability(route) - price * route.hops
            if gain > most:
                best, most = route, gain
    return best
