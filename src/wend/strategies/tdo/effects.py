"""The effects of an overlay: its methods yield what the peer does, in order."""

from collections.abc import Iterator

from wend.model.events import PeerId
from wend.protocol.plugins import PluginEffect, Refuse
from wend.strategies.tdo.messages import MembershipMessage

Effects = Iterator[PluginEffect]


def refuse(sender: PeerId, message: MembershipMessage) -> Refuse:
    return Refuse(sender, "invalid-message", type(message).__name__)
