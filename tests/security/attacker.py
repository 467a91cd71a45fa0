"""An attacker for worlds under virtual time: on the path, where everything passes him, or off it, where he only writes.

He knows all certificates and may forge the source of a datagram. He has no key that the root of the peers has signed.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from tests.security.doubles import START_S, MacVerifier, credentials_of, random_bytes
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND, Nanos
from wend.security import packets
from wend.security.cookies import Address, mac, mac1_key
from wend.security.handshakes import PROLOGUE
from wend.security.noise import InitiatorHandshake, KeyPair
from wend.security.session_effects import TransmitPacket
from wend.security.session_layer import SessionLayer
from wend.security.transport import Opened

ON_PATH = ("drop", "delay", "replay", "reflect", "alter", "elsewhere")
OFF_PATH = ("noise", "guess", "initiate", "ask", "answers", "impostor")
FLOOD = "flood"
STOLEN = 16
"""Different handshakes with a stolen certificate."""
NEAR = ("66.6.6.6", 1)
"""Where the impostor is."""


class Violation(AssertionError):
    """Something reached a peer that must not."""


class Victim(Protocol):
    """A peer, as the attacker sees it."""

    peer: int
    address: Address
    layer: SessionLayer


class AttackedWorld(Protocol):
    seed: int
    now: Nanos

    @property
    def hosts(self) -> Mapping[int, Any]: ...

    def carry(self, source: Address, to: Address, datagram: bytes, delay: Nanos) -> None:
        """Let a datagram arrive."""
        ...

    def transmit(self, host: Any, to: Address, datagram: bytes) -> None:
        """A peer sends a datagram."""
        ...

    def deliver(self, host: Any, opened: Opened) -> None:
        """A session has opened a message. Raises `Violation` unless it was sent so, and for the first time."""
        ...


class Attacker:
    def __init__(
        self, world: AttackedWorld, on_path: tuple[str, ...], off_path: tuple[str, ...], longest_ms: int = 20_000
    ) -> None:
        """`longest_ms`: the longest delay of a packet."""
        self._world = world
        self._on_path, self._off_path = on_path, off_path
        self._longest_ms = longest_ms
        self.evil = peer_stream(world.seed, "attacker")
        self.recorded: list[tuple[Address, Address, bytes]] = []
        self._impostor = self._make_impostor() if "impostor" in off_path else None

    # ---------------------------------------------------------------- on the path

    def intercept(self, source: Address, to: Address, datagram: bytes, delay: Nanos) -> None:
        """A datagram passes the attacker, who records it and chooses."""
        self.recorded.append((source, to, datagram))
        evil, carry = self.evil, self._world.carry
        deed = evil.choice(self._on_path) if evil.random() < 0.4 else "pass"
        if deed == "delay":
            delay += evil.randrange(1, self._longest_ms) * MS
        if deed == "alter" and datagram:
            changed = bytearray(datagram)
            changed[evil.randrange(len(changed))] ^= 1 << evil.randrange(8)
            carry(source, to, bytes(changed), delay)
        if deed == "reflect":
            carry(to, source, datagram, delay)
        if deed == "replay":
            for _ in range(3):
                was_from, was_to, old = evil.choice(self.recorded)
                carry(was_from, was_to, old, evil.randrange(1, 500) * MS)
        if deed == "elsewhere":
            carry(("66.6.6.6", 666), to, datagram, delay)
            carry(source, evil.choice([*self._world.hosts.values()]).address, datagram, delay)
        if deed not in ("drop", "alter"):
            carry(source, to, datagram, delay)

    # ---------------------------------------------------------------- off the path

    def write(self, count: int = 20) -> None:
        """Send some forged datagrams."""
        evil = self.evil
        for _ in range(count):
            victim, other = evil.sample([*self._world.hosts.values()], 2)
            source = evil.choice([other.address, ("66.6.6.6", evil.randrange(1, 65536))])
            deed = evil.choice(self._off_path)
            if deed == FLOOD:
                self._flood(victim, other)
            elif (datagram := self._forgery(deed, victim, other)) is not None:
                self._world.carry(source, victim.address, datagram, evil.randrange(1, 200) * MS)

    def _flood(self, victim: Victim, other: Victim) -> None:
        """Initiations of many addresses at once, which cost the attacker next to nothing: one with other indices."""
        handshake = _stolen(victim.peer, other.peer)
        for _ in range(80):
            datagram = _with_macs(victim.peer, self.evil.randrange(1 << 32), handshake, bytes(16))
            source = (f"66.6.{self.evil.randrange(256)}.6", self.evil.randrange(1, 65536))
            self._world.carry(source, victim.address, datagram, self.evil.randrange(1, 5) * MS)

    def _forgery(self, deed: str, victim: Victim, other: Victim) -> bytes | None:
        evil, some = self.evil, self.evil.randbytes
        match deed:
            case "noise":
                return some(evil.randrange(0, 700))
            case "guess":
                head = packets.packet_head(packets.TRANSPORT + evil.randrange(packets.MAX_KINDS))
                return head + some(4) + evil.randrange(100).to_bytes(8, "little") + some(evil.randrange(16, 100))
            case "initiate":
                made = _stolen(victim.peer, other.peer, evil.randrange(STOLEN))
                return _with_macs(victim.peer, evil.randrange(1 << 32), made, some(16))
            case "ask":
                return packets.encode_question(some(8))
            case "answers":
                kind = evil.choice([packets.ANSWER, packets.COOKIE, packets.CERTIFICATE, packets.INITIATION])
                return packets.packet_head(kind) + some(evil.choice([8, 52, 60, 400, 500, 666]))
            case "impostor":
                assert self._impostor is not None
                now = self._world.now
                self._impostor.tick(now, START_S + now // SECOND)
                self._impostor.set_address(now, victim.peer, victim.address)
                self._speak_as_impostor(self._impostor, self._impostor.seal(now, victim.peer, 0, b"evil"), victim)
        return None

    def _make_impostor(self) -> SessionLayer:
        """Somebody with a certificate of a root of his own, which says that he is peer 1."""
        forged = credentials_of(1, root=b"another root", key="forged")
        random = random_bytes(self._world.seed, "evil")
        return SessionLayer(forged, MacVerifier(), incarnation=99, version=3, random=random)

    def _speak_as_impostor(self, impostor: SessionLayer, datagram: bytes | None, victim: Victim) -> None:
        world = self._world
        queue = [] if datagram is None else [datagram]
        while queue or impostor.effects:  # he is near, and answers at once
            effects = impostor.take_effects()
            queue += [effect.datagram for effect in effects if isinstance(effect, TransmitPacket)]
            for packet in queue:
                opened = victim.layer.open(world.now, packet, NEAR)
                if opened is not None:
                    world.deliver(victim, opened)
                for effect in victim.layer.take_effects():
                    if isinstance(effect, TransmitPacket) and effect.address == NEAR:
                        impostor.open(world.now, effect.datagram, victim.address)
                    elif isinstance(effect, TransmitPacket):
                        world.transmit(victim, effect.address, effect.datagram)
            queue = []


@cache
def _stolen(victim: int, other: int, which: int = 0) -> bytes:
    """The first message of a handshake, with the certificate of a peer and a key that is not its. It is made once: the
    attacker has time."""
    number, random = 7 << which, random_bytes("stolen", victim, other, which)
    said = packets.Introduction(3, 99, number, credentials_of(other).certificate)
    key = credentials_of(victim).identity.session_key
    return InitiatorHandshake(KeyPair(random(32)), key, random(32), PROLOGUE).write(said.encode(padded=True))


def _with_macs(victim: int, index: int, handshake: bytes, mac2: bytes) -> bytes:
    packet = packets.encode_initiation(index, handshake)
    return packet + mac(_mac1_key(victim), packet) + mac2


@cache
def _mac1_key(peer: int) -> bytes:
    return mac1_key(credentials_of(peer).identity.session_key)
