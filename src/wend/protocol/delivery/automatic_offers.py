"""Advertisements that a peer makes by itself for events that no advertisement covers."""

from wend.matching.filters import topic_filter
from wend.model.events import Event

ANYTHING = "true"
"""The advertisement for events without a topic."""
AUTO_OFFERS = 256
"""The most topics advertised automatically: every change floods all advertisements of a peer."""
AUTO_OFFERS_CHARS = 64_000
"""The most characters of topics advertised automatically."""


def automatic_offer(event: Event, advertised: tuple[int, int]) -> str | None:
    """The filter to advertise for an event; None if the peer has `advertised` too many filters, or characters."""
    topic = event.attributes.get("topic")
    offer = topic_filter(topic) if isinstance(topic, str) else ANYTHING
    count, chars = advertised
    return offer if count < AUTO_OFFERS and chars + len(offer) <= AUTO_OFFERS_CHARS else None
