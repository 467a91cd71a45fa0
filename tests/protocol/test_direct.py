"""Acknowledged messages to peers without a link: what a simulation may say of their ACKs before these come."""

from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.link.direct import DirectMessages
from wend.protocol.messages import DirectAck, DirectMessage
from wend.protocol.plugins import SendTo
from wend.protocol.ports import Notice, Send
from wend.protocol.timers import Effects, Timers


def test_an_ack_that_comes_after_the_timeout_is_not_taken_before_it() -> None:
    timers = Timers()
    effects: Effects = []
    direct = DirectMessages(PeerConfig(peer=1, strategy="rendezvous"), timers, lambda *_: None)
    direct.send(0, SendTo(7, "hello", True, 100 * MS, 2), "some", effects)
    (first,) = effects
    assert isinstance(first, Send) and isinstance(first.message, DirectMessage)
    ack = DirectAck(first.message.number)
    assert not direct.will_be_acknowledged(100 * MS + 1, 7, ack)
    assert direct.will_be_acknowledged(100 * MS, 8, ack)  # of another peer: it means nothing, whenever it comes
    timers.run(100 * MS, effects)
    assert effects == [first, Notice("retransmit", 7), first]
    assert not direct.will_be_acknowledged(SECOND, 7, ack)
    assert direct.will_be_acknowledged(300 * MS, 7, ack)
    timers.run(300 * MS, effects)
    assert effects == [first, Notice("retransmit", 7), first]  # neither sent again nor given up
