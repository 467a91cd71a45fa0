"""The page of the wire format: datagrams between peers, and messages of plug-ins."""

from collections.abc import Iterator

import msgspec
from reference_pages.source import Field, fields, members, summary

from wend.drivers.live.addressing import address_messages
from wend.drivers.live.transport import wire
from wend.model.events import MAX_ATTRIBUTES, MAX_HEADERS, Qos, Subscription
from wend.model.publication import MAX_ATTRIBUTES_BYTES, MAX_PAYLOAD_BYTES
from wend.model.units import SECOND
from wend.protocol import messages
from wend.protocol.plugins import Plugin
from wend.security import handshakes, packets, replay, session_layer, transport
from wend.strategies.registry import INTEREST, PLUGINS, STRATEGIES, find_routing
from wend.strategies.trees.messages import SequencedMessage, TreeMessage

PAGE = """\
# Wire format

<!-- Written by scripts/reference.py. -->

What peers send each other in UDP datagrams (version {wire}), for those who capture packets or write a dissector. A
datagram has a sender, a kind, and a body of [msgpack](https://msgpack.org). Without keys it is framed with a
[header and a checksum](#datagrams-between-peers); with keys it is sealed in a [session](#sessions). Clients speak the
[client protocol](client-protocol.md).

## Encoding

- A struct is a map from field names to values. If it has a tag, the key `type` holds it.
- A struct with `an array` in the place of its tag is an array of its fields, in order, without names.
- `= value` is the default of a field that a sender may leave out. A receiver ignores unknown fields, except in `Range`.
- A name that ends in `_ns` is a time in nanoseconds.
- `Event`, `CodedBlock` and `Range` are those of the [client protocol](client-protocol.md#frames).

| type | encoded as |
| --- | --- |
| peer id | integer from 0 to 2^64 - 1 |
| event id | array: publisher (peer id), incarnation, sequence |
| subscription id | array: peer (peer id), number |
| attributes | map from text to boolean, integer, float, text or `Range`; at most {attributes} |
| headers | map from text to text; at most {headers} |
| path | array of the routers between two peers: text or integer, nil for a router without a name |
| route | array of peer ids that a packet has yet to visit, the destination last |
| slot | array: text, peer id; a newer control message of the same slot replaces the older one |
| generation | array: number, peer id that called for it, incarnation of that peer |

{types}## Datagrams between peers

| offset | bytes | field | value |
| --- | --- | --- | --- |
| 0 | 2 | magic | `{magic}` |
| 2 | 1 | version | {wire} |
| 3 | 1 | kind | as below |
| 4 | 8 | sender | peer id |
| 12 | 8 | receiver | peer id, or the number of a multicast group |
| 20 | 8 | incarnation | of the sender: higher after each restart |
| 28 | | body | msgpack |
| | 4 | checksum | the CRC32 of everything before it, lowest byte first |

Integers of the header are big-endian. The CRC32 of a whole datagram, checksum included, is {intact}; a receiver drops
any other. Kinds:

{kinds}
A datagram has at most {datagram} bytes, a bundle at most {bundle}. The attributes and headers of an event have at most
{event} bytes together, its payload at most {payload}. `Ack(tx=7)` from incarnation 3 of peer 1 to peer 2 is

    {ack}

A peer may send an event in blocks, each in a `Data` of its own with the event's id; `Event.block` says which one it is.
A block has ceil(`length` / `needed`) bytes. Block i below `needed` is piece i of the payload, padded with zeros at the
end. Every other block i, up to 255, is a sum over GF(2^8) with the polynomial 0x11D: piece j times the inverse of
(i xor j). Any `needed` blocks with the same `needed`, `length` and `checksum` give the payload, which has that CRC32.

`tx` and `number` of acknowledged messages are (incarnation << {shift}) + counter. A retransmission has the number of
the first transmission.

### Messages

{link_messages}### Questions about addresses

Peers of a ring find each other's addresses by these; peers with given neighbours refuse them. If the sender does not
know the peer at an address, the receiver of its question is 2^64 - 1. An answer is never longer than its question.

{address_messages}### Multicast groups

A datagram to a group holds one `PlainMessage`. The number N of the group is the BLAKE2b hash of its name, with a digest
of 8 bytes. Unless the peer's file names an address, the group has the address 239.192.0.0 + (N mod 2^18) and the port
16384 + (N >> 32) mod 16384. The sender uses the socket at which it receives, so receivers know it by its address. Peers
with keys seal these datagrams with the [key of the group](#group-keys).

## Sessions

Peers with keys speak Noise_IK_25519_ChaChaPoly_BLAKE2s, with the prologue `"{prologue}"`. Integers in these packets are
little-endian. A packet begins with

| offset | bytes | field | value |
| --- | --- | --- | --- |
| 0 | 2 | magic | `{sealed_magic}` |
| 2 | 1 | version | {sealed} |
| 3 | 1 | type | as below |

and goes on with

| type | packet | fields with their bytes | meaning |
| --- | --- | --- | --- |
{packets}
An index is a random number by which its receiver finds the handshake or the keys. `e`, `s` and the introduction are
those of Noise; `s` and the introduction are encrypted. An introduction is: version of the datagrams above (1),
incarnation (8), random number of the process (8), number of the handshake (8), length of the certificate (2),
certificate (DER, at most {certificate}). In an initiation zeros follow, up to the longest certificate, so that no reply
is longer than the packet that it answers.

- `mac1` is the keyed BLAKE2s of everything before it, under the BLAKE2s of `"wend mac1"` and the receiver's public key.
- `mac2` is the BLAKE2s of everything before it under the receiver's cookie, or zeros. A busy receiver asks for it.
- A sealed cookie is ChaChaPoly under the BLAKE2s of `"wend cookie"`, the sender's public key and the salt, with mac1 as
  associated data.
- An initiation is accepted if its incarnation and number are higher than those of the last one of that peer.
- The nonce of a sealed message is its counter, and the header of 16 bytes is the associated data. A receiver accepts
  each counter once, and none that is {window} below the highest.
- Kind {nothing} is an empty packet. It confirms new keys, and answers packets after {keepalive} s if there is nothing
  else to send. A peer that has sent packets and hears nothing for {silence} s begins a handshake.
- The initiator begins the next handshake when its keys are {rekey} s old, the responder after {late} s. Keys end after
  {end} s. Kind {rekeying} carries an initiation inside a session.
- A peer sends to the address from which the newest authentic packet came.

A sealed message costs {overhead} bytes, as many as the header and checksum of an open one.

### Group keys

A multicast packet is sealed with a key of its sender: the first output of HKDF (BLAKE2s) of the group's key and
`"wend multicast sender"`, the sender's id (8) and the salt, which the sender draws for each key. The header of
{group_header} bytes is the associated data, and the counter is the nonce. A receiver accepts each counter of a sender
and salt once.

The keeper of a group, in a cluster the first active coordinator, makes its key. It makes another one when members come,
go, restart or are revoked, and every hour. Messages about keys are transport packets of kind {group_key}:

| type | message | fields with their bytes | meaning |
| --- | --- | --- | --- |
| 1 | told | group 8, epoch 8, former epoch 8, key 32 | The former key opens packets for 2 s more; 0: there is none. |
| 2 | taken | group 8, epoch 8 | The member has the key. |
| 3 | asked | group 8, epoch 8 | The member lacks the key, and can use none up to this epoch of the keeper. |

A member accepts a key from the keeper alone, and only with a higher epoch. A packet of an unknown epoch waits for up to
a second.

## Messages of plug-ins

`Control`, `PlainMessage` and `DirectMessage` name a plug-in and carry one of its messages as `body`. These are the
messages of `adaptive`, the default strategy:

{plugins}### Other strategies

The tags of their messages, and the file under `src/wend/` that documents each message and field:

{others}
### Headers of packets

A routing plug-in may write a header for the next hop into `Data`. The header is an array.

{packet_headers}"""

KINDS = """\
- 0: one message
- 1: a bundle, an array of messages
- 2: a question about addresses, or its answer
- 3: one message to a multicast group
"""
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
NESTED = (Subscription, Qos)
"""Structs that stand in messages, but for those of the client protocol."""


def page() -> str:
    ack = wire.frame_datagram(wire.make_header(1, 2, 3), wire.encode_message(messages.Ack(7)))
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
        link_messages=structs((*members(messages.Message), messages.ControlFragment, messages.FailureNews)),
        address_messages=structs((*members(address_messages.AddressMessage), address_messages.KnownAddress)),
        plugins="".join(_default_plugins()),
        others="".join(_other_plugins()),
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


DEFAULT = ("link-state", "flooded")
"""The plug-ins with messages that the default strategy needs."""


def _default_plugins() -> Iterator[str]:
    for kind, table in PLUGINS.items():
        for name, made in table.items():
            if name in DEFAULT:
                yield f"### {kind.capitalize()}: `{name}`\n\n{structs(_messages(made))}"


def _other_plugins() -> Iterator[str]:
    """A line for plug-ins with the same messages: their files, and the tags."""
    for kind, table in PLUGINS.items():
        alike: dict[object, list[str]] = {}
        for name, made in table.items():
            if made.messages is not None and name not in DEFAULT:
                alike.setdefault(made.messages, []).append(name)
        for names in alike.values():
            structs = _messages(table[names[0]])
            files = sorted({struct.__module__.replace(".", "/").removeprefix("wend/") + ".py" for struct in structs})
            tags = ", ".join(f"`{struct.__struct_config__.tag}` {struct.__name__}" for struct in structs)
            yield f"- {kind} {', '.join(f'`{name}`' for name in names)} (`{'`, `'.join(files)}`): {tags}\n"


def _messages(plugin: type[Plugin]) -> tuple[type[msgspec.Struct], ...]:
    """The messages of a plug-in, and those within them."""
    found = members(plugin.messages)
    return (*found, *(members(TreeMessage) if SequencedMessage in found else ()))


def _packet_headers() -> str:
    alike: dict[type[msgspec.Struct], list[str]] = {}
    for name, strategy in STRATEGIES.items():
        interest, routing = INTEREST[strategy.interest], find_routing(name)
        header = getattr(interest, "header", None) or getattr(routing, "header", None)
        if header is not None:
            alike.setdefault(header, []).append(name)
    rows = "".join(
        f"| {', '.join(f'`{name}`' for name in names)} | `{struct.__name__}` | "
        f"{', '.join(_field(each) for each in fields(struct))} | {summary(struct)} |\n"
        for struct, names in alike.items()
    )
    return f"| strategy | header | fields | meaning |\n| --- | --- | --- | --- |\n{rows}\n"
