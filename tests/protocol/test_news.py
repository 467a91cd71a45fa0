"""News of failures: what hellos tell of other peers' links, what a peer believes of it, and what it passes on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drivers.live.datagrams import decode, encode
from tests.protocol.talk import sent
from tests.strategies.adaptive.test_adaptive import FAR, LEFT, ME, MIDDLE, RIGHT, Talk, hops
from wend.drivers.live.transport.wire import make_header
from wend.model.events import Event, EventId
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.link.link import Link
from wend.protocol.link.news import EXPIRY_NS, LINGER_NS, MAX_CLAIMS, NewsTable
from wend.protocol.messages import TX_SHIFT, Data, FailureNews, Hello
from wend.protocol.ports import Effect, Refuse

ALL = (LEFT, MIDDLE, RIGHT)
BROKEN = FailureNews(LEFT, (1, 1), 1, (FAR,))
MENDED = FailureNews(LEFT, (1, 2), 1, ())


def telling(news: FailureNews, incarnation: int = 1) -> Hello:
    return Hello(incarnation, True, news=(news,))


def news_to(peer: int, effects: list[Effect]) -> list[tuple[FailureNews, ...]]:
    return [message.news for to, message in sent(effects) if isinstance(message, Hello) and to == peer]


def test_a_route_over_a_remote_link_that_is_down_is_skipped_until_it_is_up_again() -> None:
    talk = Talk(deadline_ms=200)
    assert hops(talk.publish()) == [LEFT]
    talk.hear(LEFT, telling(BROKEN))
    assert hops(talk.publish()) == [MIDDLE]
    talk.hear(LEFT, telling(MENDED))
    assert hops(talk.publish()) == [LEFT]


def test_a_hello_without_news_says_that_nothing_is_down() -> None:
    talk = Talk(deadline_ms=None)
    talk.hear(LEFT, telling(BROKEN))
    assert hops(talk.publish()) == [MIDDLE]
    talk.hear(LEFT, Hello(1, True))
    assert hops(talk.publish()) == [LEFT]


def test_news_that_several_hellos_repeat_ends_with_a_hello_without_it() -> None:
    """A live peer decodes each hello, so the same news is another object each time."""
    talk = Talk(deadline_ms=None)
    talk.hear(LEFT, telling(BROKEN))
    again = FailureNews(BROKEN.origin, BROKEN.version, BROKEN.hops, BROKEN.down)
    talk.hear(LEFT, Hello(1, True, news=(again, FailureNews(FAR, (1, 1), 2, (9,)))))
    assert hops(talk.publish()) == [MIDDLE]
    talk.hear(LEFT, Hello(1, True))
    assert hops(talk.publish()) == [LEFT]


def test_the_word_of_either_end_is_enough() -> None:
    """FAR is no neighbour, so a neighbour relays its news. LEFT says nothing of its link to FAR."""
    talk = Talk(deadline_ms=200)
    talk.hear(MIDDLE, telling(FailureNews(FAR, (1, 1), 2, (LEFT,))))
    assert hops(talk.publish()) == [MIDDLE]


def test_with_one_hop_nothing_is_relayed_or_believed_of_relays() -> None:
    talk = Talk(deadline_ms=200, news_hops=1)
    talk.hear(MIDDLE, telling(FailureNews(FAR, (1, 1), 2, (LEFT,))))
    assert hops(talk.publish()) == [LEFT]
    talk.hear(LEFT, telling(BROKEN))
    assert hops(talk.publish()) == [MIDDLE]
    told = news_to(RIGHT, talk.until(SECOND, hearing=(MIDDLE, RIGHT)))
    assert {news.origin for hello in told for news in hello} == {ME}


def test_without_news_remote_links_are_unknown() -> None:
    talk = Talk(deadline_ms=200, news_hops=0)
    talk.hear(LEFT, telling(BROKEN))
    assert hops(talk.publish()) == [LEFT]
    assert set(news_to(RIGHT, talk.until(SECOND, hearing=(MIDDLE, RIGHT)))) == {()}


def test_if_news_rules_out_every_route_the_peer_tries_all_the_same() -> None:
    talk = Talk(deadline_ms=200)
    for peer in ALL:
        talk.hear(peer, telling(FailureNews(peer, (1, 1), 1, (FAR,))))
    assert LEFT in hops(talk.publish())


def test_an_older_version_is_ignored() -> None:
    talk = Talk(deadline_ms=200)
    talk.hear(LEFT, telling(MENDED))
    talk.hear(LEFT, telling(BROKEN))  # it was overtaken
    assert hops(talk.publish()) == [LEFT]
    talk.hear(MIDDLE, telling(FailureNews(FAR, (1, 7), 2, (LEFT,))))
    talk.hear(RIGHT, telling(FailureNews(FAR, (1, 6), 2, ())))
    assert hops(talk.publish()) == [MIDDLE]
    talk.hear(RIGHT, telling(FailureNews(FAR, (1, 8), 2, ())))
    assert hops(talk.publish()) == [LEFT]


def test_a_restart_voids_what_was_said_before() -> None:
    talk = Talk(deadline_ms=None)
    talk.hear(LEFT, telling(FailureNews(LEFT, (1, 9), 1, (FAR,))))
    assert hops(talk.publish()) == [MIDDLE]
    event = Event(EventId(LEFT, 2, 1), {"topic": "nobody"})
    talk.hear(LEFT, Data((2 << TX_SHIFT) + 1, event, 0, (ME,), (LEFT,)))
    assert hops(talk.publish()) == [LEFT]
    talk.hear(LEFT, telling(FailureNews(LEFT, (2, 1), 1, (FAR,)), incarnation=2))
    assert hops(talk.publish()) == [MIDDLE]


def test_who_hears_a_peer_itself_needs_nobody_to_speak_for_it() -> None:
    talk = Talk(deadline_ms=200)
    talk.hear(MIDDLE, telling(FailureNews(LEFT, (1, 1), 2, (FAR,))))
    assert hops(talk.publish()) == [LEFT]


def test_news_of_a_neighbour_that_is_silent_expires() -> None:
    config = PeerConfig(peer=0)
    links = {1: Link(1, MS, 1.0, config), 2: Link(2, MS, 1.0, config)}
    table = NewsTable(0, 1, 2, links)
    assert table.on_hello(0, 1, telling(FailureNews(1, (1, 1), 1, (7,))))
    links[1].heard_ns = SECOND
    assert table.is_down(7, 1, SECOND + EXPIRY_NS)
    assert not table.is_down(7, 1, 2 * SECOND + EXPIRY_NS)


def test_a_peer_tells_which_of_its_links_are_down_and_that_they_are_up_again() -> None:
    talk = Talk(deadline_ms=None)
    talk.until(SECOND, hearing=(MIDDLE, RIGHT))
    assert news_to(RIGHT, talk.until(2 * SECOND, hearing=(MIDDLE, RIGHT)))[-1] == (FailureNews(ME, (1, 1), 1, (LEFT,)),)
    talk.hear(LEFT, Hello(1, True))
    assert news_to(RIGHT, talk.until(3 * SECOND, hearing=ALL))[-1] == (FailureNews(ME, (1, 2), 1, ()),)
    assert news_to(RIGHT, talk.until(4 * SECOND + LINGER_NS, hearing=ALL))[-1] == ()


def test_news_of_others_goes_one_hop_further() -> None:
    talk = Talk(deadline_ms=None)
    talk.hear(LEFT, telling(BROKEN))
    assert news_to(RIGHT, talk.until(300 * MS, hearing=(MIDDLE, RIGHT)))[-1][-1] == FailureNews(LEFT, (1, 1), 2, (FAR,))
    talk.hear(LEFT, telling(FailureNews(FAR, (1, 1), 2, (RIGHT,))))
    told = news_to(RIGHT, talk.until(600 * MS, hearing=(MIDDLE, RIGHT)))[-1]
    assert FAR not in [news.origin for news in told]


def test_where_data_flows_news_still_gets_a_hello() -> None:
    """Data goes to RIGHT every 20 ms, so no hello would be due. LEFT falls silent."""
    talk = Talk(deadline_ms=None)
    told = []
    for number in range(1, 50):
        effects = talk.until(talk.now + 20 * MS, hearing=(MIDDLE,))
        event = Event(EventId(RIGHT, 1, number), {"topic": "nobody"})
        effects += talk.hear(RIGHT, Data((1 << TX_SHIFT) + next(talk.numbers), event, 0, (ME,), (RIGHT,)))
        told += news_to(RIGHT, effects)
    assert told.count((FailureNews(ME, (1, 1), 1, (LEFT,)),)) == 1


def test_while_nothing_changes_hellos_are_the_same_object() -> None:
    """Receivers, and the simulator, need not look at a hello that they know."""
    talk = Talk(deadline_ms=None)
    talk.hear(LEFT, telling(BROKEN))
    talk.until(SECOND, hearing=(MIDDLE, RIGHT))
    effects = []
    for _ in range(20):
        effects += talk.until(talk.now + 50 * MS, hearing=(MIDDLE, RIGHT))
        talk.hear(LEFT, telling(BROKEN))
    hellos = [message for to, message in sent(effects) if isinstance(message, Hello) and to == RIGHT]
    assert len({id(hello) for hello in hellos}) < 5 < len(hellos)


@pytest.mark.parametrize(
    "news",
    [
        (FailureNews(MIDDLE, (1, 1), 1, (FAR,)),),  # of another peer's links, as if they were its own
        (FailureNews(LEFT, (1, 1), 2, (FAR,)),),  # its own, as if somebody had relayed them
        (FailureNews(MIDDLE, (1, 1), 0, (FAR,)),),
        (FailureNews(LEFT, (1, 1), 1, tuple(range(MAX_CLAIMS + 1))),),
        tuple(FailureNews(origin, (1, 1), 2, ()) for origin in range(1000, 1001 + MAX_CLAIMS)),
    ],
)
def test_news_that_cannot_be_is_refused_and_changes_nothing(news: tuple[FailureNews, ...]) -> None:
    talk = Talk(deadline_ms=200)
    assert Refuse(LEFT, "invalid-news") in talk.hear(LEFT, Hello(1, True, news=news))
    assert hops(talk.publish()) == [LEFT]
    assert set(news_to(RIGHT, talk.until(100 * MS, hearing=ALL))) == {()}


PEERS = st.sampled_from((ME, LEFT, MIDDLE, RIGHT, FAR, 9, -1, 2**40))
NUMBERS = st.sampled_from((0, 1, 2, 3, -1, 2**62, -(2**63)))
NEWS: Any = st.builds(
    FailureNews, PEERS, st.tuples(NUMBERS, NUMBERS), NUMBERS, st.lists(PEERS, max_size=200).map(tuple)
)


@given(st.lists(st.tuples(st.sampled_from(ALL), st.lists(NEWS, max_size=4)), max_size=8))
def test_hostile_news_stays_within_its_bounds(told: list[tuple[int, list[FailureNews]]]) -> None:
    """Whatever neighbours tell: own links stay as they are, events still leave, hellos and memory stay small, and a
    hello without news ends it all."""
    talk = Talk(deadline_ms=200)
    for teller, news in told:
        talk.hear(teller, Hello(1, True, news=tuple(news)))
        table = talk.peer.view.news
        assert table is not None
        assert len(table.down(talk.now)) <= len(ALL) * MAX_CLAIMS
        assert not any(ME in edge for edge in table.down(talk.now))
        assert all(link.is_working(talk.now) for link in talk.peer.links.values())
    assert talk.publish()
    for hello in news_to(RIGHT, talk.until(talk.now + 100 * MS, hearing=())):
        assert sum(len(news.down) for news in hello) <= MAX_CLAIMS
        assert len(encode(make_header(0, 1, 1), Hello(1, True, 0, hello))) < 2_000
    for peer in ALL:
        talk.hear(peer, Hello(1, True))
    assert talk.peer.view.news is not None
    assert talk.peer.view.news.down(talk.now) == frozenset()
    assert hops(talk.publish()) == [LEFT]


def test_news_travels_over_the_wire_and_its_absence_costs_nothing() -> None:
    hello = Hello(1, True, 80 * MS, (BROKEN,))
    assert decode(encode(make_header(0, 1, 1), hello)).message == hello
    plain, with_news = (len(encode(make_header(0, 1, 1), one)) for one in (Hello(1, True, 80 * MS), hello))
    assert with_news - plain < 20
