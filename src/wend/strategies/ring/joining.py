"""Requests to join a ring: which contacts a peer asks, and when it repeats a request."""

from typing import Final

from wend.model.events import PeerId
from wend.model.random_stream import peer_stream
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import PeerConfig, PluginEffect, SendTo, Timer
from wend.strategies.ring.messages import JoinRequest

FIRST_RETRY: Nanos = SECOND
LAST_RETRY: Nanos = 8 * SECOND
ROUTE_TRIPS = 4
"""Round trips that a request and its answer may take."""
PATIENCE = 2
"""Requests after which a peer may begin a ring: the peers that ask it are in no ring either."""
MAX_CONTACTS = 16
JOIN: Final = "join"


class JoinRequests:
    """The contacts of a peer, which it asks in turn. After it has joined it asks rarely, to find other rings."""

    def __init__(self, config: PeerConfig, rarest_ns: Nanos) -> None:
        self._me = config.peer
        self._seed = config.seed
        self._incarnation = config.incarnation
        self._rarest_ns = rarest_ns
        """The longest interval between two requests after the peer has joined."""
        self.retry_ns = FIRST_RETRY
        """The time until the next request. Each interval is longer than the previous one."""
        self.contacts: list[PeerId] = []
        self.count = 0
        """Requests that this peer has begun."""

    def add(self, contact: PeerId) -> None:
        """Add a contact, to be asked first."""
        if contact not in self.contacts:
            self.contacts = [contact, *self.contacts[: MAX_CONTACTS - 1]]

    def add_last(self, contact: PeerId) -> None:
        """Add a contact if there is room."""
        if contact not in self.contacts and len(self.contacts) < MAX_CONTACTS:
            self.contacts.append(contact)

    def ask_next(self, now: Nanos, has_joined: bool, trip_ns: Nanos) -> list[PluginEffect]:
        """Ask the next contact, and set the timer for the one after it."""
        contact = self.contacts[self.count % len(self.contacts)]
        self.count += 1
        jitter = peer_stream(self._seed, "pastry", self._me, self._incarnation, self.count).random()
        wait_ns = max(self.retry_ns, ROUTE_TRIPS * trip_ns)
        self.retry_ns = min(self.retry_ns * 3 // 2, self._rarest_ns if has_joined else LAST_RETRY)
        return [self.ask(contact, has_joined), Timer(now + round(wait_ns * (0.75 + jitter / 2)), JOIN)]

    def ask(self, contact: PeerId, has_joined: bool) -> SendTo:
        return SendTo(contact, JoinRequest(self._me, rows=not has_joined))
