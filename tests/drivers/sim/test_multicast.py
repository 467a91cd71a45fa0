"""Simulated multicast: one packet, copied for each member of a group over the link from the sender."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.multicasters import CASTS, Casts
from wend.drivers.scenarios import Scenario
from wend.drivers.sim.engine import Engine
from wend.drivers.world import World, build_world
from wend.model.units import SECOND
from wend.protocol.peer import Peer
from wend.strategies.registry import PLUGINS
from wend.topology.faults import Intervals

THREE = {
    "topology": "full-mesh", "peers": 3, "topics": 1, "pf": 0.0, "pl": 0.0, "membership": CASTS, "warmup": "4s",
    "duration": "1s", "drain": "500ms",
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_tables() -> Iterator[None]:
    before = dict(PLUGINS["membership"])
    yield
    PLUGINS["membership"].clear()
    PLUGINS["membership"].update(before)


def world(**fields: Any) -> World:
    return build_world(Scenario(**{**THREE, **fields}))


def heard(engine: Engine) -> list[list[tuple[int, int]]]:
    """By receiver: the senders and numbers that it heard."""
    found = []
    for peer in engine.peers:
        assert isinstance(peer, Peer)
        plugin = peer.plugins[CASTS]
        assert isinstance(plugin, Casts)
        found.append(sorted(plugin.heard))
    return found


def played(made: World) -> Engine:
    engine = Engine(made)
    engine.run()
    return engine


EVERYTHING = [[(s, n) for s in range(3) if s != r for n in range(1, 6)] for r in range(3)]


def test_all_other_members_hear_a_packet_that_counts_once() -> None:
    engine = played(world())
    assert heard(engine) == EVERYTHING
    assert engine.notices["multicast"] == engine.control[CASTS] == 15
    assert engine.notices["multicast-lost"] == 0


def test_blocked_multicast_reaches_nobody() -> None:
    engine = played(world(multicast=False))
    assert heard(engine) == [[], [], []]
    assert engine.notices["multicast"] == 15
    assert engine.notices["multicast-lost"] == 30


def test_a_link_that_is_down_costs_the_copies_over_it() -> None:
    made = world()
    link = made.overlay.link(0, 1)
    made.faults = Intervals(3, [(link, 2 * SECOND, 3 * SECOND)])  # the packets with number 2
    engine = played(made)
    lost = {0: [(1, 2)], 1: [(0, 2)], 2: []}
    assert heard(engine) == [[each for each in EVERYTHING[r] if each not in lost[r]] for r in range(3)]
    assert engine.notices["multicast-lost"] == 2


def test_copies_get_lost_one_by_one() -> None:
    engine = played(world(pl=0.3, peers=20))
    lost = engine.notices["multicast-lost"]
    assert sum(map(len, heard(engine))) == 20 * 19 * 5 - lost
    assert 0.2 < lost / (20 * 19 * 5) < 0.4


def test_a_test_decides_whom_multicast_reaches() -> None:
    made = world()
    made.multicast_reaches = lambda sender, receiver, now: sender < receiver
    assert heard(played(made)) == [[each for each in EVERYTHING[r] if each[0] < r] for r in range(3)]


def test_a_peer_that_crashed_is_in_no_group_until_it_joins_again() -> None:
    made = world()
    made.peer_faults = Intervals(3, [(2, 2 * SECOND + 1, 4 * SECOND - 1)])
    engine = played(made)
    assert heard(engine)[2] == [(s, n) for s in (0, 1) for n in (4, 5)]
    assert (2, 1) in heard(engine)[0]
    assert engine.notices["multicast-lost"] == 0


def test_disturbed_links_corrupt_copies_one_by_one() -> None:
    engine = played(world(corruption=0.3, peers=20, warmup="1ms", duration="5s"))
    refused = engine.notices["refused-corrupted"]
    assert sum(map(len, heard(engine))) == 20 * 19 * 5 - engine.notices["multicast-lost"]
    assert 0.2 < engine.notices["multicast-lost"] / (20 * 19 * 5) < 0.4
    assert refused >= engine.notices["multicast-lost"]
