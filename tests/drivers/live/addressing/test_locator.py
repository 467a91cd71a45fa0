"""The locator: contacts, lookups and links in an open overlay, where peers join that no file names."""

from tests.drivers.live.locators import Net, at, beside, datagram, message, ring
from wend.drivers.live.addressing import address_messages
from wend.drivers.live.addressing.address_lookups import MAX_LOOKUPS, WAITING_PER_PEER
from wend.model.events import PeerId
from wend.model.keys import distance, node_id
from wend.model.units import MS

NO_ADDRESS = "no-address"


# ---------------------------------------------------------------- contacts


def test_a_contact_is_told_once_it_answers() -> None:
    net = Net()
    joiner = net.start(2, 2, at(1))
    net.run(8)
    assert joiner.contacts == [] and joiner.locator.contacts.silent_addresses == (at(1),)
    net.start(1, 1)
    net.run(6)
    assert joiner.contacts == [1] and joiner.locator.contacts.silent_addresses == ()
    assert joiner.book.reachable == {1: at(1)}


def test_a_contact_that_restarts_is_told_again() -> None:
    net = Net()
    first = net.start(1, 1)
    joiner = net.start(2, 2, at(1))
    net.run(30)
    assert joiner.contacts == [1]
    net.end(first)
    net.start(1, 1, incarnation=2)
    net.run(30)
    assert joiner.contacts == [1, 1]


def test_the_peers_own_address_is_no_contact() -> None:
    net = Net()
    alone = net.start(1, 1, at(1))
    net.run(5)
    assert alone.contacts == [1] and alone.same_id == [] and alone.locator.contacts.silent_addresses == ()
    net.start(2, 2)
    several = net.start(3, 3, at(3), at(2))
    net.run(5)
    assert several.contacts == [2]


def test_a_second_peer_with_the_contacts_id_does_not_join() -> None:
    net = Net()
    net.start(1, 1)
    second = net.start(1, 2, at(1))
    net.run(3)
    assert second.same_id == [at(1)] and second.contacts == []


def test_a_second_peer_with_the_id_of_any_other_does_not_join() -> None:
    net = ring(12)
    first = net.places[at(7)]
    second = net.start(7, 50, at(0), incarnation=9)
    net.run(3)
    assert set(second.same_id) == {at(7)} and second.contacts == []
    assert not first.same_id
    assert all(place.book.reachable.get(7, at(7)) == at(7) for place in net.made)


def test_a_peer_that_crashed_returns_at_another_address() -> None:
    net = ring(6)
    net.end(net.places[at(4)])
    back = net.start(4, 50, at(0), incarnation=2)
    net.run(5)
    assert back.contacts == [0] and not back.same_id


def unknown_to(net: Net, peer: PeerId) -> PeerId:
    """A peer that this one does not know, and peer 0 does not either."""
    known = {peer, *net.places[at(peer)].book.reachable, 0, *net.places[at(0)].book.reachable}
    return next(other for other in range(len(net.made)) if other not in known)


def test_a_message_waits_until_the_address_of_its_peer_is_found() -> None:
    net = ring(30)
    here, other = net.places[at(6)], unknown_to(net, 6)
    knowing = beside(other, 30)[0]
    net.speak(here, knowing, at(knowing))
    net.run(2)
    here.locator.find_address(net.now, message(other), mentioned_by=knowing)
    here.locator.find_address(net.now, message(other, "again"), mentioned_by=knowing)
    here.locator.find_address(net.now, message(other), mentioned_by=knowing)
    assert here.sent == []
    net.now += 30 * MS
    net.run()
    assert here.sent == [message(other), message(other, "again")]
    assert here.waited_ns[-2:] == [30 * MS, 30 * MS]
    assert here.book.reachable[other] == at(other)


def test_whoever_mentioned_a_peer_need_not_know_it() -> None:
    net = ring(30)
    here, other = net.places[at(6)], unknown_to(net, 6)
    here.locator.find_address(net.now, message(other), mentioned_by=0)
    net.run(2)
    assert here.sent == [message(other)]


def test_what_is_not_found_in_time_is_dropped_and_counted() -> None:
    net = ring(6)
    here = net.places[at(2)]
    for number in range(WAITING_PER_PEER + 3):
        here.locator.find_address(net.now, message(99, number), mentioned_by=1)
    assert here.counters.refused[NO_ADDRESS] == 3
    net.run(6)
    assert here.counters.refused[NO_ADDRESS] == WAITING_PER_PEER + 3
    assert here.sent == [] and here.locator.next_ns() is None


def test_lookups_are_bounded() -> None:
    net = ring(4)
    here = net.places[at(1)]
    for peer in range(1000, 1000 + MAX_LOOKUPS + 5):
        here.locator.find_address(net.now, message(peer), mentioned_by=0)
    assert here.counters.refused[NO_ADDRESS] == 5


def test_a_peer_that_moved_is_found_again() -> None:
    net = ring(30)
    here = net.places[at(beside(7, 30)[0])]
    net.end(net.places[at(7)])
    net.start(7, 50, at(0), incarnation=2)
    net.run(3)
    for other in beside(7, 30)[2:6]:
        net.speak(net.places[at(other)], 7, at(50), incarnation=2)
    net.run(2)
    assert here.book.reachable[7] == at(7)
    here.locator.recheck_address(net.now, 7)
    net.run(4)
    assert here.book.reachable[7] == at(50)


def test_a_peer_that_only_is_slow_stays_where_it_is() -> None:
    net = ring(6)
    here = net.places[at(2)]
    here.locator.recheck_address(net.now, 3)
    net.run(4)
    assert here.book.reachable[3] == at(3)


# ---------------------------------------------------------------- links


def test_a_contact_is_asked_for_a_link_and_makes_it_once_the_address_has_answered() -> None:
    net = Net()
    there, here = net.start(1, 1, asks_links=True), net.start(2, 2, at(1), asks_links=True)
    net.run(0.5)
    assert set(there.links) == {2} and set(here.contacts) == {1}
    assert there.book.reachable == {2: at(2)} and here.book.reachable == {1: at(1)}
    # the contact has restarted and knows nobody: it is asked again at once
    net.end(there)
    again = net.start(1, 1, asks_links=True)
    here.silent.add(1)
    here.locator.contacts.ask_soon(net.now, 1)
    net.run(0.3)
    assert set(again.links) == {2}


def test_a_link_that_somebody_else_asks_for_is_not_made() -> None:
    net = Net()
    here = net.start(1, 1, asks_links=True)
    net.start(2, 2)
    for claimed, source in ((5, at(9)), (5, at(2)), (1, at(2))):  # nobody is there; peer 2 is; the peer itself
        question = address_messages.AddressQuery(7, None, bytes(32), link=True)
        net.hear(here, source, datagram(question, claimed, 1))
    net.run(3)
    assert here.links == [] and here.book.reachable == {}


def test_a_contact_that_admits_nobody_says_so() -> None:
    net = Net()
    there, here = net.start(1, 1), net.start(2, 2, at(1), asks_links=True)
    there.closed = True
    net.run(0.5)
    assert set(here.refused_by) == {1} and here.contacts == [] and there.links == []


def test_peers_that_know_many_are_asked_although_others_are_closer() -> None:
    net = Net()
    places = {number: net.start(number, number) for number in range(12)}
    here, sought = places[0], places[11]
    *closest, head = sorted(range(1, 11), key=lambda peer: distance(node_id(peer), node_id(11)))
    for number in (*closest, head):  # none of the closest peers knows the one that is sought
        net.speak(here, number, at(number))
    net.speak(places[head], 11, at(11))
    net.run()
    here.well_informed = (head,)
    here.locator.find_address(net.now, message(11), mentioned_by=None)
    net.run(1.0)
    assert here.book.reachable[11] == sought.address and here.sent == [message(11)]
