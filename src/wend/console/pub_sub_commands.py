"""`wend pub` and `wend sub`: clients of a running peer.

Exit codes: 0 success, also if Ctrl-C ends `sub`; 1 fewer events than `--count` arrived in time; 2 an error; 130
interrupted before the end.
"""

import json
import os
import re
import shlex
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.peer_options import LOCAL_PEER, Json, PeerOptions, with_peer_options
from wend.console.terminal import count_text, warn_about_filters
from wend.model.errors import ConfigError
from wend.model.events import Attributes, Headers, Range, Value
from wend.model.units import SECOND, parse_duration, parse_milliseconds

if TYPE_CHECKING:
    from wend.drivers.live.client.arrivals import Arrival, PublishReceipt
    from wend.drivers.live.client.client import Client
    from wend.drivers.live.client.event_stream import EventStream

Published = tuple[Attributes, bytes]
_RANGE = re.compile(r"([\[\]])\s*([^,]*?)\s*,\s*([^,]*?)\s*([\[\]])")
_UNOPENED_RANGE = re.compile(r"[^][]*,[^][]*[][]")
"""A range without its first bracket."""
_NUMBERLIKE = re.compile(r"[+-]?(\d[\d_,]*\.?[\d_]*|\.\d+)([eE][+-]?\d*)?")
"""A text that begins like a number and has no other characters: `1,5`, `.5`, `+5`, `007`; not a date or an address."""
_CHUNK_BYTES = 64 * 1024
MAX_LINE_BYTES = 1024 * 1024
"""Longer than any event. `pub` refuses longer lines, such as a file without line ends, before it reads them all."""
_READ_AHEAD = 64
_REST_UNREAD = "the lines before it were published, the rest was not read"
_STDIN = "-"
"""As a file."""


def register(app: typer.Typer) -> None:
    app.command("pub")(pub)
    app.command("sub")(sub)


@with_peer_options
def pub(
    attributes: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="For example topic=stuttgart temperature=15.")
    ] = None,
    payload: Annotated[str | None, typer.Option(help="The event's payload, as text.")] = None,
    payload_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The event's payload: the bytes of a file, or - for stdin.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=TEXT", help="A header; may be repeated.")] = None,
    retain: Annotated[
        bool,
        typer.Option(
            "--retain", help="Retain the event for later subscribers, until another event with its topic replaces it."
        ),
    ] = False,
    key: Annotated[
        str | None, typer.Option(help="Published again with the same key within ten minutes, it is one event.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Publish each line of stdin as the payload of an event.")
    ] = False,
    at: PeerOptions = LOCAL_PEER,
    as_json: Json = False,
    ttl: Annotated[str | None, typer.Option(help="The age at which peers drop the event: 10s.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no receipts.")] = False,
) -> None:
    """Publish an event. Without attributes, publish an event for each line of stdin (a JSON object of attributes)."""
    lives = None if ttl is None else parse_milliseconds(ttl, "--ttl") / SECOND
    named, headers = read_attributes(attributes or []), read_headers(header or [])
    sources = {"--payload": payload is not None, "--payload-file": payload_file is not None, "--lines": lines}
    _check_sources([name for name, is_given in sources.items() if is_given], payload_file, has_event=bool(named))
    body = os.fsencode(payload or "") if payload_file is None else _read_payload(payload_file)
    if key is not None and (lines or not named):
        raise ConfigError("a key is for one event, and each line of stdin is an event")
    if lines or not named:
        if sys.stdin is None:
            raise ConfigError("cannot read stdin: it is closed", code="unreadable")
        events = _read_line_events(named if lines else None, body)
    else:
        events = iter([(named, body)])

    async def publish(client: "Client") -> None:
        async for event in _iterate_in_thread(events):
            receipt = await client.publish(*event, headers, ttl=lives, retain=retain, key=key)
            if not quiet:
                print(_receipt_text(receipt, as_json), flush=True)

    at.ask(publish)


@with_peer_options
def sub(
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="For example \"topic = 'stuttgart'\".")],
    deadline: Annotated[
        str | None, typer.Option(help="The deadline of events: 200ms, or 3x: a multiple of the shortest delay.")
    ] = None,
    reliability: Annotated[
        float | None,
        typer.Option(
            help="The share of events that is enough without retransmissions: 0.99 (for strategies with trees)."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Make the subscription durable: events wait for the next client with this name."),
    ] = None,
    max_events: Annotated[int | None, typer.Option(min=1, help="With --name: the most events that wait.")] = None,
    max_age: Annotated[str | None, typer.Option(help="With --name: the longest time that events wait: 2h.")] = None,
    in_order: Annotated[
        bool, typer.Option("--in-order", help="Print events of one publisher in the order of publication.")
    ] = False,
    expire: Annotated[bool, typer.Option("--expire", help="Drop events that are past the deadline.")] = False,
    group: Annotated[
        str | None, typer.Option(help="The queue group: one of its members, at any peer, gets each event.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Read a log from here, then go on: first, 2h, 2026-03-01T12:00, or a position."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="End before this time or position of the log, or now.")
    ] = None,
    last: Annotated[int | None, typer.Option(min=0, help="Begin with so many of the last events of the log.")] = None,
    log: Annotated[str | None, typer.Option(metavar="NAME", help="The log to read, if there are several.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many events.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Stop after this time: 10s.")] = None,
    at: PeerOptions = LOCAL_PEER,
    as_json: Json = False,
) -> None:
    """Print events as they arrive, until Ctrl-C, --count, --timeout or --until."""
    limit = None if timeout is None else parse_duration(timeout) / SECOND
    soon: float | str | None = deadline
    if deadline is not None and not deadline.endswith("x"):
        soon = parse_milliseconds(deadline, "--deadline") / SECOND
    warn_about_filters([filter])
    options = {
        "deadline": soon,
        "reliability": reliability,
        "name": name,
        "max_events": max_events,
        "max_age": None if max_age is None else parse_duration(max_age) / SECOND,
        "order": "publisher" if in_order else None,
        "expire": expire,
        "group": group,
        "since": since,
        "until": until,
        "last": last,
        "log": log,
    }
    try:
        complete = at.ask(lambda client: _print_events(client, filter, options, count, limit, as_json))
    except KeyboardInterrupt:
        if count is None:
            return
        raise
    if not complete:
        raise typer.Exit(1)


async def _print_events(
    client: "Client", filter: str, options: dict[str, Any], count: int | None, limit: float | None, as_json: bool
) -> bool:
    """Print events as they arrive. Returns whether as many as `count` arrived."""
    import asyncio

    seen = 0
    async with client.subscribe(filter, **options) as events:
        print(f"subscribed at peer {client.peer}", file=sys.stderr, flush=True)
        try:
            async with asyncio.timeout(limit):
                async for event in events:
                    print(_event_text(event, as_json), flush=True)
                    seen += 1
                    if seen == count:
                        break
        except TimeoutError:
            pass
        finally:
            _print_dropped(events)
    return count is None or seen == count


def _print_dropped(events: "EventStream") -> None:
    for reason, number in sorted(events.missed.items()):
        print(f"wend: missed {number}: {reason}", file=sys.stderr)
    if events.dropped:
        print(
            f"wend: dropped {count_text(events.dropped, 'event')}: they arrived faster than they were read",
            file=sys.stderr,
        )


def _event_text(event: "Arrival", as_json: bool) -> str:
    from wend.drivers.live.client.arrivals import LogArrival

    text = event.payload.decode("utf-8", "backslashreplace")
    if as_json:
        import msgspec

        fields = {"id": str(event.id), "attributes": msgspec.to_builtins(event.attributes), "payload": text}
        fields |= {} if _is_text(event.payload) else {"payload_base64": b64encode(event.payload).decode()}
        fields |= {"headers": event.headers} if event.headers else {}
        fields |= {"signed_by": event.signed_by} if event.signed_by is not None else {}
        fields |= {"position": event.position, "time": event.time} if isinstance(event, LogArrival) else {}
        return json.dumps({**fields, "age_ms": round(event.age * 1000, 3), "late": event.late})
    pairs = " ".join(f"{name}={value}" for name, value in event.attributes.items())
    late = ", late" if event.late else ""
    if isinstance(event, LogArrival):
        when = datetime.fromtimestamp(event.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        return "  ".join(part for part in (pairs, text, f"(#{event.position} {when}Z{late})") if part)
    return "  ".join(part for part in (pairs, text, f"({event.age * 1000:.1f} ms{late})") if part)


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _receipt_text(receipt: "PublishReceipt", as_json: bool) -> str:
    if as_json:
        return json.dumps(
            {"id": str(receipt.id), "targets": receipt.targets, "kept": receipt.kept, "repeated": receipt.repeated}
        )
    if receipt.repeated:
        return f"published {receipt.id} before"
    peers = "1 peer" if receipt.targets == 1 else f"{receipt.targets} peers"
    return f"published {receipt.id} to {peers}{', kept' if receipt.kept else ''}"


def read_attributes(arguments: list[str]) -> Attributes:
    """Parse attributes: `temperature=15` is a number, `open=true` a boolean, `speed=[40,60[` a range, others are text.

    A topic is always text. ConfigError refuses a value that looks like a mistyped range, number or quoted text.
    """
    attributes: Attributes = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise ConfigError(f"cannot read {argument!r} as an attribute: write NAME=VALUE, such as temperature=15")
        attributes[name] = value if name == "topic" else _parse_value(argument, value)
    return attributes


def read_headers(arguments: list[str]) -> Headers:
    headers: Headers = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or not name:
            raise ConfigError(f"cannot read {argument!r} as a header: write NAME=TEXT, such as content-type=text/plain")
        headers[name] = text
    return headers


def _parse_value(argument: str, text: str) -> Value:
    if (ends := _RANGE.fullmatch(text)) is None:
        value = _parse_scalar(text)
        if isinstance(value, str) and value == text and (wrong := _mistyped_reason(text)):
            raise ConfigError(f"cannot read {argument!r} as an attribute: {wrong}")
        return value
    low, high = (_parse_scalar(end) if end else None for end in ends.group(2, 3))
    try:
        return Range(low, high, low is not None and ends[1] == "]", high is not None and ends[4] == "[")
    except ValueError as error:
        raise ConfigError(f"cannot read {argument!r} as an attribute: {error}") from None


def _mistyped_reason(text: str) -> str:
    """Why a text is probably a mistake, with the way to publish it as a text; empty if it is a text."""
    as_text = f"the text is written {shlex.quote(json.dumps(text, ensure_ascii=False))}"
    if text.startswith(("[", "]")) or _UNOPENED_RANGE.fullmatch(text):
        return f"a range has two ends and two brackets, such as [3,5] or [3,5[; {as_text}"
    if text.startswith("{"):
        return f"an attribute has one value; {as_text}"
    if text.startswith('"'):
        return f"a text that begins with a quote ends with one, and has none inside without a backslash; {as_text}"
    if _NUMBERLIKE.fullmatch(text):
        return f"this is not a number in JSON, such as 1.5, 0.5 or 1000; {as_text}"
    return ""


def _parse_scalar(text: str) -> bool | int | float | str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _read_payload(path: str) -> bytes:
    """The bytes of a file or of stdin. It reads no more than a payload may have: a file may have no end."""
    from wend.model.publication import MAX_PAYLOAD_BYTES

    name = "stdin" if path == _STDIN else path
    try:
        with open(0 if path == _STDIN else path, "rb", closefd=path != _STDIN) as file:
            body = file.read(MAX_PAYLOAD_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}", code="unreadable") from None
    if len(body) > MAX_PAYLOAD_BYTES:
        raise ConfigError(f"{name} has more bytes than a payload, which may have {MAX_PAYLOAD_BYTES}")
    return body


def _read_line_events(fixed: Attributes | None, payload: bytes) -> Iterator[Published]:
    for number, line in enumerate(_read_stdin_lines(), 1):
        if fixed is not None:
            yield fixed, line
        elif line.strip():
            yield _parse_attributes(number, line), payload


def _read_stdin_lines() -> Iterator[bytes]:
    """The lines of stdin. It does not use `sys.stdin`: a blocked thread would hold its lock when the process ends."""
    rest = b""
    try:
        while chunk := os.read(0, _CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            if len(rest) > MAX_LINE_BYTES:
                raise ConfigError(f"a line of stdin has more than {MAX_LINE_BYTES} bytes; {_REST_UNREAD}")
    except OSError as error:
        raise ConfigError(f"cannot read stdin: {error.strerror}", code="unreadable") from None
    if rest:
        yield rest


def _check_sources(chosen: list[str], payload_file: str | None, *, has_event: bool) -> None:
    if len(chosen) > 1:
        raise ConfigError(f"choose {chosen[0]} or {chosen[1]}, not both")
    if payload_file == _STDIN and not has_event:
        raise ConfigError("stdin holds the payload: give the attributes as arguments, such as topic=stuttgart")


async def _iterate_in_thread(events: Iterator[Published]) -> AsyncIterator[Published]:
    """Iterate in a thread, so that the event loop serves the connection and Ctrl-C while stdin blocks.

    Nothing interrupts a read of stdin, so the thread is a daemon: the process does not wait for it at the end.
    """
    import asyncio
    import threading

    loop, read = asyncio.get_running_loop(), asyncio.Queue[Published | BaseException | None]()
    free = threading.Semaphore(_READ_AHEAD)

    def put(what: Published | BaseException | None) -> None:
        free.acquire()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(read.put_nowait, what)

    def run() -> None:
        try:
            for event in events:
                put(event)
        except BaseException as error:
            put(error)
        else:
            put(None)

    threading.Thread(target=run, name="stdin", daemon=True).start()
    while (item := await read.get()) is not None:
        free.release()
        if isinstance(item, BaseException):
            raise item
        yield item


def _parse_attributes(number: int, line: bytes) -> Attributes:
    import msgspec

    from wend.model.error_text import describe_unreadable

    try:
        return msgspec.json.decode(line, type=Attributes)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = describe_unreadable(error, Attributes)
        raise ConfigError(f"line {number} is not a JSON object of attributes: {why}; {_REST_UNREAD}") from None
