"""The questions about addresses that a locator has asked and nobody has answered yet."""

from collections.abc import Callable

import msgspec

from wend.drivers.live.addressing import address_messages
from wend.drivers.live.addressing.address_messages import ANYONE
from wend.drivers.live.addressing.addresses import Address
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos

QUESTION_NS: Nanos = 3 * SECOND
"""How long an answer is accepted."""


class AddressQuestion(msgspec.Struct, frozen=True, gc=False):
    address: Address
    ends_ns: Nanos
    asker: object
    """The contact, claim or lookup that asks."""


class AddressQuestions:
    """Open questions by their random numbers, oldest first."""

    def __init__(self, transmit: Callable[[Address, PeerId, bytes], None], number: Callable[[], int]) -> None:
        self._transmit = transmit
        self._number = number
        self._open: dict[int, AddressQuestion] = {}

    def ask(self, now: Nanos, address: Address, asker: object, near: PeerId | None = None, link: bool = False) -> None:
        """Ask who is at an address, perhaps which peers it knows near an id, and perhaps for a link."""
        number = self._number()
        self._open[number] = AddressQuestion(address, now + QUESTION_NS, asker)
        self._transmit(address, ANYONE, address_messages.encode(address_messages.query(number, near, link)))

    def take(self, number: int, address: Address) -> object | None:
        """Who asked the question that this address answers; None if nobody did."""
        question = self._open.get(number)
        if question is None or question.address != address:
            return None
        del self._open[number]
        return question.asker

    def expire(self, now: Nanos) -> list[object]:
        """The askers of questions that nobody has answered in time."""
        askers = []
        while self._open and now >= next(iter(self._open.values())).ends_ns:
            askers.append(self._open.pop(next(iter(self._open))).asker)
        return askers
