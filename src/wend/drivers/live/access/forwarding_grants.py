"""Forwarding grants: which publishers' events a neighbour may forward to this peer.

A compromised site can forge events of any publisher whose events it forwards. A grant with `publishers` limits that: a
site at the edge may send only its own events. The driver refuses other events before the peer sees them. It does not
acknowledge them, so the neighbour tries other routes.
"""

from collections.abc import Callable

from wend.drivers.live.access.grants import GrantTable
from wend.model.events import Event, PeerId
from wend.protocol.messages import Data, Fragment, Message
from wend.security.identity import Identity


class ForwardingGrants:
    """Decides whether a neighbour may send a message."""

    def __init__(self, grants: GrantTable, identity: Callable[[PeerId], Identity | None]) -> None:
        """`identity`: the identity in the certificate of a neighbour."""
        self._grants = grants
        self._identity = identity

    def may_send(self, neighbour: PeerId, message: Message) -> bool:
        publishers = message_publishers(message)
        if not publishers:
            return True
        identity = self._identity(neighbour)
        return identity is not None and self._grants.may_forward(neighbour, identity.groups, publishers)


def message_publishers(message: Message) -> set[PeerId]:
    """The publishers of the event in a message; empty if it has no event."""
    match message:
        case Data(event=event):
            return _event_publishers(event)
        case Fragment(id=id_, head=head):
            return {id_.publisher} if head is None else {id_.publisher, *_event_publishers(head.event)}
    carried = getattr(getattr(message, "body", None), "event", None)
    return _event_publishers(carried) if isinstance(carried, Event) else set()


def _event_publishers(event: Event) -> set[PeerId]:
    """The publisher; also the original one, for an event that a member of a queue group has passed on."""
    return {event.id.publisher} if event.origin is None else {event.id.publisher, event.origin.publisher}
