"""Signatures of events: what the publisher's peer signed is verified, and nothing else."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wend.model.errors import Untrusted
from wend.model.events import SIGNATURE_HEADER, SIGNED_BY_HEADER, Event, EventId, Range
from wend.security.certificates import RootVerifier, make_credentials, make_request, make_root, sign_certificate
from wend.security.event_signatures import EventSigner, EventVerifier

NOW = 1_000_000
ROOT = make_root("test", b"r" * 32, serial=1, not_before_s=0, not_after_s=2 * NOW)


def credentials_of(peer: int, root: bytes = b"r" * 32, end_s: int = NOW + 10) -> Any:
    seed = bytes([peer]) * 32
    made = sign_certificate(
        make_request(f"site-{peer}", seed, seed),
        make_root("test", root, serial=1, not_before_s=0, not_after_s=2 * NOW),
        root,
        serial=peer,
        peer=peer,
        groups=(),
        not_before_s=0,
        not_after_s=end_s,
    )
    return make_credentials(made, seed, seed)


SIGNER = EventSigner(credentials_of(7))
VERIFIER = EventVerifier(RootVerifier(ROOT))
values = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5), st.just(Range(1, 2))
)


def signed(event: Event, signer: EventSigner = SIGNER) -> Event:
    headers = signer.sign(event.id, event.attributes, event.payload, event.headers)
    return msgspec.structs.replace(event, headers=headers)


def refused(event: Event, verifier: EventVerifier = VERIFIER, now_s: int = NOW) -> str:
    with pytest.raises(Untrusted) as caught:
        verifier.verify(event, now_s)
    return str(caught.value)


@settings(max_examples=100)
@given(
    st.dictionaries(st.text(max_size=5), values, max_size=4),
    st.binary(max_size=20),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.integers(0, 2**63),
)
def test_a_signature_survives_the_wire_and_any_order_of_attributes(
    attributes: Any, payload: bytes, headers: dict[str, str], sequence: int
) -> None:
    event = signed(Event(EventId(7, 3, sequence), attributes, payload, headers))
    carried = msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event)
    turned = dict(reversed(carried.attributes.items()))
    assert VERIFIER.verify(msgspec.structs.replace(carried, attributes=turned), NOW) == "site-7"


EVENT = Event(EventId(7, 3, 1), {"topic": "a", "x": 1}, b"payload", {"kind": "k"})


@pytest.mark.parametrize(
    "changed",
    [
        {"id": EventId(7, 3, 2)},
        {"id": EventId(7, 4, 1)},
        {"attributes": {"topic": "a", "x": 2}},
        {"attributes": {"topic": "a", "x": 1.0}},
        {"attributes": {"topic": "a"}},
        {"payload": b"Payload"},
        {"headers": {**signed(EVENT).headers, "kind": "l"}},
        {"headers": {**signed(EVENT).headers, "more": ""}},
        {"origin": EventId(7, 3, 9)},
    ],
)
def test_whatever_is_changed_is_noticed(changed: dict[str, Any]) -> None:
    assert VERIFIER.verify(signed(EVENT), NOW) == "site-7"
    assert (
        refused(msgspec.structs.replace(signed(EVENT), **changed)) == "an event does not have the signature of site-7"
    )


def test_only_the_publishers_own_site_can_sign() -> None:
    other = EventSigner(credentials_of(8))
    assert refused(signed(EVENT, other)) == "an event of peer 7 has the signature of site-8"
    foreign = EventSigner(credentials_of(7, root=b"x" * 32))
    assert refused(signed(EVENT, foreign)) == "the certificate is not signed by the root"
    assert "is revoked" in refused(signed(EVENT), EventVerifier(RootVerifier(ROOT, {7})))
    assert "has ended" in refused(signed(EVENT), now_s=NOW + 11)


def test_a_member_of_a_queue_group_that_passes_an_event_on_does_not_break_it() -> None:
    moved = msgspec.structs.replace(signed(EVENT), id=EventId(9, 1, 1), origin=EVENT.id)
    assert VERIFIER.verify(moved, NOW) == "site-7"


def test_the_name_of_a_signer_is_not_covered_and_not_believed() -> None:
    named = {**signed(EVENT).headers, SIGNED_BY_HEADER: "site-1"}
    assert VERIFIER.verify(msgspec.structs.replace(EVENT, headers=named), NOW) == "site-7"


@given(st.one_of(st.text(max_size=40), st.binary(max_size=700).map(lambda data: data.hex())))
def test_malformed_signatures_are_refused(text: str) -> None:
    refused(msgspec.structs.replace(EVENT, headers={SIGNATURE_HEADER: text}))
