"""The page of the status snapshot: its fields, the sections of plug-ins, and the dotted names."""

import inspect

from reference_pages.source import fields, one_line, summary

from wend.drivers.live.status import PlanStatus, StatusSnapshot
from wend.protocol.plugins import Plugin
from wend.protocol.status import LinkStatus
from wend.strategies.registry import PLUGINS

PAGE = """\
# Status

<!-- Written by scripts/reference.py. -->

`wend status` prints what a peer is, how its links are, and what it has counted; `wend status --json` prints the fields
below as one object, with `rtt_ns` and `loss` for each link. `await client.status()` returns them as a
`wend.StatusSnapshot`. [Notices](notices.md) explains every counter.

## `wend.StatusSnapshot`

{snapshot}

{snapshot_fields}
A later version may add fields, which older clients ignore. `version` grows when a field changes its meaning.

## `wend.LinkStatus`

{link}

{link_fields}
`link.rtt_ns` is twice the delay, `link.loss` is 1 minus the reliability.

| state | meaning |
| --- | --- |
| `unknown` | The peer has not heard the neighbour yet. Events may go over the link all the same. |
| `up` | The link works. |
| `suspected` | A packet went unanswered, or the neighbour is silent. The next packet from it ends the suspicion. |
| `down` | The failure detector holds that an outage has begun. The next packet from the neighbour ends it. |
| `one-way` | The neighbour says that it does not hear this peer. An ACK, or a hello that says otherwise, ends that. |

The failure detector runs if the strategy asks for it (`adaptive`, `mrst`, `spt-k`, ...). Without it there is no `down`:
`up` is false from an unanswered packet until the neighbour is heard again, and says nothing of an unused link. Before
the neighbour is heard for the first time, `up` is false, too.

## `PlanStatus`

{plan}

{plan_fields}
## Sections of plug-ins

`plugins` has a section for each of these plug-ins, if the peer hosts it.

| plug-in | its section |
| --- | --- |
{sections}
## Dotted names

`snapshot.flat()` gives all numbers under dotted names, and `wend status` prints the part before the dot once for each
group. `snapshot.counters()` gives those that only grow.

| name | meaning |
| --- | --- |
| `published`, `delivered`, `late`, `data`, `data_unicast` | the fields of that name, which only grow |
| `subscriptions`, `in_flight`, `waiting` | the fields of that name: gauges |
| `control.hellos`, `drops.no-route` | a counter in a field that holds counters: `control`, `drops`, ... |
| `clients.now` | a gauge: clients that are connected at this moment |
| `links.5` | 1 if the field `up` of the link to peer 5 is true, else 0 |
| `trees.generation` | a number in the section of the plug-in `trees` |
"""


def page() -> str:
    return PAGE.format(
        snapshot=summary(StatusSnapshot),
        snapshot_fields=_table(StatusSnapshot),
        plan=summary(PlanStatus),
        plan_fields=_table(PlanStatus),
        link=summary(LinkStatus),
        link_fields=_table(LinkStatus),
        sections=_sections(),
    )


def _table(struct: type) -> str:
    rows = "".join(f"| `{each.name}` | {each.type} | {each.about} |\n" for each in fields(struct))
    return f"| field | type | meaning |\n| --- | --- | --- |\n{rows}"


def _sections() -> str:
    sections: dict[str, list[str]] = {}
    for table in PLUGINS.values():
        for name, made in table.items():
            about = one_line(inspect.getdoc(made.status) or "")
            if made.status is not Plugin.status and about:
                sections.setdefault(about, []).append(name)
    return "".join(f"| {', '.join(f'`{name}`' for name in names)} | {about} |\n" for about, names in sections.items())
