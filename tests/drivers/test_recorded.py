"""Recordings: what was measured happens again, for any strategy."""

from collections import Counter
from dataclasses import dataclass

from tests.errors import raises
from wend.drivers.recorded import WARMUP_NS, RecordedFlow, RecordedLink, Recording, make_recorded_world
from wend.drivers.sim.run import play_world
from wend.drivers.world import World
from wend.model.units import MS, SECOND

FLOW = RecordedFlow(70, (900, 5), 2.0, 100, 1.0, (200 * MS, 40 * MS))
RECORDING = Recording(
    10**18,
    10 * SECOND,
    (
        RecordedLink(5, 70, 20 * MS, 0.0, ((2 * SECOND, 4 * SECOND),)),
        RecordedLink(5, 900, 30 * MS),
        RecordedLink(70, 900, 90 * MS, 0.1),
    ),
    (FLOW,),
)


def test_the_world_has_the_links_outages_flows_and_deadlines_that_were_recorded() -> None:
    world = make_recorded_world(RECORDING, 3, {"strategy": "dcrd"})
    assert world.overlay.names == ("5", "70", "900")
    assert [(link.a, link.b, link.delay_ns, link.loss) for link in world.overlay.links] == [
        (0, 1, 20 * MS, 0.0),
        (0, 2, 30 * MS, 0.0),
        (1, 2, 90 * MS, 0.1),
    ]
    assert list(world.faults.outages()) == [(0, WARMUP_NS + 2 * SECOND, WARMUP_NS + 4 * SECOND)]
    (topic,) = world.topics
    assert (topic.publisher, topic.subscribers, topic.period_ns, topic.payload_bytes) == (1, (0, 2), SECOND // 2, 100)
    assert (world.deadline_ns(1, 2), world.deadline_ns(1, 0)) == (200 * MS, 40 * MS)
    assert [one.qos.deadline_ns for one in world.make_start_input(2).subscriptions] == [200 * MS]
    assert world.scenario.settings["estimator"] == "measured", "peers are as they are shipped"


def test_a_pair_without_a_deadline_has_one_by_the_shortest_delay() -> None:
    flow = RecordedFlow(70, (900, 5), 2.0, 0, 1.0, (0, 40 * MS))
    world = make_recorded_world(Recording(1, SECOND, RECORDING.links, (flow,)), 1, {"strategy": "dcrd", "factor": 2.0})
    assert (world.deadline_ns(1, 2), world.deadline_ns(1, 0)) == (100 * MS, 40 * MS)
    assert world.make_start_input(2).subscriptions[0].qos.factor == 2.0


def test_a_seed_moves_publications_and_nothing_else() -> None:
    first, again, other = (make_recorded_world(RECORDING, seed, {"strategy": "dcrd"}) for seed in (1, 1, 2))
    assert first.topics == again.topics != other.topics
    assert list(first.faults.outages()) == list(other.faults.outages())


TIMES = (0, SECOND, 3 * SECOND, 3 * SECOND, 9 * SECOND + 5)
TIMED = Recording(1, 10 * SECOND, RECORDING.links, (RecordedFlow(70, (900,), 0.5, 0, 1.0, (200 * MS,), TIMES),))


def published(world: World) -> list[int]:
    """When events were published in a run, since the begin of the recording."""
    assert TIMED.has_times and not RECORDING.has_times
    return [int(row[0]) - WARMUP_NS for row in play_world(world).trace.publications.rows()]


def test_events_are_published_at_the_recorded_times() -> None:
    world = make_recorded_world(TIMED, 7, {"strategy": "dcrd"}, moved=False)
    assert published(world) == [0, SECOND, 3 * SECOND, 3 * SECOND + 1, 9 * SECOND + 5], "equal ones follow each other"


def test_a_seed_moves_recorded_times_and_keeps_their_gaps() -> None:
    one, other, again = (make_recorded_world(TIMED, seed, {"strategy": "dcrd"}) for seed in (1, 2, 1))
    assert one.topics == again.topics != other.topics
    times = published(one)
    assert len(times) == len(TIMES) and max(times) < TIMED.duration_ns
    gaps = Counter((b - a) % TIMED.duration_ns for a, b in zip(times, [*times[1:], times[0]], strict=True))
    assert gaps == Counter([SECOND, 2 * SECOND, 1, 6 * SECOND + 4, SECOND - 5])


def test_an_outage_that_began_before_the_recording_is_known_when_it_begins() -> None:
    """The detector of `adaptive` needs time, which it had: not even the first event is sent into the outage."""
    square = [RecordedLink(a, b, 10 * MS) for a, b in ((1, 2), (2, 3), (3, 4), (1, 4))]
    flow = RecordedFlow(1, (2,), 1.0, 0, 1.0, (35 * MS,), (0, MS, 2 * MS))
    for began, least, most in ((-4 * SECOND, 1.0, 1.0), (-9 * SECOND, 1.0, 1.0), (0, 0.0, 0.5)):
        links = (RecordedLink(1, 2, 10 * MS, 0.0, ((began, SECOND),)), *square[1:])
        world = make_recorded_world(Recording(1, SECOND, links, (flow,)), 1, {"strategy": "adaptive"}, moved=False)
        assert least <= play_world(world).summary.on_time <= most


def test_equal_times_at_the_end_of_a_recording_are_all_played() -> None:
    flow = RecordedFlow(1, (2,), 1.0, 0, 1.0, (), (5, SECOND - 1, SECOND - 1, SECOND - 1))
    recording = Recording(1, SECOND, (RecordedLink(1, 2, MS),), (flow,))
    world = make_recorded_world(recording, 1, {"strategy": "dcrd"}, moved=False)
    assert world.topics[0].times_ns == (5, SECOND - 3, SECOND - 2, SECOND - 1)
    assert play_world(world).summary.expected == 4


def test_peers_without_links_take_no_part() -> None:
    flows = (RecordedFlow(1, (5,), 1.0), RecordedFlow(5, (1, 70), 1.0), RecordedFlow(70, (70,), 1.0))
    world = make_recorded_world(Recording(1, SECOND, RECORDING.links, flows), 1, {"strategy": "dcrd"})
    assert [(topic.publisher, topic.subscribers) for topic in world.topics] == [(0, (1,))]
    with raises("invalid-setting", match="no flow between its peers"):
        make_recorded_world(Recording(1, SECOND, RECORDING.links, flows[:1]), 1, {"strategy": "dcrd"})
    with raises("invalid-setting", match="no links"):
        make_recorded_world(Recording(1, SECOND, (), flows), 1, {"strategy": "dcrd"})


@dataclass(frozen=True)
class Played:
    on_time: float
    delivery: float


def played(strategy: str, recording: Recording) -> Played:
    summary = play_world(make_recorded_world(recording, 1, {"strategy": strategy})).summary
    return Played(summary.on_time, summary.delivery)


def test_strategies_that_route_around_an_outage_are_on_time_and_a_tree_is_not() -> None:
    square = tuple(RecordedLink(a, b, 10 * MS) for a, b in ((1, 2), (2, 3), (3, 4), (1, 4)))
    down = RecordedLink(1, 2, 10 * MS, 0.0, ((0, 5 * SECOND),))
    flow = RecordedFlow(1, (2,), 20.0, 10, 1.0, (100 * MS,))
    recording = Recording(1, 10 * SECOND, (down, *square[1:]), (flow,))
    assert played("dcrd", recording) == Played(1.0, 1.0)
    tree = played("d-tree", recording)
    assert 0.4 < tree.on_time < 0.6
