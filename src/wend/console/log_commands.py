"""`wend log`: the logs of a running peer."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from wend.console.peer_options import LOCAL_PEER, Json, PeerOptions, with_peer_options
from wend.console.terminal import align_columns
from wend.model.errors import ConfigError
from wend.model.units import SECOND, Nanos

if TYPE_CHECKING:
    from wend.drivers.live.status import LogStatus


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Show the logs of a running peer.", no_args_is_help=True)
    group.command("list")(list_logs)
    group.command("show")(show_log)
    app.add_typer(group, name="log")


@with_peer_options
def list_logs(at: PeerOptions = LOCAL_PEER, as_json: Json = False) -> None:
    """List the logs of a running peer."""
    logs = at.ask(lambda client: client.status()).logs
    if as_json:
        for name, log in logs.items():
            print(json.dumps({"name": name, **msgspec.to_builtins(log)}))
    else:
        print("\n".join(_log_rows(logs)) if logs else "no logs")


@with_peer_options
def show_log(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the log.")],
    at: PeerOptions = LOCAL_PEER,
    as_json: Json = False,
) -> None:
    """Show one log of a running peer: its events, positions, times and counters."""
    logs = at.ask(lambda client: client.status()).logs
    if name not in logs:
        known = f": its logs are {', '.join(logs)}" if logs else ": it has none"
        raise ConfigError(f"this peer has no log {name!r}{known}", code="unknown-log")
    log = logs[name]
    if as_json:
        print(json.dumps({"name": name, **msgspec.to_builtins(log)}))
        return
    rows = [
        ("filter", log.filter),
        ("events", str(log.events)),
        ("size", _size_text(log.bytes)),
        ("positions", f"{log.first} to {log.next - 1}" if log.events else f"none; the next one is {log.next}"),
        ("oldest", time_text(log.first_ns)),
        ("newest", time_text(log.newest_ns)),
        ("appended since the start", str(log.appended)),
        ("came again since the start", str(log.duplicates)),
        ("dropped since the start", str(log.dropped)),
    ]
    print("\n".join(align_columns(rows)))


def _log_rows(logs: "dict[str, LogStatus]") -> list[str]:
    rows = [("name", "events", "size", "oldest", "newest", "filter")]
    for name, log in logs.items():
        times = (time_text(log.first_ns), time_text(log.newest_ns))
        rows.append((name, str(log.events), _size_text(log.bytes), *times, log.filter))
    return align_columns(rows, right=(1, 2))


def _size_text(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def time_text(time_ns: Nanos) -> str:
    """A wall-clock time for people, in UTC."""
    return datetime.fromtimestamp(time_ns / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time_ns else "-"
