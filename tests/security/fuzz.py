"""Fuzzing of everything that reads bytes of strangers: packets of sessions, certificates, datagrams, frames of clients.

    python -m tests.security.fuzz 100000 [TARGET ...]      mutations of the corpus, from --seed
    python -m tests.security.fuzz --atheris TARGET [...]   guided by coverage, where atheris is installed

A target gets bytes. It must raise nothing and accept nothing, and its tables must not grow.
"""

import argparse
import json
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from zlib import crc32

from tests.drivers.live import datagrams
from tests.security.doubles import START_S, credentials_of, random_bytes
from tests.security.worlds import World, converse
from wend.drivers.live.addressing import address_messages
from wend.drivers.live.transport import wire
from wend.model.errors import Untrusted, WireError
from wend.model.random_stream import RandomStream, peer_stream
from wend.model.units import MS, SECOND
from wend.security import noise, packets
from wend.security.certificates import RootVerifier, make_request, make_root, sign_certificate
from wend.security.cookies import mac, mac1_key
from wend.security.group_keys import SHORT_FORM, TOLD_FORM, GroupKeys, GroupMessage
from wend.security.handshakes import PROLOGUE
from wend.security.noise import InitiatorHandshake, KeyPair

CORPUS = Path(__file__).parent / "corpus.json"
GROUP = 77
Target = Callable[[bytes], None]


class Accepted(AssertionError):
    """A target accepted what nobody sent."""


# ---------------------------------------------------------------- targets


def _conversation() -> World:
    """Two peers that have spoken, before somebody who recorded it."""
    world = World(0, 2, on_path=("pass",))
    world.attacks = True
    converse(world, 20 * SECOND)
    world.run(22 * SECOND)  # everything has arrived
    return world


def _session() -> Target:
    """Packets to a peer that has sessions and handshakes under way."""
    world = _conversation()
    host, other = world.hosts[2], world.hosts[1].address
    host.layer.set_address(world.now, 9, ("10.0.0.9", 7000))
    host.layer.seal(world.now, 9, 0, b"a handshake under way")
    host.layer.take_effects()
    size = host.layer.size
    now = world.now

    def target(data: bytes) -> None:
        if host.layer.open(now, data, other) is not None:
            raise Accepted(data.hex())
        host.layer.take_effects()
        if host.layer.size > size + 1:
            raise Accepted("the tables have grown")

    return target


def _rekeying() -> Target:
    """What a peer with a session says in the place of a handshake for new keys."""
    world = _conversation()
    host, other = world.hosts[2], world.hosts[1]
    keys = other.layer.peers[2].current
    assert keys is not None
    answered, size, now = host.layer.notices["handshake-answered"], host.layer.size, world.now

    def target(data: bytes) -> None:
        if host.layer.open(now, keys.seal(packets.REKEYING, data), other.address) is not None:
            raise Accepted(data.hex())
        host.layer.take_effects()
        if host.layer.notices["handshake-answered"] != answered or host.layer.size > size:
            raise Accepted("a handshake was answered: " + data.hex())

    return target


def _groups() -> tuple[GroupKeys, GroupKeys]:
    """Two members of a group. The first keeps its key, and the second has it."""
    members = [GroupKeys(peer, random_bytes("group", peer), Counter(), Counter()) for peer in (1, 2)]
    for one in members:
        one.set_members(SECOND, GROUP, 1, ((1, 1), (2, 1)))
    for effect in members[0].take_effects():
        assert isinstance(effect, GroupMessage)
        members[1].receive(SECOND, 1, 1, effect.body)
    members[1].take_effects()
    return members[0], members[1]


def _multicast() -> Target:
    """Packets to a multicast group, of somebody without its key."""
    keeper, _ = _groups()
    now = SECOND

    def target(data: bytes) -> None:
        nonlocal now
        now += 20 * MS
        keeper.tick(now)
        if keeper.open(now, data) is not None:
            raise Accepted(data.hex())
        keeper.take_effects()

    for sealed in _multicasts():
        keeper.open(SECOND, sealed)  # they came before: what is fuzzed comes again, or changed
    return target


def _multicasts() -> list[bytes]:
    _, member = _groups()
    return [sealed for body in (b"", b"one", bytes(200)) if (sealed := member.seal(GROUP, body)) is not None]


def _group_key() -> Target:
    """What a member that does not keep the key of a group says about it, in a session."""
    keeper, member = _groups()
    before = [one.keys(GROUP)[0] for one in (keeper, member)]

    def target(data: bytes) -> None:
        for one, sender in ((keeper, 2), (member, 2)):
            one.receive(SECOND, sender, 1, data)
            one.take_effects()
        if [one.keys(GROUP)[0] for one in (keeper, member)] != before:
            raise Accepted("another key was adopted: " + data.hex())

    return target


def _introduction() -> Target:
    """What a stranger encrypts in a handshake that is right otherwise."""
    world = World(0, 2)
    host = world.hosts[2]
    key = KeyPair(credentials_of(2).session_secret).public
    static, ephemeral = KeyPair(random_bytes("fuzz")(32)), random_bytes("fuzz ephemeral")(32)
    now = world.now

    def target(data: bytes) -> None:
        nonlocal now
        now += 100 * MS
        size = packets.INITIATION_BYTES - 8 - packets.MAC_BYTES * 2 - 96
        said = data[:size].ljust(size, b"\0")
        packet = packets.encode_initiation(7, InitiatorHandshake(static, key, ephemeral, PROLOGUE).write(said))
        host.layer.tick(now, START_S)
        if host.layer.open(now, packet + mac(mac1_key(key), packet) + bytes(16), ("6.6.6.6", 6)) is not None:
            raise Accepted(data.hex())
        host.layer.take_effects()
        if host.layer.notices["handshake-answered"]:
            raise Accepted("a handshake was answered: " + data.hex())

    return target


_SECRET = bytes(32)
_ROOT = make_root("fuzz", _SECRET, serial=1, not_before_s=START_S - 9, not_after_s=START_S + 10**6)


def _certificate() -> Target:
    """Certificates that no root has signed, and changed ones."""
    verifier, good = RootVerifier([_ROOT]), set(seeds()["certificate"])

    def target(data: bytes) -> None:
        try:
            verifier.verify(data, START_S)
        except Untrusted:
            return
        if data not in good:
            raise Accepted(data.hex())

    return target


def _datagram() -> Target:
    """Open datagrams, with a checksum that is right so that decoders are reached, and as they are."""

    def target(data: bytes) -> None:
        for datagram in (data, data + crc32(data).to_bytes(4, "little")):
            with suppress(WireError):
                datagrams.decode(datagram)
            if wire.find_fault(datagram) is None:
                inner = wire.unframe_datagram(datagram)
                with suppress(WireError):
                    address_messages.decode_address_message(inner.header.sender, inner.body)

    return target


def _body() -> Target:
    """The content of a sealed packet, of a peer that has a key and lies."""

    def target(data: bytes) -> None:
        for kind in wire.MESSAGES:
            with suppress(WireError):
                wire.decode_body(kind, data)
        with suppress(WireError):
            address_messages.decode_address_message(1, data)

    return target


def _frame() -> Target:
    """Bytes on the connection of a client, from either side."""

    def target(data: bytes) -> None:
        for decode in (wire.decode_to_peer, wire.decode_to_client):
            with suppress(WireError):
                decode(data)
            with suppress(WireError):
                for body in wire.FrameSplitter().feed(data):
                    decode(body)

    return target


TARGETS: dict[str, Callable[[], Target]] = {
    "session": _session,
    "rekeying": _rekeying,
    "multicast": _multicast,
    "group-key": _group_key,
    "introduction": _introduction,
    "certificate": _certificate,
    "datagram": _datagram,
    "body": _body,
    "frame": _frame,
}


# ---------------------------------------------------------------- corpus and mutations


def seeds() -> dict[str, list[bytes]]:
    """Valid inputs to begin with."""
    world = _conversation()
    by_type = {datagram[3]: datagram for _, _, datagram in world.attacker.recorded}
    said = packets.Introduction(3, 1, 2, credentials_of(1, root=b"another").certificate).encode(padded=True)
    request = make_request("site", bytes([1]) * 32, bytes([2]) * 32)
    dates = {"not_before_s": START_S - 9, "not_after_s": START_S + 999}
    certificate = sign_certificate(request, _ROOT, _SECRET, serial=2, peer=1, groups=("a",), **dates)
    kept = json.loads(CORPUS.read_text())
    told = [TOLD_FORM.pack(1, GROUP, 9 << 32, 0, bytes(32)), *(SHORT_FORM.pack(kind, GROUP, 5) for kind in (2, 3))]
    initiations = [datagram for datagram in by_type.values() if datagram[3] == packets.INITIATION]
    found = {"session": [*by_type.values()], "rekeying": initiations, "multicast": _multicasts(), "group-key": told}
    found |= {"introduction": [said], "certificate": [certificate, _ROOT]}
    return {name: found.get(name, []) + [bytes.fromhex(one) for one in kept.get(name, [])] for name in TARGETS}


def mutated(random: RandomStream, corpus: list[bytes]) -> bytes:
    """A random change of a random input: truncated, flipped, overwritten, joined, or all new."""
    data = bytearray(random.choice(corpus)) if corpus else bytearray()
    for _ in range(1 + int(4 * random.random())):
        at, deed = int(random.random() * (len(data) + 1)), int(random.random() * 8)
        if deed == 0:
            del data[at:]
        elif deed == 1 and at < len(data):
            data[at] ^= 1 << int(random.random() * 8)
        elif deed == 2 and at < len(data):
            data[at] = random.choice(b"\0\1\x7f\x80\x81\x90\xa1\xc0\xc1\xc4\xc6\xcf\xd3\xdc\xdd\xde\xdf\xff")
        elif deed == 3:
            data[at:at] = random.randbytes(int(random.random() * 9))
        elif deed == 4:
            del data[at : at + int(random.random() * 9)]
        elif deed == 5 and corpus:
            other = random.choice(corpus)
            data[at:] = other[int(random.random() * len(other)) :]
        elif deed == 6 and random.random() < 0.1:
            return random.randbytes(int(random.random() * 700))
        elif deed == 7 and at < len(data):
            data[at : at + 8] = random.randbytes(8)
    return bytes(data)


def fuzz(name: str, count: int, seed: int = 0) -> None:
    """Give a target so many mutations. Raises what the target raises, with the input."""
    target, corpus, random = TARGETS[name](), seeds()[name], peer_stream(seed, "fuzz", name)
    for data in corpus:
        target(data)
    for _ in range(count):
        data = mutated(random, corpus)
        try:
            target(data)
        except Exception as error:
            raise AssertionError(f"{name}: {data.hex()}") from error


def _multiply_once() -> None:
    """Remember products of keys: the inputs of a target use the same keys, and half of the time went there."""
    noise.KeyPair = lru_cache(64)(KeyPair)  # type: ignore[misc, assignment]
    KeyPair.exchange = lru_cache(64)(KeyPair.exchange)  # type: ignore[method-assign, assignment]


def _guided(name: str, words: list[str]) -> None:
    """Let atheris choose the inputs. `words`: its own options."""
    import atheris  # type: ignore[import-not-found]

    target = TARGETS[name]()
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *words], target)
    atheris.Fuzz()


def main() -> None:
    about, *_ = (__doc__ or "").partition("\n")
    asked = argparse.ArgumentParser(prog="python -m tests.security.fuzz", description=about)
    asked.add_argument("count", type=int, help="mutations for each target")
    asked.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: {', '.join(TARGETS)}")
    asked.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    given = asked.parse_args()
    if unknown := [name for name in given.targets if name not in TARGETS]:
        asked.error(f"no target {unknown[0]}; there are {', '.join(TARGETS)}")
    warnings.filterwarnings("ignore", "Parsed a serial number")
    _multiply_once()
    for name in given.targets or TARGETS:
        begin = time.monotonic()
        fuzz(name, given.count, given.seed)
        passed, megabytes = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{name}: {given.count} inputs of seed {given.seed} in {passed:.0f} s, none accepted; "
            f"{megabytes:.1f} MB at most", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--atheris"] and sys.argv[2:3]:
        _guided(sys.argv[2], sys.argv[3:])
    else:
        main()
