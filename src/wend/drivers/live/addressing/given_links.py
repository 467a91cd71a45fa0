"""The links that an operator gives a running peer: in its file, by commands, and by a file that is read again.

A neighbour has an address, which may be a host name, and perhaps a shape that its link imitates. If a membership makes
the links, neighbours are only peers that can be reached.
"""

import logging
from collections.abc import Sequence
from functools import partial

from wend.drivers.live.addressing.addresses import Address, parse_address, resolve
from wend.drivers.live.addressing.host_names import HostNames, is_numeric
from wend.drivers.live.config import NeighbourEntry
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport.shaper import PacketFaults
from wend.model.errors import WendError
from wend.model.events import PeerId
from wend.model.units import parse_duration
from wend.protocol.ports import ContactFound

log = logging.getLogger("wend.peer")


class GivenLinks:
    """The neighbours of one peer."""

    def __init__(self, peer: LivePeer, names: HostNames) -> None:
        self._peer = peer
        self._names = names
        self._entries: dict[PeerId, NeighbourEntry] = {}
        self._asked_at: dict[PeerId, Address | None] = {}
        """By neighbour that is asked to make the link, too: its address."""

    def begin(self, entries: Sequence[NeighbourEntry]) -> None:
        """Reach the neighbours of the peer's file, before the peer starts."""
        for entry in entries:
            self._reach(entry)

    def add(self, entry: NeighbourEntry) -> None:
        """Make a link while the peer runs, and ask the neighbour for it. Raises `ConfigError` if there is one, or a
        membership makes the links."""
        entry.check()
        self._peer.peer.check_new_link(entry.id)
        self._asked_at[entry.id] = None
        self._reach(entry)
        self._peer.link(entry.link())

    def remove(self, neighbour: PeerId) -> None:
        """End a link while the peer runs. Raises `ConfigError` if there is none, or a membership makes the links."""
        self._peer.unlink(neighbour)
        self._names.forget(neighbour)
        self._entries.pop(neighbour, None)
        self._asked_at.pop(neighbour, None)

    def update(self, former: Sequence[NeighbourEntry], entries: Sequence[NeighbourEntry]) -> None:
        """Apply a file that has been read again. Links that the former file did not have stay."""
        present = {entry.id: entry for entry in entries}
        for entry in (*former, *entries):
            try:
                if entry.id not in present:
                    self._drop(entry.id)
                elif entry is present[entry.id]:
                    self._apply(entry)
            except WendError as error:
                log.warning("peer %d cannot change the link with peer %d: %s", self._peer.id, entry.id, error)

    def _apply(self, entry: NeighbourEntry) -> None:
        if self._peer.peer.config.membership is not None:
            is_new = entry.id not in self._entries
            if entry != self._entries.get(entry.id):
                self._reach(entry)
            if is_new:
                self._peer.tell(ContactFound(entry.id))
        elif entry.id not in self._peer.peer.links:
            self.add(entry)
        elif entry != self._entries.get(entry.id):
            self._reach(entry)
            log.info("peer %d: neighbour %d is at %s", self._peer.id, entry.id, entry.address)

    def _drop(self, neighbour: PeerId) -> None:
        if self._peer.peer.config.membership is not None:
            self._names.forget(neighbour)
            self._entries.pop(neighbour, None)  # what peers know of it by the membership stays
        elif neighbour in self._peer.peer.links:
            self.remove(neighbour)

    # ---------------------------------------------------------------- addresses

    def _reach(self, entry: NeighbourEntry) -> None:
        """Reach a neighbour at its address, and at each new one if a name is given."""
        address = parse_address(entry.address)
        if is_numeric(address):
            self._names.forget(entry.id)
            self._locate(entry, resolve(address, self._peer.family))
        else:
            is_silent = partial(self._peer.is_silent, entry.id)
            self._names.follow(entry.id, address, partial(self._locate, entry), is_silent)
        self._entries[entry.id] = entry

    def _locate(self, entry: NeighbourEntry, address: Address) -> None:
        peer, shape = self._peer, entry.shape
        peer.addresses.move(entry.id, address)
        if peer.joining is not None and entry.id in self._asked_at:
            peer.joining.ask_link(self._asked_at[entry.id], address)
            self._asked_at[entry.id] = address
        if shape is None:
            peer.pipes.add(entry.id, address)
        else:
            faults = PacketFaults(shape.corruption, shape.reordering, parse_duration(shape.reordering_delay))
            delay_ns, seed = parse_duration(shape.delay), (peer.id << 32) + entry.id
            peer.pipes.add(entry.id, address, delay_ns=delay_ns, loss=shape.loss, faults=faults, seed=seed)
