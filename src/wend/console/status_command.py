"""`wend status`: the state of a running peer, as text for people or as JSON for programs."""

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from wend.console.peer_options import LOCAL_PEER, Json, PeerOptions, with_peer_options
from wend.console.terminal import align_columns, count_text
from wend.model.units import MS, duration_text

if TYPE_CHECKING:
    from wend.drivers.live.status import StatusSnapshot
    from wend.protocol.status import LinkStatus

_COUNT_OF_NAME = re.compile(r"([a-z-]+)/(.+)")
"""`entries/A`: the count `entries` of A."""
_HEAD_COUNTS = ("subscriptions", "clients.now")
_LINK_COLUMNS = ("link", "address", "state", "rtt", "loss", "last change")


def register(app: typer.Typer) -> None:
    app.command("status")(status)


@with_peer_options
def status(at: PeerOptions = LOCAL_PEER, as_json: Json = False) -> None:
    """Print the state of a running peer: its links and its counters."""
    snapshot = at.ask(lambda client: client.status())
    print(json.dumps(status_fields(snapshot)) if as_json else status_text(snapshot))


def status_fields(snapshot: "StatusSnapshot") -> dict[str, Any]:
    """The snapshot with its fields, and of each link also the round trip and the loss."""
    fields: dict[str, Any] = msgspec.to_builtins(snapshot)
    for shown, link in zip(fields["links"], snapshot.links, strict=True):
        shown |= {"rtt_ns": link.rtt_ns, "loss": round(link.loss, 9)}
    return fields


def status_text(snapshot: "StatusSnapshot") -> str:
    """Format a status snapshot: the peer, its links as a table, and its counters."""
    membership = "" if snapshot.membership is None else f", membership {snapshot.membership}"
    head = [
        f"peer {snapshot.peer} at {snapshot.address}, wend {snapshot.software}, up {duration_text(snapshot.uptime_ns)}",
        f"strategy {snapshot.strategy}, interest {snapshot.interest}{membership}, "
        f"{count_text(snapshot.subscriptions, 'subscription')}, {count_text(snapshot.clients.get('now', 0), 'client')}",
    ]
    if snapshot.plan is not None and snapshot.plan.id is not None:
        version = f", version {snapshot.plan.version}" if snapshot.plan.version else " of its folder"
        head.append(f"follows plan {snapshot.plan.id:08x}{version}")
    numbers = {
        name: count
        for name, count in snapshot.flat().items()
        if name not in _HEAD_COUNTS and not name.startswith("links.")
    }
    links = ["", *link_lines(snapshot.links)] if snapshot.links else []
    return "\n".join([*head, *links, "", counters_text(numbers)])


def link_lines(links: "tuple[LinkStatus, ...]") -> list[str]:
    """A line for each link, below a line of titles."""
    return align_columns([_LINK_COLUMNS, *(_link_row(link) for link in links)])


def _link_row(link: "LinkStatus") -> tuple[str, ...]:
    return (
        str(link.neighbour),
        link.address or "unknown",
        link.state,
        f"{link.rtt_ns / MS:.1f} ms",
        f"{100 * link.loss:.1f} %",
        f"{duration_text(link.changed_ns)} ago",
    )


def counters_text(counts: dict[str, int]) -> str:
    """The counters as a table. `control.acks` is in the group `control`, whose name is printed once. Counts that a
    plug-in has of several things, such as `entries/A` and `events/A` of a region A, form a table of their own below."""
    groups: dict[str, list[tuple[str, int]]] = {}
    below: dict[str, dict[str, dict[str, int]]] = {}
    for key, count in counts.items():
        group, _, what = key.partition(".")
        if (several := _COUNT_OF_NAME.fullmatch(what)) is None:
            groups.setdefault(group, []).append((what, count))
        else:
            below.setdefault(group, {}).setdefault(several[2], {})[several[1]] = count
    rows = [
        ("" if place else group, what, str(count))
        for group, members in groups.items()
        for place, (what, count) in enumerate(members)
    ]
    lines = align_columns(rows, right=(2,))
    return "\n".join(
        [*lines, *(line for group, named in below.items() for line in ("", *_table_of_named_counts(group, named)))]
    )


def _table_of_named_counts(group: str, named: dict[str, dict[str, int]]) -> list[str]:
    """A row for each name, with a column for each of its counts."""
    columns = list(dict.fromkeys(what for counts in named.values() for what in counts))
    rows = [(name, *(str(counts.get(what, 0)) for what in columns)) for name, counts in named.items()]
    return align_columns([(group, *columns), *rows], right=range(1, 1 + len(columns)))
