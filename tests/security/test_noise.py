"""The handshake and its primitives give the published results."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from wend.model.errors import WireError
from wend.security.noise import InitiatorHandshake, KeyPair, ResponderHandshake, nonce

VECTORS = Path(__file__).parent / "vectors"
NOISE: list[dict[str, Any]] = json.loads((VECTORS / "noise.json").read_text())["vectors"]
WYCHEPROOF: dict[str, Any] = json.loads((VECTORS / "wycheproof.json").read_text())
h = bytes.fromhex


@pytest.mark.parametrize("vector", NOISE, ids=lambda vector: vector["protocol_name"])
def test_handshake_and_transport_reproduce_the_published_vectors(vector: dict[str, Any]) -> None:
    first, second, *transport = [(h(m["payload"]), h(m["ciphertext"])) for m in vector["messages"]]
    prologue, responder = h(vector["prologue"]), KeyPair(h(vector["resp_static"]))
    assert responder.public == h(vector["init_remote_static"])
    own = KeyPair(h(vector["init_static"]))
    initiation = InitiatorHandshake(own, responder.public, h(vector["init_ephemeral"]), prologue)
    assert initiation.write(first[0]) == first[1]
    answer = ResponderHandshake(responder, first[1], prologue)
    assert (answer.remote, answer.payload) == (own.public, first[0])
    written, keys = answer.write(second[0], h(vector["resp_ephemeral"]))
    assert written == second[1]
    assert initiation.read(written) == (second[0], keys)
    assert transport
    for number, (payload, ciphertext) in enumerate(transport):
        cipher = ChaCha20Poly1305(keys[number % 2])
        assert cipher.encrypt(nonce(number // 2), payload, None) == ciphertext
        assert cipher.decrypt(nonce(number // 2), ciphertext, None) == payload


def test_no_changed_bit_of_a_handshake_is_accepted() -> None:
    own, responder = KeyPair(b"\1" * 32), KeyPair(b"\2" * 32)
    initiation = InitiatorHandshake(own, responder.public, b"\3" * 32, b"")
    first = initiation.write(b"payload")
    for bit in range(8 * len(first)):
        changed = bytearray(first)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError):
            ResponderHandshake(responder, bytes(changed), b"")
    for size in range(len(first)):
        with pytest.raises(WireError):
            ResponderHandshake(responder, first[:size], b"")
    with pytest.raises(WireError):
        ResponderHandshake(responder, first, b"another prologue")
    with pytest.raises(WireError):
        ResponderHandshake(own, first, b"")
    second, keys = ResponderHandshake(responder, first, b"").write(b"answer", b"\4" * 32)
    for bit in range(0, 8 * len(second), 3):
        changed = bytearray(second)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError):
            initiation.read(bytes(changed))
    assert initiation.read(second) == (b"answer", keys)  # forged answers have spoilt nothing


@pytest.mark.parametrize("case", WYCHEPROOF["x25519"], ids=lambda case: str(case["tcId"]))
def test_x25519(case: dict[str, str]) -> None:
    assert KeyPair(h(case["private"])).exchange(h(case["public"])) == h(case["shared"])


@pytest.mark.parametrize("public", [bytes(32), b"\1" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_x25519_refuses_points_of_low_order(public: bytes) -> None:
    with pytest.raises(WireError):
        KeyPair(b"\7" * 32).exchange(public)


def test_chacha20_poly1305() -> None:
    group = WYCHEPROOF["chacha20_poly1305"]
    cipher, iv, aad = ChaCha20Poly1305(h(group["key"])), h(group["iv"]), h(group["aad"])
    for case in group["cases"]:
        assert cipher.encrypt(iv, h(case["msg"]), aad) == h(case["ct"]) + h(case["tag"])
        assert cipher.decrypt(iv, h(case["ct"]) + h(case["tag"]), aad) == h(case["msg"])
        for number, tag in case["invalid_tags"].items():
            with pytest.raises(InvalidTag):
                cipher.decrypt(iv, h(case["ct"]) + h(tag), aad)
                pytest.fail(f"test case {number} was accepted")


@pytest.mark.parametrize("case", WYCHEPROOF["ed25519"]["cases"], ids=lambda case: str(case["tcId"]))
def test_ed25519(case: dict[str, Any]) -> None:
    key = Ed25519PublicKey.from_public_bytes(h(WYCHEPROOF["ed25519"]["public"]))
    if case["valid"]:
        key.verify(h(case["sig"]), h(case["msg"]))
    else:
        with pytest.raises(InvalidSignature):
            key.verify(h(case["sig"]), h(case["msg"]))
