"""What memberships build on: sampling, the census, the leader of a component; and the link handshake."""

from collections import Counter

import pytest

from tests.strategies.tdo.worlds import PERIOD
from wend.model.paths import UNKNOWN
from wend.model.random_stream import peer_stream
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun, Due, EndLink, Heard, MakeLink, SendTo
from wend.protocol.ports import ContactFound, FindPath, PathFound, Refuse
from wend.strategies.tdo.handshake import STALE, SURE, ComponentLeader
from wend.strategies.tdo.landmarks import EPOCH, Census
from wend.strategies.tdo.messages import (
    INCARNATION_SHIFT,
    Join,
    KeepAlive,
    LinkOffer,
    MembershipMessage,
    MultiJoin,
    ProbePing,
    ProbePong,
    Unlinked,
)
from wend.strategies.tdo.paths import is_prefix, is_same, suffix
from wend.strategies.tdo.plugin import TdoRandom
from wend.strategies.tdo.sampling import TOO_OLD, VIEW, Sampling

# ---------------------------------------------------------------- paths


def test_a_path_leads_through_the_end_of_a_strict_prefix() -> None:
    assert is_prefix((1, 2, 3), (1, 2, 3, 5))
    assert not is_prefix((1, 2, 4), (1, 2, 3, 5))
    assert not is_prefix((1, 2), (1, 2)) and is_same((1, 2), (1, 2))
    assert suffix((1, 2, 3, 4, 5), (1, 2, 3)) == (3, 4, 5)


def test_routers_without_a_name_are_unlike_all_others() -> None:
    assert not is_prefix((1, None), (1, None, 3))
    assert not is_same((1, None), (1, None))
    assert is_prefix((1, 2), (1, 2, None))
    assert not is_prefix(UNKNOWN, (1, 2)) and not is_prefix((1, 2), UNKNOWN)


# ---------------------------------------------------------------- sampling


def test_a_contact_that_is_found_later_is_joined_by() -> None:
    peer = TdoRandom(PeerConfig(peer=1))
    peer.handle(0, Begun(()))
    assert peer.informants() == ()
    peer.handle(0, ContactFound(1))
    peer.handle(0, ContactFound(4))
    assert peer.informants() == (4,)
    effects = peer.handle(PERIOD, Due())
    assert [effect.peer for effect in effects if isinstance(effect, SendTo)] == [4]


class Crowd:
    def __init__(self, peers: int, size: int, seed: int) -> None:
        self.members = {p: Sampling(p, size, peer_stream(seed, "crowd", p)) for p in range(peers)}
        for peer, sampling in self.members.items():
            sampling.begin((0,) if peer else ())

    def round(self) -> None:
        for peer, sampling in list(self.members.items()):
            shuffle = sampling.shuffle()
            if shuffle is not None and shuffle[0] in self.members:
                partner, entries = shuffle
                answer = self.members[partner].merge(peer, entries, False)
                assert answer is not None
                assert sampling.merge(partner, answer, True) is None


def test_views_fill_up_and_know_everyone_about_equally() -> None:
    crowd = Crowd(100, 20, 1)
    for _ in range(40):
        crowd.round()
    known = Counter(peer for sampling in crowd.members.values() for peer in sampling.view)
    assert all(len(sampling.view) == 20 for sampling in crowd.members.values())
    assert len(known) == 100
    assert max(known.values()) < 60  # a star would know its centre a hundred times
    assert all(peer not in sampling.view for peer, sampling in crowd.members.items())


def test_the_dead_fade_from_all_views() -> None:
    crowd = Crowd(50, 20, 2)
    for _ in range(20):
        crowd.round()
    for peer in range(1, 26):
        del crowd.members[peer]
    for _ in range(TOO_OLD + 10):
        crowd.round()
    assert not {peer for sampling in crowd.members.values() for peer in sampling.view} & set(range(1, 26))


def test_contacts_are_asked_when_nobody_is_left() -> None:
    sampling = Sampling(5, VIEW, peer_stream(1, "alone"))
    sampling.begin((7, 5))
    partners = [sampling.shuffle() for _ in range(10)]
    assert {partner for partner, _ in filter(None, partners)} == {7}
    assert all(partners)


# ---------------------------------------------------------------- the census


@pytest.mark.parametrize("peers", [5, 50, 400])
def test_minima_tell_how_many_there_are(peers: int) -> None:
    censuses = [Census(peer_stream(3, "census", p)) for p in range(peers)]
    for one in censuses:
        for other in (censuses[0],):
            other.merge(one.epoch, one.minima)
    assert peers / 2 < censuses[0].peers < 2 * peers


def test_the_census_forgets_those_who_went() -> None:
    one, other = Census(peer_stream(1, "a")), Census(peer_stream(1, "b"))
    for _ in range(3 * EPOCH):
        one.merge(other.epoch, other.minima)
        other.merge(one.epoch, one.minima)
        one.tick()
        other.tick()
    before = one.minima
    one.merge(one.epoch + 5, other.minima)
    assert one.minima != before
    one.merge(1, (1e-9,) * len(one.minima))  # of an epoch that is over
    assert min(one.minima) > 1e-9


# ---------------------------------------------------------------- the beacon


def test_a_beacon_that_stands_still_is_given_up() -> None:
    whole = ComponentLeader(5, 1)
    for beat in range(SURE + 1):
        whole.on_beacon(2, 100 + beat)
        whole.tick()
    assert whole.leader == 2 and whole.is_sure
    assert whole.is_apart(3) and not whole.is_apart(2) and not whole.is_apart(-1)
    for _ in range(STALE + 2):
        whole.on_beacon(2, 100 + SURE)
        whole.tick()
    assert whole.leader == 5 and not whole.is_sure
    whole.on_beacon(2, 100 + SURE)  # an echo
    assert whole.leader == 5
    whole.on_beacon(2, 200)
    assert whole.leader == 2


# ---------------------------------------------------------------- the link handshake, as tdo-random uses it


def alone(me: int = 1, **settings: object) -> TdoRandom:
    made = TdoRandom(PeerConfig(peer=me, **{"membership_k": 15, "membership_period_ns": PERIOD, **settings}))
    made.handle(0, Begun(()))
    return made


def tell(to: TdoRandom, sender: int, message: MembershipMessage) -> list[object]:
    return list(to.handle(to.rounds.number * PERIOD, Heard(sender, message)))


def found(to: TdoRandom, peer: int, path: tuple[int, ...] | None) -> list[object]:
    return list(to.handle(to.rounds.number * PERIOD, PathFound(peer, path)))


def number(of: TdoRandom, peer: int) -> int:
    return of.overlay.links[peer].mine


def linked(me: int, *others: tuple[int, tuple[int, ...]]) -> TdoRandom:
    made = alone(me)
    for peer, path in others:
        tell(made, 99, Join(peer, path))
        tell(made, peer, KeepAlive(1, peer, 1))
    return made


def test_a_stranger_is_measured_and_linked() -> None:
    peer = alone()
    assert tell(peer, 3, Join(3)) == [FindPath(3)]
    assert tell(peer, 3, Join(3)) == []  # under way
    assert found(peer, 3, (1, 2, 3)) == [MakeLink(3, (1, 2, 3)), SendTo(3, LinkOffer(number(peer, 3), (1, 2, 3)))]


def test_a_request_is_passed_on_to_a_neighbour_on_the_path() -> None:
    peer = linked(7, (6, (70, 60)))
    assert tell(peer, 4, Join(4)) == [FindPath(4)]
    assert found(peer, 4, (70, 60, 40)) == [SendTo(6, Join(4, (60, 40)))]


def test_neighbours_behind_the_new_peer_are_handed_to_it() -> None:
    peer = linked(7, (4, (70, 60, 40)))
    old = number(peer, 4)
    effects = tell(peer, 99, Join(6, (70, 60)))
    assert effects == [
        SendTo(4, Unlinked(old, 1)),
        EndLink(4),
        MakeLink(6, (70, 60)),
        SendTo(6, LinkOffer(number(peer, 6), (70, 60), ((4, (60, 40)),))),
    ]


def test_who_gets_an_offer_measures_too_and_declines_where_a_neighbour_is_nearer() -> None:
    """The example of figure 5.6: p3 has p2 as its neighbour and gets an offer of p1."""
    peer = linked(3, (2, (30, 20)))
    assert tell(peer, 1, LinkOffer(5, (10, 20, 30))) == [FindPath(1)]
    assert found(peer, 1, (30, 20, 10)) == [SendTo(1, Unlinked(0, 5)), SendTo(2, Join(1, (20, 10)))]


def test_who_accepts_an_offer_hands_over_what_lies_behind_it() -> None:
    peer = linked(3, (2, (30, 10, 20)))
    old = number(peer, 2)
    assert tell(peer, 1, LinkOffer(5, (10, 30))) == [FindPath(1)]
    effects = found(peer, 1, (30, 10))
    assert effects == [
        SendTo(2, Unlinked(old, 1)),
        EndLink(2),
        MakeLink(1, (30, 10)),
        SendTo(1, KeepAlive(number(peer, 1), 2, 1)),
        SendTo(1, MultiJoin(((2, (10, 20)),))),
    ]


def test_symmetric_routes_need_one_measurement() -> None:
    peer = alone(3, trace_both_ends=False)
    assert tell(peer, 1, LinkOffer(5, (10, 20, 30))) == [
        MakeLink(1, (30, 20, 10)),
        SendTo(1, KeepAlive(number(peer, 1), 3, 1 << INCARNATION_SHIFT)),
    ]


@pytest.mark.parametrize("part_first", [True, False])
def test_an_offer_that_was_withdrawn_is_dropped_whatever_comes_first(part_first: bool) -> None:
    peer = alone(3)
    if part_first:
        assert tell(peer, 1, Unlinked(5, 0)) == []
        assert tell(peer, 1, LinkOffer(5, (10, 30))) == []
    else:
        assert tell(peer, 1, LinkOffer(5, (10, 30))) == [FindPath(1)]
        assert tell(peer, 1, Unlinked(5, 0)) == []
        assert found(peer, 1, (30, 10)) == []
    assert peer.overlay.links == {}


def test_requests_for_oneself_or_a_neighbour_are_dropped() -> None:
    peer = linked(3, (2, (30, 20)))
    assert tell(peer, 2, Join(3, (30,))) == []
    assert tell(peer, 9, Join(2, (30, 20))) == []
    assert tell(peer, 2, Join(2)) == [SendTo(2, LinkOffer(number(peer, 2), (30, 20)))]  # it has forgotten


def test_an_end_that_knows_of_no_link_says_so() -> None:
    peer = alone(3)
    assert tell(peer, 1, KeepAlive(8, 1, 1)) == [SendTo(1, Unlinked(0, 8))]


def test_a_silent_neighbour_is_given_up() -> None:
    peer = linked(3, (2, (30, 20)))
    said = [effect for turn in range(1, 8) for effect in peer.handle(turn * PERIOD, Due())]
    assert EndLink(2) in said
    assert peer.overlay.links == {}


def test_a_peer_of_the_same_router_leads_nowhere() -> None:
    peer = linked(7, (6, (70,)))
    effects = tell(peer, 99, Join(4, (70, 60)))
    assert effects == [MakeLink(4, (70, 60)), SendTo(4, LinkOffer(number(peer, 4), (70, 60)))]


def test_messages_that_cannot_be_are_refused() -> None:
    peer = alone(3)
    assert tell(peer, 1, LinkOffer(5, ())) == [Refuse(1, "invalid-message", "LinkOffer")]
    assert tell(peer, 1, Join(4, ())) == [Refuse(1, "invalid-message", "Join")]
    assert tell(peer, 1, ProbePing(4)) == [SendTo(1, ProbePong(4))]
