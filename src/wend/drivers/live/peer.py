"""A live peer: a state machine on a real socket, with its clock, its store and its links.

Its parts:

    driver.py                    feeds the state machine, and carries out its effects
    transport/socket.py          reads and writes datagrams
    transport/sealed_links.py    seals and opens them if the peer has keys
    transport/senders.py         knows who sent an open datagram
    transport/multicast.py       speaks to groups of peers
    pipes.py                     a pipe to every peer in reach, with the shape of its link
    addressing/                  the address book, and the search for peers that no file names
    store/writer.py              writes to the disk, and holds effects back while it cannot
    wake_timer.py                wakes the state machine
    reports.py                   counts and logs
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Unpack

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address, format_address, resolve_address
from wend.drivers.live.addressing.joining import Joining
from wend.drivers.live.clock import Clock, monotonic
from wend.drivers.live.counters import Counters
from wend.drivers.live.driver import LocalSubscribers, PeerDriver, Performers
from wend.drivers.live.observer import Observer
from wend.drivers.live.paths.searches import PathSearches
from wend.drivers.live.paths.source import NoPaths, PathSource
from wend.drivers.live.pipes import LinkShape, PeerPipes
from wend.drivers.live.reports import PeerReports
from wend.drivers.live.status import StatusSnapshot, make_snapshot
from wend.drivers.live.store.store import Store
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.link_log import LinkLog
from wend.drivers.live.transport.multicast import MulticastGroups, MulticastOptions
from wend.drivers.live.transport.senders import Senders
from wend.drivers.live.transport.socket import PeerSocket
from wend.drivers.live.wake_timer import WakeTimer
from wend.model.events import Attributes, Event, EventId, PeerId, Value
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.ports import (
    Drop,
    FindPath,
    JoinMulticast,
    LeaveMulticast,
    LinkAdded,
    LinkRemoved,
    Multicast,
    MulticastMembers,
    Neighbour,
    Notice,
    Paused,
    Refuse,
    Started,
    Stopping,
    Unretained,
    WakeAt,
    Woken,
)
from wend.security.identity import Credentials, Verifier

if TYPE_CHECKING:  # only peers with keys need ciphers
    from wend.drivers.live.transport.sealed_links import SealedLinks

LINGER_S = 0.5
_WOKEN = Woken()


class LivePeer:
    """A peer on a real socket. The constructor binds the socket; `add_peer` adds reachable peers; `start` runs it."""

    def __init__(
        self,
        config: PeerConfig,
        *,
        listen: Address = ("127.0.0.1", 0),
        insecure: bool = False,
        store: Store | None = None,
        counters: Counters | None = None,
        clock: Clock = monotonic,
        paths: PathSource | None = None,
        join: tuple[Address, ...] | None = None,
        admit: bool = True,
        multicast: MulticastOptions = MulticastOptions(),  # noqa: B008
        keys: tuple[Credentials, Verifier] | None = None,
    ) -> None:
        """`join`: the addresses by which it joins an open overlay, where no file names all peers; empty for the first
        peer; None: it speaks only with the peers that were added. `admit`: if links are given, whether it makes links
        with peers that join by it. `keys`: its certificate and keys, and the verifier of others; None: links are
        neither authenticated nor encrypted."""
        self.id = config.peer
        self.incarnation = config.incarnation
        self.counters = counters or Counters()
        self.addresses = AddressBook(self.id, sealed=keys is not None)
        self._clock = clock
        self.driver = driver = PeerDriver(config, self.addresses, self.counters, store, clock)
        self.peer = driver.peer
        self.publish, self.ask, self.tell = driver.publish, driver.ask, driver.tell
        self.receive, self.perform, self.failed = driver.receive, driver.perform, driver.failed
        self._socket = PeerSocket(listen, insecure or keys is not None, driver.receive, self.counters, clock)
        self.address, self.family = self._socket.address, self._socket.family
        self.sealed = None if keys is None else self._make_sealed_links(*keys)
        self.pipes = PeerPipes(self.id, self.incarnation, self._socket, self.sealed, clock)
        self.timer = WakeTimer(clock, self._drain, partial(driver.handle, _WOKEN), self._on_process_paused)
        self._paths = PathSearches(self.id, paths or NoPaths(), self.addresses.reachable, driver.tell, driver.failed)
        self.joining = None if join is None else self._make_joining(join, admit)
        links, transmit = self.peer.links, self._socket.transmit
        self._link_log = LinkLog(self.id, links, self.addresses.reachable, clock)
        self.senders = Senders(
            self.id, self.addresses, links, self._link_log, self.joining, self.counters, transmit, clock
        )
        self.multicast = MulticastGroups(
            self.id,
            self.incarnation,
            self._socket,
            driver.types,
            multicast,
            self.senders,
            self.sealed,
            self.counters,
            clock,
            arrive=self.pipes.receive_multicast,
            hear=driver.receive_all,
            tell=driver.tell,
        )
        self._wire_parts()
        self._started_ns: Nanos | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _make_sealed_links(self, credentials: Credentials, verifier: Verifier) -> "SealedLinks":
        from wend.drivers.live.transport.sealed_links import SealedLinks

        sealed = SealedLinks(
            self.id, self.incarnation, credentials, verifier, self._socket, self.addresses, self.counters, self._clock
        )
        self._socket.receive = sealed.receive
        return sealed

    def _make_joining(self, join: tuple[Address, ...], admit: bool) -> Joining:
        return Joining(
            self.peer,
            self.address,
            tuple(resolve_address(address, self.family) for address in join),
            self.addresses,
            self.pipes,
            self.counters,
            self._clock,
            admit=admit,
            tell=self.tell,
            perform=self.perform,
            receive=self._receive_admitted,
            is_silent=self.is_silent,
        )

    def _wire_parts(self) -> None:
        reports = PeerReports(self.id, self.counters, self.driver.observers, self._link_log, self.joining)
        performers: Performers = {
            WakeAt: self.timer.wake_at,
            Drop: reports.report_drop,
            Notice: reports.report_notice,
            Refuse: reports.report_refusal,
            FindPath: self._paths.find,
            JoinMulticast: self.multicast.join,
            LeaveMulticast: self.multicast.leave,
            Multicast: self.multicast.send,
            MulticastMembers: self.multicast.set_members,
        }
        if self.sealed is not None:
            self.sealed.connect(self.senders, self.driver.receive_opened, self.multicast.receive_body)
        self.driver.connect(self._socket.queue, self.senders, self.joining, performers)

    # ---------------------------------------------------------------- the peers in reach, and links

    def add_peer(self, peer: PeerId, address: Address, **shape: Unpack[LinkShape]) -> None:
        """Add the address of another peer, linked or not, and the shape of the link that datagrams to it pass."""
        there = resolve_address(address, self.family)
        self.addresses.add(peer, there)
        self.pipes.add(peer, there, **shape)

    def link(self, neighbour: Neighbour) -> None:
        """Make a link while the peer runs. Raises `ConfigError` if the link exists, or if a membership makes the
        links."""
        self.ask(LinkAdded(neighbour))
        if self.joining is not None:
            self.joining.removed.discard(neighbour.peer)

    def unlink(self, peer: PeerId) -> None:
        """Remove a link and the neighbour's address. Packets in flight over the link take other routes."""
        self.ask(LinkRemoved(peer))
        if self.joining is not None:
            self.joining.on_link_removed(peer)
        if peer in self.addresses.reachable:
            self.addresses.remove(peer)
            self.pipes.remove(peer)
            if self.sealed is not None:
                self.sealed.end(peer)

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits for a link that publishers should pause."""
        return self.peer.is_crowded

    def is_silent(self, peer: PeerId) -> bool:
        """Whether a peer has no link that works, or has not been heard over it for long."""
        return self.senders.is_silent(peer)

    def _receive_admitted(self, inner: wire.InnerDatagram, address: Address, waited_ns: Nanos) -> None:
        """Handle a datagram that has waited until the address of its sender was confirmed."""
        if inner.kind == wire.MULTICAST:
            self.multicast.receive_open(inner, address, waited_ns)
        else:
            self.driver.receive_admitted(inner, address, waited_ns)

    # ---------------------------------------------------------------- from start to stop

    def observe(self, observer: Observer) -> None:
        """Notify an observer of this peer's events from now on."""
        self.driver.observers.add(observer)

    def unobserve(self, observer: Observer) -> None:
        self.driver.observers.remove(observer)

    def serve(self, subscribers: LocalSubscribers) -> None:
        """Hand deliveries to these subscribers from now on."""
        self.driver.subscribers = subscribers

    def start(self, started: Started) -> None:
        self._loop = asyncio.get_running_loop()
        self.driver.running = True
        self._started_ns = self._clock()
        self.timer.open(self._loop)
        self._socket.open(self._loop)
        if self.sealed is not None:
            self.sealed.open(self._loop)
        self.multicast.open(self._loop)
        self._paths.open(self._loop)
        if self.joining is not None:
            self.joining.start(self._loop)
        self.ask(started)

    async def stop(self, away_ns: Nanos = 0) -> None:
        """Shut down gracefully: tell the neighbours, and wait half a second at most for outstanding ACKs.

        `away_ns`: for how long others keep events for the durable subscriptions; 0: the peer will not return.
        """
        if self._loop is None:
            return
        self.driver.handle(Stopping(away_ns))
        until = self._loop.time() + LINGER_S
        while (self.pipes.in_flight() or self.peer.status().in_flight) and self._loop.time() < until:
            await asyncio.sleep(0.005)
            if self._loop is None:
                return
        self._socket.queue.flush()
        self._socket.queue.release()
        self.close()

    def close(self) -> None:
        """Stop at once without telling other peers, as in a crash."""
        self._loop = None
        self.driver.running = False
        self.timer.close()
        if self.joining is not None:
            self.joining.close()
        self.multicast.close()
        self._paths.close()
        self.driver.store.close()
        self.pipes.close()
        if self.sealed is not None:
            self.sealed.close()
        self._socket.close()

    def _drain(self) -> Nanos:
        """Read the datagrams that have arrived, before a timer runs. Returns how long the unread ones have waited."""
        waited_ns = self._socket.drain()
        self.multicast.drain()
        return waited_ns

    def _on_process_paused(self, ns: Nanos) -> None:
        self.driver.handle(Paused(ns))

    # ---------------------------------------------------------------- what others may ask

    def status(self) -> StatusSnapshot:
        status = self.peer.status()
        uptime_ns = 0 if self._started_ns is None else self._clock() - self._started_ns
        links = self._link_log.add_addresses(status.links)
        shaper = {"lost": self.pipes.lost_count(), "corrupted": self.pipes.corrupted_count()}
        return make_snapshot(
            self.counters, status, links, shaper, address=format_address(self.address), uptime_ns=uptime_ns
        )

    def retained_events(self, filter: str) -> list[tuple[Event, Nanos]]:
        """The events that the peer retains and a filter matches, with their ages. Raises `FilterError`."""
        return self.peer.retained.find_matching(self._clock(), filter) if len(self.peer.retained) else []

    def retained_event(self, attribute: str, value: Value) -> Event | None:
        """The event that the peer retains for this value of an attribute. Forgets an expired one."""
        retained = self.peer.retained
        if retained.has_expired(self._clock(), attribute, value):
            self.tell(Unretained(attribute, value))
        return retained.get(attribute, value)

    def interested_peers(self, attributes: Attributes) -> tuple[PeerId, ...]:
        """The peers that would get an event with these attributes."""
        return self.peer.subscriptions.targets(Event(EventId(self.id, self.incarnation, 0), attributes))
