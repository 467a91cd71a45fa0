"""The address book: who sent a datagram, and where to send to."""

import pytest

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.transport.wire import Header

HERE, THERE, ELSEWHERE = ("192.0.2.1", 7701), ("192.0.2.2", 7701), ("192.0.2.3", 7701)


def book() -> AddressBook:
    found = AddressBook(0)
    found.add(1, HERE)
    found.add(2, THERE)
    return found


@pytest.mark.parametrize(
    ("header", "address", "found"),
    [
        (Header(1, 0, 5), HERE, 1),
        (Header(2, 0, 5), THERE, 2),
        (Header(1, 0, 5), ELSEWHERE, "stranger"),
        (None, ELSEWHERE, "stranger"),
        (None, HERE, "garbage"),
        (Header(2, 0, 5), HERE, "misdirected"),
        (Header(1, 7, 5), HERE, "misdirected"),
    ],
)
def test_header_and_address_together_tell_the_sender(
    header: Header | None, address: tuple[str, int], found: int | str
) -> None:
    assert book().identify(header, address) == found


def test_an_earlier_incarnation_is_stale_once_a_later_one_was_confirmed() -> None:
    found = book()
    found.confirm(Header(1, 0, 5), HERE, b"five")
    found.confirm(Header(2, 0, 1), THERE, b"one")
    assert found.identify(Header(1, 0, 4), HERE) == "stale"
    assert found.verified == {(HERE, b"five"): 1, (THERE, b"one"): 2}
    found.confirm(Header(1, 0, 6), HERE, b"six")
    assert found.verified == {(HERE, b"six"): 1, (THERE, b"one"): 2}
    assert found.identify(Header(1, 0, 5), HERE) == "stale"


def test_a_peer_may_have_several_addresses_and_an_address_one_peer() -> None:
    found = book()
    found.add(1, ELSEWHERE)
    assert found.reachable == {1: ELSEWHERE, 2: THERE}
    assert found.identify(Header(1, 0, 1), HERE) == found.identify(Header(1, 0, 1), ELSEWHERE) == 1
    found.confirm(Header(1, 0, 1), ELSEWHERE, b"head")
    found.add(2, ELSEWHERE)
    assert found.reachable == {1: HERE, 2: ELSEWHERE} and not found.verified
    assert found.identify(Header(1, 0, 1), ELSEWHERE) == "misdirected"
    found.add(2, HERE)
    assert found.reachable == {2: HERE}
    assert found.has_host((HERE[0], 9)) and not found.has_host(("192.0.2.9", 7701))


def test_a_peer_that_moved_is_nowhere_else_and_keeps_its_incarnation() -> None:
    found = book()
    found.confirm(Header(1, 0, 5), HERE, b"five")
    found.move(1, ELSEWHERE)
    assert found.reachable == {1: ELSEWHERE, 2: THERE} and not found.verified
    assert found.identify(Header(1, 0, 5), HERE) == "stranger"
    assert found.identify(Header(1, 0, 4), ELSEWHERE) == "stale" and found.incarnation(1) == 5
    found.remove(1)
    assert found.reachable == {2: THERE} and found.incarnation(1) == 0
    assert not found.has_host(ELSEWHERE) and found.has_host(THERE)


def test_on_sealed_links_nobody_takes_the_address_of_another_peer() -> None:
    """A session says who sends; the source of a packet may be wrong."""
    found = AddressBook(0, sealed=True)
    found.add(1, HERE)
    found.add(2, THERE)
    found.move(1, THERE)
    assert found.reachable == {1: THERE, 2: THERE}
    found.move(1, HERE)
    assert found.reachable == {1: HERE, 2: THERE}
    assert found.has_host((THERE[0], 9))
