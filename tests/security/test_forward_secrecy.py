"""Recorded traffic stays unreadable when static keys leak later.

An eavesdropper has every datagram of two peers, and gets the static private keys of both afterwards. It follows the
handshakes as far as these keys lead: es, ss and se, but not ee. The same eavesdropper with the ephemeral keys, which
peers forget, reads everything: so it does follow the handshakes rightly.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from tests.security.doubles import credentials_of
from tests.security.worlds import World, converse
from wend.model.errors import WireError
from wend.model.units import SECOND
from wend.security import handshakes, packets
from wend.security.handshakes import PROLOGUE
from wend.security.noise import InitiatorHandshake, KeyPair, ResponderHandshake, SymmetricState, derive
from wend.security.packets import KEY_BYTES, TAG_BYTES

STATIC = {peer: KeyPair(credentials_of(peer).session_secret) for peer in (1, 2)}
Read = list[tuple[int, bytes]]
"""The kinds and contents of transport packets."""


class Eavesdropper:
    """Has all datagrams and some private keys, and reads what these open."""

    def __init__(self, datagrams: list[bytes], ephemeral: dict[bytes, KeyPair]) -> None:
        self._datagrams = datagrams
        self._ephemeral = ephemeral
        self.introductions: list[bytes] = []
        """The payloads of first messages that it has read."""
        self.answers: list[bytes] = []
        """The payloads of second messages."""
        self._initiations: dict[int, tuple[KeyPair, KeyPair, bytes]] = {}
        """By the index of their sender: both static keys, and the first message."""
        self._keys: set[bytes] = set()

    def read(self) -> Read:
        """Everything in transport packets that can be read, also in handshakes that these hold."""
        found: dict[bytes, tuple[int, bytes]] = {}
        while True:
            before = len(found), len(self._keys)
            for datagram in [*(body for kind, body in found.values() if kind == packets.REKEYING), *self._datagrams]:
                self._follow(datagram)
            for datagram in self._datagrams:
                if datagram not in found and (opened := self._opened(datagram)) is not None:
                    found[datagram] = opened
            if (len(found), len(self._keys)) == before:
                return [*found.values()]

    def _follow(self, datagram: bytes) -> None:
        kind = packets.packet_type(datagram)
        if kind == packets.INITIATION:
            packet = packets.decode_initiation(datagram)
            for responder, initiator in ((STATIC[1], STATIC[2]), (STATIC[2], STATIC[1])):
                try:
                    first = ResponderHandshake(responder, packet.handshake, PROLOGUE)
                except WireError:
                    continue
                assert first.remote == initiator.public
                self.introductions.append(first.payload)
                self._initiations[packet.sender] = (initiator, responder, packet.handshake)
        elif kind == packets.ANSWER:
            _, receiver, second = packets.decode_answer(datagram)
            if receiver in self._initiations:
                self._second(*self._initiations[receiver], second)

    def _second(self, initiator: KeyPair, responder: KeyPair, first: bytes, second: bytes) -> None:
        """Go on with the second message by every guess of ee."""
        e_first, e_second = first[:KEY_BYTES], second[:KEY_BYTES]
        for ee in self._guesses(initiator, responder, e_first, e_second):
            state = SymmetricState(PROLOGUE, responder.public)
            state.mix_hash(e_first)
            state.mix_key(responder.exchange(e_first))
            state.decrypt(first[KEY_BYTES : 2 * KEY_BYTES + TAG_BYTES])
            state.mix_key(responder.exchange(initiator.public))
            state.decrypt(first[2 * KEY_BYTES + TAG_BYTES :])
            state.mix_hash(e_second)
            state.mix_key(ee)
            state.mix_key(initiator.exchange(e_second))
            with suppress(WireError):
                self.answers.append(state.decrypt(second[KEY_BYTES:]))
            self._keys.update(state.split())  # also where the payload was not authentic: nothing is left untried

    def _guesses(self, initiator: KeyPair, responder: KeyPair, e_first: bytes, e_second: bytes) -> Iterator[bytes]:
        """What takes the place of ee: every product of keys that it has, and some constants."""
        for own in (initiator, responder, *self._ephemeral.values()):
            for other in (e_first, e_second, initiator.public, responder.public):
                yield own.exchange(other)
        yield from (bytes(KEY_BYTES), e_first, e_second, derive(e_first, e_second)[0])

    def _opened(self, datagram: bytes) -> tuple[int, bytes] | None:
        kind = packets.packet_type(datagram)
        if kind is None or kind < packets.TRANSPORT:
            return None
        header, sealed = datagram[: packets.HEADER_BYTES], datagram[packets.HEADER_BYTES :]
        for key in self._keys:
            try:
                return kind - packets.TRANSPORT, ChaCha20Poly1305(key).decrypt(bytes(4) + header[8:], sealed, header)
            except InvalidTag:
                pass
        return None


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> tuple[World, list[bytes], dict[bytes, KeyPair]]:
    """Two peers that spoke for seven minutes, every datagram, and the ephemeral keys of those who began handshakes."""
    ephemeral: dict[bytes, KeyPair] = {}

    class RecordedInitiation(InitiatorHandshake):
        def __init__(self, static: KeyPair, remote: bytes, secret: bytes, prologue: bytes) -> None:
            super().__init__(static, remote, secret, prologue)
            ephemeral[self._ephemeral.public] = self._ephemeral

    monkeypatch.setattr(handshakes, "InitiatorHandshake", RecordedInitiation)
    world = World(3, 2, on_path=("pass",))
    world.attacks = True
    converse(world, 420 * SECOND)
    world.run(430 * SECOND)
    assert len(world.delivered) == len(world.sent) > 100
    return world, [datagram for _, _, datagram in world.attacker.recorded], ephemeral


Recording = tuple[World, list[bytes], dict[bytes, Any]]


def test_static_keys_that_leak_later_open_no_recorded_packet(recording: Recording) -> None:
    world, datagrams, _ = recording
    eavesdropper = Eavesdropper(datagrams, {})
    assert eavesdropper.read() == []
    assert eavesdropper.answers == []
    # What the first message of a handshake says is encrypted to the static key alone. It is the certificate, which a
    # peer tells whoever asks, with numbers.
    assert eavesdropper.introductions
    certificates = {credentials_of(peer).certificate for peer in (1, 2)}
    assert {packets.decode_introduction(said).certificate for said in eavesdropper.introductions} <= certificates
    assert not any(body in said for said in chain(eavesdropper.introductions, datagrams) for body in world.sent)


def test_the_same_eavesdropper_reads_everything_with_the_ephemeral_keys(recording: Recording) -> None:
    world, datagrams, ephemeral = recording
    eavesdropper = Eavesdropper(datagrams, ephemeral)
    read = eavesdropper.read()
    assert {body for kind, body in read if kind == 0} == set(world.sent)
    assert len(eavesdropper.introductions) > 2 and any(kind == packets.REKEYING for kind, _ in read)
    assert len(read) == sum(datagram[3] >= packets.TRANSPORT for datagram in datagrams)


def test_keys_of_one_session_open_nothing_of_the_others(recording: Recording) -> None:
    world, datagrams, ephemeral = recording
    first = dict([next(iter(ephemeral.items()))])
    read = {body for kind, body in Eavesdropper(datagrams, first).read() if kind == 0}
    assert 0 < len(read) < len(world.sent) / 2
