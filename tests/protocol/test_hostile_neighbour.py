"""A neighbour may say anything that parses. The peer refuses or copes; it never raises and never stops."""

import math
import random
from typing import Any

import msgspec
import pytest

from tests.cores import pure_only
from tests.holdings import held, holders
from wend.model.events import Event, EventId, Qos, Subscription, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.link.fragments import CONTROL_FRAGMENT_BYTES
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
from wend.protocol.plugins.copy_ranks import fork, ranks_below
from wend.protocol.ports import (
    Effect,
    Input,
    LocalSubscription,
    Neighbour,
    Persist,
    Received,
    Refuse,
    Send,
    Started,
    Woken,
)
from wend.protocol.records import PendingRecord
from wend.strategies.dcrd.expectations import Expectations
from wend.strategies.flooded.changes import InterestChange, InterestRequest, interest_digest
from wend.strategies.link_state.plugin import LinkState
from wend.strategies.multipath.plugin import SourceRoutes
from wend.strategies.planned.delivery import PlanLabel
from wend.strategies.registry import linked_strategies, make_peer
from wend.strategies.subscriptions.table import PeerInterest
from wend.strategies.trees.messages import LinkWeight, SequencedMessage, SubtreeInterest
from wend.strategies.trees.routing import TreeHeader

ENCODER = msgspec.msgpack.Encoder()
PEERS = (0, 1, 2, 3, 9, -1, 2**40)
NUMBERS = (0, 1, -1, 10**9, -(10**18), 2**62, -(2**63), 2**64 - 1)
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e300, float("inf"), float("nan"))
PLUGINS = ("link-state", "flooded", "dcrd", "d-tree", "unheard-of")
FILTERS = ("topic = 'a'", "topic = 'b'", "junk", "")


class Babble:
    """Well-formed nonsense from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.any = self.rng.choice

    def some(self, kind: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(self.any(kind) for _ in range(self.rng.randrange(4)))

    def body(self) -> tuple[str, Any]:
        """A plug-in, and a message of one of the types that decoders let through to it."""
        version = (self.any((0, 1, 5)), self.rng.randrange(5))
        match self.rng.randrange(5):
            case 0:
                links = tuple((self.any(PEERS), self.any(NUMBERS), self.any(FLOATS)) for _ in range(3))
                paths = self.any(((), ((1, None, "x"),) * 3, ((), (None,), (2, 1)), ((1,),)))
                return "link-state", LinkState(self.any(PEERS), version, links, paths)
            case 1:
                wanted = tuple(
                    Subscription(
                        SubscriptionId(self.any(PEERS), self.rng.randrange(3)),
                        self.any(FILTERS),
                        Qos(self.any((None, *NUMBERS)), self.any((None, *FLOATS))),
                    )
                    for _ in range(self.rng.randrange(3))
                )
                if self.rng.random() < 0.5:
                    return "flooded", self.interest_change(version, wanted)
                return "flooded", PeerInterest(self.any(PEERS), version, wanted, self.some(FILTERS))  # type: ignore[arg-type]
            case 2:
                slot = (self.any(("l", "i", "")), self.any(PEERS))
                chunk = self.any((b"", b"x", ENCODER.encode(None), bytes(CONTROL_FRAGMENT_BYTES)))
                index, count = self.any((0, 0, 1, -1)), self.any((2, 2, 1, 10**9))
                return self.any(PLUGINS), ControlFragment(slot, self.any(NUMBERS), index, count, chunk)
            case 3:
                return self.any((*PLUGINS, "")), None
        pairs = tuple((self.any(PEERS), self.any(PEERS)) for _ in range(3))
        return "dcrd", Expectations(self.rng.randrange(9), pairs, self.some(FLOATS), self.some(FLOATS))  # type: ignore[arg-type]

    def interest_change(self, version: tuple[int, int], wanted: tuple[Subscription, ...]) -> Any:
        if self.rng.random() < 0.2:
            return InterestRequest(self.any(PEERS))
        old = PeerInterest(self.any(PEERS), (version[0], version[1] - 1), (), ())
        new = PeerInterest(old.origin, version, wanted, ())
        digest = self.any((interest_digest(new), self.any(NUMBERS)))
        return InterestChange(old.origin, version, old.version, digest, wanted, self.some(NUMBERS), self.some(FILTERS))  # type: ignore[arg-type]

    def header(self) -> Any:
        match self.rng.randrange(4):
            case 0:
                return SourceRoutes(tuple(self.some(PEERS) for _ in range(self.rng.randrange(4))))  # type: ignore[misc]
            case 1:
                return PlanLabel(self.any(NUMBERS), self.any(NUMBERS))
            case 2:
                return TreeHeader((self.any(NUMBERS), self.any(PEERS), 1), self.any(NUMBERS))
        return None

    def message(self) -> Message:
        tx = (self.any((1, 1, 1, 2, 0)) << TX_SHIFT) + self.rng.randrange(300)
        match self.rng.randrange(8):
            case 0:
                return Ack(tx, self.any((True, False)))
            case 1:
                return Hello(self.rng.randrange(3), self.any((True, False)))
            case 2:
                return Control(tx, *self.body())
            case 3:
                return self.any((PlainMessage(*self.body()), DirectMessage(tx, *self.body()), DirectAck(tx)))
        id_ = EventId(self.any(PEERS), self.any((0, 1, 2, -1)), self.any((0, 1, -5, 2**50)))
        event = Event(id_, self.any(({}, {"topic": "a"}, {"topic": 3}, {"topic": "b", "x": 1.5})))
        ranks = self.some(NUMBERS)
        data = Data(tx, event, self.any(NUMBERS), self.some(PEERS), self.some(PEERS), self.header(), ranks)  # type: ignore[arg-type]
        if self.rng.random() < 0.4:
            head = self.any((None, data, data))
            index, count = self.any((0, 0, 1, 2, -1)), self.any((2, 2, 3, 0, 10**9))
            return Fragment(tx, self.rng.randrange(3), index, count, id_, self.any((b"", b"x", bytes(2000))), head)
        return data

    def input(self) -> Input:
        if self.rng.random() < 0.7:
            return Received(self.any((1, 2, 7)), self.message())
        return self.any((Woken(), Publication({"topic": "a"})))


@pytest.mark.parametrize("strategy", list(linked_strategies()))
@pytest.mark.parametrize("persistence", [False, True])
def test_nothing_that_parses_makes_a_peer_raise_or_stop(strategy: str, persistence: bool) -> None:
    for seed in range(100):
        babble = Babble(seed)
        peer = make_peer(
            PeerConfig(peer=0, strategy=strategy, persistence=persistence, retry_limit=5, trace_paths=True)
        )
        now = 0
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


def linked(strategy: str, persistence: bool = False) -> Peer:
    """Peer 0 between 1 and 2, which say that they are linked, too."""
    peer = make_peer(PeerConfig(peer=0, strategy=strategy, persistence=persistence))
    peer.handle(0, Started((Neighbour(1, 10**7), Neighbour(2, 10**7))))
    for me, other in ((1, 2), (2, 1)):
        tell(peer, me, 1, LinkState(me, (1, 1), ((0, 10**7, 1.0), (other, 10**7, 1.0))))
    return peer


def tell(peer: Peer, sender: int, number: int, body: LinkState | PeerInterest) -> list[Effect]:
    plugin = next(name for name, kind in peer.message_types.items() if isinstance(body, kind))
    return peer.handle(1, Received(sender, Control((1 << TX_SHIFT) + number, plugin, body)))


IMPOSSIBLE = [
    *(Qos(factor=factor) for factor in (math.inf, math.nan, 1e300, 0.0, -1.0)),
    *(Qos(reliability=share) for share in (math.nan, 1.5, 0.0)),
    *(Qos(deadline_ns=wait) for wait in (0, -1, 2**64 - 1)),
]


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive", "d-tree"])
def test_a_wish_that_cannot_be_is_refused_and_hurts_nobody_else(strategy: str) -> None:
    peer = linked(strategy)
    tell(peer, 1, 2, PeerInterest(1, (1, 1), (Subscription(SubscriptionId(1, 1), "topic = 'a'"),), ()))
    for number, qos in enumerate(IMPOSSIBLE, 2):
        wanted = PeerInterest(2, (1, number), (Subscription(SubscriptionId(2, 1), "topic = 'a'", qos),), ())
        heard = tell(peer, 2, number, wanted)
        assert heard[:2] == [
            Send(2, Ack((1 << TX_SHIFT) + number)),
            Refuse(2, "invalid-qos"),
        ]
    published = peer.handle(2, Publication({"topic": "a"}))
    assert [e.message.dests for e in published if isinstance(e, Send) and isinstance(e.message, Data)] == [(1,)]


@pytest.mark.parametrize(("said", "meant"), [(2**64 - 1, OLDEST_NS), (-(2**63), 0)])
def test_an_age_that_cannot_be_is_taken_for_one_that_can(said: int, meant: int) -> None:
    peer = linked("d-tree", persistence=True)
    event = Event(EventId(1, 1, 1), {"topic": "a"})
    effects = peer.handle(5, Received(1, Data((1 << TX_SHIFT) + 5, event, said, (2,), (1,))))
    (born,) = [e.record.born_ns for e in effects if isinstance(e, Persist) and isinstance(e.record, PendingRecord)]
    assert born == 5 - meant - 10**7
    ENCODER.encode([e.message for e in effects if isinstance(e, Send)])


@pytest.mark.parametrize("header", [None, TreeHeader((1, 1, 1), 0)])
@pytest.mark.parametrize(("strategy", "persistence"), [("dcrd", False), ("adaptive", True), ("mrst", True)])
def test_what_names_nobody_is_refused_where_events_go_by_name(
    strategy: str, persistence: bool, header: TreeHeader | None
) -> None:
    peer = linked(strategy, persistence=persistence)
    event = Event(EventId(1, 1, 1), {"topic": "a"})
    effects = peer.handle(5, Received(1, Data((1 << TX_SHIFT) + 5, event, 0, (), (1,), header)))
    fits = header is None or peer.header_type is TreeHeader
    assert Refuse(1, "no-destinations" if fits else MISFIT) in effects
    assert not any(isinstance(e, Send) and isinstance(e.message, Data) for e in effects)


@pure_only
@pytest.mark.parametrize("strategy", ["dcrd", "mrst", "spt-k"])
@pytest.mark.parametrize("persistence", [False, True])
def test_only_neighbours_speak_to_plug_ins_that_hear_no_others(strategy: str, persistence: bool) -> None:
    """Whoever else sends one of their messages is refused, and leaves nothing behind."""
    peer = linked(strategy, persistence)
    bodies = (
        LinkState(7, (1, 1), ((0, 10**7, 1.0),)),
        PeerInterest(7, (1, 1), (), ("topic = 'a'",)),
        Expectations(1, ((7, 0),), (1.0,), (1.0,)),
        SequencedMessage((1, 7, 1), 0, LinkWeight(0.0, 0.0)),
        SubtreeInterest((1, 7, 1), 0, 1, (), ()),
    )
    declared = [(name, body) for name, kind in peer.message_types.items() for body in bodies if isinstance(body, kind)]
    assert len(declared) == 3 + (strategy != "dcrd" and persistence)
    before = held(peer)
    for name, body in declared:
        assert peer.handle(1, Received(7, PlainMessage(name, body))) == [Refuse(7, "not-neighbour")]
        assert Refuse(1, "not-neighbour") not in peer.handle(1, Received(1, PlainMessage(name, body)))
    peer = linked(strategy, persistence)
    for number, (name, body) in enumerate(declared):
        effects = peer.handle(1, Received(7, DirectMessage(number, name, body)))
        assert effects == [Send(7, DirectAck(number)), Refuse(7, "not-neighbour")]
    after = held(peer)
    assert {path for path in after if after[path] != before.get(path)} == {"_layer.direct._seen"}


@pytest.mark.parametrize("body", [None, ControlFragment(("l", 1), 1, 0, 2, b"x"), {"origin": 1}, Hello(1, True)])
def test_a_plug_in_hears_nothing_but_the_messages_that_it_declares(body: object) -> None:
    peer = linked("dcrd")
    refusal = Refuse(1, "undeclared-message")
    for name in ("link-state", "flooded", "dcrd"):
        assert peer.handle(1, Received(1, PlainMessage(name, body))) == [refusal]
    assert peer.handle(1, Received(1, PlainMessage("mrst-trees", body))) == [Refuse(1, "unknown-plugin")]


def test_a_copy_of_a_copy_without_end_still_fits_a_message() -> None:
    assert fork(2**64 - 1, 2**40) < 2**63
    assert ranks_below(3, fork(3, 1))


BOUNDED = {
    # the events that it answers for, and of these at most `retry_limit` that wait
    "_store.queue._records",
    "_store.queue._records[].dests",
    "_store.queue._waiting[][].dests",
    "_store.queue._waiting_for",
    "_store.queue._lanes",
    "_store.queue.pauses._pauses",
    # the events that it forwarded last
    "_host.by_name[].plugin._forwarded._young",
}


@pytest.mark.parametrize("strategy", list(linked_strategies()))
@pytest.mark.parametrize("persistence", [False, True])
def test_peers_that_somebody_invents_are_not_remembered(strategy: str, persistence: bool) -> None:
    peer = linked(strategy, persistence)
    invented: set[int] = set()
    for number in range(20):
        dests = tuple(range(1000 + 10 * number, 1010 + 10 * number))
        event = Event(EventId(5000 + number, 1, 1), {"topic": "a"})
        invented.update((*dests, event.id.publisher))
        peer.handle(2, Received(1, Data((1 << TX_SHIFT) + 10 + number, event, 0, dests, (1,))))
    for second in range(1, 60):  # nobody answers, so in the end nothing is in flight
        peer.handle(second * SECOND, Woken())
    assert holders(peer, invented) - BOUNDED == set()
