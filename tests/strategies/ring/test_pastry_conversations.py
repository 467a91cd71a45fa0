"""What a peer of a ring says and refuses, message by message."""

from bisect import insort
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.ring.rings import leaf_set
from wend.model.keys import RING, distance, node_id, shared_digits
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun, Changed, Heard, PluginEffect, SendTo, Unanswered
from wend.protocol.ports import ContactFound, Refuse, Stopping
from wend.strategies.ring.leaf_set import FULL, HALF, LeafSet, fits_beside
from wend.strategies.ring.messages import (
    JoinReply,
    JoinRequest,
    LeafProbe,
    LeafReply,
    RingHeartbeat,
    RingLeave,
    RowRequest,
    TablePing,
    TablePong,
    TableRow,
)
from wend.strategies.ring.pastry import Pastry

ME = 1000
OTHERS = tuple(range(ME))


def settled(*peers: int) -> Pastry:
    pastry = Pastry(PeerConfig(peer=ME, pastry_settled=True))
    pastry.handle(0, Begun(peers))
    return pastry


def sent(effects: list[PluginEffect], kind: type) -> list[tuple[int, Any]]:
    return [(e.peer, e.message) for e in effects if isinstance(e, SendTo) and isinstance(e.message, kind)]


SEVENTEEN = tuple(range(17))


@pytest.mark.parametrize(
    "message",
    [
        RingHeartbeat(SEVENTEEN),
        RingHeartbeat((3, 3)),
        RingHeartbeat((7, 3)),
        RingLeave(1, SEVENTEEN),
        JoinReply(SEVENTEEN),
        LeafProbe(1, 1, SEVENTEEN),
        LeafProbe(1, 1, (), SEVENTEEN),
        LeafReply(1, 1, (), (7,)),
        TableRow(0, SEVENTEEN),
        TableRow(32, ()),
        TableRow(-1, ()),
        RowRequest(-1),
        RowRequest(32),
        JoinRequest(7, hops=1),
        JoinRequest(8, hops=0),
        JoinRequest(8, hops=-1),
        JoinRequest(8, hops=65),
    ],
    ids=repr,
)
def test_a_message_that_cannot_be_is_refused(message: object) -> None:
    pastry = settled(1, 2, 3)
    (refusal,) = pastry.handle(1, Heard(7, message))
    assert isinstance(refusal, Refuse) and refusal.code == "invalid-message"
    assert set(leaf_set(pastry)) == {1, 2, 3}


def test_nobody_speaks_in_this_peers_own_name() -> None:
    (refusal,) = settled(1).handle(1, Heard(ME, RingHeartbeat((1,))))
    assert isinstance(refusal, Refuse)


def test_hearsay_leads_to_a_probe_and_only_an_answer_to_a_member() -> None:
    pastry = settled(1, 2)
    told = pastry.handle(SECOND, Heard(2, LeafReply(5, 1, (9,))))
    assert told == []  # nobody asked
    told = pastry.handle(SECOND, Heard(1, LeafProbe(5, 1, (2, 9))))
    ((to, probe),) = sent(told, LeafProbe)
    assert to == 9 and not any(isinstance(effect, Changed) for effect in told)
    assert pastry.handle(SECOND, Heard(9, LeafReply(probe.number + 1, 1, ()))) == []
    assert 9 not in leaf_set(pastry)
    told = pastry.handle(SECOND + 30 * MS, Heard(9, LeafReply(probe.number, 1, ())))
    assert Changed("ownership") in told and 9 in leaf_set(pastry)
    assert pastry.round_trip_ns(9) == 30 * MS


def test_a_message_of_a_former_incarnation_counts_for_nothing() -> None:
    pastry = settled(1, 2)
    told = pastry.handle(SECOND, Heard(2, LeafProbe(5, 3, ())))
    assert Changed("ownership") in told  # it restarted, and may have lost what it held
    pastry.handle(SECOND, Heard(2, RingLeave(2, ())))
    assert 2 in leaf_set(pastry)
    assert pastry.handle(SECOND, Heard(2, LeafProbe(6, 2, ()))) == []
    pastry.handle(SECOND, Heard(2, RingLeave(3, ())))
    assert leaf_set(pastry) == (1,) and pastry.is_dead(2)
    told = pastry.handle(SECOND, Heard(2, LeafProbe(1, 4, ())))
    ((to, probe),) = sent(told, LeafProbe)  # it is back: but does it hear this peer?
    assert to == 2 and 2 not in leaf_set(pastry)
    pastry.handle(SECOND, Heard(2, LeafReply(probe.number, 4, ())))
    assert 2 in leaf_set(pastry) and not pastry.is_dead(2)


def test_a_peer_that_stops_tells_its_leaf_set_and_then_nothing() -> None:
    pastry = settled(1, 2, 3)
    assert sorted(peer for peer, _ in sent(pastry.handle(1, Stopping()), RingLeave)) == [1, 2, 3]
    assert pastry.handle(2, Heard(1, TablePing(1))) == []
    assert not pastry.has_joined


def test_an_entry_that_does_not_answer_is_avoided_until_it_does() -> None:
    pastry = settled(*OTHERS)
    key = next(node_id(peer) for peer in OTHERS if pastry.next_hop(node_id(peer)) not in leaf_set(pastry))
    hop = pastry.next_hop(key)
    told = pastry.handle(SECOND, Unanswered(hop))
    ((to, ping),) = sent(told, TablePing)
    assert to == hop and pastry.next_hop(key) != hop
    pastry.handle(SECOND + MS, Heard(hop, TablePong(ping.number)))
    assert pastry.next_hop(key) == hop


def test_a_member_that_does_not_answer_stays_until_probes_say_so() -> None:
    pastry = settled(*OTHERS)
    leaf = leaf_set(pastry)[0]
    told = pastry.handle(SECOND, Unanswered(leaf))
    assert [peer for peer, _ in sent(told, LeafProbe)] == [leaf]
    assert pastry.next_hop(node_id(leaf)) == leaf


def test_a_hop_to_avoid_is_avoided() -> None:
    pastry = settled(*OTHERS)
    for peer in OTHERS:
        key = node_id(peer)
        hop = pastry.next_hop(key)
        other = pastry.next_hop(key, (hop,))
        assert other != hop
        closer = distance(node_id(other), key) <= distance(node_id(ME), key)
        assert closer or shared_digits(node_id(other), key) > shared_digits(node_id(ME), key)
    everyone = set(leaf_set(pastry))
    assert pastry.next_hop(node_id(leaf_set(pastry)[0]), everyone) == ME


def test_replicas_are_successors_and_predecessors_in_turn() -> None:
    pastry = settled(*OTHERS)
    by_offset = sorted(OTHERS, key=lambda peer: (node_id(peer) - node_id(ME)) % RING)
    assert pastry.replicas(4) == (by_offset[0], by_offset[-1], by_offset[1], by_offset[-2])
    assert sorted(pastry.replicas(99)) == sorted(leaf_set(pastry))
    assert settled(5).replicas(3) == (5,)
    assert settled().replicas(3) == ()


def test_the_status_names_the_neighbours() -> None:
    by_offset = sorted(OTHERS, key=lambda peer: (node_id(peer) - node_id(ME)) % RING)
    status = settled(*OTHERS).status()
    assert (status["joined"], status["leaf-set"]) == (1, 16) and status["table"] > 20
    assert (status["predecessor"], status["successor"]) == (by_offset[-1], by_offset[0])
    ring = [status[f"leaf/{place}"] for place in (*range(1, 9), *range(-8, 0))]
    assert ring == [*by_offset[:8], *by_offset[-8:]]
    alone = Pastry(PeerConfig(peer=ME))
    assert alone.status() == {"joined": 0, "leaf-set": 0, "table": 0}
    assert Changed("ownership") in alone.handle(0, Begun(()))
    assert alone.has_joined and alone.owns(0)


@settings(max_examples=60)
@given(st.sets(st.integers(0, 500), max_size=40), st.lists(st.integers(0, 500), max_size=10), st.integers(0, RING - 1))
def test_a_leaf_set_is_the_ring_around_a_peer(peers: set[int], gone: list[int], key: int) -> None:
    leaf = LeafSet(ME)
    for peer in sorted(peers):
        due = fits_beside(ME, leaf.peers, peer)
        assert leaf.add(peer) == due
    ring: list[tuple[int, int]] = []
    for peer in peers:
        insort(ring, ((node_id(peer) - node_id(ME)) % RING, peer))
    due_members = [peer for _, peer in ring]
    if len(due_members) > FULL:
        due_members = due_members[:HALF] + due_members[-HALF:]
    assert list(leaf.peers) == due_members
    for peer in gone:
        assert leaf.remove(peer) == (peer in due_members)
        due_members = [one for one in due_members if one != peer]
    assert list(leaf.peers) == due_members
    closest = min([ME, *due_members], key=lambda peer: (distance(node_id(peer), key), node_id(peer)))
    assert leaf.closest((key - node_id(ME)) % RING) == closest


def test_a_peer_whose_contacts_follow_waits_for_one() -> None:
    peer = Pastry(PeerConfig(peer=ME))
    assert not any(isinstance(effect, SendTo) for effect in peer.handle(0, Begun((), contacts_follow=True)))
    assert not peer.has_joined
    assert SendTo(OTHERS[0], JoinRequest(ME)) in peer.handle(SECOND, ContactFound(OTHERS[0]))
    assert peer.handle(2 * SECOND, ContactFound(OTHERS[0])) == [SendTo(OTHERS[0], JoinRequest(ME))]
    assert peer.handle(2 * SECOND, ContactFound(ME)) == [] and not peer.has_joined


def test_a_peer_that_is_its_own_only_contact_begins_a_ring() -> None:
    peer = Pastry(PeerConfig(peer=ME))
    peer.handle(0, Begun((), contacts_follow=True))
    assert Changed("ownership") in peer.handle(0, ContactFound(ME))
    assert peer.has_joined


def test_a_peer_that_nobody_answered_asks_the_one_that_asks_it() -> None:
    peer = Pastry(PeerConfig(peer=ME))
    peer.handle(0, Begun((), contacts_follow=True))
    asked = peer.handle(SECOND, Heard(OTHERS[0], JoinRequest(OTHERS[0])))
    assert SendTo(OTHERS[0], JoinRequest(ME)) in asked
