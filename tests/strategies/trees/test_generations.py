"""When it is time for other trees: links that come to be much better or worse, for good, and not too often."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wend.model.units import SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.link.link import Link
from wend.protocol.plugins import PluginEffect, Tell, View
from wend.protocol.ports import Notice, Refuse
from wend.strategies.trees.generations import DRIFT_NS, LAST, RENEW_NS, TreeSets, has_drifted, order
from wend.strategies.trees.graph import MrstTrees
from wend.strategies.trees.messages import Generation, LinkWeight, SequencedMessage

PEERS = range(4)
LOOK: Nanos = SECOND // 2


def view_of(me: int, incarnation: int = 1) -> View:
    config = PeerConfig(peer=me, incarnation=incarnation)
    links = {n: Link(n, 1, 0.99, config) for n in PEERS if n != me}
    view = View(config, links, persistence=False)
    view.neighbours = tuple(links)
    return view


class FourPeers:
    """Four peers, all linked, who hear each other at once."""

    def __init__(self, fails: dict[int, float] | None = None) -> None:
        self.now: Nanos = 0
        self.renewed = self.called = 0
        self.views = [view_of(me) for me in PEERS]
        self.sets = [TreeSets(MrstTrees.make_builder, 1, (fails or {}).get(me, 0.0)) for me in PEERS]

    def link(self, a: int, b: int, reliability: float) -> None:
        self.views[a].links[b].reliability = self.views[b].links[a].reliability = reliability

    def on_tree(self) -> set[tuple[int, int]]:
        built = [trees.newest for trees in self.sets]
        return {(me, n) for me, one in enumerate(built) if one is not None for n in one.trees[0]}

    def live(self, time: Nanos) -> None:
        until = self.now + time
        while self.now < until:
            self.now += LOOK
            for me in PEERS:
                self._carry(me, self.sets[me].check(self.now, self.views[me]))

    def _carry(self, me: int, effects: list[PluginEffect]) -> None:
        queue = deque((me, effect) for effect in effects)
        while queue:
            sender, effect = queue.popleft()
            if isinstance(effect, Tell):
                assert isinstance(effect.message, SequencedMessage)
                to = effect.peer
                answers = self.sets[to].on_message(self.now, sender, effect.message, self.views[to])
                queue.extend((to, answer) for answer in answers)
            elif isinstance(effect, Notice):
                self.renewed += effect.what == "trees-renewed"
                self.called += effect.what == "trees-called"


def settled() -> FourPeers:
    peers = FourPeers()
    peers.live(5 * SECOND)
    assert len(peers.on_tree()) == 6
    return peers


@pytest.mark.parametrize("bad", PEERS)
def test_a_tree_leads_around_a_peer_that_is_often_down(bad: int) -> None:
    peers = FourPeers({bad: 0.2})
    peers.live(5 * SECOND)
    assert len(peers.on_tree()) == 6
    assert sum(bad in link for link in peers.on_tree()) == 2, "one link, seen from both ends"


def first_call(me: int, incarnation: int) -> Generation:
    """How a peer that has just begun names the first trees that it calls for."""
    trees, view = TreeSets(MrstTrees.make_builder, 1, 0.0), view_of(me, incarnation)
    for now in (SECOND, 2 * SECOND):
        trees.check(now, view)
    assert trees.newest is not None
    return trees.newest.generation


def test_no_two_incarnations_of_a_peer_name_their_trees_alike() -> None:
    calls = [first_call(me=2, incarnation=number) for number in (1, 2, 9)]
    assert sorted(set(calls), key=order) == calls
    assert order(first_call(me=1, incarnation=1)) > order(calls[-1])  # of one number the lower peer's counts


def test_a_number_of_trees_without_a_next_is_refused() -> None:
    trees = TreeSets(MrstTrees.make_builder, 1, 0.0)
    for number in (-1, 0, LAST, 2**64 - 1):
        answer = trees.on_message(0, 1, SequencedMessage((number, 1, 1), 0, LinkWeight(0.0, 0.0)), view_of(0))
        assert answer == [Refuse(1, "invalid-generation")]
    assert trees.newest is None


def test_what_counts_as_another_link() -> None:
    assert has_drifted(0.02, 0.05) and has_drifted(0.05, 0.02)
    assert not has_drifted(0.02, 0.035) and not has_drifted(0.0, 0.015)
    assert has_drifted(0.0, 1.0) and not has_drifted(1.0, 1.0)


def test_a_link_that_gets_worse_for_good_is_left_out_of_the_next_trees() -> None:
    peers = settled()
    a, b = min(peers.on_tree())
    called = peers.called
    peers.live(RENEW_NS)
    peers.link(a, b, 0.8)
    peers.live(DRIFT_NS - LOOK)
    assert (peers.renewed, peers.called) == (0, called)
    peers.live(2 * SECOND)
    assert peers.renewed == 1
    assert (a, b) not in peers.on_tree() and len(peers.on_tree()) == 6
    peers.live(3 * RENEW_NS)
    assert peers.renewed == 1


def test_a_bad_spell_makes_no_new_trees() -> None:
    peers = settled()
    peers.live(RENEW_NS)
    for _ in range(6):
        peers.link(*min(peers.on_tree()), 0.8)
        peers.live(DRIFT_NS - SECOND)
        for a, b in sorted(peers.on_tree()):
            peers.link(a, b, 0.99)
        peers.live(SECOND)
    assert peers.renewed == 0


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([0.5, 0.9, 0.99]), st.integers(1, 30)), min_size=1, max_size=12))
def test_whatever_links_do_there_is_no_storm(moves: list[tuple[float, int]]) -> None:
    peers = settled()
    first = peers.now
    for number, (reliability, seconds) in enumerate(moves):
        here = sorted(peers.on_tree())
        peers.link(*here[number % len(here)], reliability)
        peers.live(seconds * SECOND)
    assert peers.renewed <= 1 + (peers.now - first) // RENEW_NS
