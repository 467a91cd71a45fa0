"""`wend status`: what a running peer is and does, as a text for people or as JSON for programs."""

import json
import re
from typing import TYPE_CHECKING, Any

import typer

from wend.console.peer_options import LOCAL_PEER, Json, PeerOptions, asks_peer
from wend.console.show import counted
from wend.model.units import MS, duration_text

if TYPE_CHECKING:
    from wend.drivers.live.status import StatusSnapshot
    from wend.protocol.status import LinkStatus

_SEVERAL = re.compile(r"([a-z-]+)/(.+)")
"""`entries/A`: the count `entries` of A."""
_IN_HEAD = ("subscriptions", "clients.now")
_LINK_COLUMNS = ("link", "address", "state", "rtt", "loss", "last change")


def register(app: typer.Typer) -> None:
    app.command("status")(status)


@asks_peer
def status(
    at: PeerOptions = LOCAL_PEER,
    as_json: Json = False,
) -> None:
    """Print the state of a running peer: its links and its counters."""
    found = at.ask(lambda client: client.status())
    print(json.dumps(as_object(found)) if as_json else as_text(found))


def as_object(found: "StatusSnapshot") -> dict[str, Any]:
    """The snapshot with its fields, and of each link also the round trip and the loss."""
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(found)
    for shown, link in zip(fields["links"], found.links, strict=True):
        shown |= {"rtt_ns": link.rtt_ns, "loss": round(link.loss, 9)}
    return fields


def as_text(found: "StatusSnapshot") -> str:
    """Who the peer is, its links as a table, and its counters."""
    membership = "" if found.membership is None else f", membership {found.membership}"
    head = [
        f"peer {found.peer} at {found.address}, wend {found.software}, up {duration_text(found.uptime_ns)}",
        f"strategy {found.strategy}, interest {found.interest}{membership}, "
        f"{counted(found.subscriptions, 'subscription')}, {counted(found.clients.get('now', 0), 'client')}",
    ]
    if found.plan is not None and found.plan.id is not None:
        version = f", version {found.plan.version}" if found.plan.version else " of its folder"
        head.append(f"follows plan {found.plan.id:08x}{version}")
    numbers = {
        name: count for name, count in found.flat().items() if name not in _IN_HEAD and not name.startswith("links.")
    }
    links = ["", *links_table(found.links)] if found.links else []
    return "\n".join([*head, *links, "", status_table(numbers)])


def links_table(links: "tuple[LinkStatus, ...]") -> list[str]:
    """A line for each link, below a line of titles."""
    rows = [_LINK_COLUMNS, *(_link_row(link) for link in links)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_LINK_COLUMNS))]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _link_row(link: "LinkStatus") -> tuple[str, ...]:
    return (
        str(link.neighbour),
        link.address or "unknown",
        link.state,
        f"{link.rtt_ns / MS:.1f} ms",
        f"{100 * link.loss:.1f} %",
        f"{duration_text(link.changed_ns)} ago",
    )


def status_table(counts: dict[str, int]) -> str:
    """The counters as a table. `control.acks` is in the group `control`, whose name is printed once. What a plug-in
    has of several things, such as `entries/A` and `events/A` of a region A, is a table of its own below."""
    groups: dict[str, list[tuple[str, int]]] = {}
    below: dict[str, dict[str, dict[str, int]]] = {}
    for key, count in counts.items():
        group, _, what = key.partition(".")
        if (several := _SEVERAL.fullmatch(what)) is None:
            groups.setdefault(group, []).append((what, count))
        else:
            below.setdefault(group, {}).setdefault(several[2], {})[several[1]] = count
    rows = [
        ("" if place else group, what, str(count))
        for group, members in groups.items()
        for place, (what, count) in enumerate(members)
    ]
    first, second, third = (max(len(row[column]) for row in rows) for column in range(3))
    lines = [f"{group:{first}}  {what:{second}}  {count:>{third}}" for group, what, count in rows]
    return "\n".join([*lines, *(line for group, named in below.items() for line in ("", *_named_rows(group, named)))])


def _named_rows(group: str, named: dict[str, dict[str, int]]) -> list[str]:
    """A row for each name, with a column for each of its counts."""
    columns = list(dict.fromkeys(what for counts in named.values() for what in counts))
    width = max(len(group), *(len(name) for name in named))
    wide = [max(len(what), *(len(str(counts.get(what, 0))) for counts in named.values())) for what in columns]
    head = "  ".join(f"{what:>{w}}" for what, w in zip(columns, wide, strict=True))
    rows = [
        f"{name:{width}}  " + "  ".join(f"{counts.get(what, 0):>{w}}" for what, w in zip(columns, wide, strict=True))
        for name, counts in named.items()
    ]
    return [f"{group:{width}}  {head}", *rows]
