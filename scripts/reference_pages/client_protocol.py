"""The page of the client protocol: what a client and its peer say to each other over TCP."""

from reference_pages.source import members
from reference_pages.wire_format import structs

from wend.drivers.live import frames
from wend.drivers.live.access.source_limits import MAX_CLIENTS
from wend.drivers.live.broker import broker, listener, log_readers
from wend.drivers.live.client import connection
from wend.drivers.live.log_frames import LoggedEvent, LogPlace
from wend.drivers.live.transport import wire
from wend.model.events import MAX_ATTRIBUTES, MAX_HEADERS, CodedBlock, DurableOptions, Event, Range
from wend.model.publication import MAX_ATTRIBUTES_BYTES, MAX_PAYLOAD_BYTES

PAGE = """\
# Client protocol

<!-- Written by scripts/reference.py. -->

How to write a client in another language: what it says to a peer over TCP (version {version}).
[examples/client.mjs](../../examples/client.mjs) is one in JavaScript. A peer with keys takes the same frames over TLS
1.3 (`wends://`), from clients that show a certificate of the overlay's root, or a token in `greet`. Peers accept
clients without TLS on loopback only, unless their file says otherwise.

## Frames

A frame is a big-endian length of 4 bytes, and as many bytes of [msgpack](https://msgpack.org), at most {frame}: a map
whose key `type` holds the tag of the frame; the other keys are its fields. `Greet()` is

    {greet}

and `Publish(ref=1, attributes={{"topic": "a"}}, payload=b"hi")` is

    {publish}

- `= value` is the default of a field that a sender may leave out. A receiver ignores unknown fields, except in `Range`.
- A name that ends in `_ns` is a time in nanoseconds.

| type | encoded as |
| --- | --- |
| peer id | integer from 0 to 2^64 - 1 |
| event id | array: publisher (peer id), incarnation, sequence; all of up to 64 bits |
| attributes | map from text to boolean, integer, float, text or `Range`; at most {attributes} |
| headers | map from text to text; at most {headers} |
| counters | map from text to integer |

{types}Attributes and headers of an event have at most {event} bytes together, its payload at most {payload}.

## A conversation

| client | peer | |
| --- | --- | --- |
| `greet` | | The first frame, within {greet_s:g} s. |
| | `welcome` | Or `refused` with `ref` 0, and the connection ends: such as for an unknown token. |
| `subscribe` 1 | | The client chooses `ref` for the answer, and `handle` for the deliveries. |
| `publish` 2 | | It need not wait for the answer before. |
| | `completed` 1 | The subscription holds from now on, at this peer. |
| | `delivery` | Deliveries come at any time, also before the answer to a request. |
| | `accepted` 2 | The peer answers for the event from now on. |
| `ping` 3 | | |
| | `completed` 3 | Everything that the peer wrote before has arrived. |

- **Requests.** Each has a number `ref` above 0, which its answer repeats. Many may be under way. The peer carries them
  out in order. If it does not carry one out, the answer is `refused`, with a [code](errors.md) for programs and a
  sentence for people. A peer serves {clients} clients at a time, and keeps the last quarter of these places for
  clients from other addresses.
- **Subscriptions** end with the connection, unless they are durable. A client may have {handles} of them.
- **Reading.** A client must read continuously. For a slow one the peer queues up to {queue_msgs} deliveries or
  {queue_bytes} bytes, then drops the oldest and reports it with `dropped`. While a client does not read its answers,
  the peer does not read its requests. A client that reads nothing for {stall_s:g} s is disconnected.
- **Logs.** After `read-log` the peer sends `reading`, then deliveries with rising positions: history, then what comes.
  It stops while `window` events, or {log_bytes} bytes, are not taken: the client sends `continue` as its application
  takes events, and at the latest when it has none left. `missed` counts events below a position that are gone. Over
  another connection, the client begins after the last position that it has, with the `log_id` of `reading`.
- **A lost connection.** Nobody knows whether the peer accepted a publication that was not answered. A client may
  connect and subscribe again after a pause. To find out whether a silent peer is gone, send `ping`: the Python
  client does so after {silence_s:g} s, and gives up after as many again.

## From the client

{to_peer}## From the peer

{to_client}[Status](status.md) lists the fields of `StatusSnapshot`.
"""

STRUCTS = (Event, CodedBlock, Range, frames.PostedEvent, DurableOptions, frames.DurableStatus, LogPlace, LoggedEvent)


def page() -> str:
    publish = frames.Publish(1, {"topic": "a"}, b"hi")
    return PAGE.format(
        version=frames.VERSION,
        frame=frames.MAX_FRAME_BYTES,
        greet=wire.encode_frame(frames.Greet()).hex(" "),
        publish=wire.encode_frame(publish).hex(" "),
        attributes=MAX_ATTRIBUTES,
        headers=MAX_HEADERS,
        event=MAX_ATTRIBUTES_BYTES,
        payload=MAX_PAYLOAD_BYTES,
        types=structs(STRUCTS, "struct"),
        greet_s=listener.GREET_S,
        clients=MAX_CLIENTS,
        handles=broker.MAX_HANDLES,
        queue_msgs=listener.QUEUE_MSGS,
        queue_bytes=listener.QUEUE_BYTES,
        stall_s=listener.STALL_S,
        log_bytes=log_readers.WINDOW_BYTES,
        silence_s=connection.SILENCE_S,
        to_peer=structs(members(frames.ToPeer)),
        to_client=structs(members(frames.ToClient)),
    )
