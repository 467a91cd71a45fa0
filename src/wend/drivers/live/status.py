"""The status snapshot of a live peer: its counters and the state of its links at one moment.

The peer sends it to clients as it is (`frames.py`). Later versions may add fields, which older clients ignore;
`version` grows when a field changes its meaning. docs/reference/notices.md explains every counter.
"""

from typing import TYPE_CHECKING

import msgspec

from wend.drivers.live.counters import Counters
from wend.model.events import PeerId
from wend.model.version import __version__
from wend.protocol.status import LinkStatus, PeerStatus

if TYPE_CHECKING:  # a client reads statuses and shapes nothing
    from wend.drivers.live.shaper import Shaper

VERSION = 1
Counts = dict[str, int]


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
    links: tuple[LinkStatus, ...] = ()
    """One entry for each link, by neighbour."""
    data: int = 0
    """Data packets sent, retransmissions included."""
    data_unicast: int = 0
    """The same, with one packet for each destination that a packet is for."""
    control: Counts = {}
    """Control packets sent, by the plug-in that sent them; `acks` and `hellos` are the link layer's."""
    notices: Counts = {}
    """Occurrences that an operator may want to know of, by name."""
    drops: Counts = {}
    """Destinations that events were dropped for, by reason."""
    refused: Counts = {}
    """Mistakes of others, by reason."""
    failed: Counts = {}
    """Failures of this peer and its machine."""
    paths: Counts = {}
    """How the paths to other peers were measured."""
    shaper: Counts = {}
    """Datagrams lost and corrupted on purpose."""
    clients: Counts = {}
    """Connections and requests of clients; `now` is how many are connected."""
    plugins: dict[str, Counts] = {}
    """A section for each plug-in that has a status of its own."""

    def link(self, neighbour: PeerId) -> LinkStatus | None:
        """The link to this neighbour, or None."""
        return next((link for link in self.links if link.neighbour == neighbour), None)

    def counters(self) -> Counts:
        """All counters under dotted names: `control.acks`, `drops.no route`."""
        found = {"data": self.data, "data_unicast": self.data_unicast}
        for section in ("control", "notices", "drops", "refused", "paths", "failed", "clients", "shaper"):
            counts: Counts = getattr(self, section)
            found |= {f"{section}.{name}": counts[name] for name in sorted(counts) if (section, name) != _GAUGE}
        return found

    def flat(self) -> Counts:
        """All numbers under dotted names: the counters, `clients.now`, `links.5` and the plug-ins' sections."""
        found = self.counters()
        found |= {"clients.now": self.clients["now"]} if "now" in self.clients else {}
        found |= {f"links.{link.neighbour}": int(link.up) for link in self.links}
        for section, counts in self.plugins.items():
            found |= {f"{section}.{name}": value for name, value in counts.items()}
        return found


_GAUGE = ("clients", "now")


def snapshot(
    peer: PeerId, incarnation: int, counters: Counters, status: PeerStatus, shaper: "Shaper"
) -> StatusSnapshot:
    """The status of a peer, but for its clients."""
    return StatusSnapshot(
        peer=peer,
        incarnation=incarnation,
        software=__version__,
        links=status.links,
        data=counters.data,
        data_unicast=counters.data_unicast,
        control=dict(counters.control),
        notices=dict(counters.notices),
        drops=dict(counters.drops),
        refused=dict(counters.refused),
        failed=dict(counters.failed),
        paths=dict(counters.paths),
        shaper={"lost": shaper.lost(), "corrupted": shaper.corrupted()},
        plugins=status.plugins,
    )
