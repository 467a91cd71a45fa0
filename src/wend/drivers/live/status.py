"""The status snapshot of a live peer: its counters and the state of its links at one moment.

The peer sends it to clients as it is (`frames.py`). Later versions may add fields, which older clients ignore;
`version` grows when a field changes its meaning. docs/reference/notices.md explains every counter.
"""

from typing import Any

import msgspec

from wend.drivers.live.counters import Counters
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.model.version import __version__
from wend.protocol.status import LinkStatus, PeerStatus

VERSION = 1
Counts = dict[str, int]


class PlanStatus(msgspec.Struct, frozen=True):
    """The plan that a peer follows."""

    id: int | None
    """The id of the plan; nil while the peer follows none."""
    version: int = 0
    """The version that `wend plan push` gave the plan; 0 for the plan in the peer's folder."""
    prepared: int = 0
    """The version of a plan that the peer has checked and that waits for its commit; 0 if there is none."""


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A log of a peer."""

    filter: str
    """Which events it takes."""
    first: int
    """The position of the oldest event that it holds."""
    next: int
    """The position of the event that comes next."""
    events: int
    """How many events it holds, with those that are damaged."""
    bytes: int
    """The size of its files."""
    first_ns: Nanos = 0
    """When the oldest event was appended, as wall-clock time; 0 if it holds none."""
    newest_ns: Nanos = 0
    """When the newest event was appended; 0 if there was none."""
    appended: int = 0
    """Events that were appended since the peer started."""
    duplicates: int = 0
    """Events that came again and were not appended again."""
    dropped: int = 0
    """Events that retention has dropped since the peer started."""

    def numbers(self) -> Counts:
        """All numbers, without those of time."""
        names = ("first", "next", "events", "bytes", "appended", "duplicates", "dropped")
        return {name: getattr(self, name) for name in names}


class StatusSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer has counted since it started, and the state of its links and plug-ins."""

    version: int = VERSION
    """Grows when a field changes its meaning."""
    peer: PeerId
    """The id of the peer."""
    incarnation: int
    """Higher after each restart."""
    software: str
    """The version of Wend that the peer runs."""
    address: str = ""
    """Where other peers reach this one."""
    uptime_ns: Nanos = 0
    """How long the peer has been running."""
    strategy: str = ""
    """The routing plug-in."""
    interest: str = ""
    """The interest plug-in."""
    membership: str | None = None
    """The membership plug-in; nil if the links are given."""
    plan: PlanStatus | None = None
    """The plan that the peer follows or has prepared; nil if there is none."""
    subscriptions: int = 0
    """Subscriptions that the peer has for its clients; equal ones count once."""
    published: int = 0
    """Events that the peer's clients published."""
    delivered: int = 0
    """Deliveries to the peer's subscriptions."""
    late: int = 0
    """Deliveries after the deadline of their subscription."""
    in_flight: int = 0
    """Events that wait for an acknowledgement of the next hop."""
    waiting: int = 0
    """Events that wait for a retry."""
    links: tuple[LinkStatus, ...] = ()
    """One entry for each link, by neighbour."""
    data: int = 0
    """Data packets sent, retransmissions included."""
    data_unicast: int = 0
    """The same, but each packet counts once for each of its destinations."""
    control: Counts = {}
    """Control packets sent, by the plug-in that sent them; `acks` and `hellos` are the link layer's."""
    notices: Counts = {}
    """Events in the life of the peer that an operator may want to know of, by name."""
    drops: Counts = {}
    """Destinations for which an event was dropped, by reason."""
    refused: Counts = {}
    """Mistakes of other hosts, by reason."""
    failed: Counts = {}
    """Failures of this peer and its machine."""
    paths: Counts = {}
    """How the paths to other peers were measured."""
    shaper: Counts = {}
    """Datagrams lost and corrupted on purpose."""
    clients: Counts = {}
    """Connections and requests of clients; `now` is how many are connected."""
    logs: dict[str, LogStatus] = {}
    """The logs of the peer, by name."""
    plugins: dict[str, Counts] = {}
    """A section for each plug-in that reports a status."""

    def link(self, neighbour: PeerId) -> LinkStatus | None:
        """The link to this neighbour, or None."""
        return next((link for link in self.links if link.neighbour == neighbour), None)

    def counters(self) -> Counts:
        """All counters under dotted names: `control.acks`, `drops.no-route`."""
        names = ("published", "delivered", "late", "data", "data_unicast")
        numbers: Counts = {name: getattr(self, name) for name in names}
        for section in ("control", "notices", "drops", "refused", "paths", "failed", "clients", "shaper"):
            counts: Counts = getattr(self, section)
            numbers |= {f"{section}.{name}": counts[name] for name in sorted(counts) if (section, name) != _GAUGE}
        return numbers

    def flat(self) -> Counts:
        """All numbers under dotted names: the counters, `subscriptions`, `in_flight`, `waiting`, `clients.now`,
        `links.5` and the plug-ins' sections."""
        numbers = self.counters()
        numbers |= {name: getattr(self, name) for name in ("subscriptions", "in_flight", "waiting")}
        numbers |= {"clients.now": self.clients["now"]} if "now" in self.clients else {}
        numbers |= {f"links.{link.neighbour}": int(link.up) for link in self.links}
        for name, log in self.logs.items():
            numbers |= {f"logs.{name}.{field}": value for field, value in log.numbers().items()}
        for section, counts in self.plugins.items():
            numbers |= {f"{section}.{name}": value for name, value in counts.items()}
        return numbers


_GAUGE = ("clients", "now")


def make_snapshot(
    counters: Counters, status: PeerStatus, links: tuple[LinkStatus, ...], shaper: Counts, **fields: Any
) -> StatusSnapshot:
    """The status of a peer, without its clients."""
    return StatusSnapshot(
        peer=status.peer,
        incarnation=status.incarnation,
        software=__version__,
        strategy=status.strategy,
        interest=status.interest,
        membership=status.membership,
        links=links,
        in_flight=status.in_flight,
        waiting=status.waiting,
        published=counters.publications,
        delivered=counters.deliveries,
        late=counters.late_deliveries,
        data=counters.data,
        data_unicast=counters.data_unicast,
        control=dict(counters.control),
        notices=dict(counters.notices),
        drops=dict(counters.drops),
        refused=dict(counters.refused),
        failed=dict(counters.failed),
        paths=dict(counters.paths),
        shaper=shaper,
        plugins=status.plugins,
        **fields,
    )
