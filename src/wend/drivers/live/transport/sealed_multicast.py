"""Sealed multicast: the group keys of a live peer, handed over in its sessions.

`security/group_keys.py` decides; this module gives it the time, and sends its messages over sealed links.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from wend.drivers.live.clock import Clock
from wend.model.events import PeerId
from wend.protocol.ports import MulticastMembers
from wend.security import packets
from wend.security.group_keys import GroupKey, GroupKeys, GroupMessage, GroupOpened

if TYPE_CHECKING:
    from wend.drivers.live.peer import LivePeer

Send = Callable[[PeerId, int, bytes], None]


class SealedMulticast:
    """Seals and opens the multicasts of one peer."""

    def __init__(self, peer: "LivePeer", send: Send, clock: Clock) -> None:
        """`send`: sends a message of a kind over a sealed link."""
        self._peer = peer
        self._send = send
        self._clock = clock
        self._keys = GroupKeys(peer.id, os.urandom, peer.counters.refused, peer.counters.notices)

    def set_members(self, group: int, roster: MulticastMembers) -> None:
        self._keys.set_members(self._clock(), group, roster.keeper, roster.members)
        self._perform()

    def leave(self, group: int) -> None:
        self._keys.leave(group)

    def exclude(self, peer: PeerId) -> None:
        """The certificate of a peer is no longer accepted: groups get other keys."""
        self._keys.exclude(self._clock(), peer)
        self._perform()

    def include(self, peer: PeerId) -> None:
        self._keys.include(self._clock(), peer)
        self._perform()

    def keys(self, group: int) -> list[GroupKey]:
        """The current key of a group and the former one, if there are any."""
        return self._keys.keys(group)

    def seal(self, group: int, body: bytes) -> bytes | None:
        return self._keys.seal(group, body)

    def open(self, datagram: bytes) -> GroupOpened | None:
        opened = self._keys.open(self._clock(), datagram)
        self._perform()
        return opened

    def receive(self, sender: PeerId, incarnation: int, body: bytes) -> None:
        """Handle a message about keys that came in a session."""
        self._keys.receive(self._clock(), sender, incarnation, body)
        self._perform()

    def tick(self) -> None:
        self._keys.tick(self._clock())
        self._perform()

    def _perform(self) -> None:
        for effect in self._keys.take_effects():
            if isinstance(effect, GroupMessage):
                if effect.peer in self._peer.addresses.reachable:  # else it is repeated
                    self._send(effect.peer, packets.GROUP_KEY, effect.body)
            else:
                self._peer.multicast.hear(effect.sender, effect.body)
