"""The simulator of a DHT: tens of thousands of peers without links in one process, each the same `Peer` that runs live.

`engine.py` simulates overlays of links, with faults of links, capacities and a trace of everything. In a DHT any peer
may send to any other, and a message only takes the delay between two hosts. So this simulator needs no table of pairs
of peers.

At one time, changes of peers come first, then messages, wake-ups and calls of applications.

An ACK only stops its message from being sent again. If it arrives before that, its receiver takes it at once, and it
needs no place in the agenda. If peers may crash in the meantime, ACKs are messages like all others.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import merge
from typing import Any, Final

import msgspec

from wend.drivers.sim.bucket_agenda import BucketAgenda
from wend.drivers.sim.dht_results import UNKNOWN_HOPS, DhtResults, MessageClass, MessageCounts, measure_resident_bytes
from wend.drivers.sim.dht_workload import (
    PeerChange,
    TimedSubscription,
    TimedUnsubscription,
    Workload,
)
from wend.drivers.sim.latencies import Latencies
from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.publication import Publication
from wend.model.random_stream import peer_stream
from wend.model.units import FOREVER, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.link.manager import UNKNOWN_DELAY_NS
from wend.protocol.messages import DirectAck, DirectMessage, PlainMessage
from wend.protocol.peer import Peer
from wend.protocol.ports import (
    Deliver,
    Drop,
    Effect,
    FindPath,
    JoinMulticast,
    LeaveMulticast,
    LocalSubscription,
    Multicast,
    MulticastMembers,
    Neighbour,
    Notice,
    Persist,
    Receipt,
    Received,
    Refuse,
    Send,
    SendEach,
    Started,
    Stopping,
    Subscribed,
    Unsubscribed,
    WakeAt,
    Woken,
)
from wend.protocol.records import Record
from wend.strategies.registry import find_membership, joins_by_contacts, load_all, make_peer

CHANGE: Final = 0
ARRIVAL: Final = 1
WAKE_UP: Final = 2
CALL: Final = 3
"""The kinds of agenda entries, in the order of their execution at one time."""
LEAVE_NS: Nanos = 5 * SECOND
"""How long a leaving peer still answers."""
NO_MONITORING_NS: Nanos = 10**8 * SECOND
"""Peers without links have nothing to monitor, and the wake-ups would be most of a run."""
LINKS = "links"
"""Messages that carry no plug-in's message, such as ACKs, are counted under this name."""
WOKEN = Woken()
Publish = tuple[Nanos, PeerId, int]
"""When, at which peer, and the publication's position in the workload."""
Call = TimedSubscription | TimedUnsubscription | Publish
Contacts = tuple[PeerId, Sequence[PeerId]]
_TRIES = 64


class DhtConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration that all peers of a run share."""

    peers: int
    strategy: str
    interest: str | None = None
    membership: str | None = None
    settings: Mapping[str, Any] = {}
    """The settings of peers, by field, as `PeerConfig` takes them."""
    first_settings: Mapping[str, Any] = {}
    """Other settings of the peers that start at time 0; for instance, their contacts may be a settled overlay."""
    loss: float = 0.0
    """The probability that a message gets lost."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.peers < 1:
            raise ConfigError(f"a simulation needs at least one peer, got {self.peers}")
        if not 0.0 <= self.loss < 1.0:
            raise ConfigError(f"loss must lie in [0, 1), got {self.loss:g}")


class DhtSimulation:
    """One run. `run(until_ns)` plays it, at once or in several stretches; `results` has its counts."""

    def __init__(
        self,
        config: DhtConfig,
        latencies: Latencies,
        workload: Workload,
        contacts: Iterable[Contacts] | None = None,
    ) -> None:
        """`contacts`: the peers that start at time 0, in this order, each with the peers that it knows. A peer that
        joins or restarts knows one live peer; without `contacts`, so does every peer."""
        load_all(config.strategy, config.interest, config.membership)
        workload.check(config.peers)
        self.config = config
        self.workload = workload
        self.results = DhtResults()
        self.peers: list[Peer | None] = [None] * config.peers
        """Those that run, by id."""
        self.now: Nanos = 0
        self.bytes_before = measure_resident_bytes()
        self._delay_ns, self._path = latencies.delay_ns, latencies.delay_and_hops
        self._agenda = BucketAgenda()
        self._push = self._agenda.push
        self._wake: list[Nanos] = [FOREVER] * config.peers
        self._wake_requests: set[tuple[Nanos, PeerId]] = set()
        """The wake-ups in the agenda."""
        self._incarnations = [0] * config.peers
        self._stores: dict[PeerId, list[Record]] = {}
        self._subscriptions: dict[PeerId, dict[int, LocalSubscription]] = {}
        """The subscriptions of applications. They subscribe again when their peer restarts."""
        self._ids: dict[EventId, tuple[int, Nanos]] = {}
        """By event: its publication's position and time."""
        self._counts: dict[tuple[str, type], MessageCounts] = {}
        self._quiet_acks = not workload.changes
        """Whether ACKs may stay out of the agenda: no peer crashes before they arrive."""
        self._until: Nanos = 0
        self._late_acks: list[Nanos] = []
        """When ACKs outside the agenda arrive, if that is after the end of this stretch."""
        self._loss = config.loss
        self._draw = peer_stream(config.seed, "loss").random
        self._bootstrap = peer_stream(config.seed, "bootstrap")
        common = {"monitoring_ns": NO_MONITORING_NS, **config.settings}
        names = {"strategy": config.strategy, "interest": config.interest, "membership": config.membership}
        self._config = PeerConfig(peer=0, seed=config.seed, **names, **common)  # type: ignore[arg-type]
        self._first_config = self._config.with_(**config.first_settings)
        membership = find_membership(config.strategy, config.membership)
        self._contacts: list[Neighbour] | None = None
        """The contacts of all peers, if a peer needs only the ids of its contacts."""
        if membership is not None and joins_by_contacts(membership):
            self._contacts = [Neighbour(peer, UNKNOWN_DELAY_NS) for peer in range(config.peers)]
        self._calls = self._ordered_calls()
        self._effects: dict[type, Callable[[Nanos, PeerId, Any], None]] = {
            Persist: self._store,
            Drop: self._drop,
            Notice: self._count_notice,
            Refuse: self._count_refusal,
            FindPath: self._refuse_traceroute,
            JoinMulticast: self._refuse_multicast,
            LeaveMulticast: self._refuse_multicast,
            Multicast: self._refuse_multicast,
            MulticastMembers: self._refuse_multicast,
        }
        with without_garbage_collector():
            self._start_first_peers(contacts)

    @property
    def memory_per_peer(self) -> float:
        """The growth of this process since the simulation was made, per peer: peers, messages in transit and
        results."""
        return max(0, measure_resident_bytes() - self.bytes_before) / self.config.peers

    # ---------------------------------------------------------------- the loop

    def run(self, until_ns: Nanos) -> DhtResults:
        """Play everything up to this time."""
        self._until = until_ns
        with without_garbage_collector():
            self._run_until(until_ns)
        self._late_acks = [arrives for arrives in self._late_acks if arrives > until_ns]
        self.results.in_transit = self._agenda.count_entries(ARRIVAL) + len(self._late_acks)
        return self.results

    def _run_until(self, until_ns: Nanos) -> None:
        pop, peers, wake, asked = self._agenda.pop, self.peers, self._wake, self._wake_requests
        while (entry := pop(until_ns)) is not None:
            now, kind, _, peer, arg = entry
            if kind == ARRIVAL:
                target = peers[peer]
                if target is None:
                    self._count_message(arg.message).receiver_down += 1
                elif effects := target.handle(now, arg):
                    self._carry_out(now, peer, effects, arg)
            elif kind == WAKE_UP:
                asked.discard((now, peer))
                if wake[peer] == now and (target := peers[peer]) is not None:
                    self._carry_out(now, peer, target.handle(now, WOKEN), None)
            elif kind == CALL:
                self._schedule_next_call()
                self._run_call(now, peer, arg)
            else:
                self._change_peers(now, peer, arg)
        self.now = until_ns

    def _carry_out(self, now: Nanos, peer: PeerId, effects: list[Effect], received: Received | None) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(now, peer, effect.peer, effect.message)  # type: ignore[union-attr]
            elif kind is WakeAt:
                # the newest request counts; the agenda still has one that an earlier time replaced
                time = self._wake[peer] = effect.time_ns  # type: ignore[union-attr]
                if (time, peer) not in self._wake_requests:
                    self._wake_requests.add((time, peer))
                    self._push(time, WAKE_UP, peer, None)
            elif kind is Deliver:
                self._deliver(now, peer, effect, received)  # type: ignore[arg-type]
            elif kind is SendEach:
                for receiver in effect.peers:  # type: ignore[union-attr]
                    self._send(now, peer, receiver, effect.message)  # type: ignore[union-attr]
            elif kind is not Receipt:  # `_publish` has read it
                self._effects[kind](now, peer, effect)

    # ---------------------------------------------------------------- messages

    def _send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Any) -> None:
        counts = self._count_message(message)
        counts.sent += 1
        if not 0 <= receiver < len(self.peers):
            counts.receiver_down += 1  # there is no such peer
            return
        if sender != receiver:
            delay, hops = self._path(sender, receiver)
            counts.physical += hops
            if self._loss and self._draw() < self._loss:
                counts.lost += 1
                return
            arrives = now + delay
        else:
            arrives = now
        if self._quiet_acks and type(message) is DirectAck:
            target = self.peers[receiver]
            if target is not None and target.acknowledge_early(arrives, sender, message):
                if arrives > self._until:
                    self._late_acks.append(arrives)
                return
        self._push(arrives, ARRIVAL, receiver, Received(sender, message))

    def _count_message(self, message: Any) -> MessageCounts:
        kind = type(message)
        key = (message.plugin, type(message.body)) if kind is PlainMessage or kind is DirectMessage else (LINKS, kind)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = MessageCounts()
            self.results.messages[MessageClass(key[0], key[1].__name__)] = counts
        return counts

    # ---------------------------------------------------------------- peers that come and go

    def _start_first_peers(self, contacts: Iterable[Contacts] | None) -> None:
        for change in self.workload.changes:
            for peer in change.peers:
                self._push(change.time_ns, CHANGE, peer, change)
        self._schedule_next_call()
        if contacts is not None:
            for peer, known in contacts:
                self._start(0, peer, self._first_config, known)
            return
        joining = {peer for change in self.workload.changes if change.what == "join" for peer in change.peers}
        for peer in range(self.config.peers):
            if peer not in joining:
                self._start(0, peer, self._config, self._choose_contact(peer))

    def _start(self, now: Nanos, peer: PeerId, config: PeerConfig, contacts: Sequence[PeerId]) -> None:
        self._incarnations[peer] += 1
        target = make_peer(config.with_(peer=peer, incarnation=self._incarnations[peer]))
        self.peers[peer] = target
        if self._contacts is None:
            neighbours = tuple([Neighbour(each, self._delay_ns(peer, each)) for each in contacts])
        else:
            neighbours = tuple([self._contacts[each] for each in contacts])
        subscriptions = tuple(self._subscriptions.get(peer, {}).values())
        stored = tuple(self._stores.get(peer, ()))
        self._carry_out(now, peer, target.handle(now, Started(neighbours, subscriptions, (), stored)), None)

    def _choose_contact(self, peer: PeerId) -> tuple[PeerId, ...]:
        """A random live peer; none if this is the first peer."""
        for _ in range(_TRIES):
            candidate = self._bootstrap.randrange(self.config.peers)
            if candidate != peer and self.peers[candidate] is not None:
                return (candidate,)
        return tuple([other for other, up in enumerate(self.peers) if up is not None and other != peer][:1])

    def _change_peers(self, now: Nanos, peer: PeerId, change: PeerChange) -> None:
        target = self.peers[peer]
        if change.what in ("restart", "join"):
            if target is None:
                self._start(now, peer, self._config, self._choose_contact(peer))
        elif target is not None:
            if change.what == "leave" and change.time_ns == now:
                self._carry_out(now, peer, target.handle(now, Stopping()), None)
                self._push(now + LEAVE_NS, CHANGE, peer, change)
            else:
                self.peers[peer] = None
                self._wake[peer] = FOREVER

    # ---------------------------------------------------------------- calls of applications

    def _ordered_calls(self) -> Iterator[Call]:
        """The calls by time. At one time, subscriptions come before their ends, and both before publications."""
        workload = self.workload
        events = [(event.time_ns, event.peer, position) for position, event in enumerate(workload.publications)]
        calls: tuple[Sequence[Call], ...] = (workload.subscriptions, workload.unsubscriptions, events)
        return merge(*(sorted(each, key=_call_time) for each in calls), key=_call_time)

    def _schedule_next_call(self) -> None:
        call = next(self._calls, None)
        if call is not None:
            self._push(call[0], CALL, call[1], call)

    def _run_call(self, now: Nanos, peer: PeerId, call: Any) -> None:
        target = self.peers[peer]
        if type(call) is TimedSubscription:
            subscription = LocalSubscription(call.number, call.filter, call.qos)
            self._subscriptions.setdefault(peer, {})[call.number] = subscription
            if target is not None:
                self._carry_out(now, peer, target.handle(now, Subscribed(subscription)), None)
        elif type(call) is TimedUnsubscription:
            self._subscriptions.get(peer, {}).pop(call.number, None)
            if target is not None:
                self._carry_out(now, peer, target.handle(now, Unsubscribed(call.number)), None)
        elif target is None:
            self.results.unpublished.append(call[2])
        else:
            self._publish(now, target, call)

    def _publish(self, now: Nanos, target: Peer, call: Publish) -> None:
        _, peer, position = call
        event = self.workload.publications[position]
        effects = target.handle(now, Publication(event.attributes, event.payload))
        for effect in effects:
            if type(effect) is Receipt:
                self._ids[effect.id] = (position, now)
                self.results.receipts[position] = (effect.id, effect.kept)
        self._carry_out(now, peer, effects, None)

    # ---------------------------------------------------------------- effects

    def _deliver(self, now: Nanos, peer: PeerId, deliver: Deliver, received: Received | None) -> None:
        published = self._ids.get(deliver.event.id)
        if published is None:
            self.results.unknown_deliveries += 1
            return
        position, born = published
        if received is not None:
            hops = getattr(getattr(received.message, "body", None), "hops", UNKNOWN_HOPS)
        else:
            hops = 0 if born == now and deliver.event.id.publisher == peer else UNKNOWN_HOPS
        self.results.deliveries.add_delivery(position, peer, deliver.subscription[1], now, now - born, hops)

    def _store(self, now: Nanos, peer: PeerId, store: Persist) -> None:
        self._stores.setdefault(peer, []).append(store.record)

    def _drop(self, now: Nanos, peer: PeerId, drop: Drop) -> None:
        self.results.drops[drop.code] += len(drop.dests) or 1

    def _count_notice(self, now: Nanos, peer: PeerId, notice: Notice) -> None:
        self.results.notices[notice.what] += notice.count

    def _count_refusal(self, now: Nanos, peer: PeerId, refuse: Refuse) -> None:
        self.results.refusals[refuse.code] += 1

    def _refuse_traceroute(self, now: Nanos, peer: PeerId, effect: FindPath) -> None:
        raise ConfigError(f"{self.config.strategy} traces underlay paths, which peers without links do not have")

    def _refuse_multicast(self, now: Nanos, peer: PeerId, effect: object) -> None:
        raise ConfigError(f"{self.config.strategy} uses multicast, which peers without links do not have")


@contextmanager
def without_garbage_collector() -> Iterator[None]:
    """Switch the garbage collector off: it would walk millions of live objects again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _call_time(call: Call) -> Nanos:
    return call[0]
