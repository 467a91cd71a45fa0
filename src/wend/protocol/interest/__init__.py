"""Who wants this: plug-ins that turn an event into targets, by name or along trees."""

from wend.protocol.interest.flooded import FloodedInterest
from wend.protocol.interest.subscriptions import SubscriptionTable
from wend.protocol.interest.trees import TreeInterest


def interest(hop_by_hop: bool, persistency: bool) -> type[SubscriptionTable]:
    """Trees are for a routing that goes by what is wanted at the next peer; a duty names who is to get the event."""
    return TreeInterest if hop_by_hop and not persistency else FloodedInterest
