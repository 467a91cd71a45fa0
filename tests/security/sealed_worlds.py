"""Whole peers in the simulator on sealed links, with an attacker: what the application gets is compared.

Every message of a simulated peer becomes bytes, is sealed by the session layer of its peer, passes the attacker, and
is opened and decoded at the other end. Keys live for seconds, so that each world makes new ones several times.

- Off the path the attacker changes nothing: deliveries are the same, to the nanosecond, as without him. And they are
  those of the same world on open links.
- On the path he only drops and delays: no forged, altered or replayed message is opened, safety and integrity hold, and
  where peers keep events, everything arrives once he has left.

`python -m tests.security.sealed_worlds 1000` plays so many worlds. A second number is the first seed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

from tests import world_command
from tests.security import attacked_worlds
from tests.security.attacker import FLOOD, OFF_PATH, ON_PATH, Attacker, Violation
from tests.security.doubles import START_S, MacVerifier, credentials_of, random_bytes
from wend.drivers.live.transport import wire
from wend.drivers.scenarios import Scenario, make_scenario
from wend.drivers.sim.checks import check_properties
from wend.drivers.sim.engine import Engine
from wend.drivers.sim.network import LEAVING, Network
from wend.drivers.sim.run import Outcome, summarise_run
from wend.drivers.world import World, build_world
from wend.model.events import PeerId
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.messages import Message, find_event_id
from wend.protocol.ports import Effect, Received
from wend.security import packets, transport
from wend.security.cookies import Address
from wend.security.session_effects import TransmitPacket
from wend.security.session_layer import SessionLayer
from wend.security.transport import Opened

STRATEGIES = ("dcrd", "d-tree", "adaptive", "multipath", "mrst")
TICK_NS = 250 * MS
ATTACK_NS = 9 * SECOND // 2
"""How long the attacker is there, from the start."""


class Host:
    """The session layer of one simulated peer."""

    def __init__(self, engine: "SealedEngine", peer: PeerId, incarnation: int) -> None:
        self.peer, self.incarnation = peer, incarnation
        self.address = address_of(peer)
        random = random_bytes(engine.seed, peer, incarnation)
        self.layer = SessionLayer(
            credentials_of(peer), engine.verifier(), incarnation=incarnation, version=3, random=random
        )
        self.types: wire.MessageTypes = wire.NO_TYPES


class SealedNetwork(Network):
    """Hands every message to the session layer of its sender."""

    __slots__ = ("engine",)
    engine: "SealedEngine"

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        if find_event_id(message) is not None:
            self.transmissions += 1
            self.transmissions_unicast += 1
        self.engine.seal(now, sender, receiver, message)

    def send_each(self, now: Nanos, sender: PeerId, receivers: tuple[PeerId, ...], message: Message) -> None:
        for receiver in receivers:
            self.engine.seal(now, sender, receiver, message)

    def delay_ns(self, now: Nanos, sender: PeerId, receiver: PeerId) -> Nanos | None:
        """How long a datagram takes; None: the link between the peers is down, or there is none."""
        wire_between = self.wires[sender].get(receiver)
        if wire_between is None or not self.is_up(wire_between[0], now):
            return None
        return wire_between[1]


class SealedEngine(Engine):
    """A simulation in which links carry sealed datagrams, past an attacker."""

    def __init__(
        self,
        world: World,
        *,
        on_path: tuple[str, ...] = (),
        off_path: tuple[str, ...] = (),
        verifier: Callable[[], MacVerifier] = MacVerifier,
    ) -> None:
        self.seed, self.now = world.scenario.seed, 0
        self.verifier = verifier
        self.hosts: dict[PeerId, Host] = {}
        super().__init__(world)
        self._on_path, self._off_path = bool(on_path), bool(off_path)
        self.attacker = Attacker(self, on_path, off_path, longest_ms=2000)
        self.datagrams = 0
        self._sealed: dict[bytes, list[tuple[PeerId, PeerId]]] = {}
        """By content: from whom to whom it was sealed, once for each time, and not opened yet."""
        self._nonces: set[tuple[PeerId, int, bytes]] = set()
        self._arrived: list[Effect] = []
        """Effects of messages that an attacker made a peer open."""

    def make_links(self) -> Network:
        network = SealedNetwork(self.world, self.agenda, self.trace, self.peers)
        network.engine = self
        return network

    # ---------------------------------------------------------------- peers and their sessions

    def schedule_all(self) -> None:
        super().schedule_all()
        self.agenda.push(0, LEAVING, 0, None)

    def apply_fault(self, now: Nanos, peer: PeerId, what: Any) -> list[Effect]:
        self.now = now
        if what == "start":
            host = self.hosts[peer] = Host(self, peer, self.incarnations[peer] + 1)
            host.layer.tick(now, START_S + now // SECOND)
            for other in range(self.world.overlay.peers):
                if other != peer:
                    host.layer.set_address(now, other, address_of(other))
        effects = super().apply_fault(now, peer, what)
        made = self.peers[peer]
        if made is not None:
            self.hosts[peer].types = wire.MessageTypes(made.message_types, made.header_type)  # type: ignore[union-attr]
        return effects

    def run_action(self, now: Nanos, peer: PeerId, action: Any) -> list[Effect]:
        """A datagram arrives, or it is time to tell the time."""
        self.now = now
        if action is None:
            self._tick(now)
        else:
            source, datagram = action
            host = self.hosts.get(peer)
            if host is not None and self.peers[peer] is not None:
                opened = host.layer.open(now, datagram, source)
                if opened is not None:
                    self.deliver(host, opened)
                self._perform(host, datagram)
        effects, self._arrived = self._arrived, []
        return effects

    def _tick(self, now: Nanos) -> None:
        for peer, host in sorted(self.hosts.items()):
            if self.peers[peer] is not None:
                host.layer.tick(now, START_S + now // SECOND)
                self._perform(host)
        if self._off_path and len(self.hosts) > 1 and self.attacker.evil.random() < 0.3:
            self.attacker.write(8)
        self.agenda.push(now + TICK_NS, LEAVING, 0, None)

    def _perform(self, host: Host, cause: bytes | None = None) -> None:
        for effect in host.layer.take_effects():
            if isinstance(effect, TransmitPacket):
                if cause is not None and effect.peer is None and len(effect.datagram) > len(cause):
                    raise Violation("a reply to a stranger is larger than what caused it")
                self.transmit(host, effect.address, effect.datagram)

    # ---------------------------------------------------------------- datagrams

    def seal(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        self.now = now
        host, body = self.hosts[sender], wire.encode_message(message)
        self._sealed.setdefault(body, []).append((sender, receiver))
        datagram = host.layer.seal(now, receiver, wire.MESSAGE, body)
        self._perform(host)
        if datagram is not None:
            to = host.layer.address(receiver)
            assert to is not None
            self.transmit(host, to, datagram)

    def transmit(self, host: Host, to: Address, datagram: bytes) -> None:
        self.datagrams += 1
        if (packets.packet_type(datagram) or 0) >= packets.TRANSPORT:
            nonce = (host.peer, host.incarnation, datagram[4:16])
            if nonce in self._nonces:
                raise Violation("a nonce was used twice")
            self._nonces.add(nonce)
        receiver = peer_at(to)
        assert isinstance(self.network, SealedNetwork)
        delay = None if receiver is None else self.network.delay_ns(self.now, host.peer, receiver)
        if delay is None:
            return
        if self._on_path and self.now < ATTACK_NS:
            self.attacker.intercept(host.address, to, datagram, delay)
        else:
            self.carry(host.address, to, datagram, delay)

    def carry(self, source: Address, to: Address, datagram: bytes, delay: Nanos) -> None:
        peer = peer_at(to)
        if peer is not None and peer < self.world.overlay.peers:
            self.agenda.push(self.now + delay, LEAVING, peer, (source, datagram))

    def deliver(self, host: Host, opened: Opened) -> None:
        sender, incarnation, kind, body = opened
        pending = self._sealed.get(body, [])
        if (sender, host.peer) not in pending or kind != wire.MESSAGE:
            raise Violation(f"peer {host.peer} got {body!r} of peer {sender}, which nobody sent, or got it before")
        if incarnation > self.incarnations[sender]:
            raise Violation(f"peer {host.peer} believes in incarnation {incarnation} of peer {sender}")
        pending.remove((sender, host.peer))
        target = self.peers[host.peer]
        assert target is not None
        for message in wire.decode_body(kind, body, host.types):
            self._arrived += target.handle(self.now, Received(sender, message))

    # ---------------------------------------------------------------- results

    def results(self) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Play it. Returns all deliveries with their times, and which promises of any run are broken."""
        self.run()
        outcome = Outcome(summarise_run(self, 0.0), self.trace, self.world)
        return [*self.trace.deliveries.rows()], [str(one) for one in check_properties(outcome, ("safety", "integrity"))]

    def totals(self) -> Counter[str]:
        return Counter({"deliveries": len(self.trace.deliveries), "datagrams": self.datagrams})

    def refusals(self) -> Counter[str]:
        return sum((host.layer.refused for host in self.hosts.values()), start=Counter())


def address_of(peer: PeerId) -> Address:
    return (f"10.0.0.{peer}", 7000)


def peer_at(address: Address) -> PeerId | None:
    host, port = address[0], address[1]
    return int(host[7:]) if host.startswith("10.0.0.") and port == 7000 else None


@contextmanager
def short_lived_keys() -> Iterator[None]:
    """Keys live for six seconds at most, and new ones are made after two."""
    names = ("REKEY_NS", "REKEY_LATE_NS", "END_NS")
    before = [getattr(transport, name) for name in names]
    for name, number in zip(names, (2 * SECOND, 3 * SECOND, 6 * SECOND), strict=True):
        setattr(transport, name, number)
    try:
        yield
    finally:
        for name, number in zip(names, before, strict=True):
            setattr(transport, name, number)


# ---------------------------------------------------------------- worlds


def scenario_of(seed: int, **fields: Any) -> Scenario:
    draw: Random = peer_stream(seed, "sealed world")
    peers = draw.randint(4, 6)
    chosen: dict[str, Any] = {
        "seed": seed,
        "strategy": draw.choice(STRATEGIES),
        "topology": "regular",
        "peers": peers,
        "degree": draw.choice([degree for degree in (2, 3) if degree * peers % 2 == 0]),
        "topics": draw.randint(1, 2),
        "popularity": (0.4, 1.0),
        "rate": draw.choice([1.0, 3.0]),
        "payload_bytes": draw.choice([10, 10, 3000]),
        "warmup": "2s",
        "duration": "5s",
        "drain": "3s",
        "ack": "round-trip",
        "pf": 0.0,
        "pl": 0.0,
        "estimator": draw.choice(["nominal", "measured"]),
    }
    return make_scenario({**chosen, **fields})


def outsiders_change_nothing(seed: int, **options: Any) -> SealedEngine:
    """Play a world on open links, on sealed ones, and with an attacker off the path: all deliver the same."""
    scenario = scenario_of(seed)
    world = build_world(scenario).for_strategy(scenario.strategy)
    unsealed = Engine(world)
    unsealed.run()
    with short_lived_keys():
        calm = SealedEngine(world, **options)
        attacked = SealedEngine(world, off_path=(*OFF_PATH, *OFF_PATH, FLOOD), **options)
        (alone, wrong), (besides, wrong_too) = calm.results(), attacked.results()
    if wrong or wrong_too:
        raise Violation("; ".join([*wrong, *wrong_too][:3]))
    if alone != besides:
        raise Violation(f"{len(set(alone) ^ set(besides))} of {len(alone)} deliveries differ")
    due = {row[1:6] for row in unsealed.trace.deliveries.rows()}
    if {row[1:6] for row in alone} != due:
        raise Violation(f"{len({row[1:6] for row in alone} ^ due)} of {len(due)} differ from those on open links")
    return attacked


def nothing_but_loss_and_delay(seed: int, **options: Any) -> SealedEngine:
    """Play a world in the hands of an attacker, who leaves before its end."""
    keeps = seed % 2 == 0
    scenario = scenario_of(seed, persistence=keeps, drain="22s" if keeps else "6s")
    world = build_world(scenario).for_strategy(scenario.strategy)
    with short_lived_keys():
        engine = SealedEngine(world, on_path=ON_PATH, off_path=OFF_PATH, **options)
        delivered, wrong = engine.results()
    if wrong:
        raise Violation("; ".join(wrong[:3]))
    if keeps:
        reached = {(*row[1:4], row[4]) for row in delivered}
        due = {(*id_, peer) for id_, (_, subscribers) in engine.expected.items() for peer in subscribers}
        unknown = {(*id_, peer) for id_, peers in engine.unknown.items() for peer in peers}
        if lost := due - unknown - reached:
            raise Violation(f"{len(lost)} of {len(due)} events were lost though peers keep them: {sorted(lost)[:3]}")
    return engine


CHECKS = (outsiders_change_nothing, nothing_but_loss_and_delay)


if __name__ == "__main__":
    world_command.main(partial(attacked_worlds.play, checks=CHECKS), __doc__)
