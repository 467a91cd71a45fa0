"""The queue of a peer's socket: what leaves in one datagram, and when."""

import asyncio
from collections.abc import Callable

import pytest

from wend.drivers.live.transport import wire
from wend.drivers.live.transport.socket import HOLD_NS, MAX_ACKS, SendQueue
from wend.model.events import Event, EventId, PeerId
from wend.protocol.messages import Ack, Data, Hello, Message, increase_age


class Sent:
    """A queue to two peers, its clock, and the messages of each datagram that it sent."""

    def __init__(self) -> None:
        self.now = 10 * HOLD_NS
        self.queue = SendQueue(lambda: self.now)
        self.datagrams: list[tuple[PeerId, list[Message]]] = []
        for peer in (1, 2):
            self.queue.add(peer, wire.OpenLink(0, peer, 1, self._transmit(peer)).send)

    def _transmit(self, peer: PeerId) -> Callable[[bytes], None]:
        def transmit(datagram: bytes) -> None:
            assert wire.find_fault(datagram) is None and len(datagram) <= wire.BUNDLE_BYTES + 100
            self.datagrams.append((peer, wire.decode_messages(datagram)))

        return transmit

    def send(self, peer: PeerId, message: Message) -> None:
        self.queue.send(peer, wire.encode_message(message))

    def taken(self) -> list[tuple[PeerId, list[Message]]]:
        """The datagrams since the last call."""
        found, self.datagrams = self.datagrams, []
        return found


HELLO = Hello(1, True)


def data(size: int) -> Data:
    return Data(7, Event(EventId(0, 1, 1), {"topic": "x"}, bytes(size)), 0, (1,))


def test_an_ack_says_how_long_its_packet_waited_for_this_process() -> None:
    async def scene() -> None:
        sent = Sent()
        sent.queue.waited_ns = 30
        sent.queue.send_ack(1, Ack(1))
        sent.queue.send_ack(1, Ack(2))
        sent.queue.waited_ns = 0
        sent.now += 5
        sent.queue.release()
        assert sent.taken() == [(1, [Ack(1, held_ns=30)]), (1, [Ack(2, held_ns=35)])]
        assert increase_age(Ack(1, True, 30), 5) == Ack(1, True, 35)

    asyncio.run(scene())


def test_the_first_ack_leaves_at_once_and_those_that_follow_soon_leave_together() -> None:
    async def scene() -> None:
        sent = Sent()
        sent.queue.send_ack(1, Ack(1))
        assert sent.taken() == [(1, [Ack(1)])]
        sent.queue.send_ack(1, Ack(2))
        sent.now += HOLD_NS // 4
        sent.queue.send_ack(1, Ack(3, True))
        sent.queue.send_ack(2, Ack(4))
        assert sent.taken() == [(2, [Ack(4)])]
        sent.now += HOLD_NS // 4
        sent.queue.release()
        assert sent.taken() == [(1, [Ack(2, held_ns=HOLD_NS // 2), Ack(3, True, HOLD_NS // 4)])]
        sent.now += HOLD_NS
        sent.queue.send_ack(1, Ack(5))
        assert sent.taken() == [(1, [Ack(5)])]

    asyncio.run(scene())


def test_acks_that_wait_leave_without_other_messages_too() -> None:
    async def scene() -> None:
        sent = Sent()
        sent.queue.send_ack(1, Ack(1))
        sent.queue.send_ack(1, Ack(2))
        while len(sent.datagrams) < 2:
            await asyncio.sleep(HOLD_NS / 1e9)
        assert sent.taken() == [(1, [Ack(1)]), (1, [Ack(2)])]

    asyncio.run(scene())


def test_a_message_takes_the_acks_to_its_receiver_along() -> None:
    async def scene() -> None:
        sent = Sent()
        sent.queue.send_ack(1, Ack(1))
        sent.queue.send_ack(1, Ack(2))
        sent.send(2, HELLO)
        sent.send(1, HELLO)
        assert sent.taken() == [(1, [Ack(1)]), (2, [HELLO]), (1, [Ack(2), HELLO])]
        sent.queue.send_ack(1, Ack(3))
        large = data(wire.BUNDLE_BYTES - 100)
        sent.send(1, large)
        assert sent.taken() == [(1, [Ack(3)]), (1, [large])]

    asyncio.run(scene())


def test_as_many_acks_as_fit_leave_at_once() -> None:
    async def scene() -> None:
        sent = Sent()
        for number in range(2 * MAX_ACKS + 1):
            sent.now += 1
            sent.queue.send_ack(1, Ack(number + (1 << 60)))
        assert [len(messages) for _, messages in sent.taken()] == [1, MAX_ACKS, MAX_ACKS]

    asyncio.run(scene())


def test_while_a_batch_is_read_each_neighbour_gets_one_datagram() -> None:
    async def scene() -> None:
        sent = Sent()
        assert sent.queue.start_bundling() and not sent.queue.start_bundling()
        for number in (1, 2):
            sent.queue.send_ack(1, Ack(number))
            sent.send(1, HELLO)
            sent.send(2, HELLO)
        assert sent.taken() == []
        sent.queue.flush()
        assert sent.taken() == [(1, [Ack(1), Ack(2), HELLO, HELLO]), (2, [HELLO, HELLO])]
        sent.queue.start_bundling()
        sent.queue.send_ack(1, Ack(3))
        sent.queue.flush()
        assert sent.taken() == []  # others left just before
        sent.now += HOLD_NS
        sent.queue.start_bundling()
        sent.queue.flush()
        assert sent.taken() == [(1, [Ack(3, held_ns=HOLD_NS)])]

    asyncio.run(scene())


def test_what_is_sent_in_one_turn_of_the_loop_leaves_when_it_ends() -> None:
    async def scene() -> None:
        sent = Sent()
        for _ in range(3):
            sent.queue.bundle_until_turn_ends()
            sent.send(1, HELLO)
        assert sent.taken() == []
        await asyncio.sleep(0)
        assert sent.taken() == [(1, [HELLO] * 3)]
        sent.send(1, HELLO)
        assert sent.taken() == [(1, [HELLO])]

    asyncio.run(scene())


@pytest.mark.parametrize("forget", [SendQueue.clear, lambda queue: queue.remove(1)])
def test_nothing_is_sent_to_a_peer_that_is_forgotten(forget: Callable[[SendQueue], None]) -> None:
    async def scene() -> None:
        sent = Sent()
        sent.queue.send_ack(1, Ack(1))
        sent.queue.send_ack(1, Ack(2))
        sent.queue.bundle_until_turn_ends()
        sent.send(1, HELLO)
        sent.taken()
        forget(sent.queue)
        await asyncio.sleep(3 * HOLD_NS / 1e9)
        assert sent.taken() == []

    asyncio.run(scene())
