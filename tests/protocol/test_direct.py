"""Acknowledged messages to peers without a link, and their repetitions."""

from typing import Any

from wend.model.events import Event, EventId, PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.link.direct import DirectMessages
from wend.protocol.messages import DirectAck, DirectMessage
from wend.protocol.plugins import SendTo
from wend.protocol.ports import Notice, Send
from wend.protocol.timers import Effects, Timers
from wend.strategies.ring.groups import DownTree


def test_a_repetition_says_how_old_its_event_is_by_now() -> None:
    """A receiver that restarted in the meantime knows an event of its earlier incarnation by the event's age."""
    returned: list[DownTree] = []

    def undelivered(now: Nanos, peer: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        returned.append(body)

    timers = Timers()
    effects: Effects = []
    direct = DirectMessages(PeerConfig(peer=1, incarnation=1, strategy="scribe"), timers, undelivered)
    body = DownTree("topic", Event(EventId(3, 1, 1), {"topic": "t"}), 5 * MS, 1)
    direct.send(0, SendTo(7, body, True, 100 * MS, 3), "scribe", effects)
    for now in (100 * MS, 300 * MS, SECOND):
        timers.run(now, effects)
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    assert [message.body.age_ns for message in sent if isinstance(message, DirectMessage)] == [
        5 * MS, 105 * MS, 305 * MS,
    ]  # fmt: skip
    assert [(back.event, back.age_ns) for back in returned] == [(body.event, 5 * MS + SECOND)]


def test_an_ack_that_comes_after_the_timeout_is_not_taken_before_it() -> None:
    timers = Timers()
    effects: Effects = []
    direct = DirectMessages(PeerConfig(peer=1, strategy="rendezvous"), timers, lambda *_: None)
    direct.send(0, SendTo(7, "hello", True, 100 * MS, 2), "some", effects)
    (first,) = effects
    assert isinstance(first, Send) and isinstance(first.message, DirectMessage)
    ack = DirectAck(first.message.number)
    assert not direct.acknowledge_early(100 * MS + 1, 7, ack)
    assert direct.acknowledge_early(100 * MS, 8, ack)  # of another peer: it means nothing, whenever it comes
    timers.run(100 * MS, effects)
    assert effects == [first, Notice("retransmit", 7), first]
    assert not direct.acknowledge_early(SECOND, 7, ack)
    assert direct.acknowledge_early(300 * MS, 7, ack)
    timers.run(300 * MS, effects)
    assert effects == [first, Notice("retransmit", 7), first]  # neither sent again nor given up
