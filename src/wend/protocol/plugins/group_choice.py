"""The choice of the queue group member that gets an event. All peers choose alike, and events spread evenly."""

from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

from wend.model.events import Event, EventId, PeerId
from wend.protocol.plugins.subscriptions import Notify

T = TypeVar("T")


def choose_from_group(id_: EventId, group: str, among: tuple[T, ...]) -> T:
    """Choose one of these. All callers choose the same, because it depends only on the event and the group."""
    digest = blake2b(f"{id_} {group}".encode(errors="surrogatepass"), digest_size=8).digest()
    return among[int.from_bytes(digest) % len(among)]


def choose_subscriptions(event: Event, me: PeerId, wanted: Notify, group_of: Callable[[int], str]) -> Notify:
    """Choose the subscriptions without a group, and one of each group for which this peer was chosen.

    An event that was passed on to another member of a group is only for that group: the other subscriptions get the
    event as published.
    """
    chosen = [group for group, peers in event.groups if peers[:1] == (me,)]
    found = [] if event.origin is not None else [one for one in wanted if not group_of(one[0].number)]
    for group in chosen:
        members = tuple([one for one in wanted if group_of(one[0].number) == group])
        if members:
            found.append(choose_from_group(event.id, f"{group} at {me}", members))
    return tuple(found)
