"""Worlds of sessions under virtual time: peers, a network, and an attacker who has it, or who only writes to it.

`python -m tests.security.worlds 1000` plays so many; a second number is the first seed. A world is a function of its
seed.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tests import world_command
from tests.security import attacked_worlds
from tests.security.attacker import OFF_PATH, ON_PATH, Attacker, Violation
from tests.security.doubles import START_S, MacVerifier, credentials_of, random_bytes
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND, Nanos
from wend.security import packets
from wend.security.cookies import Address
from wend.security.session_effects import SessionEffect, TransmitPacket
from wend.security.session_layer import SessionLayer
from wend.security.transport import Opened

TICK_NS = 250 * MS


class Host:
    """A peer with its session layer."""

    def __init__(self, world: "World", peer: int) -> None:
        self.world, self.peer = world, peer
        self.address: Address = (f"10.0.0.{peer}", 7000)
        self.incarnation = 0
        self.clock_s = START_S
        self.verifier = world.verifier()
        self.effects: list[SessionEffect] = []
        self.start()

    def start(self) -> None:
        self.incarnation += 1
        self.layer = SessionLayer(
            credentials_of(self.peer), self.verifier, incarnation=self.incarnation, version=3,
            random=random_bytes(self.world.seed, self.peer, self.incarnation),
        )  # fmt: skip
        self.layer.tick(self.world.now, self.wall_s)
        for other in self.world.hosts.values():
            if other is not self:
                self.layer.set_address(self.world.now, other.peer, other.address)

    @property
    def wall_s(self) -> int:
        return self.clock_s + self.world.now // SECOND

    def send(self, to: int, body: bytes) -> None:
        self.world.sent[body] = (self.peer, self.incarnation, to)
        datagram = self.layer.seal(self.world.now, to, 0, body)
        self.perform()
        if datagram is not None:
            self.world.transmit(self, self.world.where(self, to), datagram)

    def receive(self, datagram: bytes, source: Address) -> None:
        opened = self.layer.open(self.world.now, datagram, source)
        if opened is not None:
            self.world.deliver(self, opened)
        self.perform(datagram)

    def perform(self, cause: bytes | None = None) -> None:
        for effect in self.layer.take_effects():
            if isinstance(effect, TransmitPacket):
                if cause is not None and effect.peer is None and len(effect.datagram) > len(cause):
                    raise Violation("a reply to a stranger is larger than what caused it")
                self.world.transmit(self, effect.address, effect.datagram)
            else:
                self.effects.append(effect)


class World:
    def __init__(
        self,
        seed: int,
        peers: int = 3,
        *,
        on_path: tuple[str, ...] = (),
        off_path: tuple[str, ...] = (),
        verifier: Callable[[], MacVerifier] = MacVerifier,
        tick_ns: Nanos = TICK_NS,
    ) -> None:
        self._tick_ns = tick_ns
        self.seed, self.now = seed, SECOND
        self.verifier = verifier
        self._on_path, self._off_path = bool(on_path), bool(off_path)
        self.attacks = False
        self.random = peer_stream(seed, "world")
        self.sent: dict[bytes, tuple[int, int, int]] = {}
        self.delivered: Counter[tuple[int, bytes]] = Counter()
        self.counters: set[tuple[int, int, bytes]] = set()
        self.bytes_on_the_wire = 0
        self._agenda: list[tuple[Nanos, int, Callable[..., None], tuple[Any, ...]]] = []
        self._steps = 0
        self.hosts: dict[int, Host] = {}
        for peer in range(1, peers + 1):
            self.hosts[peer] = Host(self, peer)
        for host in self.hosts.values():
            for other in self.hosts.values():
                if other is not host:
                    host.layer.set_address(self.now, other.peer, other.address)
        self.attacker = Attacker(self, on_path, off_path)
        self.at(self.now, self._tick)

    # ---------------------------------------------------------------- time and network

    def at(self, when: Nanos, call: Callable[..., None], *words: Any) -> None:
        self._steps += 1
        heapq.heappush(self._agenda, (when, self._steps, call, words))

    def run(self, until: Nanos) -> None:
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, call, words = heapq.heappop(self._agenda)
            call(*words)
        self.now = until

    def _tick(self) -> None:
        for host in self.hosts.values():
            host.layer.tick(self.now, host.wall_s)
            host.perform()
        if self.attacks and self._off_path and self.attacker.evil.random() < 0.15:
            self.attacker.write()
        self.at(self.now + self._tick_ns, self._tick)

    def where(self, host: Host, to: int) -> Address:
        """Where a host believes that another is."""
        address = host.layer.address(to)
        assert address is not None
        return address

    def transmit(self, host: Host, to: Address, datagram: bytes) -> None:
        self.bytes_on_the_wire += len(datagram)
        if (packets.packet_type(datagram) or 0) >= packets.TRANSPORT:
            nonce = (host.peer, host.incarnation, datagram[4:16])
            if nonce in self.counters:
                raise Violation("a nonce was used twice")
            self.counters.add(nonce)
        delay = self.random.randrange(1, 80) * MS
        if self.attacks and self._on_path:
            self.attacker.intercept(host.address, to, datagram, delay)
        else:
            self.carry(host.address, to, datagram, delay)

    def carry(self, source: Address, to: Address, datagram: bytes, delay: Nanos) -> None:
        self.at(self.now + delay, self._arrive, source, to, datagram)

    def _arrive(self, source: Address, to: Address, datagram: bytes) -> None:
        for host in self.hosts.values():
            if host.address == to:
                host.receive(datagram, source)

    def deliver(self, host: Host, opened: Opened) -> None:
        """The property: what arrives was sent by that incarnation of that peer to this one, and arrives once."""
        sender, incarnation, _, body = opened
        if self.sent.get(body) != (sender, incarnation, host.peer):
            raise Violation(f"peer {host.peer} got {opened!r}, which nobody sent to it")
        self.delivered[host.peer, body] += 1
        if self.delivered[host.peer, body] > 1:
            raise Violation(f"peer {host.peer} got {body!r} twice")

    # ---------------------------------------------------------------- results

    def totals(self) -> Counter[str]:
        return Counter({"messages": len(self.sent), "delivered": len(self.delivered)})

    def refusals(self) -> Counter[str]:
        return sum((host.layer.refused for host in self.hosts.values()), start=Counter())


def converse(world: World, until: Nanos, *, restarts: bool = False, moves: bool = False) -> None:
    """Peers send to each other at random times; some restart or move."""
    random, when, number = peer_stream(world.seed, "talk", until), world.now, 0
    while when < until:
        when += random.randrange(10, 3_000) * MS
        number += 1
        speaker, to = random.sample(sorted(world.hosts), 2)
        world.at(when, _say, world, speaker, to, f"{world.seed} {until} {number}".encode())
        if restarts and random.random() < 0.02:
            world.at(when, world.hosts[random.choice(sorted(world.hosts))].start)
        if moves and random.random() < 0.02:
            world.at(when, _move, world, random.choice(sorted(world.hosts)), number)
    world.run(until)


def _say(world: World, speaker: int, to: int, body: bytes) -> None:
    world.hosts[speaker].send(to, body)


def _move(world: World, peer: int, number: int) -> None:
    world.hosts[peer].address = (f"10.0.{1 + number % 200}.{peer}", 7000)


# ---------------------------------------------------------------- the properties


def nothing_but_loss_and_delay(seed: int, **options: Any) -> World:
    """With the network in his hands, the attacker can only drop and delay; when he leaves, everything arrives."""
    world = World(seed, 2 + seed % 3, on_path=ON_PATH, off_path=OFF_PATH, **options)
    world.attacks = True
    converse(world, 400 * SECOND, restarts=True, moves=seed % 2 == 0)
    world.attacks = False
    for host in world.hosts.values():  # as an operator or a lookup would, where peers have moved
        for other in world.hosts.values():
            if other is not host and seed % 2 == 0:
                host.layer.set_address(world.now, other.peer, other.address)
    converse(world, 440 * SECOND)
    before = len(world.sent)
    converse(world, 600 * SECOND)
    world.run(610 * SECOND)
    late = set([*world.sent][before:])
    missing = late - {body for _, body in world.delivered}
    if missing:
        raise Violation(f"{len(missing)} of {len(late)} messages were lost after the attacker had left")
    return world


def outsiders_change_nothing(seed: int, **options: Any) -> World:
    """An attacker off the path changes nothing of what is delivered."""
    found = []
    for off_path in ((), OFF_PATH):
        world = World(seed, 2 + seed % 3, off_path=off_path, **options)
        world.attacks = True
        converse(world, 400 * SECOND)
        world.run(410 * SECOND)
        found.append(set(world.delivered))
    if found[0] != found[1] or len(found[0]) != len(world.sent):
        raise Violation(f"{len(found[0] ^ found[1])} deliveries differ; {len(world.sent) - len(found[0])} are missing")
    return world


CHECKS = (nothing_but_loss_and_delay, outsiders_change_nothing)


if __name__ == "__main__":
    world_command.main(partial(attacked_worlds.play, checks=CHECKS), __doc__)
