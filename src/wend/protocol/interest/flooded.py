"""Flooded interest: each peer floods its subscriptions and advertisements, so every peer knows all of them.

The simplest interest there is, and the default. A change costs one flood.
"""

from typing import Any, ClassVar

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.interest.subscriptions import PeerInterest, SubscriptionTable
from wend.protocol.plugins import (
    LINK_STATE,
    Changed,
    Heard,
    InterestLearned,
    LinkChanged,
    Needs,
    PluginEffect,
    PluginInput,
    Recalled,
    Remember,
    SubscriptionsChanged,
    Tell,
    View,
)
from wend.protocol.ports import Refuse

CHANGED = Changed("interest")


class FloodedInterest(SubscriptionTable):
    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,))  # a deadline may be a multiple of the shortest delay
    messages: ClassVar[Any] = PeerInterest
    names_everyone: ClassVar[bool] = True

    def knows(self, peers: tuple[PeerId, ...]) -> bool:
        return all(peer in self.known for peer in peers)

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case SubscriptionsChanged():
                mine = self.announced(view)
                return [CHANGED, *(Tell(n, ("i", view.me), mine) for n in view.neighbours)]
            case Heard(sender, PeerInterest() as told):
                return self._learn(sender, told, view)
            case LinkChanged(peer, up=True, fresh=True):
                return [Tell(peer, ("i", origin), known) for origin, known in sorted(self.known.items())]
            case Recalled(PeerInterest() as told):
                self.learn(told)
        return []

    def _learn(self, sender: PeerId, told: PeerInterest, view: View) -> list[PluginEffect]:
        known = self.known.get(told.origin)
        if told.origin == view.me or (known is not None and known.version >= told.version):
            return []
        if not all(subscription.qos.can_be() for subscription in told.subscriptions):
            return [Refuse(sender, "a deadline or reliability that cannot be")]
        if not self.learn(told):
            return [Refuse(sender, "a filter that cannot be read")]
        others = [n for n in view.neighbours if n != sender]
        return [
            Remember(told.origin, told),
            CHANGED,
            *(Tell(n, ("i", told.origin), told) for n in others),
            InterestLearned(told.origin),
        ]
