"""Planned with failover: which routes a publisher takes while links are down, and who learns of it."""

from types import SimpleNamespace

import pytest

from tests.plans import Arcs, plan_of
from tests.protocol.talk import GRAPH, A, B, C, D, S, T, event, links_of
from wend.model.events import PeerId
from wend.model.forwarding import Forwarding
from wend.model.plan import OwnFlow
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import (
    Arrived,
    Due,
    Failed,
    Forward,
    GiveUp,
    Heard,
    LinkChanged,
    PluginEffect,
    Tell,
    Timer,
    View,
)
from wend.protocol.plugins.copy_ranks import fork
from wend.protocol.ports import Drop, Notice, Planned, Refuse
from wend.strategies.planned.delivery import PlanLabel
from wend.strategies.planned.failover import FailoverRouting
from wend.strategies.planned.link_outages import CHECK_NS, MAX_DOWN, LinkOutages
from wend.strategies.planned.shares import Shares, shares_without

OVER_C: Arcs = [(A, C), (C, S)]
OVER_D: Arcs = [(A, D), (D, S)]
TO_T: Arcs = [(A, C), (C, T)]
FIRST, SECOND = 0, 1


def forwarding(*backups: tuple[PeerId, PeerId, Shares]) -> Forwarding:
    """A sends to S over C, and after a failure as `backups` say."""
    made = Forwarding(plan_of(6, GRAPH, (A, (S,), 10.0, [(1.0, OVER_C), (0.0, OVER_D)])))
    flow = OwnFlow(0, (S,), ((FIRST, 1.0),), backups)
    made.published_flows = lambda peer: (flow,) if peer == A else ()  # type: ignore[method-assign]
    return made


class Publisher:
    """Peer A, with links to B, C and D."""

    def __init__(self, plan: Forwarding | None) -> None:
        config = PeerConfig(peer=A, strategy="planned-failover")
        self.routing = FailoverRouting(config)
        self.links = {peer: SimpleNamespace(is_up=True, heard_by_neighbour=True) for peer in (B, C, D)}
        self.view = View(config, self.links, persistence=False)  # type: ignore[arg-type]
        self.view.neighbours = (B, C, D)
        self.view.graph = SimpleNamespace(costs={p: links_of(p, GRAPH) for p in (A, B, C, D, S, T)})  # type: ignore[assignment]
        self.plan = plan
        if plan is not None:
            self.told(Planned(plan))

    def told(self, what: object) -> list[PluginEffect]:
        return self.routing.handle(0, what, self.view)  # type: ignore[arg-type]

    def publish(self, *dests: PeerId) -> list[tuple[PeerId, tuple[PeerId, ...], int | None]]:
        """The next hops, with their destinations and the graph."""
        effects = self.told(Arrived(A, event(publisher=A), 0, dests))
        assert not any(isinstance(effect, Drop) for effect in effects)
        return [
            (each.peer, each.dests, each.header.graph if isinstance(each.header, PlanLabel) else None)
            for each in effects
            if isinstance(each, Forward)
        ]


def test_a_publisher_takes_the_routes_of_a_failure_while_it_lasts() -> None:
    publisher = Publisher(forwarding((C, S, ((SECOND, 1.0),))))
    assert publisher.publish(S) == [(C, (S,), FIRST)]
    publisher.told(Heard(B, LinkOutages(S, (1, 1), (C,))))
    assert publisher.publish(S) == [(D, (S,), SECOND)]
    publisher.told(Heard(B, LinkOutages(C, (1, 1), (S,))))
    publisher.told(Heard(B, LinkOutages(S, (1, 2), ())))
    assert publisher.publish(S) == [(D, (S,), SECOND)], "the other end still says that the link is down"
    publisher.told(Heard(B, LinkOutages(C, (1, 2), ())))
    assert publisher.publish(S) == [(C, (S,), FIRST)]


def test_a_flow_that_does_not_cross_the_link_stays() -> None:
    publisher = Publisher(forwarding((C, S, ((SECOND, 1.0),))))
    publisher.told(Heard(B, LinkOutages(D, (1, 1), (S,))))
    assert publisher.publish(S) == [(C, (S,), FIRST)]


def test_without_a_plan_for_it_a_publisher_takes_the_shortest_route_around_a_failure() -> None:
    for plan in (forwarding(), None):
        publisher = Publisher(plan)
        publisher.told(Heard(B, LinkOutages(C, (1, 1), (S,))))
        assert publisher.publish(S) == [(D, (S,), None)]
        assert publisher.publish(T) == [(C, (T,), None)]


def test_a_receiver_that_a_failure_cuts_off_is_not_refused_by_the_plan() -> None:
    made = Forwarding(plan_of(6, GRAPH, (A, (S, T), 10.0, [(1.0, [*OVER_C, (C, T)]), (0.0, OVER_C)])))
    flow = OwnFlow(0, (S, T), ((FIRST, 1.0),), ((C, T, ((SECOND, 1.0),)),))
    made.published_flows = lambda peer: (flow,) if peer == A else ()  # type: ignore[method-assign]
    publisher = Publisher(made)
    publisher.told(Heard(B, LinkOutages(T, (1, 1), (C,))))
    effects = publisher.told(Arrived(A, event(publisher=A), 0, (S, T)))
    assert [(e.peer, e.dests) for e in effects if isinstance(e, Forward)] == [(C, (S,))]
    assert [(e.dests, e.code) for e in effects if isinstance(e, GiveUp)] == [((T,), "no-next-hop")]


@pytest.mark.parametrize(
    ("down", "expected"),
    [
        ({(C, S)}, ((SECOND, 1.0),)),
        ({(A, B)}, ((FIRST, 1.0),)),
        ({(C, S), (A, B)}, ((SECOND, 1.0),)),
        ({(C, S), (D, S)}, None),
        ({(A, C), (C, S)}, ((SECOND, 1.0),)),
    ],
)
def test_several_failures_at_once(down: set[tuple[PeerId, PeerId]], expected: Shares | None) -> None:
    plan = forwarding((C, S, ((SECOND, 1.0),)))
    assert shares_without(plan, plan.published_flows(A)[0], frozenset(down)) == expected


def test_the_rest_of_its_own_routes_takes_over_what_a_failure_ends() -> None:
    plan = forwarding()
    flow = OwnFlow(0, (S,), ((FIRST, 0.5), (SECOND, 0.25)))
    assert shares_without(plan, flow, frozenset({(C, S)})) == ((SECOND, 0.75),)


def test_the_ends_of_a_link_flood_its_failure_and_others_pass_it_on_once() -> None:
    publisher = Publisher(None)
    told = publisher.told(LinkChanged(C, up=False))
    own = LinkOutages(A, (1, 1), (C,))
    assert told == [*(Tell(peer, ("o", A), own) for peer in (B, C, D)), Timer(CHECK_NS, "links")]
    assert publisher.told(LinkChanged(C, up=False)) == []
    heard = LinkOutages(S, (1, 2), (D,))
    assert publisher.told(Heard(B, heard)) == [Tell(peer, ("o", S), heard) for peer in (C, D)]
    assert publisher.told(Heard(D, heard)) == []
    assert publisher.told(Heard(D, LinkOutages(S, (1, 1), ()))) == [], "older news"
    assert publisher.told(Heard(D, LinkOutages(A, (9, 9), (B,)))) == [], "nobody else speaks for this peer"
    assert publisher.routing.down == {(A, C), (D, S)}
    again = publisher.told(LinkChanged(B, up=True, fresh=True))
    assert again == [Tell(B, ("o", A), own), Tell(B, ("o", S), heard)]
    too_many = LinkOutages(T, (1, 1), tuple(range(MAX_DOWN + 1)))
    assert publisher.told(Heard(B, too_many)) == [Refuse(B, "invalid-news")]


def test_a_link_that_works_again_is_found_even_if_no_event_says_so() -> None:
    publisher = Publisher(None)
    publisher.told(LinkChanged(C, up=False))
    publisher.links[C].heard_by_neighbour = False
    assert publisher.told(Due("links")) == [Timer(CHECK_NS, "links")]
    publisher.links[C].heard_by_neighbour = True
    assert publisher.told(Due("links")) == [Tell(peer, ("o", A), LinkOutages(A, (1, 2), ())) for peer in (B, C, D)]
    assert not publisher.routing.down and publisher.told(Due("links")) == []


def test_a_packet_that_a_neighbour_does_not_acknowledge_goes_around_it() -> None:
    publisher = Publisher(forwarding())
    failed = Forward(C, event(), 5, (S, T), (B,), PlanLabel(1, 0), (0, 4))
    assert publisher.told(Failed(failed)) == [
        Notice("reroute", C),
        Forward(D, event(), 5, (S, T), (B,), None, (fork(0, A), fork(4, A)), (C,)),
    ]
    again = Forward(D, event(), 5, (S,), (B,), None, (), (C,))
    assert publisher.told(Failed(again)) == [
        Notice("reroute", D),
        GiveUp(event(), 5, (S,), "no-answer", (0,)),
    ]


def test_a_packet_whose_planned_link_is_down_goes_around_it_at_once() -> None:
    plan = forwarding()
    publisher = Publisher(plan)
    publisher.told(LinkChanged(C, up=False))
    effects = publisher.told(Arrived(B, event(), 0, (S,), (B,), PlanLabel(plan.id, FIRST)))
    assert [(e.peer, e.header) for e in effects if isinstance(e, Forward)] == [(D, None)]
    assert Notice("off-plan", A) in effects
