"""What is blamed when links fall silent, what is in doubt then, and which route a peer that knows takes."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.adaptive.test_adaptive import FAR, GRAPH, LEFT, ME, MIDDLE, RIGHT, Talk, hops
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.link.link import Link
from wend.protocol.messages import Control, Hello
from wend.protocol.plugins import Heard, View
from wend.protocol.ports import FindPath, Neighbour, PathFound, Received, Refuse, Send, Started, Woken
from wend.strategies.adaptive.routes import Route
from wend.strategies.adaptive.shared_risk import SharedRisk, path_elements
from wend.strategies.flooded.plugin import FloodedInterest
from wend.strategies.link_state.plugin import LinkState, LinkStateGraph
from wend.strategies.registry import make_peer

HOME = 100
DELAY = 10 * MS


def view_of(paths: dict[PeerId, Path]) -> View:
    config = PeerConfig(peer=ME)
    links = {peer: Link(peer, DELAY, 1.0, config) for peer in paths}
    for peer, path in paths.items():
        links[peer].set_path(path)
    view = View(config, links, persistence=False)
    view.graph, view.interest = LinkStateGraph(config), FloodedInterest(config)
    view.neighbours = tuple(sorted(paths))
    return view


@st.composite
def stars(draw: st.DrawFn) -> dict[PeerId, Path]:
    """Simple paths from one home over few routers, so that they meet often."""
    middle = st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True)
    paths = draw(st.lists(middle, min_size=1, max_size=6))
    return {peer: (HOME, *path) for peer, path in enumerate(paths, 1)}


@given(stars(), st.data())
def test_what_broke_is_never_acquitted_and_what_was_heard_since_is_never_blamed(
    paths: dict[PeerId, Path], data: st.DataObject
) -> None:
    """One part breaks. Some links over it are known to be down, others not yet; those without it may be heard since."""
    own = {peer: path_elements(path[1:]) | {(None, peer)} for peer, path in paths.items()}
    culprit = data.draw(st.sampled_from(sorted(frozenset().union(*own.values()), key=str)))
    view = view_of(paths)
    broke, now = SECOND, SECOND + 400 * MS
    down = [peer for peer in own if culprit in own[peer]]
    known = data.draw(st.lists(st.sampled_from(down), min_size=1, unique=True))
    since = (
        data.draw(st.lists(st.sampled_from(sorted(set(own) - set(down))), unique=True)) if set(own) - set(down) else []
    )
    for peer, link in view.links.items():
        link.heard_ns = now if peer in since else broke + DELAY
        if peer in known:
            link.declare_down()
        else:
            link.on_announced_silence(SECOND)
    causes = SharedRisk(view).find_causes(now, view.links)
    assert causes
    for cause in causes:
        assert culprit in cause
        assert not any(cause & own[peer] for peer in since)
        assert any(cause <= own[peer] for peer in known)


@given(stars())
def test_nothing_is_blamed_while_all_are_heard(paths: dict[PeerId, Path]) -> None:
    view = view_of(paths)
    assert SharedRisk(view).find_causes(0, view.links) == []


def test_what_explains_most_is_blamed() -> None:
    """Three links over router 1, two of them over 2: with all three down it is 1, with the two it may be either."""
    view = view_of({1: (HOME, 1, 2, 3), 2: (HOME, 1, 2, 4), 3: (HOME, 1, 5)})
    suspicion = SharedRisk(view)
    for peer in (1, 2):
        view.links[peer].declare_down()
    assert suspicion.find_causes(0, view.links) == [{1, 2, (1, 2)}]
    view.links[3].declare_down()
    assert suspicion.find_causes(0, view.links) == [{1}]
    assert view.links[3].restore()
    view.links[3].heard_ns = SECOND
    assert suspicion.find_causes(SECOND, view.links) == [{2, (1, 2)}]


def test_holes_name_nobody() -> None:
    assert path_elements((1, None, 2, 3)) == {1, 2, 3, (2, 3)}
    assert not SharedRisk(view_of({1: (None, None), 2: ()})).has_paths
    one, other = (path_elements(path) for path in (("b", 1), (1, "b")))
    assert one == other


def test_doubt_is_the_share_of_the_causes_that_a_route_runs_over() -> None:
    view = view_of({1: (HOME, 1, 2), 2: (HOME, 3, 4)})
    graph = LinkStateGraph(PeerConfig(peer=ME))
    graph.handle(0, Heard(2, LinkState(2, (1, 1), ((7, MS, 1.0),), ((4, 1, 8),))), view)
    view.graph = graph
    view.links[1].declare_down()
    suspicion = SharedRisk(view)
    causes = suspicion.find_causes(0, view.links)
    assert causes == [{1, 2, (1, 2), (None, 1)}]
    over, beside = Route(2, MS, 7, frozenset({(2, 7)})), Route(2, MS, 2, frozenset())
    assert suspicion.down_probability(over, causes) == 0.25
    detour = Route(2, MS, 7, frozenset({(2, 3), (3, 7)}))
    assert suspicion.down_probability(detour, causes) == 0.0, "another path over the same hop"
    assert suspicion.down_probability(beside, causes) == 0.0
    assert suspicion.only_first_down_probability(over, beside, causes) == 0.25
    assert suspicion.only_first_down_probability(beside, over, causes) == 0.0
    assert suspicion.unshared_fraction((2, 7), over) == 0.0
    assert suspicion.unshared_fraction((8, 9), over) == 1.0
    assert suspicion.unshared_fraction((2, 7), beside) == pytest.approx(5 / 7), "router 4 and peer 2 are shared"


# ---------------------------------------------------------------- a peer that knows


def traced(deadline_ms: int, left: Path = (1, 9, 3, 4)) -> Talk:
    """All links are traced. From LEFT to FAR the way leads over routers that are also between here and RIGHT."""
    talk = Talk(deadline_ms, trace_paths=True)
    own: dict[PeerId, Path] = {LEFT: (0, 1), MIDDLE: (0, 2), RIGHT: (0, 9, 3)}
    for peer, path in own.items():
        talk(PathFound(peer, path))
    underlay = {(LEFT, FAR): left, (MIDDLE, FAR): (2, 4), (RIGHT, FAR): (3, 4)}
    for peer in (LEFT, MIDDLE, RIGHT):
        told = {(a, b): delay for (a, b), delay in GRAPH.items() if peer in (a, b)}
        links = tuple((b if a == peer else a, delay * MS, 1.0) for (a, b), delay in told.items())
        ways = tuple(underlay.get(edge, own[peer][::-1]) for edge in told)
        talk.control(LinkState(peer, (1, 2), links, ways))
    return talk


def test_links_are_traced_once_and_all_are_told_once() -> None:
    peer = make_peer(PeerConfig(peer=ME, strategy="adaptive", trace_paths=True))
    began = peer.handle(0, Started((Neighbour(1, MS), Neighbour(2, MS))))
    assert [e.peer for e in began if isinstance(e, FindPath)] == [1, 2]
    assert not any(isinstance(e, Send) for e in peer.handle(MS, PathFound(1, (0, 1))))
    told = [e.message.body for e in peer.handle(MS, PathFound(2, (0, 9, 2))) if isinstance(e, Send)]  # type: ignore[union-attr]
    assert [state.paths for state in told] == [((0, 1), (0, 9, 2))] * 2


@pytest.mark.parametrize(("strategy", "traces"), [("adaptive", False), ("dcrd", True)])
def test_nobody_traces_who_need_not(strategy: str, traces: bool) -> None:
    peer = make_peer(PeerConfig(peer=ME, strategy=strategy, trace_paths=traces))
    assert not any(isinstance(e, FindPath) for e in peer.handle(0, Started((Neighbour(1, MS),))))


def test_a_path_without_an_end_is_asked_for_again_but_not_for_ever() -> None:
    peer = make_peer(PeerConfig(peer=ME, strategy="adaptive", trace_paths=True, monitoring_ns=SECOND))
    effects = peer.handle(0, Started((Neighbour(1, MS),)))
    asked = 0
    for now in count(0, SECOND // 2):
        for effect in effects:
            if isinstance(effect, FindPath):
                asked += 1
                peer.handle(now, PathFound(1, (0, 5, None)))
        if now > 20 * SECOND:
            break
        effects = [*peer.handle(now, Received(1, Hello(1, True))), *peer.handle(now, Woken())]
    assert asked == 3
    assert peer.links[1].path == (0, 5, None)


def test_a_route_over_what_seems_broken_goes_last() -> None:
    """RIGHT is silent, so router 9 or 3 is down, and with it the link from LEFT to FAR that nobody here can hear of."""
    talk = traced(deadline_ms=500)
    assert hops(talk.publish()) == [LEFT]
    talk.until(talk.now + SECOND, hearing=(LEFT, MIDDLE))
    assert hops(talk.publish()) == [MIDDLE]
    talk.hear(RIGHT, Hello(1, True))
    assert hops(talk.publish()) == [LEFT]


def test_a_route_that_is_perhaps_broken_is_avoided_where_another_is_in_time() -> None:
    """One of four possible causes lies on the way over LEFT."""
    talk = traced(deadline_ms=500, left=(1, 9, 4))
    assert hops(talk.publish()) == [LEFT]
    talk.until(talk.now + SECOND, hearing=(LEFT, MIDDLE))
    assert hops(talk.publish()) == [MIDDLE]


def test_without_paths_the_same_silence_changes_nothing() -> None:
    talk = Talk(deadline_ms=500)
    talk.until(talk.now + SECOND, hearing=(LEFT, MIDDLE))
    assert hops(talk.publish()) == [LEFT]


def test_a_doubtful_route_is_still_better_than_one_that_is_late() -> None:
    talk = traced(deadline_ms=25)
    talk.until(talk.now + SECOND, hearing=(LEFT, MIDDLE))
    assert hops(talk.publish()) == [LEFT]


def test_paths_that_do_not_fit_are_refused() -> None:
    talk = Talk(deadline_ms=500)
    state = LinkState(FAR, (1, 7), ((LEFT, 10 * MS, 1.0),), ((1, 2), (3, 4)))
    refused = [e for e in talk.hear(LEFT, Control((1 << 28) + 999, "link-state", state)) if isinstance(e, Refuse)]
    assert [e.code for e in refused] == ["path-mismatch"]
