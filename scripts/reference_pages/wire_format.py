"""The page of the wire format: datagrams between peers, and messages of plug-ins."""

from collections.abc import Iterator

import msgspec
from reference_pages.source import Field, fields, members, summary

from wend.drivers.live.addressing import address_messages
from wend.drivers.live.transport import wire
from wend.model.events import MAX_ATTRIBUTES, MAX_HEADERS, Event, Qos, Range, Subscription
from wend.model.publication import MAX_ATTRIBUTES_BYTES, MAX_PAYLOAD_BYTES
from wend.model.units import SECOND
from wend.protocol import messages
from wend.security import handshakes, packets, replay, session_layer, transport
from wend.strategies.registry import INTEREST, PLUGINS, STRATEGIES, routing_of
from wend.strategies.tdo.messages import Gossip
from wend.strategies.trees.messages import FilterDemand, LinkWeight, TreeMessage

PAGE = """\
# Wire format

<!-- Written by scripts/reference.py. -->

What peers send each other in UDP datagrams (version {wire}). Every datagram carries one inner datagram: a sender, a
kind, and a body of [msgpack](https://msgpack.org). An open link frames the body with a header and a checksum, as below.
Peers with keys seal the same body in [sessions](#sessions), where the session names the sender and the type of the
packet names the kind. Integers in headers are big-endian. Clients speak the [client protocol](client-protocol.md).

## Encoding

- A struct is a map from field names to values. If it has a tag, the map has the key `type` with the tag as value, too.
- A struct with `an array` in the place of its tag is an array of its fields, in order, without names.
- `= value` is the default of a field, and a sender may leave out such a field. A receiver ignores unknown
  fields, except in `Range`.
- A name that ends in `_ns` is a time in nanoseconds.

| type | encoded as |
| --- | --- |
| peer id | integer from 0 to 2^64 - 1 |
| event id | array: publisher (peer id), incarnation, sequence |
| subscription id | array: peer (peer id), number |
| attributes | map from text to boolean, integer, float, text or `Range`; at most {attributes} |
| headers | map from text to text; at most {headers} |
| path | array of routers: those between two peers in the underlay |
| router | text or integer; nil for a router without a name |
| route | array of peer ids that a packet has yet to visit, the destination last |
| slot | array: text, peer id; a newer control message of the same slot replaces the older one |
| generation | array: number, peer id that called for it, incarnation of that peer |
| key | array: trees that use the link already, weight, peer id, peer id |
| counters | map from text to integer |

{types}## Datagrams between peers

| offset | bytes | field | value |
| --- | --- | --- | --- |
| 0 | 2 | magic | `{magic}` |
| 2 | 1 | version | {wire} |
| 3 | 1 | kind | {kinds} |
| 4 | 8 | sender | peer id |
| 12 | 8 | receiver | peer id, or the number of a multicast group |
| 20 | 8 | incarnation | of the sender: higher after each restart |
| 28 | | body | msgpack |
| | 4 | checksum | the CRC32 of everything before it, lowest byte first |

A receiver drops a datagram that does not have its checksum. The CRC32 of a whole datagram that has it is
{intact}.

A datagram has at most {datagram} bytes, a bundle at most {bundle}. The attributes and headers of an event have at most
{event} bytes together, its payload at most {payload}. `Ack(tx=7)` from incarnation 3 of peer 1 to peer 2 is

    {ack}

`tx` and `number` of acknowledged messages are (incarnation << {shift}) + counter. A retransmission keeps its number.

### Messages

{link_messages}### Questions about addresses

Peers of a ring find each other's addresses by these. A question to an address whose peer is not known has 2^64 - 1 as
receiver. An answer is never longer than its question. Peers with given neighbours refuse both.

{address_messages}### Multicast groups

A datagram to a group holds one `PlainMessage`. The number N of the group is the BLAKE2b hash of its name, with a digest
of 8 bytes. Unless the peer's file names an address, the group has the address 239.192.0.0 + (N mod 2^18) and the port
16384 + (N >> 32) mod 16384. The sender uses the socket at which it receives, so receivers know it by its address.

Peers with keys seal these datagrams with the [key of the group](#group-keys).

## Sessions

Peers with keys speak Noise_IK_25519_ChaChaPoly_BLAKE2s, with the prologue `"{prologue}"`. There is nothing to
negotiate. Integers in these packets are little-endian. A packet begins with

| offset | bytes | field | value |
| --- | --- | --- | --- |
| 0 | 2 | magic | `{sealed_magic}` |
| 2 | 1 | version | {sealed} |
| 3 | 1 | type | as below |

and goes on with

| type | packet | fields with their bytes | meaning |
| --- | --- | --- | --- |
{packets}
An index is a random number by which its receiver finds the handshake or the keys. `e`, the encrypted `s` and the
encrypted introduction are the messages of Noise. An introduction is: version of the datagrams above (1),
incarnation (8), random number of the process (8), number of the handshake (8), length of the certificate (2),
certificate (DER, at most {certificate}). In an initiation zeros follow, up to the longest certificate, so that no reply
is larger than its cause.

- `mac1` is the keyed BLAKE2s of everything before it. Its key is the BLAKE2s of `"wend mac1"` and the receiver's public
  key.
- `mac2` is the BLAKE2s of everything before it under the cookie that the receiver sent, or zeros. A receiver asks for
  it only while there are many handshakes.
- A sealed cookie is ChaChaPoly under the BLAKE2s of `"wend cookie"`, the sender's public key and the salt, with mac1 as
  associated data. A cookie is valid for two to four minutes, for one address.
- An initiation is accepted if its incarnation and number are higher than those of the last one of that peer.
- The nonce of a sealed message is its counter, which is never used again under the same keys. The header of 16 bytes is
  the associated data. A receiver accepts each counter once, and none that is {window} below the highest.
- The side that answered seals with new keys once a packet came under them. Kind {nothing} is an empty packet that says
  so. A peer that was written to and has nothing to say sends one after {keepalive} s; after {silence} s without one the
  other side begins a handshake.
- The side that began a handshake begins the next one when its keys are {rekey} s old, the other one after {late} s.
  Keys that are {end} s old are no longer used. While there are keys, an initiation comes in a transport packet of kind
  {rekeying}, so that strangers cannot crowd it out; every second attempt comes as it is.
- A peer sends to the address from which the newest authentic packet came. Handshakes that nobody answers there also try
  the address that the peer was given.

A sealed message costs {overhead} bytes; an open one has 28 of header and 4 of checksum. A session ends when the
certificate of the other peer ends or is revoked. [Notices](notices.md) lists what a peer refuses.

### Group keys

A multicast packet is sealed with a key of its sender: the first output of HKDF (BLAKE2s) of the group's key and
`"wend multicast sender"`, the sender's id (8) and the salt, which the sender draws for each key. The header of
{group_header} bytes is the associated data, and the counter is the nonce. A receiver accepts each counter of a sender
and salt once.

The members of a group agree on its keeper: in a cluster, the first active coordinator. It makes the key, and another
one when members come, go, restart or are revoked, and every hour. Messages about it are transport packets of kind
{group_key}:

| type | message | fields with their bytes | meaning |
| --- | --- | --- | --- |
| 1 | told | group 8, epoch 8, former epoch 8, key 32 | The former key opens packets for 2 s more; 0: none does. |
| 2 | taken | group 8, epoch 8 | The member has it. |
| 3 | asked | group 8, epoch 8 | The member lacks the key, and can use none up to this epoch of the keeper. |

A key is accepted from the keeper alone, and only with a higher epoch than before. A packet of an epoch that its
receiver does not know waits for up to a second.

## Messages of plug-ins

`Control`, `PlainMessage` and `DirectMessage` name a plug-in and carry one of its messages as `body`. A peer refuses a
message for a plug-in that it does not host.

{plugins}### Headers of packets

A routing plug-in may write a header for the next hop into `Data`. The header is an array.

{packet_headers}"""

KINDS = (
    "0: one message; 1: a bundle, an array of messages; 2: a question about addresses, or its answer; "
    "3: one message to a multicast group"
)
PACKETS = (
    (
        packets.INITIATION, "initiation",
        f"index 4, e 32, s 48, introduction {packets.INITIATION_BYTES - 120}, mac1 16, mac2 16",
        "the first message of a handshake",
    ),
    (packets.ANSWER, "answer", "index 4, receiver's index 4, e 32, introduction", "the second"),
    (packets.COOKIE, "cookie", "receiver's index 4, salt 16, sealed cookie 32", "send the initiation again, with mac2"),
    (
        packets.QUESTION, "question", f"number 8, zeros {packets.MAX_CERTIFICATE_BYTES}",
        "which certificate do you have? An initiator needs the public key of the responder",
    ),
    (packets.CERTIFICATE, "certificate", "number 8, certificate", "the answer, with the number of the question"),
    (
        packets.MULTICAST, "multicast", "group 8, epoch 8, sender 8, salt 8, counter 8, sealed message",
        "a datagram to a [multicast group](#group-keys)",
    ),
    (
        f"{packets.TRANSPORT} + kind", "transport", "receiver's index 4, counter 8, sealed body",
        "the sealed body of a datagram of that kind",
    ),
)  # fmt: skip
NESTED = (Event, Range, Subscription, Qos)
"""Structs that stand in messages."""


def page() -> str:
    ack = wire.encode(wire.header(1, 2, 3), messages.Ack(7))
    return PAGE.format(
        wire=wire.VERSION,
        magic=wire.MAGIC.decode(),
        attributes=MAX_ATTRIBUTES,
        headers=MAX_HEADERS,
        datagram=wire.MAX_DATAGRAM_BYTES,
        bundle=wire.BUNDLE_BYTES,
        kinds=KINDS,
        intact=f"{wire.INTACT:#010x}",
        event=MAX_ATTRIBUTES_BYTES,
        payload=MAX_PAYLOAD_BYTES,
        shift=messages.TX_SHIFT,
        ack=ack.hex(" "),
        types=structs(NESTED, "struct"),
        link_messages=structs((*members(messages.Message), messages.ControlFragment)),
        address_messages=structs((*members(address_messages.AddressMessage), address_messages.KnownAddress)),
        plugins="".join(_plugins()),
        packet_headers=_packet_headers(),
        prologue=handshakes.PROLOGUE.decode(),
        sealed_magic=packets.MAGIC.decode(),
        sealed=packets.VERSION,
        packets="".join(f"| {kind} | {name} | {parts} | {about} |\n" for kind, name, parts, about in PACKETS),
        certificate=packets.MAX_CERTIFICATE_BYTES,
        window=replay.WINDOW,
        nothing=packets.NOTHING,
        rekeying=packets.REKEYING,
        group_key=packets.GROUP_KEY,
        group_header=packets.GROUP_HEADER_BYTES,
        keepalive=session_layer.KEEPALIVE_NS // SECOND,
        silence=handshakes.SILENCE_NS // SECOND,
        rekey=transport.REKEY_NS // SECOND,
        late=transport.REKEY_LATE_NS // SECOND,
        end=transport.END_NS // SECOND,
        overhead=packets.OVERHEAD_BYTES,
    )


def structs(structs: tuple[type[msgspec.Struct], ...], head: str = "message") -> str:
    """A table of structs, and below it the fields that have a docstring."""
    rows = "".join(_row(each) for each in structs)
    notes = "".join(
        f"- `{struct.__name__}.{field.name}`: {field.about}\n"
        for struct in structs
        for field in fields(struct)
        if field.about
    )
    below = f"{notes}\n" if notes else ""
    return f"| {head} | tag | fields | meaning |\n| --- | --- | --- | --- |\n{rows}\n{below}"


def _row(struct: type[msgspec.Struct]) -> str:
    config = struct.__struct_config__
    tag = "an array" if config.array_like else f"`{config.tag}`" if config.tag is not None else ""
    told = ", ".join(_field(each) for each in fields(struct))
    return f"| `{struct.__name__}` | {tag} | {told} | {summary(struct)} |\n"


def _field(field: Field) -> str:
    default = f" = {field.default}" if field.default else ""
    return f"`{field.name}` {field.type}{default}"


def _plugins() -> Iterator[str]:
    shown: dict[object, str] = {}
    for kind, table in PLUGINS.items():
        alike: dict[object, list[str]] = {}
        for name, made in table.items():
            if made.messages is not None:
                alike.setdefault(made.messages, []).append(name)
        for union, names in alike.items():
            title = ", ".join(f"`{name}`" for name in names)
            yield f"### {kind.capitalize()}: {title}\n\n"
            old = [struct for struct in members(union) if struct in shown]
            if old:
                yield ", ".join(f"`{struct.__name__}` as for {shown[struct]}" for struct in old) + "\n\n"
            new = tuple(struct for struct in members(union) if struct not in shown)
            if new:
                shown |= dict.fromkeys(new, title)
                yield structs((*new, *(inner for struct in new for inner in INSIDE.get(struct.__name__, ()))))


INSIDE: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "Shuffle": (Gossip,),
    "SequencedMessage": (LinkWeight, *members(TreeMessage)),
    "SubtreeInterest": (FilterDemand,),
}
"""Structs that stand in a message of a plug-in, by the name of that message."""


def _packet_headers() -> str:
    alike: dict[type[msgspec.Struct], list[str]] = {}
    for name, strategy in STRATEGIES.items():
        interest, routing = INTEREST[strategy.interest], routing_of(name)
        header = getattr(interest, "header", None) or getattr(routing, "header", None)
        if header is not None:
            alike.setdefault(header, []).append(name)
    rows = "".join(
        f"| {', '.join(f'`{name}`' for name in names)} | `{struct.__name__}` | "
        f"{', '.join(_field(each) for each in fields(struct))} | {summary(struct)} |\n"
        for struct, names in alike.items()
    )
    return f"| strategy | header | fields | meaning |\n| --- | --- | --- | --- |\n{rows}\n"
