"""The page of the status snapshot: its fields, the sections of plug-ins, and the dotted names."""

import inspect

from reference_pages.source import fields, one_line, summary

from wend.drivers.live.status import PlanStatus, StatusSnapshot
from wend.protocol.plugins import Plugin
from wend.protocol.status import LinkStatus, PeerStatus
from wend.strategies.registry import PLUGINS

PAGE = """\
# Status

<!-- Written by scripts/reference.py. -->

`wend status` and `await client.status()` show what a peer is, how its links are, and what it has counted. The command
prints them for people, and with `--json` as one object; the call returns a `wend.StatusSnapshot`. The object has the
fields below, and of each link also `rtt_ns` and `loss`.
[Notices](notices.md) explains every counter.

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

A peer with the failure detector (strategies `adaptive`, `mrst` and `spt-k`) sends hellos over quiet links. So it knows
`down`, and `up` is false while the neighbour is silent. A peer without it knows no `down`: its `up` is false after
a packet went unanswered, until the neighbour is heard again. It learns nothing of a link that it does not use. Before
the neighbour is heard for the first time, `up` is false, too.

## `PlanStatus`

{plan}

{plan_fields}
## Sections of plug-ins

`plugins` has a section for each plug-in with a status of its own.

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

## `PeerStatus`

{peer} Drivers read it by `Peer.status()`; it does not leave the process.

{peer_fields}"""


def page() -> str:
    return PAGE.format(
        snapshot=summary(StatusSnapshot),
        snapshot_fields=_table(StatusSnapshot),
        plan=summary(PlanStatus),
        plan_fields=_table(PlanStatus),
        link=summary(LinkStatus),
        link_fields=_table(LinkStatus),
        peer=summary(PeerStatus) or "The status of the state machine.",
        peer_fields=_table(PeerStatus),
        sections=_sections(),
    )


def _table(struct: type) -> str:
    rows = "".join(f"| `{each.name}` | {each.type} | {each.about} |\n" for each in fields(struct))
    return f"| field | type | meaning |\n| --- | --- | --- |\n{rows}"


def _sections() -> str:
    rows = []
    for table in PLUGINS.values():
        for name, made in table.items():
            if made.status is not Plugin.status:
                rows.append(f"| `{name}` | {one_line(inspect.getdoc(made.status) or '')} |\n")
    return "".join(rows)
