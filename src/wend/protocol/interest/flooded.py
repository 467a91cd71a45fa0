"""Everybody knows every subscription: each peer floods what is wanted and offered at it.

The simplest interest there is, used where nothing better is chosen. Costs one flood per change.
"""

from typing import ClassVar

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.interest.subscriptions import SubscriptionTable
from wend.protocol.messages import PeerInterest
from wend.protocol.plugins import CHANGED, Changed, Heard, LinkChanged, PluginEffect, PluginInput, Tell, View
from wend.protocol.ports import Refuse


class FloodedInterest(SubscriptionTable):
    names_everyone: ClassVar[bool] = True

    def heard(self, peers: tuple[PeerId, ...]) -> bool:
        return all(peer in self._known for peer in peers)

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Changed():
                interest = self.announced(view)
                return [CHANGED, *(Tell(n, ("i", view.me), interest) for n in view.neighbours)]
            case Heard(sender, PeerInterest() as interest):
                return self._learn(sender, interest, view)
            case LinkChanged(peer, up=True, fresh=True):
                return [Tell(peer, ("i", origin), known) for origin, known in sorted(self._known.items())]
        return []

    def _learn(self, sender: PeerId, interest: PeerInterest, view: View) -> list[PluginEffect]:
        known = self._known.get(interest.origin)
        if interest.origin == view.me or (known is not None and known.version >= interest.version):
            return []
        if not all(subscription.qos.can_be() for subscription in interest.subscriptions):
            return [Refuse(sender, "a deadline or reliability that cannot be")]
        if not self._take(interest):
            return [Refuse(sender, "a filter that cannot be read")]
        return [CHANGED, *(Tell(n, ("i", interest.origin), interest) for n in view.neighbours if n != sender)]
