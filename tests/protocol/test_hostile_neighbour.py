"""A neighbour may say anything that parses. The peer refuses or copes; it never raises and never stops."""

import random

import pytest

from wend.model.events import Event, EventId, Qos, Subscription, SubscriptionId
from wend.protocol.config import PeerConfig
from wend.protocol.messages import (
    TX_SHIFT,
    Ack,
    Body,
    Data,
    Expectations,
    Hello,
    Interest,
    LinkState,
    Message,
    Part,
    Reliable,
)
from wend.protocol.peer import Peer
from wend.protocol.ports import Input, Neighbour, Published, Received, Send, Standing, Started, Woken
from wend.protocol.routing import ROUTING

PEERS = (0, 1, 2, 3, 9, -1, 2**40)
NUMBERS = (0, 1, -1, 10**9, -(10**18), 2**62)
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e300, float("inf"), float("nan"))
FILTERS = ("topic = 'a'", "topic = 'b'", "junk", "")


class Babble:
    """Well-formed nonsense from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.any = self.rng.choice

    def some(self, kind: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(self.any(kind) for _ in range(self.rng.randrange(4)))

    def body(self) -> Body:
        version = (self.any((0, 1, 5)), self.rng.randrange(5))
        match self.rng.randrange(3):
            case 0:
                links = tuple((self.any(PEERS), self.any(NUMBERS), self.any(FLOATS)) for _ in range(3))
                paths = self.any(((), ((1, None, "x"),) * 3, ((), (None,), (2, 1)), ((1,),)))
                return LinkState(self.any(PEERS), version, links, paths)
            case 1:
                wanted = tuple(
                    Subscription(
                        SubscriptionId(self.any(PEERS), self.rng.randrange(3)),
                        self.any(FILTERS),
                        Qos(self.any((None, *NUMBERS)), self.any((None, *FLOATS))),
                    )
                    for _ in range(self.rng.randrange(3))
                )
                return Interest(self.any(PEERS), version, wanted, self.some(FILTERS))  # type: ignore[arg-type]
        pairs = tuple((self.any(PEERS), self.any(PEERS)) for _ in range(3))
        return Expectations(self.rng.randrange(9), pairs, self.some(FLOATS), self.some(FLOATS))  # type: ignore[arg-type]

    def message(self) -> Message:
        tx = (self.any((1, 1, 1, 2, 0)) << TX_SHIFT) + self.rng.randrange(300)
        match self.rng.randrange(6):
            case 0:
                return Ack(tx, self.any((True, False)))
            case 1:
                return Hello(self.rng.randrange(3), self.any((True, False)))
            case 2:
                return Reliable(tx, self.body())
        id_ = EventId(self.any(PEERS), self.any((0, 1, 2, -1)), self.any((0, 1, -5, 2**50)))
        event = Event(id_, self.any(({}, {"topic": "a"}, {"topic": 3}, {"topic": "b", "x": 1.5})))
        routes = tuple(self.some(PEERS) for _ in range(self.rng.randrange(4)))
        data = Data(tx, event, self.any(NUMBERS), self.some(PEERS), self.some(PEERS), routes, self.some(NUMBERS))  # type: ignore[arg-type]
        if self.rng.random() < 0.4:
            head = self.any((None, data, data))
            index, count = self.any((0, 0, 1, 2, -1)), self.any((2, 2, 3, 0, 10**9))
            return Part(tx, self.rng.randrange(3), index, count, id_, self.any((b"", b"x", bytes(2000))), head)
        return data

    def input(self) -> Input:
        if self.rng.random() < 0.7:
            return Received(self.any((1, 2, 7)), self.message())
        return self.any((Woken(), Published({"topic": "a"})))


@pytest.mark.parametrize("strategy", list(ROUTING))
@pytest.mark.parametrize("persistency", [False, True])
def test_nothing_that_parses_makes_a_peer_raise_or_stop(strategy: str, persistency: bool) -> None:
    for seed in range(100):
        babble = Babble(seed)
        peer = Peer(PeerConfig(peer=0, strategy=strategy, persistency=persistency, keep_msgs=5, traces=True))
        now = 0
        peer.handle(now, Started((Neighbour(1, 10**7), Neighbour(2, 2 * 10**7)), (Standing(1, "topic = 'a'"),)))
        for _ in range(60):
            now += babble.rng.randrange(10**8)
            for effect in peer.handle(now, babble.input()):
                assert not isinstance(effect, Send) or effect.peer in (1, 2)
