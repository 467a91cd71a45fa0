"""A scenario made concrete."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from tests.errors import raises
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check
from wend.drivers.world import build_world
from wend.matching.filters import parse
from wend.model.fault_settings import Outages, Spread
from wend.model.scenario import Content, Pace
from wend.model.units import SECOND
from wend.strategies.clusters.membership.settings import ClusterSettings
from wend.topology.peer_clusters import near_clusters
from wend.topology.underlay_faults import UnderlayFaults


@pytest.mark.parametrize("seed", range(5))
def test_topics_have_publishers_of_their_own_who_do_not_subscribe(seed: int) -> None:
    world = build_world(Scenario(seed=seed))
    assert len({topic.publisher for topic in world.topics}) == 10
    assert all(topic.publisher not in topic.subscribers for topic in world.topics)
    assert all(0 <= topic.phase_ns < topic.period_ns == SECOND for topic in world.topics)


@pytest.mark.parametrize("rate_hz", [1.0, 0.3, 7.0])
@pytest.mark.parametrize("pace", ["even", "moving"])
def test_a_topic_publishes_once_in_every_period(pace: Pace, rate_hz: float) -> None:
    world = build_world(Scenario(pace=pace, rate=rate_hz, duration="60s"))
    for topic in world.topics:
        moments = list(topic.publication_times(world.begin_ns, world.stop_ns))
        assert all(world.begin_ns <= moment < world.stop_ns for moment in moments)
        periods = [(moment - world.begin_ns) // topic.period_ns for moment in moments]
        assert periods == list(range(len(periods)))
        ages = sorted((moment - world.begin_ns) % topic.period_ns for moment in moments)
        if pace == "even":
            assert set(ages) == {topic.phase_ns}
        else:  # the golden ratio leaves no gap of more than about two shares
            gaps = [b - a for a, b in pairwise([*ages, ages[0] + topic.period_ns])]
            assert max(gaps) < 2.7 * topic.period_ns / len(ages)


def test_a_moving_pace_is_simulated_as_it_is_written() -> None:
    scenario = Scenario(pace="moving", duration="10s", peers=8, topics=3, degree=3)
    world = build_world(scenario)
    written = sorted(m for topic in world.topics for m in topic.publication_times(world.begin_ns, world.stop_ns))
    for strategy in ("dcrd", "oracle"):
        trace = simulate(scenario.with_(strategy=strategy)).trace
        assert list(trace.publications.column("time_ns")) == written


def test_a_deadline_is_a_multiple_of_the_shortest_delay() -> None:
    world = build_world(Scenario(factor=1.5))
    for a in range(20):
        for b in range(20):
            assert world.deadline_ns(a, b) == round(1.5 * world.shortest_ns[a][b])
            assert world.shortest_ns[a][b] == world.shortest_ns[b][a]


def test_a_peer_is_told_its_links_its_subscriptions_and_its_topics() -> None:
    world = build_world(Scenario(pl=0.25))
    for peer in range(20):
        told = world.make_start_input(peer)
        assert tuple(n.peer for n in told.neighbours) == world.overlay.neighbours(peer)
        assert {n.reliability for n in told.neighbours} == {0.75}
        wanted = {parse(s.filter).topic for s in told.subscriptions}
        assert wanted == {topic.name for topic in world.topics if peer in topic.subscribers}
        assert [parse(a).topic for a in told.advertisements] == [t.name for t in world.topics if t.publisher == peer]


@pytest.mark.parametrize("heal_s", [0.0, 0.5, 3.25, 7.0])
def test_nothing_is_broken_before_the_first_publication_or_after_healing(heal_s: float) -> None:
    crash = {"up": {"kind": "fixed", "mean_s": 0.7}, "down": {"kind": "fixed", "mean_s": 0.4}}
    for links in ({"pf": 0.5}, {"outages": crash}):
        world = build_world(
            Scenario(duration="10s").with_(heal=f"{heal_s}s", warmup="2.5s", peer_outages=crash, **links)
        )
        for what in (world.faults, world.peer_faults):
            for _, start, until in what.outages():
                assert world.begin_ns <= start < until <= world.begin_ns + heal_s * SECOND


def test_one_thing_changed_moves_no_other() -> None:
    plain, other = build_world(Scenario()), build_world(Scenario(pf=0.5, factor=2.0, transmissions=2))
    assert plain.overlay.links == other.overlay.links
    assert plain.topics == other.topics
    assert build_world(Scenario(degree=4)).topics == plain.topics


def test_by_content_every_event_has_its_own_subscribers() -> None:
    world = build_world(Scenario(topology="regular", peers=10, degree=4, topics=3, content=Content(predicates=(1, 3))))
    filters = [parse(text) for text in world.filters]
    seen = set()
    for topic in world.topics:
        for number in range(50):
            made = world.make_event(topic, world.begin_ns + topic.phase_ns + number * topic.period_ns)
            assert made.subscribers == tuple(p for p, f in enumerate(filters) if f.matches(made.attributes))
            assert topic.publisher not in made.subscribers
            seen.add(made.subscribers)
    assert len(seen) > 10


@pytest.mark.parametrize("wrong", [{"predicates": (0, 1)}, {"predicates": (3, 2)}, {"attributes": 2}, {"width": 0.0}])
def test_content_that_cannot_be_is_a_sentence(wrong: dict[str, object]) -> None:
    with raises("invalid-setting", match="content needs"):
        Scenario(content=Content(**wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive", "d-tree", "multipath"])
def test_by_content_everyone_gets_what_the_filters_say(strategy: str) -> None:
    calm = Scenario(strategy=strategy, peers=12, degree=4, topics=4, pf=0.0, pl=0.0, duration="20s", content=Content())
    outcome = simulate(calm)
    assert (outcome.summary.delivery, outcome.summary.on_time) == (1.0, 1.0)
    assert outcome.summary.expected > 50
    assert check(outcome) == []


@pytest.mark.parametrize(("peers", "clusters"), [(12, 4), (11, 3), (3, 4), (20, 1)])
def test_clusters_are_groups_of_equal_size(peers: int, clusters: int) -> None:
    world = build_world(Scenario(topology="full-mesh", peers=peers, topics=1, clusters=clusters))
    sizes = Counter(world.cluster_name(peer) for peer in range(peers))
    assert len(sizes) == min(peers, clusters)
    assert max(sizes.values()) - min(sizes.values()) <= 1


def test_near_peers_form_a_cluster() -> None:
    """Six peers at 0, 1, 2, 100, 101 and 102 on a line."""
    spots = [0, 100, 1, 101, 2, 102]
    assert near_clusters([[abs(a - b) for b in spots] for a in spots], 2) == ("cluster-0", "cluster-1") * 3


def test_on_an_underlay_with_domains_a_cluster_is_a_domain() -> None:
    world = build_world(Scenario(topology="full-mesh", underlay="power-law", peers=40, clusters=2))
    assert world.placement is not None
    domains = world.placement.underlay.domain[world.placement.homes]
    assert [world.cluster_name(peer) for peer in range(40)] == [f"domain-{domain}" for domain in domains]


def test_a_peer_is_told_its_cluster_if_its_membership_has_clusters() -> None:
    world = build_world(Scenario(strategy="scribe", membership="clusters", topology="full-mesh", peers=12))
    named = [world.peer_config(peer).of(ClusterSettings).cluster for peer in range(12)]
    assert named == [world.cluster_name(peer) for peer in range(12)]
    told = build_world(
        Scenario(strategy="scribe", membership="clusters", topology="full-mesh", peers=12, cluster="rome")
    )
    assert told.peer_config(3).of(ClusterSettings).cluster == "rome"


def test_an_underlay_of_one_domain_has_groups_of_near_peers() -> None:
    world = build_world(Scenario(topology="full-mesh", underlay="topohub:sndlib/germany50", peers=40, clusters=5))
    assert len({world.cluster_name(peer) for peer in range(40)}) == 5


HOUR = {"kind": "fixed", "mean_s": 3600.0}


def test_an_underlay_without_partitions_counts_the_outages_that_do_not_happen() -> None:
    hour = Outages(up=Spread(kind="exponential", mean_s=500), down=Spread(kind="uniform", low_s=10, high_s=1200))
    scenario = Scenario(topology="full-mesh", underlay="power-law-single", peers=8, duration="600s", outages=hour)
    free, connected = (build_world(scenario.with_(partitions=partitions)).faults for partitions in (True, False))
    past = build_world(scenario.with_(partitions=False, outages=replace(hour, past_s=3600))).faults
    assert isinstance(past, UnderlayFaults) and past.rejected > connected.rejected
    assert min(start for _, start, _ in past.outages()) == 5 * SECOND < min(start for _, start, _ in free.outages())
    assert isinstance(free, UnderlayFaults) and isinstance(connected, UnderlayFaults)
    assert free.rejected == 0 < connected.rejected
    assert sum(until - start for _, start, until in connected.outages()) < sum(
        until - start for _, start, until in free.outages()
    )


def test_domains_that_reroute_leave_outages_between_domains_and_in_those_of_others() -> None:
    always = Outages(up=Spread(kind="fixed", mean_s=1e-3), down=Spread(kind="fixed", mean_s=900))
    scenario = Scenario(topology="full-mesh", underlay="power-law", peers=30, outages=always, duration="60s")
    static, rerouted = (build_world(scenario.with_(reroute_in_domains=reroute)) for reroute in (False, True))
    now = static.begin_ns + SECOND
    placement = static.placement
    assert placement is not None
    domain = placement.underlay.domain
    for number, link in enumerate(static.overlay.links):
        path = placement.path(link.a, link.b)
        own = {int(domain[path[0]]), int(domain[path[-1]])}
        hops = [(int(domain[one]), int(domain[other])) for one, other in pairwise(path)]
        assert static.faults.is_up(number, now) == (not hops)
        assert rerouted.faults.is_up(number, now) == all(one == other and one in own for one, other in hops)
        traced = rerouted.find_path(link.a, link.b, now)
        assert (traced == tuple(path)) == rerouted.faults.is_up(number, now)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"partitions": False}, "partitions concerns routers"),
        ({"partitions": False, "underlay": "power-law"}, "without partitions needs outages"),
        ({"reroute_in_domains": True}, "reroute_in_domains concerns routers"),
        ({"clusters": 0}, "clusters"),
        ({"peer_outages": {"up": HOUR, "down": HOUR, "past_s": -1}}, "peer_outages.past_s must be in 0..1e"),
    ],
)
def test_what_concerns_clusters_and_partitions_is_checked(fields: dict[str, Any], sentence: str) -> None:
    with raises("invalid-setting", match=sentence):
        Scenario(**fields)
