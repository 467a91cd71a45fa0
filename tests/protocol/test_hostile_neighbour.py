"""A neighbour may say anything that parses. The peer refuses or copes; it never raises and never stops."""

import math
import random
from typing import Any

import msgspec
import pytest

from tests.holdings import holders
from wend.model.events import Event, EventId, Qos, Subscription, SubscriptionId
from wend.model.units import SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.copy_ranks import fork, ranks_below
from wend.protocol.graph.link_state import LinkState
from wend.protocol.interest.subscriptions import PeerInterest
from wend.protocol.messages import (
    TX_SHIFT,
    Ack,
    Control,
    ControlFragment,
    Data,
    DirectAck,
    DirectMessage,
    Fragment,
    Hello,
    Message,
    PlainMessage,
)
from wend.protocol.notices import MISFIT
from wend.protocol.peer import OLDEST_NS, Peer
from wend.protocol.plugins import FLOODED, LINK_STATE
from wend.protocol.ports import (
    Effect,
    Input,
    LocalSubscription,
    Neighbour,
    Persist,
    Published,
    Received,
    Refuse,
    Send,
    Started,
    Woken,
)
from wend.protocol.records import PendingRecord
from wend.protocol.routing.expectations import Expectations
from wend.protocol.routing.multipath import SourceRoutes
from wend.protocol.routing.planned import PlanLabel
from wend.protocol.routing.tree_routing import TreeHeader
from wend.protocol.tables import ROUTING

ENCODER = msgspec.msgpack.Encoder()
PEERS = (0, 1, 2, 3, 9, -1, 2**40)
NUMBERS = (0, 1, -1, 10**9, -(10**18), 2**62, -(2**63), 2**64 - 1)
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e300, float("inf"), float("nan"))
FILTERS = ("topic = 'a'", "topic = 'b'", "junk", "")


class Babble:
    """Well-formed nonsense from a seed, of the types that a peer decodes."""

    def __init__(self, seed: int, peer: Peer) -> None:
        self.rng = random.Random(seed)
        self.any = self.rng.choice
        self._header = peer.header_type
        self._plugins = peer.message_types

    def some(self, kind: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self.any(kind) for _ in range(self.rng.randrange(4)))

    def body(self) -> object:
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
                return PeerInterest(self.any(PEERS), version, wanted, self.some(FILTERS))
        pairs = tuple((self.any(PEERS), self.any(PEERS)) for _ in range(3))
        return Expectations(self.rng.randrange(9), pairs, self.some(FLOATS), self.some(FLOATS))

    def addressed(self) -> tuple[str, object]:
        """A message and the plug-in that declares it, or one that the peer does not host."""
        body = self.body()
        return next((name for name, type_ in self._plugins.items() if isinstance(body, type_)), "unknown"), body

    def control(self) -> tuple[str, object]:
        if self.rng.random() < 0.7:
            return self.addressed()
        slot, index, count = (self.any(("i", "l", "")), self.any(PEERS)), self.any((0, 1, -1)), self.any((2, 3, 0, 99))
        chunk = self.any((b"", b"x", ENCODER.encode(self.body()), bytes(20_000)))
        return self.any((*self._plugins, "unknown")), ControlFragment(slot, self.any(NUMBERS), index, count, chunk)

    def header(self) -> object:
        """One of the peer's own type, one of another, or none."""
        routes = tuple(self.some(PEERS) for _ in range(self.rng.randrange(4)))
        generation = (self.any(NUMBERS), self.any(PEERS), self.any(NUMBERS))
        made: dict[type, object] = {
            SourceRoutes: SourceRoutes(routes),
            PlanLabel: PlanLabel(self.any(NUMBERS), self.any(NUMBERS)),
            TreeHeader: TreeHeader(generation, self.rng.randrange(-1, 3)),
        }
        return made.get(self._header) if self.rng.random() < 0.7 else self.any((None, *made.values()))

    def message(self) -> Message:
        tx = (self.any((1, 1, 1, 2, 0)) << TX_SHIFT) + self.rng.randrange(300)
        match self.rng.randrange(8):
            case 0:
                return Ack(tx, self.any((True, False)))
            case 1:
                return Hello(self.rng.randrange(3), self.any((True, False)), self.any((0, *NUMBERS)))
            case 2:
                return Control(tx, *self.control())
            case 3:
                plain, acked = PlainMessage(*self.addressed()), DirectMessage(tx, *self.addressed())
                return self.any((plain, acked, DirectAck(tx)))
        id_ = EventId(self.any(PEERS), self.any((0, 1, 2, -1)), self.any((0, 1, -5, 2**50)))
        event = Event(id_, self.any(({}, {"topic": "a"}, {"topic": 3}, {"topic": "b", "x": 1.5})))
        dests, path = self.some(PEERS), self.some(PEERS)
        data = Data(tx, event, self.any(NUMBERS), dests, path, self.header(), self.some(NUMBERS))
        if self.rng.random() < 0.4:
            head = self.any((None, data, data))
            index, count = self.any((0, 0, 1, 2, -1)), self.any((2, 2, 3, 0, 10**9))
            return Fragment(tx, self.rng.randrange(3), index, count, id_, self.any((b"", b"x", bytes(2000))), head)
        return data

    def input(self) -> Input:
        if self.rng.random() < 0.7:
            return Received(self.any((1, 2, 7)), self.message())
        return self.any((Woken(), Published({"topic": "a"})))


@pytest.mark.parametrize("strategy", list(ROUTING))
@pytest.mark.parametrize("persistency", [False, True])
def test_nothing_that_parses_makes_a_peer_raise_or_stop(strategy: str, persistency: bool) -> None:
    for seed in range(100):
        peer = Peer(PeerConfig(peer=0, strategy=strategy, persistency=persistency, retry_limit=5, trace_paths=True))
        babble, now = Babble(seed, peer), 0
        peer.handle(
            now, Started((Neighbour(1, 10**7), Neighbour(2, 2 * 10**7)), (LocalSubscription(1, "topic = 'a'"),))
        )
        for _ in range(60):
            now += babble.rng.randrange(10**8)
            for effect in peer.handle(now, babble.input()):
                if isinstance(effect, Send):
                    assert effect.peer in (1, 2) or isinstance(effect.message, DirectAck)
                    ENCODER.encode(effect.message)
                elif isinstance(effect, Persist):
                    ENCODER.encode(effect.record)


def linked(strategy: str, persistency: bool = False) -> Peer:
    """Peer 0 between 1 and 2, which say that they are linked, too."""
    peer = Peer(PeerConfig(peer=0, strategy=strategy, persistency=persistency))
    peer.handle(0, Started((Neighbour(1, 10**7), Neighbour(2, 10**7))))
    for me, other in ((1, 2), (2, 1)):
        if LINK_STATE in peer.message_types:
            tell(peer, me, 1, LINK_STATE, LinkState(me, (1, 1), ((0, 10**7, 1.0), (other, 10**7, 1.0))))
    return peer


def tell(peer: Peer, sender: int, number: int, plugin: str, body: object) -> list[Effect]:
    return peer.handle(1, Received(sender, Control((1 << TX_SHIFT) + number, plugin, body)))


IMPOSSIBLE = [
    *(Qos(factor=factor) for factor in (math.inf, math.nan, 1e300, 0.0, -1.0)),
    *(Qos(reliability=share) for share in (math.nan, 1.5, 0.0)),
    *(Qos(deadline_ns=wait) for wait in (0, -1, 2**64 - 1)),
]


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive", "d-tree"])
def test_an_impossible_quality_of_service_is_refused_and_hurts_nobody_else(strategy: str) -> None:
    peer = linked(strategy)
    tell(peer, 1, 2, FLOODED, PeerInterest(1, (1, 1), (Subscription(SubscriptionId(1, 1), "topic = 'a'"),), ()))
    for number, qos in enumerate(IMPOSSIBLE, 2):
        wanted = PeerInterest(2, (1, number), (Subscription(SubscriptionId(2, 1), "topic = 'a'", qos),), ())
        heard = tell(peer, 2, number, FLOODED, wanted)
        assert heard[:2] == [
            Send(2, Ack((1 << TX_SHIFT) + number)),
            Refuse(2, "a deadline or reliability that cannot be"),
        ]
    published = peer.handle(2, Published({"topic": "a"}))
    assert [e.message.dests for e in published if isinstance(e, Send) and isinstance(e.message, Data)] == [(1,)]


@pytest.mark.parametrize(("said", "meant"), [(2**64 - 1, OLDEST_NS), (-(2**63), 0)])
def test_an_impossible_age_is_replaced_by_a_possible_one(said: int, meant: int) -> None:
    peer = linked("d-tree", persistency=True)
    event = Event(EventId(1, 1, 1), {"topic": "a"})
    effects = peer.handle(5, Received(1, Data((1 << TX_SHIFT) + 5, event, said, (2,), (1,))))
    (born,) = [e.record.born_ns for e in effects if isinstance(e, Persist) and isinstance(e.record, PendingRecord)]
    assert born == 5 - meant - 10**7
    ENCODER.encode([e.message for e in effects if isinstance(e, Send)])


@pytest.mark.parametrize(("strategy", "persistency"), [("dcrd", False), ("adaptive", True), ("mrst", True)])
def test_a_packet_without_destinations_is_refused_where_events_go_by_name(strategy: str, persistency: bool) -> None:
    for header in (None, TreeHeader((1, 1, 1), 0)):
        peer = linked(strategy, persistency=persistency)
        event = Event(EventId(1, 1, 1), {"topic": "a"})
        effects = peer.handle(5, Received(1, Data((1 << TX_SHIFT) + 5, event, 0, (), (1,), header)))
        fits = header is None or type(header) is peer.header_type
        assert Refuse(1, "a packet without destinations" if fits else MISFIT) in effects
        assert not any(isinstance(e, Send) and isinstance(e.message, Data) for e in effects)


def test_a_copy_of_a_copy_without_end_still_fits_a_message() -> None:
    assert fork(2**64 - 1, 2**40) < 2**63
    assert ranks_below(3, fork(3, 1))


BOUNDED = ("_stored.queue.", "_taken._taken")
"""Paths that hold events which were accepted last: the retry queue, at most `retry_limit`, and copies by their rank."""


@pytest.mark.parametrize("strategy", list(ROUTING))
@pytest.mark.parametrize("persistency", [False, True])
def test_peers_that_somebody_invents_are_not_remembered(strategy: str, persistency: bool) -> None:
    peer = linked(strategy, persistency)
    invented: set[int] = set()
    for number in range(20):
        dests = tuple(range(1000 + 10 * number, 1010 + 10 * number))
        event = Event(EventId(5000 + number, 1, 1), {"topic": "a"})
        invented.update((*dests, event.id.publisher))
        peer.handle(2, Received(1, Data((1 << TX_SHIFT) + 10 + number, event, 0, dests, (1,))))
    for second in range(1, 60):  # nobody answers, so in the end nothing is in flight
        peer.handle(second * SECOND, Woken())
    assert {path for path in holders(peer, invented) if not any(bound in path for bound in BOUNDED)} == set()
