"""Whatever comes in, a message comes out or a `WireError`; whatever a peer says survives the wire."""

from contextlib import suppress

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.drivers.live import datagrams
from tests.errors import raises
from wend.drivers.live.transport import wire
from wend.model.errors import WireError
from wend.model.events import Event, EventId, Qos, Subscription, SubscriptionId
from wend.model.publication import check_size
from wend.protocol.messages import Ack, Control, Data, Hello, Message
from wend.strategies.dcrd.expectations import Expectations
from wend.strategies.link_state.plugin import LinkState
from wend.strategies.multipath.plugin import SourceRoutes
from wend.strategies.subscriptions.table import PeerInterest

HEAD = wire.make_header(1, 2, 3)

ids = st.integers(0, 2**32 - 1)
numbers = st.integers(0, 2**63 - 1)
ratios = st.floats(0, 1)
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=20)
events = st.builds(
    Event,
    st.builds(EventId, ids, numbers, numbers),
    st.dictionaries(st.text(max_size=10), scalars, max_size=5),
    st.binary(max_size=100),
    st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3),
)
peers = st.lists(ids, max_size=6).map(tuple)
versions = st.tuples(numbers, numbers)
subscriptions = st.builds(
    Subscription,
    st.builds(SubscriptionId, ids, numbers),
    st.text(max_size=30),
    st.builds(Qos, st.none() | numbers, st.none() | st.floats(0, 100)),
)
bodies = (
    st.builds(LinkState, ids, versions, st.lists(st.tuples(ids, numbers, ratios), max_size=4).map(tuple))
    | st.builds(
        PeerInterest,
        ids,
        versions,
        st.lists(subscriptions, max_size=3).map(tuple),
        st.lists(st.text(max_size=9), max_size=3).map(tuple),
    )
    | st.builds(
        Expectations,
        numbers,
        st.lists(st.tuples(ids, ids), max_size=3).map(tuple),
        st.lists(st.floats(0, 1e12), max_size=3).map(tuple),
        st.lists(ratios, max_size=3).map(tuple),
    )
)
headers = st.none() | st.builds(SourceRoutes, st.lists(peers, max_size=3).map(tuple))
PLUGINS = {LinkState: "link-state", PeerInterest: "flooded", Expectations: "dcrd"}
TYPES = wire.MessageTypes({name: type_ for type_, name in PLUGINS.items()}, SourceRoutes)
messages = (
    st.builds(Data, numbers, events, numbers, peers, peers, headers, peers)
    | st.builds(Ack, numbers, st.booleans())
    | st.builds(Hello, numbers, st.booleans())
    | st.builds(lambda tx, body: Control(tx, PLUGINS[type(body)], body), numbers, bodies)
)


@given(messages)
def test_every_message_survives_the_wire(message: Message) -> None:
    assert datagrams.decode(datagrams.encode(HEAD, message), TYPES) == ((1, 2, 3), message)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    with raises("malformed"):
        datagrams.decode(data)


@given(st.binary(max_size=300))
def test_random_bytes_behind_a_good_header_are_a_message_or_refused(data: bytes) -> None:
    with suppress(WireError):
        datagrams.decode(wire.frame_datagram(HEAD, data), TYPES)


@given(messages, st.data())
def test_a_damaged_message_that_has_a_checksum_is_a_message_or_refused(message: Message, data: st.DataObject) -> None:
    whole = bytearray(wire.encode_message(message))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with suppress(WireError):
        datagrams.decode(wire.frame_datagram(HEAD, bytes(whole[: data.draw(st.integers(0, len(whole)))])), TYPES)


@given(messages, st.data())
def test_a_datagram_with_changed_bits_is_refused(message: Message, data: st.DataObject) -> None:
    whole = bytearray(datagrams.encode(HEAD, message))
    assert wire.find_fault(bytes(whole)) is None
    for bit in data.draw(st.sets(st.integers(0, 8 * len(whole) - 1), min_size=1, max_size=12)):
        whole[bit // 8] ^= 1 << bit % 8
    assert wire.find_fault(bytes(whole)) is not None
    with raises("malformed"):
        datagrams.decode(bytes(whole), TYPES)


@given(messages, st.data())
def test_a_datagram_that_was_cut_short_or_grew_is_refused(message: Message, data: st.DataObject) -> None:
    whole = datagrams.encode(HEAD, message)
    changed = whole[: data.draw(st.integers(0, len(whole) - 1))], whole + data.draw(st.binary(min_size=1, max_size=9))
    assert all(map(wire.find_fault, changed))


def test_a_body_that_its_plugin_does_not_declare_is_refused() -> None:
    wrong = Control(1, "flooded", LinkState(1, (1, 1), ()))
    with raises("malformed", match="cannot be decoded"):
        datagrams.decode(datagrams.encode(HEAD, wrong), TYPES)
    unknown = datagrams.decode(datagrams.encode(HEAD, Control(1, "another", 5)), TYPES).message
    assert unknown == Control(1, "another", 5), "the peer refuses it"


def test_unknown_fields_are_ignored() -> None:
    fields = {"type": "a", "tx": 7, "from_the_future": [1, {"deep": None}]}
    assert datagrams.decode(wire.frame_datagram(HEAD, msgspec.msgpack.encode(fields))).message == Ack(7)


def test_another_version_is_refused_with_its_number() -> None:
    datagram = bytearray(datagrams.encode(HEAD, Ack(1)))
    datagram[2] = 9
    with raises("malformed", match="version 9"):
        datagrams.decode(bytes(datagram))


def test_a_length_that_lies_allocates_nothing() -> None:
    claims_four_billion = b"\x82\xa4type\xa1d\xa5dests\xdd\xff\xff\xff\xff"
    with raises("malformed"):
        datagrams.decode(wire.frame_datagram(HEAD, claims_four_billion))


def test_what_is_too_large_is_not_sent() -> None:
    event = Event(EventId(1, 1, 1), {}, bytes(wire.MAX_DATAGRAM_BYTES))
    with raises("malformed", match="60000 bytes"):
        datagrams.encode(HEAD, Data(1, event, 0, (2,)))


def test_an_event_that_cannot_travel_is_refused_at_once() -> None:
    check_size({"topic": "a"}, bytes(262_144), {})
    with raises("too-large"):
        check_size({"topic": "a"}, bytes(262_145), {})
    with raises("too-large"):
        check_size({"topic": "a" * 48_000}, b"", {})
    with raises("invalid-event", match="cannot be published"):
        check_size({"topic": "a", "huge": 2**70}, b"", {})


def test_ids_that_do_not_fit_are_refused() -> None:
    with raises("malformed"):
        wire.make_header(-1, 2, 3)


def test_a_bundle_is_its_messages_in_their_order() -> None:
    said = [Ack(1), Hello(3, True, 5), Ack(2)]
    kind, body = wire.join_bodies([wire.encode_message(m) for m in said])
    datagram = wire.frame_datagram(wire.make_header(1, 2, 3, kind), body)
    assert wire.unframe_datagram(datagram) == ((1, 2, 3), kind, body)
    assert wire.decode_messages(datagram) == said
    assert len(datagram) < sum(len(datagrams.encode(HEAD, m)) for m in said)
    with raises("malformed", match="bundle of 3"):
        datagrams.decode(datagram)


def test_a_bundle_of_one_is_a_message() -> None:
    assert wire.join_bodies([wire.encode_message(Ack(1))]) == (wire.MESSAGE, wire.encode_message(Ack(1)))


def test_a_kind_that_is_not_known_is_refused() -> None:
    with raises("malformed", match="kind 9"):
        datagrams.decode(wire.frame_datagram(HEAD[:3] + b"\x09" + HEAD[4:], wire.encode_message(Ack(1))))


def test_the_reasons_of_a_datagram_that_cannot_be_read() -> None:
    right = datagrams.encode(HEAD, Ack(1))
    assert wire.find_fault(right) is None
    assert wire.find_fault(b"xx" + right[2:]) == wire.find_fault(right[:20]) == wire.find_fault(b"") == "garbage"
    assert wire.find_fault(right[:2] + b"\x02" + right[3:]) == "other-version"
    assert wire.find_fault(right[:-1] + bytes((right[-1] ^ 1,))) == wire.find_fault(right[:-1]) == "corrupted"
