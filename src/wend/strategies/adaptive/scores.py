"""Scores of routes: the probability that an event which takes a route is late.

A route is late if one of its links is down and no peer can avoid that link in time.

- The first link: this peer received a message from the neighbour a moment ago, so the link can only have failed since.
  That does no harm if there is time to wait for the ACK and then take the best other route.
- A later link: the peer before it usually knows that it is down, and avoids it. If the detour takes too long, the event
  is late if the link has failed since the last report of it that this peer received. If only the wait for the ACK takes
  too long, the event is late if the peer before the link does not know of the failure yet.

The probabilities follow from the outages that this peer has seen (`link/outages.py`). If underlay paths are known,
suspected routers count, too, and two routes that share routers share their risks (`shared_risk.py`).
"""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import MS, Nanos
from wend.protocol.plugins import OutageChanceView, View
from wend.strategies.adaptive.routes import FAR, Edge, Leg, Route, UsableRoutes
from wend.strategies.adaptive.shared_risk import Parts, SharedRisk

DETECTION_NS: Nanos = 40 * MS
"""The average time until a peer that forwards events detects that its link is down: half of the time between two
hellos."""
RELAY_NS: Nanos = 80 * MS
"""The time between two hellos: the longest time for which a peer delays a report or misses an outage."""

TRIES = 3
"""The most transmissions of a packet over a lossy link."""


class ScoredRoute:
    """A route with the probability that it is late, and the links that contribute to it."""

    __slots__ = ("late", "own", "risks", "route")

    def __init__(self, route: Route, own: float) -> None:
        self.route = route
        self.own = own
        """The probability that the route is late because of its first link."""
        self.risks: list[tuple[Edge, float]] = []
        """The later links with the probability that each makes the route late, if it is above 0."""
        self.late = own


class Scorer:
    """Scores routes of one packet at one time."""

    __slots__ = (
        "_causes",
        "_counts_loss",
        "_links",
        "_loss",
        "_now",
        "_others",
        "_shared_risk",
        "_table",
        "_view",
        "sends",
    )

    def __init__(
        self,
        now: Nanos,
        view: View,
        table: UsableRoutes,
        shared_risk: SharedRisk | None,
        causes: list[Parts],
        *,
        is_block: bool = False,
    ) -> None:
        """`is_block`: the packet is a block of a coded event, so parity covers its loss."""
        assert view.outages is not None
        self._now = now
        self._view = view
        self._links = view.links
        self._table = table
        self._shared_risk = shared_risk
        self._causes = causes
        self._loss = sum([1.0 - link.reliability for link in view.links.values()]) / max(1, len(view.links))
        """The loss of other peers' links, estimated from this peer's own."""
        self._counts_loss = not is_block
        self.sends = 1.0 / max(0.1, 1.0 - self._loss) ** 2
        """How often a packet crosses a link until its ACK comes back, on average."""
        self._others: OutageChanceView = view.outages.estimate_all(now)

    def score(self, route: Route, other: Route | None, slack: Nanos) -> ScoredRoute:
        """Score a route, given the best route over another hop."""
        scored = ScoredRoute(route, self._first_link_risk(route, FAR if other is None else other.delay_ns, slack))
        link, spare = self._links[route.hop], slack - route.delay_ns
        if link.reliability < 1.0 and self._counts_loss:
            scored.late += _loss_probability(1.0 - link.reliability, link.timeout_ns, spare)
        loss = self._loss if self._counts_loss else 0.0
        for leg in self._table.later_links(route):
            risk = self._later_link_risk(leg, route, other, slack)
            if loss:
                scored.late += _loss_probability(loss, 2 * leg.delay_ns, spare)
            if risk > 0.0:
                scored.risks.append((leg.edge, risk))
                scored.late += risk
        if self._causes:
            assert self._shared_risk is not None
            scored.late += self._shared_risk.down_probability(route, self._causes)
        return scored

    def loss_risk(self, route: Route, slack: Nanos) -> float:
        """The probability that a packet on a route is late because links lose it; that of outages is not in it."""
        link, spare, risk = self._links[route.hop], slack - route.delay_ns, 0.0
        if link.reliability < 1.0:
            risk += _loss_probability(1.0 - link.reliability, link.timeout_ns, spare)
        loss = self._loss
        if loss:
            for leg in self._table.later_links(route):
                risk += _loss_probability(loss, 2 * leg.delay_ns, spare)
        return risk

    def both_late_probability(self, first: ScoredRoute, second: ScoredRoute) -> float:
        """The probability that an event that takes two routes is late."""
        risk_model = self._shared_risk
        shared = 0.0
        if risk_model is None:
            beyond = second.route.beyond
            for edge, risk in first.risks:
                if edge in beyond:
                    shared += risk
        else:
            for edge, risk in first.risks:
                shared += risk * (1.0 - risk_model.unshared_fraction(edge, second.route))
            if self._causes:
                down = risk_model.down_probability(first.route, self._causes)
                shared += max(
                    0.0, down - risk_model.only_first_down_probability(first.route, second.route, self._causes)
                )
        return shared + first.late * second.late

    def up_probability(self, route: Route) -> float:
        """The probability that a route whose links seem down is up again: reports of recovery arrive late."""
        assert self._view.outages is not None
        link, now = self._links[route.hop], self._now
        up = 1.0
        if not link.is_working(now):
            up = self._view.outages.estimate(now, route.hop).up_after(link.silence_ns // 2 + link.delay_ns)
        for _ in route.beyond & self._table.without:
            up *= self._others.up_after(DETECTION_NS + RELAY_NS + link.delay_ns)
        return up

    def _first_link_risk(self, route: Route, other_ns: Nanos, slack: Nanos) -> float:
        """The probability that the route is late because its first link failed unnoticed."""
        link = self._links[route.hop]
        spare = slack - other_ns
        if link.timeout_ns <= spare:
            return 0.0
        unnoticed = min(self._now - link.heard_ns, DETECTION_NS - spare) + link.delay_ns
        if unnoticed <= 0:
            return 0.0
        assert self._view.outages is not None
        return self._view.outages.estimate(self._now, route.hop).down_after(unnoticed)

    def _later_link_risk(self, leg: Leg, route: Route, other: Route | None, slack: Nanos) -> float:
        """The probability that the route is late because a later link is down."""
        detour = leg.detour_ns
        if detour == FAR and leg.start == route.hop and other is not None and leg.edge not in other.beyond:
            detour = 2 * self._links[route.hop].delay_ns + other.delay_ns  # the hop hands the packet back
        if detour > slack:
            age = self._age_ns(leg)
            if age is None:
                if (
                    self._table.early_ns(route, leg.edge) <= slack
                ):  # the hop knows of the failure, and avoids the link in time
                    return self._others.down_after(RELAY_NS + DETECTION_NS + leg.delay_ns)
                return self._others.share
            return self._others.down_after(age + DETECTION_NS + leg.reach_ns)
        spare = slack - detour
        if 2 * leg.delay_ns > spare and spare < RELAY_NS:
            return self._others.down_after(DETECTION_NS + leg.delay_ns)
        return 0.0

    def _age_ns(self, leg: Leg) -> Nanos | None:
        """The age of the latest report of a link; None if no report of either end reaches this peer."""
        if self._view.news is None:
            return None
        age = self._silence_ns((leg.start, leg.end))
        if age is None and self._view.news.hops > 1:  # a neighbour of an end relays its reports
            costs = self._view.graph.costs
            age = self._silence_ns([peer for end in (leg.start, leg.end) for peer in costs.get(end, ())])
            if age is not None:
                age += RELAY_NS
        return age

    def _silence_ns(self, peers: Iterable[PeerId]) -> Nanos | None:
        """The time since one of these peers last sent a message to this one; None if the links to all of them are
        silent."""
        now, latest = self._now, None
        for peer in peers:
            link = self._links.get(peer)
            if link is not None and link.is_heard(now):
                age = now - link.heard_ns + link.delay_ns
                if latest is None or age < latest:
                    latest = age
        return latest


def _loss_probability(loss: float, wait_ns: Nanos, spare_ns: Nanos) -> float:
    """The probability that a link loses all transmissions of a packet for which there is time."""
    return loss ** min(1 + spare_ns // max(1, wait_ns), TRIES)
