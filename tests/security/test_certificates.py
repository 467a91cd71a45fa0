"""Certificates: what the root signs is read back, and nothing else is trusted, whatever the bytes are."""

from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wend.model.errors import ConfigError
from wend.security.certificates import (
    MAX_GROUPS,
    MAX_PEER_ID,
    MAX_SERIAL,
    WEND_OID,
    Claims,
    RootVerifier,
    make_credentials,
    make_extension,
    make_request,
    make_root,
    public_session_key,
    public_signing_key,
    read_request,
    read_root,
    sign_certificate,
)
from wend.security.identity import Identity, Untrusted
from wend.security.packets import MAX_CERTIFICATE_BYTES

ROOT_SECRET, SIGNING, SESSION = b"r" * 32, b"e" * 32, b"x" * 32
BEGIN, NOW, END = 1_000_000_000, 1_000_050_000, 1_000_100_000
ROOT = make_root("overlay", ROOT_SECRET, serial=1, not_before_s=BEGIN, not_after_s=2_000_000_000)
REQUEST = make_request("plant-7", SIGNING, SESSION)
TRUST = RootVerifier(ROOT)


def signed(**changed: Any) -> bytes:
    fields = {
        "request": REQUEST,
        "root": ROOT,
        "root_secret": ROOT_SECRET,
        "serial": 77,
        "peer": 7,
        "groups": ("plant",),
        "not_before_s": BEGIN,
        "not_after_s": END,
    }
    return sign_certificate(**{**fields, **changed})


def refused(certificate: bytes, now_s: int = NOW, verifier: RootVerifier = TRUST) -> str:
    with pytest.raises(Untrusted) as caught:
        verifier.verify(certificate, now_s)
    return str(caught.value)


names = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P"), exclude_characters="/"), min_size=1, max_size=15
)


@settings(max_examples=60)
@given(
    names,
    st.none() | st.integers(0, MAX_PEER_ID),
    st.lists(st.sampled_from(["plant", "line-1", "é", "operators"]), unique=True),
    st.integers(1, MAX_SERIAL),
    st.integers(0, 2**36),
    st.integers(1, 10**9),
)
@example("n" * 64, MAX_PEER_ID, [f"g-{i:02}" for i in range(MAX_GROUPS)], MAX_SERIAL, 0, 1)
def test_what_the_root_signs_is_read_back(
    name: str, peer: int | None, groups: list[str], serial: int, begin: int, length: int
) -> None:
    root = make_root("root", ROOT_SECRET, serial=1, not_before_s=0, not_after_s=2**37 - 1)
    made = signed(
        root=root, name=name, peer=peer, groups=groups, serial=serial, not_before_s=begin, not_after_s=begin + length
    )
    assert len(made) <= MAX_CERTIFICATE_BYTES
    expected = Identity(
        serial=serial,
        name=name,
        peer=peer,
        groups=tuple(groups),
        session_key=public_session_key(SESSION),
        signing_key=public_signing_key(SIGNING),
        not_before_s=begin,
        not_after_s=begin + length,
    )
    assert RootVerifier(root).verify(made, begin) == expected
    assert RootVerifier(root).verify(made, begin + length) == expected
    assert make_credentials(made, SESSION, SIGNING).identity == expected


def test_the_request_names_the_keys_and_not_the_secrets() -> None:
    asked = read_request(REQUEST)
    assert (asked.name, asked.session_key) == ("plant-7", public_session_key(SESSION))
    assert asked.signing_key == public_signing_key(SIGNING)
    assert SIGNING not in REQUEST and SESSION not in REQUEST


def test_a_typical_certificate_is_small() -> None:
    assert len(signed(groups=("plant", "operators"))) < 400


# ---------------------------------------------------------------- refused


def test_another_root_is_not_trusted() -> None:
    other = make_root("overlay", b"o" * 32, serial=1, not_before_s=BEGIN, not_after_s=2_000_000_000)
    foreign = signed(root=other, root_secret=b"o" * 32)
    assert refused(foreign) == "the certificate is not signed by the root"
    assert RootVerifier([ROOT, other]).verify(foreign, NOW).peer == 7  # while one root replaces another


def test_dates_and_revocation() -> None:
    made = signed()
    assert refused(made, BEGIN - 1) == "the certificate of plant-7 begins at 2001-09-09 01:46 UTC"
    assert refused(made, END + 1) == "the certificate of plant-7 has ended at 2001-09-10 05:33 UTC"
    assert refused(made, NOW, RootVerifier(ROOT, {77})) == "the certificate of plant-7 is revoked"
    assert RootVerifier(ROOT, {78}).verify(made, NOW).serial == 77
    short = make_root("short", ROOT_SECRET, serial=1, not_before_s=BEGIN, not_after_s=BEGIN + 10)
    assert refused(made, NOW, RootVerifier(short)) == "the root short has ended at 2001-09-09 01:46 UTC"


def test_the_root_is_nobody() -> None:
    assert refused(ROOT) == "the certificate has an extension that Wend does not use"


def test_a_certificate_that_a_site_signs_is_not_trusted() -> None:
    key = Ed25519PrivateKey.from_private_bytes(SIGNING)
    site = x509.load_der_x509_certificate(signed())
    template = x509.load_der_x509_certificate(signed(peer=1))
    builder = x509.CertificateBuilder(
        site.subject,
        template.subject,
        template.public_key(),
        5,
        template.not_valid_before_utc,
        template.not_valid_after_utc,
        list(template.extensions),
    )
    assert refused(builder.sign(key, None).public_bytes(Encoding.DER)) == "the certificate is not signed by the root"


def by_root(*extensions: x509.ExtensionType, name: str = "a", serial: int = 5, key: Any = None) -> bytes:
    """A certificate that the root signed with another program."""
    template = x509.load_der_x509_certificate(signed())
    root = Ed25519PrivateKey.from_private_bytes(ROOT_SECRET)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.load_der_x509_certificate(ROOT).subject)
        .serial_number(serial)
        .public_key(key or template.public_key())
        .not_valid_before(template.not_valid_before_utc)
        .not_valid_after(template.not_valid_after_utc)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(root, None).public_bytes(Encoding.DER)


OURS = x509.load_der_x509_certificate(signed()).extensions.get_extension_for_oid(WEND_OID).value


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (by_root(), "the certificate was not made for Wend"),
        (by_root(OURS, x509.BasicConstraints(True, 0)), "the certificate has an extension that Wend does not use"),
        (by_root(OURS, serial=2**64), "the certificate's serial number is out of range"),
        (by_root(OURS, name="a\nb"), "a name has 1 to 64 bytes, all printable and no slash, got 'a\\nb'"),
        *(
            (
                by_root(x509.UnrecognizedExtension(WEND_OID, value)),
                "the certificate's extension for Wend is malformed",
            )
            for value in (b"", b"\x04", b"\x04\x00", b"\x04\x05abc", b"\x04\x82\x00", b"\x30\x01\x00", b"\x04\x01\xc0")
        ),
        *(
            (by_root(make_extension(claims)), "the certificate's extension for Wend is malformed")
            for claims in (
                Claims(2, b"k" * 32),
                Claims(1, b"k" * 31),
                Claims(1, b"k" * 32, -1),
                Claims(1, b"k" * 32, 2**32),
                Claims(1, b"k" * 32, None, ("a", "a")),
                Claims(1, b"k" * 32, None, ("",)),
                Claims(1, b"k" * 32, None, ("a\0b",)),
                Claims(1, b"k" * 32, None, tuple("abcdefghijklmnopq")),
            )
        ),
    ],
)
def test_content_that_is_not_ours_is_refused_even_from_the_root(made: bytes, reason: str) -> None:
    assert refused(made) == reason


@settings(max_examples=300)
@given(st.binary(max_size=600))
def test_random_bytes_are_untrusted(junk: bytes) -> None:
    refused(junk)


@settings(max_examples=300)
@given(st.data())
def test_a_changed_certificate_is_untrusted(data: st.DataObject) -> None:
    made = bytearray(signed())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(made) - 1))
        made[place] ^= data.draw(st.integers(1, 255))
    if bytes(made) == signed():
        return
    refused(bytes(made))


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_every_truncation_and_every_bit_flip_is_untrusted() -> None:
    made = signed()
    for size in range(len(made)):
        refused(made[:size])
    refused(made + b"\0")
    for bit in range(8 * len(made)):
        changed = bytearray(made)
        changed[bit // 8] ^= 1 << bit % 8
        refused(bytes(changed))


@given(st.binary(max_size=700))
def test_requests_and_roots_of_random_bytes_end_in_a_sentence(junk: bytes) -> None:
    for read in (read_request, read_root):
        with pytest.raises(ConfigError):
            read(junk)


# ---------------------------------------------------------------- mistakes of the root's owner


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"root_secret": b"w" * 32}, "the root's key does not belong to the root's certificate"),
        ({"peer": 2**32}, "a peer id is in 0..4294967295, got 4294967296"),
        ({"not_after_s": 2_000_000_001}, "the root ends at 2033-05-18 03:33 UTC, before the certificate would"),
        ({"not_after_s": BEGIN}, "a certificate ends after it begins"),
        ({"groups": ["a", "a"]}, "a certificate has up to 16 different groups, got a, a"),
        ({"name": "a/b"}, "a name has 1 to 64 bytes, all printable and no slash, got 'a/b'"),
        ({"groups": [""]}, "a group has 1 to 64 bytes, all printable and no slash, got ''"),
        ({"serial": 0}, f"a serial number is in 1..{MAX_SERIAL}, got 0"),
        ({"name": "n" * 65}, f"a name has 1 to 64 bytes, all printable and no slash, got {'n' * 65!r}"),
        ({"request": ROOT}, "this is not a certificate request"),
        ({"root": signed()}, "this certificate is not a root's"),
        ({"groups": [f"a long name of a group {i}" for i in range(16)]}, "give fewer or shorter groups"),
    ],
)
def test_what_cannot_be_signed(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        signed(**changed)
    assert sentence in str(caught.value)


def test_a_request_that_somebody_changed_is_not_signed() -> None:
    changed = REQUEST.replace(public_session_key(SESSION), public_session_key(b"y" * 32))
    assert changed != REQUEST
    with pytest.raises(ConfigError, match="not signed by the key that it names"):
        read_request(changed)


def test_keys_of_another_certificate_are_refused() -> None:
    with pytest.raises(ConfigError, match="session key does not belong"):
        make_credentials(signed(), b"y" * 32, SIGNING)
    with pytest.raises(ConfigError, match="signing key does not belong"):
        make_credentials(signed(), SESSION, b"y" * 32)
