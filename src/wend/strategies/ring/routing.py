"""Key-based routing: events go to the peers that own their keys, where they meet the subscriptions.

There is nothing to decide here: the interest knows the keys, and the membership the next hop towards each of them.
"""

from typing import ClassVar

from wend.model.units import Nanos
from wend.protocol.plugins import Arrived, LeaveToInterest, Needs, PluginEffect, PluginInput, Routing, View


def meeting_by(interest: str) -> Needs:
    """The needs of a strategy whose events meet subscriptions on the ring by this interest."""
    return Needs(interest=interest, durable_interest=interest, membership="pastry")


class KeyBased(Routing):
    """Leaves events to the interest. A subclass names the interest."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        return [LeaveToInterest(event)] if type(event) is Arrived else []


class ScribeRouting(KeyBased):
    """Events travel to the root of their topic's group."""

    needs: ClassVar[Needs] = meeting_by("scribe")


class HermesRouting(KeyBased):
    """Events travel to the rendezvous peer of their type."""

    needs: ClassVar[Needs] = meeting_by("hermes")
