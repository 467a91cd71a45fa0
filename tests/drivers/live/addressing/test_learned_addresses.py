"""The addresses that a locator has learned, while others change the address book."""

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.learned_addresses import LearnedAddresses


def test_a_peer_whose_address_another_one_has_now_is_not_told() -> None:
    book = AddressBook(0)
    learned = LearnedAddresses(book)
    for peer in (5, 6):
        learned.add(0, peer, ("127.0.0.1", 1000 + peer), moved=False)
    book.move(9, ("127.0.0.1", 1005))  # it was heard from there
    assert 5 not in book.reachable
    assert [known.peer for known in learned.nearest_peers(5, ("127.0.0.1", 1))] == [6]
