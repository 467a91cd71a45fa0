"""Plays a world with clients of durable subscriptions, and with peers that crash, are killed between two effects, or
stop gracefully.

Publishers get a receipt, or none if their peer dies first. Stores outlive their peers.
"""

from collections import Counter
from random import Random
from typing import Literal

import msgspec

from tests.drivers.sim.clients import ClientPlan, SentEvent, SimulatedClient
from wend.drivers.sim.capacity import AdmittedPacket, GatedPeer
from wend.drivers.sim.engine import LEAVE_NS, Engine
from wend.drivers.sim.network import FAULT
from wend.drivers.workload import Topic
from wend.drivers.world import World
from wend.matching.filters import parse
from wend.model.events import Attributes, EventId, PeerId
from wend.model.publication import Publication
from wend.model.random_stream import peer_stream
from wend.model.units import FOREVER, MS, SECOND, Nanos
from wend.protocol.delivery.durable import Backlog
from wend.protocol.peer import Peer
from wend.protocol.ports import (
    Attached,
    Confirmed,
    Deliver,
    Detached,
    Drop,
    Effect,
    Input,
    Missed,
    Persist,
    Receipt,
    Stopping,
    Subscribed,
    Unsubscribed,
)
from wend.protocol.records import QueuedRecord

FIRST_NUMBER = 1000
"""The subscriptions of clients have numbers from here on; those of the scenario's topics have lower ones."""
CONFIRM_NS: Nanos = MS
"""How long a confirmation is on its way."""
AWAY_NS: Nanos = 60 * SECOND
"""How much longer than it is away a peer asks others to keep events: they hear of its return when links allow."""
LOOK_NS: Nanos = SECOND // 4
"""How often the bounds of backlogs are looked at."""

Step = Literal["connect", "read", "confirm", "lose", "detach", "unsubscribe", "look", "calm"]
Fault = Literal["crash", "kill", "stop"]


class Restart(msgspec.Struct, frozen=True):
    """A peer goes down and comes back with its store. `kill`: it dies between two effects of one input. `stop`: it
    stops gracefully, and says that it will be back."""

    peer: PeerId
    at_ns: Nanos
    until_ns: Nanos
    kind: Fault


class _Turn(msgspec.Struct, frozen=True, gc=False):
    """What a client does next, if its connection is still the same."""

    number: int
    step: Step
    connection: int = 0
    positions: tuple[int, ...] = ()


class DyingPeer(GatedPeer):
    """A peer that is killed between two effects of its next input that has several."""

    def __init__(self, engine: "ClientEngine", peer: Peer, draw: Random) -> None:
        super().__init__(peer)
        self._engine = engine
        self._draw = draw
        self._dead = False

    def handle(self, now: Nanos, event: Input | AdmittedPacket) -> list[Effect]:
        if self._dead:
            return []
        assert not isinstance(event, AdmittedPacket)
        effects = self.peer.handle(now, event)
        if len(effects) > 1:
            self._dead = True
            del effects[self._draw.randrange(len(effects) + 1) :]
            self._engine.kill(now, self.peer.me)
        return effects


class ClientEngine(Engine):
    """One run with clients and restarts."""

    def __init__(
        self,
        world: World,
        plans: tuple[ClientPlan, ...],
        restarts: tuple[Restart, ...] = (),
        ttls_ns: tuple[Nanos | None, ...] = (None,),
        values: int = 10,
    ) -> None:
        """Publications draw their ttl from `ttls_ns`, and an attribute `n` below `values`."""
        super().__init__(world)
        seed = world.scenario.seed
        self.clients = {plan.subscription.number: SimulatedClient(plan, seed) for plan in plans}
        self.restarts = restarts
        self.sent: dict[EventId, SentEvent] = {}
        self.dropped: dict[tuple[EventId, PeerId], set[str]] = {}
        """By event and destination: why peers dropped it."""
        self.room: Counter[PeerId] = Counter()
        """By peer: the events that left a backlog because of its bounds."""
        self.happened: Counter[str] = Counter()
        self.delays: dict[int, dict[EventId, Nanos]] = {}
        """By subscription, of clients and others: the age of each event that it got."""
        self._draw = peer_stream(seed, "publishers")
        self._kills = peer_stream(seed, "kills")
        self._ttls_ns = ttls_ns
        self._values = values
        self._stopping: set[PeerId] = set()
        self._sequences: dict[Peer, int] = {}
        self._queued: dict[tuple[PeerId, int], Nanos] = {}
        """By peer and position: when an event entered a backlog."""
        self.late: list[str] = []
        """Deliveries after the ttl of their events."""

    @property
    def knows_all_subscribers(self) -> bool:
        """Whether receipts name all peers with subscribers."""
        return all(peer.knows_all_subscribers for peer in self.peers if peer is not None)

    # ---------------------------------------------------------------- the agenda

    def schedule_all(self) -> None:
        super().schedule_all()
        for client in self.clients.values():
            plan = client.plan
            self._next(plan.begin_ns, client, "connect")
            self._next(plan.begin_ns, client, "look")
            if plan.end_ns < FOREVER:
                self._next(plan.end_ns, client, "unsubscribe")
            if plan.calm_ns < FOREVER:
                self._next(plan.calm_ns, client, "calm")
        for restart in self.restarts:
            self.agenda.push(restart.at_ns, FAULT, restart.peer, restart)

    def _next(self, time: float, client: SimulatedClient, step: Step, positions: tuple[int, ...] = ()) -> None:
        turn = _Turn(client.number, step, client.connection, positions)
        self.agenda.push(int(time), FAULT, client.plan.peer, turn)

    def apply_fault(self, now: Nanos, peer: PeerId, what: object) -> list[Effect]:
        if isinstance(what, _Turn):
            return self._turn(now, self.clients[what.number], what)
        if isinstance(what, Restart):
            return self._restart(now, what)
        if what in ("crash", "gone"):
            self.disconnect(now, peer)
        target = self.peers[peer]
        if what == "start" and isinstance(target, DyingPeer):  # it did nothing in the meantime
            self.peers[peer] = target.peer
            return []
        self._stopping.discard(peer)
        return super().apply_fault(now, peer, what)  # type: ignore[arg-type]

    def _restart(self, now: Nanos, restart: Restart) -> list[Effect]:
        peer, target = restart.peer, self.peers[restart.peer]
        self.happened[restart.kind] += 1
        self.trace.faults.add(now, "peer", peer, peer, restart.until_ns)
        self.agenda.push(restart.until_ns, FAULT, peer, "start")
        if restart.kind == "stop":
            assert target is not None
            self.agenda.push(min(now + LEAVE_NS, restart.until_ns - 1), FAULT, peer, "gone")
            attached = [c.number for c in self.clients.values() if c.plan.peer == peer and c.attached_as]
            self.disconnect(now, peer)
            self._stopping.add(peer)
            told: list[Input] = [*map(Detached, attached), Stopping(restart.until_ns - now + AWAY_NS)]
            return [effect for each in told for effect in target.handle(now, each)]
        if restart.kind == "kill" and type(target) is Peer:
            self.peers[peer] = DyingPeer(self, target, self._kills)
            return []
        return self.apply_fault(now, peer, "crash")

    def kill(self, now: Nanos, peer: PeerId) -> None:
        self.apply_fault(now, peer, "crash")

    def disconnect(self, now: Nanos, peer: PeerId) -> None:
        """End the connections of all clients of a peer."""
        for client in self.clients.values():
            if client.plan.peer == peer:
                if client.connected:
                    self._lost(now, client)
                client.attached_as = 0

    # ---------------------------------------------------------------- clients

    def _turn(self, now: Nanos, client: SimulatedClient, turn: _Turn) -> list[Effect]:
        if turn.step == "look":
            self._next(now + LOOK_NS, client, "look")
            self._look(now, client)
            return []
        if turn.step == "unsubscribe":
            return self._unsubscribe(now, client)
        if turn.step == "calm":
            return self._lose(now, client) if client.connected else self._connect(now, client)
        if turn.connection != client.connection:
            return []
        match turn.step:
            case "connect":
                return self._connect(now, client)
            case "read" if client.connected:
                self._read(now, client)
            case "confirm" if client.connected:
                if self._told(now, client, Confirmed(client.number, turn.positions)):
                    client.handled(now, turn.positions)
                return self._effects
            case "lose" if client.connected and not client.is_calm(now):
                return self._lose(now, client)
            case "detach" if client.attached_as == turn.connection:
                client.attached_as = 0
                self._told(now, client, Detached(client.number))
                return self._effects
        return []

    def _told(self, now: Nanos, client: SimulatedClient, told: Input) -> bool:
        """Tell the client's peer; whether it lives to carry out all effects. They are in `_effects`."""
        target = self.peers[client.plan.peer]
        self._effects: list[Effect] = [] if target is None else target.handle(now, told)
        return self.peers[client.plan.peer] is not None

    def _connect(self, now: Nanos, client: SimulatedClient) -> list[Effect]:
        plan = client.plan
        if now >= plan.end_ns or client.connected:
            return []
        if self.peers[plan.peer] is None or plan.peer in self._stopping:
            self._next(now + SECOND // 10, client, "connect")
            return []
        client.begin()
        self.happened["connections"] += 1
        if not client.is_calm(now) and plan.connected_ns < FOREVER:
            self._next(now + client.draw.expovariate(1 / plan.connected_ns), client, "lose")
        if not self._told(now, client, Subscribed(plan.subscription)):
            return self._effects
        if client.since_ns is None:
            client.since_ns = now
        effects = self._effects
        self._told(now, client, Attached(client.number, plan.window))
        return [*effects, *self._effects]

    def _lose(self, now: Nanos, client: SimulatedClient) -> list[Effect]:
        """The client's connection breaks, or the client crashes. The peer learns of it at once or later."""
        self.happened["connections lost"] += 1
        late = client.draw.choice((0, 0, SECOND // 5, SECOND))
        self._next(now + late, client, "detach")
        self._lost(now, client)
        return []

    def _lost(self, now: Nanos, client: SimulatedClient) -> None:
        client.lose()
        away = 0.0 if client.is_calm(now) else client.draw.expovariate(1 / client.plan.away_ns)
        self._next(now + 10 * MS + away, client, "connect")

    def _read(self, now: Nanos, client: SimulatedClient) -> None:
        got, plan = client.inbox.popleft(), client.plan
        calm = client.is_calm(now)
        if calm or client.draw.random() >= plan.forgets:
            client.read.append(got.position)
        if client.read and (len(client.read) >= plan.batch or not client.inbox):
            self._next(now + CONFIRM_NS, client, "confirm", tuple(client.read))
            client.read.clear()
        client.reads = bool(client.inbox)
        if client.reads:
            self._next(now + (MS if calm else plan.read_ns), client, "read")

    def _unsubscribe(self, now: Nanos, client: SimulatedClient) -> list[Effect]:
        peer = client.plan.peer
        if self.peers[peer] is None or peer in self._stopping:
            self._next(now + SECOND // 10, client, "unsubscribe")
            return []
        if not self._told(now, client, Unsubscribed(client.number)):
            self._next(now + SECOND // 10, client, "unsubscribe")  # nobody knows whether it was stored
        else:
            client.ended_ns = now
            client.lose()
            client.attached_as = 0
        return self._effects

    def backlog(self, client: SimulatedClient) -> Backlog | None:
        """The backlog of the client's subscription, while its peer runs."""
        target = self.peers[client.plan.peer]
        if target is None:
            return None
        running = target if isinstance(target, Peer) else target.peer
        return running.durable.get(client.number)

    def _look(self, now: Nanos, client: SimulatedClient) -> None:
        backlog = self.backlog(client)
        if backlog is None:
            return
        options = backlog.options
        if len(backlog.entries) > options.max_events or backlog.size > options.max_bytes:
            size = f"{len(backlog.entries)} events, {backlog.size} bytes"
            client.wrong.append(f"at {now / SECOND:.3f} s: the backlog has {size}")
        if len(backlog.in_flight) > max(backlog.client_window, 0):
            client.wrong.append(f"at {now / SECOND:.3f} s: {len(backlog.in_flight)} are in flight")
        waits = [now - self._queued.get((client.plan.peer, position), now) for position in backlog.entries]
        if max(waits, default=0) > options.max_age_ns + MS:
            client.wrong.append(f"at {now / SECOND:.3f} s: an event has waited in the backlog for longer than max_age")

    # ---------------------------------------------------------------- publishers

    def publish(self, now: Nanos, peer: PeerId, topic: Topic) -> list[Effect]:
        self.schedule_next_publication(now, topic)
        publisher = self.peers[peer]
        if publisher is None or peer in self._stopping:
            self.notices["publisher-down"] += 1
            return []
        running = publisher if isinstance(publisher, Peer) else publisher.peer
        attributes: Attributes = {"topic": topic.name, "n": self._draw.randrange(self._values)}
        ttl_ns = self._draw.choice(self._ttls_ns)
        self.allow_transmissions(len(topic.subscribers) + len(self.clients), 8)
        effects = publisher.handle(now, Publication(attributes, bytes(topic.payload_bytes), ttl_ns=ttl_ns))
        receipt = next((effect for effect in effects if type(effect) is Receipt), None)
        self._sequences[running] = sequence = self._sequences.get(running, 0) + 1
        id_ = EventId(topic.publisher, running.config.incarnation, sequence)
        self.sent[id_] = SentEvent(now, attributes, ttl_ns, receipt)
        self.expected[id_] = (now, topic.subscribers)
        self.trace.publications.add(now, *id_, topic.name, len(topic.subscribers))
        return effects

    # ---------------------------------------------------------------- effects

    def record_delivery(self, now: Nanos, peer: PeerId, deliver: Deliver) -> None:
        client = self.clients.get(deliver.subscription.number)
        sent, id_ = self.sent.get(deliver.event.id), deliver.event.id
        if client is None:
            super().record_delivery(now, peer, deliver)
        else:
            self._give(now, client, deliver)
        if sent is not None:
            age = now - sent.time_ns
            self.delays.setdefault(deliver.subscription.number, {}).setdefault(id_, age)
            if sent.ttl_ns is not None and age > sent.ttl_ns:
                self.late.append(f"at {now / SECOND:.3f} s: event {id_} is delivered at peer {peer} after its ttl")

    def _give(self, now: Nanos, client: SimulatedClient, deliver: Deliver) -> None:
        wanted = client.plan.subscription
        id_ = deliver.event.id
        self.happened["deliveries"] += 1
        self.happened["redeliveries"] += deliver.again
        if id_ not in self.sent:
            client.wrong.append(f"nobody published event {id_}")
            return
        if not parse(wanted.filter).matches(self.sent[id_].attributes):
            client.wrong.append(f"event {id_} does not match {wanted.filter}")
        expires = wanted.qos.deadline_ns if wanted.qos.expire else None
        if expires is not None and now - self.sent[id_].time_ns > expires:
            client.wrong.append(f"at {now / SECOND:.3f} s: event {id_} is delivered after its deadline")
        client.get(now, deliver, self.peers[client.plan.peer] is not None)
        if client.inbox and not client.reads:
            client.reads = True
            self._next(now + (MS if client.is_calm(now) else client.plan.read_ns), client, "read")

    def record_missed(self, now: Nanos, peer: PeerId, missed: Missed) -> None:
        super().record_missed(now, peer, missed)
        client = self.clients.get(missed.subscription.number)
        if client is not None:
            client.missed.update(missed.counts)

    def store_record(self, now: Nanos, peer: PeerId, store: Persist) -> None:
        super().store_record(now, peer, store)
        if type(store.record) is QueuedRecord:
            self._queued.update({(peer, position): now for _, position in store.record.entries})

    def record_drop(self, now: Nanos, peer: PeerId, drop: Drop) -> None:
        super().record_drop(now, peer, drop)
        for dest in drop.dests:
            self.dropped.setdefault((drop.id, dest), set()).add(drop.code)
        if drop.code in ("backlog-full", "max-age"):
            self.room[peer] += 1
