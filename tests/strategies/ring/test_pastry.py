"""`pastry` in small worlds: whoever joins, leaves, crashes or returns, leaf sets are the ring and keys find owners."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.ring.rings import DETECTION, RingWorld, leaf_set
from wend.model.keys import node_id
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND
from wend.studies.settled_contacts import find_settled_contacts

QUIET = 40
"""Seconds after which nothing that happened before has effects: some detection times, and rounds through the table."""
TABLE = 8 * SECOND

Steps = list[tuple[str, int, float]]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "join", "leave", "crash", "crash", "return"]),
        st.integers(0, 10**6),
        st.sampled_from([0.0, 0.0, 0.01, 0.1, 0.5, 3.0]),
    ),
    max_size=60,
)


def turbulent(seed: int, first: int, steps: Steps, loss: float) -> RingWorld:
    """Peer 0 is there to stay. All others have it and two more peers as contacts, alive or not."""
    world = RingWorld(seed, loss, pastry_table_ns=TABLE)
    world.begin(0)
    gone: list[int] = []
    for peer in range(1, first):
        world.begin(peer, peer // 2, 0)
    known = first
    for step, choice, pause in steps:
        others = sorted(world.peers.keys() - {0})
        if step == "join":
            world.begin(known, choice % known, choice % 7, 0)
            known += 1
        elif step == "return" and gone:
            world.begin(gone.pop(choice % len(gone)), 0, choice % known)
        elif others and step in ("leave", "crash"):
            peer = others[choice % len(others)]
            gone.append(peer)
            world.leave(peer) if step == "leave" else world.crash(peer)
        world.run(pause)
    return world


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 30), STEPS, st.sampled_from([0.0, 0.0, 0.05]))
def test_keys_reach_the_closest_live_peer(seed: int, first: int, steps: Steps, loss: float) -> None:
    world = turbulent(seed, first, steps, loss)
    world.loss = 0.0
    world.run(QUIET)
    assert all(pastry.has_joined for pastry in world.peers.values())
    world.routes_well(4)


# ---------------------------------------------------------------- joining


def test_a_join_storm_settles() -> None:
    world = RingWorld(1)
    world.begin(0)
    for peer in range(1, 100):
        world.begin(peer, 0)
    world.run(8)
    assert all(pastry.has_joined for pastry in world.peers.values())
    world.routes_well(3)


def test_a_contact_that_is_not_there_yet_only_delays() -> None:
    world = RingWorld(2)
    world.begin(1, 7, 0)
    world.begin(2, 7)
    world.run(20)
    assert not world.peers[1].has_joined and not world.peers[1].owns(0)
    assert not world.peers[2].has_joined
    world.begin(0)
    world.run(10)
    assert world.peers[1].has_joined
    world.begin(7, 0)
    world.run(10)
    world.routes_well(3)
    assert world.peers[2].has_joined


@pytest.mark.parametrize("contacts", [{1: 2, 2: 1}, {1: 2, 2: 3, 3: 1}, {1: 3, 2: 1, 3: 2}, {1: 99, 2: 1, 3: 2}])
def test_peers_that_know_only_each_other_begin_a_ring(contacts: dict[int, int]) -> None:
    world = RingWorld(3, pastry_table_ns=TABLE)
    for peer, contact in contacts.items():
        world.begin(peer, contact)
    world.run(QUIET)
    assert all(pastry.has_joined for pastry in world.peers.values())
    world.routes_well(3)


def test_a_peer_alone_waits_for_its_contact() -> None:
    world = RingWorld(3)
    world.begin(1, 2)
    world.run(100)
    assert not world.peers[1].has_joined


def test_rings_that_began_apart_merge() -> None:
    world = RingWorld(4, pastry_table_ns=TABLE)
    world.cut = {(a, b) for a in range(20) for b in range(20) if (a < 10) != (b < 10)}
    world.begin(0)
    world.begin(10)
    for peer in range(20):
        if peer % 10:
            world.begin(peer, 0 if peer < 10 else 10, 0)
    world.run(10)
    assert len(world.wrong_leaf_sets()) == 20
    world.cut.clear()
    world.run(QUIET)
    world.routes_well(3)


def test_a_small_ring_merges_into_a_large_one() -> None:
    world = RingWorld(5, pastry_table_ns=TABLE)
    world.begin(0)
    for peer in range(1, 30):
        world.begin(peer, 0)
    world.cut = {(100, 0), (0, 100)}
    world.begin(100, 0, 101)
    world.begin(101, 100)
    world.run(15)
    assert leaf_set(world.peers[100]) == (101,)
    world.cut.clear()
    world.run(QUIET)
    world.routes_well(2)


# ---------------------------------------------------------------- leaving and crashing


def ring_of(peers: int, seed: int = 6, **settings: int) -> RingWorld:
    """A ring that is ready."""
    world = RingWorld(seed, pastry_settled=True, **settings)
    for peer, contacts in find_settled_contacts(range(peers), lambda _, some: some[0]):
        world.begin(peer, *contacts)
    return world


def test_a_peer_that_leaves_is_replaced_at_once() -> None:
    world = ring_of(60)
    world.run(1)
    world.leave(5)
    world.leave(6)
    world.run(0.8)
    assert world.wrong_leaf_sets() == {}


def test_crashes_are_noticed_within_the_detection_time() -> None:
    for seed in range(3):
        world = ring_of(60, seed)
        world.run(2)
        world.crash(7)
        world.run(DETECTION / SECOND + 0.5)  # and the time to find those who take its place
        assert world.wrong_leaf_sets() == {}


def test_a_third_of_all_crash_at_once() -> None:
    world = ring_of(90)
    world.run(2)
    for peer in range(0, 90, 3):
        world.crash(peer)
    world.run(4 * DETECTION / SECOND)
    assert world.wrong_leaf_sets() == {}


def test_nobody_speaks_to_the_dead_for_ever() -> None:
    world = ring_of(40, pastry_table_ns=TABLE)
    world.run(2)
    world.crash(3)
    world.run(QUIET)
    world.wasted.clear()
    world.run(QUIET)
    assert world.wasted[3] == 0


def test_a_quiet_ring_stays_as_it_is() -> None:
    world = ring_of(40)
    world.run(1)
    world.changes.clear()
    world.run(20)
    assert not world.changes


def test_a_peer_that_is_wrongly_taken_for_dead_comes_back() -> None:
    world = ring_of(30)
    victim = 4
    accusers = set(leaf_set(world.peers[victim])[:3])
    world.cut = {(victim, one) for one in accusers}
    world.run(5)
    assert any(victim not in leaf_set(world.peers[one]) for one in accusers)
    assert all(victim in leaf_set(world.peers[one]) for one in set(leaf_set(world.peers[victim])) - accusers)
    world.cut.clear()
    world.run(4 * DETECTION / SECOND)
    assert world.wrong_leaf_sets() == {}


def test_pairs_that_hear_each_other_one_way_only_cause_no_storm() -> None:
    """A tenth of all directions are cut: what some take for dead, others know to be alive, and both say so."""
    world = ring_of(30)
    draw = peer_stream(1, "cuts")
    world.cut = {(a, b) for a in range(30) for b in range(30) if draw.random() < 0.1}
    world.run(15)
    world.said.clear()
    world.changes.clear()
    world.run(10)
    assert sum(world.said.values()) < 40 * 30 * 10  # 40 messages per peer and second, where heartbeats are 1.25
    assert sum(world.changes.values()) < 30
    world.cut.clear()
    world.run(QUIET)
    assert world.wrong_leaf_sets() == {}


def test_the_halves_of_a_ring_that_was_cut_come_together() -> None:
    world = RingWorld(8, pastry_table_ns=TABLE)
    world.begin(0)
    for peer in range(1, 24):
        world.begin(peer, 0)
    world.run(10)
    world.cut = {(a, b) for a in range(24) for b in range(24) if (a < 12) != (b < 12)}
    world.run(40)
    assert len(world.wrong_leaf_sets()) == 24
    world.cut.clear()
    world.run(QUIET)
    world.routes_well(3)


def test_peers_that_are_farther_away_than_expected_are_not_dead() -> None:
    """Round trips of most of a detection time, which nobody has measured at the start."""
    world = ring_of(30, widest_ms=1500)
    world.run(20)
    world.changes.clear()
    world.run(20)
    assert not world.changes and world.wrong_leaf_sets() == {}
    world.crash(7)
    world.run(15)
    assert world.wrong_leaf_sets() == {}


def test_neighbours_hear_of_a_restart_that_nobody_noticed() -> None:
    world = ring_of(30)
    world.run(1)
    neighbour = leaf_set(world.peers[4])[0]
    world.crash(4)
    world.changes.clear()
    world.begin(4, 9)
    world.run(1)
    assert world.changes[neighbour] >= 1
    assert world.wrong_leaf_sets() == {} and world.peers[4].has_joined


# ---------------------------------------------------------------- routes


def test_routes_are_as_short_as_the_digits_of_keys_allow() -> None:
    world = ring_of(400)
    draw = peer_stream(1, "keys")
    hops = [len(world.route(draw.getrandbits(128), draw.randrange(400))) - 1 for _ in range(500)]
    assert sum(hops) / len(hops) < 2.3  # log16 of 400 is 2.16
    assert world.wrong_leaf_sets() == {}


def test_tables_prefer_near_peers() -> None:
    world = RingWorld(9, pastry_table_ns=TABLE)
    world.begin(0)
    for peer in range(1, 40):
        world.begin(peer, 0)
    world.run(60)
    routes = [(start, world.route(node_id(end), start)) for start in range(40) for end in range(40) if start != end]
    first = [world.trip(start, route[1]) for start, route in routes if len(route) > 2]
    others = [world.trip(a, b) for a in range(40) for b in range(40) if a != b]
    assert sum(first) / len(first) < 0.7 * sum(others) / len(others)
    measured = world.peers[0].round_trip_ns(leaf_set(world.peers[0])[0])
    assert measured != world.peers[0].round_trip_ns(-5) == 100 * MS
