"""`wend pub` and `wend sub`: a running overlay from a shell.

Exit codes: 0 done, 1 the events that were waited for did not come in time, 2 an error, in one sentence.
"""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.model.errors import ConfigError
from wend.model.events import Attributes
from wend.model.units import SECOND, parse_duration

if TYPE_CHECKING:
    from wend.drivers.live.client import Receipt
    from wend.drivers.live.subscription import Arrival, Subscription

DEFAULT_PEER = "wend://127.0.0.1:7700"
Peer = Annotated[str, typer.Option(metavar="URL", help="The peer to connect to.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def register(app: typer.Typer) -> None:
    app.command("pub")(pub)
    app.command("sub")(sub)


def pub(
    attributes: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE...", help="For example topic=stuttgart temperature=15.")
    ] = None,
    payload: Annotated[str | None, typer.Option(help="The event's payload, as text.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Publish every line of stdin as a payload.")] = False,
    peer: Peer = DEFAULT_PEER,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no receipts.")] = False,
) -> None:
    """Publish an event; without attributes, one for each line of stdin (a JSON object of attributes)."""
    import asyncio

    import uvloop

    given = read_attributes(attributes or [])
    if lines and payload is not None:
        raise ConfigError("choose --payload or --lines, not both")
    if lines or not given:
        events = _from_lines(given if lines else None, (payload or "").encode())
    else:
        events = iter([(given, (payload or "").encode())])

    async def run() -> None:
        import wend

        async with wend.connect(peer) as client:
            # Lines are waited for in a thread, so that the connection stays alive meanwhile.
            while (event := await asyncio.to_thread(next, events, None)) is not None:
                receipt = await client.publish(*event)
                if not quiet:
                    print(_receipt(receipt, as_json), flush=True)

    uvloop.run(run())


def sub(
    filter: Annotated[str, typer.Argument(help="For example \"topic = 'stuttgart'\".")],
    deadline: Annotated[str | None, typer.Option(help="How soon events are wanted: 200ms.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many events.")] = None,
    timeout: Annotated[str | None, typer.Option(help="End after so long: 10s.")] = None,
    peer: Peer = DEFAULT_PEER,
    as_json: Json = False,
) -> None:
    """Print events as they arrive, until Ctrl-C, --count or --timeout."""
    import uvloop

    limit = None if timeout is None else parse_duration(timeout) / SECOND
    soon = None if deadline is None else parse_duration(deadline) / SECOND
    try:
        complete = uvloop.run(_print_events(peer, filter, soon, count, limit, as_json))
    except KeyboardInterrupt:
        return
    if not complete:
        raise typer.Exit(1)


async def _print_events(
    url: str, filter: str, deadline: float | None, count: int | None, limit: float | None, as_json: bool
) -> bool:
    """Whether all events that were waited for came."""
    import asyncio

    import wend

    seen = 0
    async with wend.connect(url) as client, client.subscribe(filter, deadline=deadline) as events:
        print(f"subscribed at peer {client.peer}", file=sys.stderr, flush=True)
        try:
            async with asyncio.timeout(limit):
                async for event in events:
                    print(_event(event, as_json), flush=True)
                    seen += 1
                    if seen == count:
                        break
        except TimeoutError:
            pass
        finally:
            _tell_dropped(events)
    return count is None or seen == count


def _tell_dropped(events: "Subscription") -> None:
    if events.dropped:
        print(f"wend: {events.dropped} events were dropped: they came faster than they were read", file=sys.stderr)


def _event(event: "Arrival", as_json: bool) -> str:
    text = event.payload.decode("utf-8", "backslashreplace")
    if as_json:
        shown = {"id": str(event.id), "attributes": event.attributes, "payload": text}
        return json.dumps({**shown, "age_ms": round(event.age * 1000, 3), "late": event.late})
    pairs = " ".join(f"{name}={value}" for name, value in event.attributes.items())
    late = ", late" if event.late else ""
    return "  ".join(part for part in (pairs, text, f"({event.age * 1000:.1f} ms{late})") if part)


def _receipt(receipt: "Receipt", as_json: bool) -> str:
    if as_json:
        return json.dumps({"id": str(receipt.id), "targets": receipt.targets, "kept": receipt.kept})
    peers = "1 peer" if receipt.targets == 1 else f"{receipt.targets} peers"
    return f"published {receipt.id} to {peers}{', kept' if receipt.kept else ''}"


def read_attributes(words: list[str]) -> Attributes:
    """`temperature=15` is a number, `open=true` a truth value, everything else text; a topic always is."""
    found: Attributes = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ConfigError(f"cannot read {word!r} as an attribute: it looks like temperature=15")
        found[name] = value if name == "topic" else _scalar(value)
    return found


def _scalar(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _from_lines(fixed: Attributes | None, payload: bytes) -> Iterator[tuple[Attributes, bytes]]:
    for number, line in enumerate(sys.stdin, 1):
        line = line.rstrip("\n")
        if fixed is not None:
            yield fixed, line.encode()
        elif line:
            yield _attributes_line(number, line), payload


def _attributes_line(number: int, line: str) -> Attributes:
    import msgspec

    try:
        return msgspec.json.decode(line, type=Attributes)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"line {number} is not a JSON object of attributes: {error}") from None
