"""The links that an operator gives a running peer: in its file, by commands, and when the file is reloaded.

A neighbour has an address, which may be a host name, and perhaps a shape that its link imitates. If a membership makes
the links, neighbours are only peers whose addresses are known.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address, parse_address
from wend.drivers.live.addressing.host_names import HostNames
from wend.drivers.live.addressing.joining import Joining
from wend.drivers.live.config import NeighbourEntry
from wend.drivers.live.pipes import PeerPipes
from wend.drivers.live.transport.shaper import PacketFaults
from wend.model.errors import WendError
from wend.model.events import PeerId
from wend.model.units import parse_duration
from wend.protocol.peer import Peer
from wend.protocol.ports import ContactFound, Input, Neighbour

log = logging.getLogger("wend.peer")


class GivenLinks:
    """The neighbours of one peer."""

    def __init__(
        self,
        peer: Peer,
        names: HostNames,
        book: AddressBook,
        pipes: PeerPipes,
        joining: Joining | None,
        *,
        link: Callable[[Neighbour], None],
        unlink: Callable[[PeerId], None],
        tell: Callable[[Input], None],
        is_silent: Callable[[PeerId], bool],
    ) -> None:
        """`peer`: the state machine."""
        self._me = peer.config.peer
        self._peer = peer
        self._names = names
        self._book = book
        self._pipes = pipes
        self._joining = joining
        self._link = link
        self._unlink = unlink
        self._tell = tell
        self._is_silent = is_silent
        self._entries: dict[PeerId, NeighbourEntry] = {}
        self._asked_at: dict[PeerId, Address | None] = {}
        """The neighbours that this peer asks to make the link, too, with their addresses."""

    def begin(self, entries: Sequence[NeighbourEntry]) -> None:
        """Start to resolve and contact the neighbours of the peer's file, before the peer starts."""
        for entry in entries:
            self._follow_address(entry)

    def add(self, entry: NeighbourEntry) -> None:
        """Make a link while the peer runs, and ask the neighbour for it. Raises `ConfigError` if there is one, or a
        membership makes the links."""
        entry.check()
        self._peer.check_new_link(entry.id)
        self._asked_at[entry.id] = None
        self._follow_address(entry)
        self._link(entry.make_neighbour())

    def remove(self, neighbour: PeerId) -> None:
        """End a link while the peer runs. Raises `ConfigError` if there is none, or a membership makes the links."""
        self._unlink(neighbour)
        self._names.stop_resolving(neighbour)
        self._entries.pop(neighbour, None)
        self._asked_at.pop(neighbour, None)

    def update(self, former: Sequence[NeighbourEntry], entries: Sequence[NeighbourEntry]) -> None:
        """Apply a reloaded file. Links that a command added stay."""
        present = {entry.id: entry for entry in entries}
        for entry in (*former, *entries):
            try:
                if entry.id not in present:
                    self._remove_missing_from_file(entry.id)
                elif entry is present[entry.id]:
                    self._apply(entry)
            except WendError as error:
                log.warning("peer %d cannot change the link with peer %d: %s", self._me, entry.id, error)

    def _apply(self, entry: NeighbourEntry) -> None:
        if self._peer.config.membership is not None:
            is_new = entry.id not in self._entries
            if entry != self._entries.get(entry.id):
                self._follow_address(entry)
            if is_new:
                self._tell(ContactFound(entry.id))
        elif entry.id not in self._peer.links:
            self.add(entry)
        elif entry != self._entries.get(entry.id):
            self._follow_address(entry)
            log.info("peer %d: neighbour %d is at %s", self._me, entry.id, entry.address)

    def _remove_missing_from_file(self, neighbour: PeerId) -> None:
        if self._peer.config.membership is not None:
            self._names.stop_resolving(neighbour)
            self._entries.pop(neighbour, None)  # the membership still knows it
        elif neighbour in self._peer.links:
            self.remove(neighbour)

    # ---------------------------------------------------------------- addresses

    def _follow_address(self, entry: NeighbourEntry) -> None:
        """Use the address of a neighbour, and each new address if it is given by name."""
        is_silent = partial(self._is_silent, entry.id)
        self._names.keep_resolving(entry.id, parse_address(entry.address), partial(self._use_address, entry), is_silent)
        self._entries[entry.id] = entry

    def _use_address(self, entry: NeighbourEntry, address: Address) -> None:
        shape = entry.shape
        self._book.move(entry.id, address)
        if shape is None:
            self._pipes.add(entry.id, address)
        else:
            faults = PacketFaults(shape.corruption, shape.reordering, parse_duration(shape.reordering_delay))
            delay_ns, seed = parse_duration(shape.delay), (self._me << 32) + entry.id
            self._pipes.add(entry.id, address, delay_ns=delay_ns, loss=shape.loss, faults=faults, seed=seed)
        if self._joining is not None and entry.id in self._asked_at:
            self._joining.request_link(self._asked_at[entry.id], address)
            self._asked_at[entry.id] = address
