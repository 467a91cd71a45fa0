"""When it is time for other trees: links that come to be much better or worse, for good, and not too often."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wend.model.units import SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.graph.link_state import LinkStateGraph
from wend.protocol.interest import TreeInterest
from wend.protocol.link.link import Link
from wend.protocol.plugins import PluginEffect, Tell, View
from wend.protocol.ports import Notice, Refuse
from wend.protocol.trees.generations import DRIFT_NS, LAST, RENEW_NS, TreeSets, drifted, order
from wend.protocol.trees.messages import Generation, LinkWeight, SequencedMessage

PEERS = range(4)
LOOK: Nanos = SECOND // 2


def view_of(me: int, life: int = 1) -> View:
    config = PeerConfig(peer=me, incarnation=life)
    links = {n: Link(n, 1, 0.99, config) for n in PEERS if n != me}
    view = View(config, links, LinkStateGraph(), TreeInterest())
    view.neighbours = tuple(links)
    return view


class Wood:
    """Four peers, all linked, who hear each other at once."""

    def __init__(self, fails: dict[int, float] | None = None) -> None:
        self.now: Nanos = 0
        self.renewed = self.called = 0
        self.views = [view_of(me) for me in PEERS]
        self.groves = [TreeSets("mrst", 1, (fails or {}).get(me, 0.0)) for me in PEERS]

    def link(self, a: int, b: int, reliability: float) -> None:
        self.views[a].links[b].reliability = self.views[b].links[a].reliability = reliability

    def on_tree(self) -> set[tuple[int, int]]:
        built = [grove.newest for grove in self.groves]
        return {(me, n) for me, one in enumerate(built) if one is not None for n in one.trees[0]}

    def live(self, time: Nanos) -> None:
        until = self.now + time
        while self.now < until:
            self.now += LOOK
            for me in PEERS:
                self._carry(me, self.groves[me].look(self.now, self.views[me]))

    def _carry(self, me: int, effects: list[PluginEffect]) -> None:
        queue = deque((me, effect) for effect in effects)
        while queue:
            sender, effect = queue.popleft()
            if isinstance(effect, Tell):
                assert isinstance(effect.body, SequencedMessage)
                to = effect.peer
                answers = self.groves[to].hear(self.now, sender, effect.body, self.views[to])
                queue.extend((to, answer) for answer in answers)
            elif isinstance(effect, Notice):
                self.renewed += effect.what == "trees-renewed"
                self.called += effect.what == "trees-called"


def standing() -> Wood:
    wood = Wood()
    wood.live(5 * SECOND)
    assert len(wood.on_tree()) == 6
    return wood


@pytest.mark.parametrize("bad", PEERS)
def test_a_tree_leads_around_a_peer_that_is_often_down(bad: int) -> None:
    wood = Wood({bad: 0.2})
    wood.live(5 * SECOND)
    assert len(wood.on_tree()) == 6
    assert sum(bad in link for link in wood.on_tree()) == 2, "one link, seen from both ends"


def first_call(me: int, life: int) -> Generation:
    """How a peer that has just begun names the first trees that it calls for."""
    grove, view = TreeSets("mrst", 1, 0.0), view_of(me, life)
    for now in (SECOND, 2 * SECOND):
        grove.look(now, view)
    assert grove.newest is not None
    return grove.newest.generation


def test_no_two_lives_of_a_peer_name_their_trees_alike() -> None:
    lives = [first_call(me=2, life=life) for life in (1, 2, 9)]
    assert sorted(set(lives), key=order) == lives
    assert order(first_call(me=1, life=1)) > order(lives[-1])  # of one number the lower peer's counts


def test_a_number_of_trees_without_a_next_is_refused() -> None:
    grove = TreeSets("mrst", 1, 0.0)
    for number in (-1, 0, LAST, 2**64 - 1):
        answer = grove.hear(0, 1, SequencedMessage((number, 1, 1), 0, LinkWeight(0.0, 0.0)), view_of(0))
        assert answer == [Refuse(1, "trees of a generation that cannot be")]
    assert grove.newest is None


def test_what_counts_as_another_link() -> None:
    assert drifted(0.02, 0.05) and drifted(0.05, 0.02)
    assert not drifted(0.02, 0.035) and not drifted(0.0, 0.015)
    assert drifted(0.0, 1.0) and not drifted(1.0, 1.0)


def test_a_link_that_gets_worse_for_good_is_left_out_of_the_next_trees() -> None:
    wood = standing()
    a, b = min(wood.on_tree())
    called = wood.called
    wood.live(RENEW_NS)
    wood.link(a, b, 0.8)
    wood.live(DRIFT_NS - LOOK)
    assert (wood.renewed, wood.called) == (0, called)
    wood.live(2 * SECOND)
    assert wood.renewed == 1
    assert (a, b) not in wood.on_tree() and len(wood.on_tree()) == 6
    wood.live(3 * RENEW_NS)
    assert wood.renewed == 1


def test_a_bad_spell_makes_no_new_trees() -> None:
    wood = standing()
    wood.live(RENEW_NS)
    for _ in range(6):
        wood.link(*min(wood.on_tree()), 0.8)
        wood.live(DRIFT_NS - SECOND)
        for a, b in sorted(wood.on_tree()):
            wood.link(a, b, 0.99)
        wood.live(SECOND)
    assert wood.renewed == 0


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([0.5, 0.9, 0.99]), st.integers(1, 30)), min_size=1, max_size=12))
def test_whatever_links_do_there_is_no_storm(moves: list[tuple[float, int]]) -> None:
    wood = standing()
    first = wood.now
    for number, (reliability, seconds) in enumerate(moves):
        here = sorted(wood.on_tree())
        wood.link(*here[number % len(here)], reliability)
        wood.live(seconds * SECOND)
    assert wood.renewed <= 1 + (wood.now - first) // RENEW_NS
