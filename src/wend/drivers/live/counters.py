"""The counters of a live peer: packets, notices, drops, refusals and failures.

Several peers may share one set of counters, which then counts for all of them.
"""

from collections import Counter

from wend.model.events import EventId


class Counters:
    def __init__(self) -> None:
        self.data = 0
        """Data packets handed to a link, retransmissions included."""
        self.data_unicast = 0
        """The same, with one packet for each destination that a packet is for."""
        self.publications = 0
        """Events that the applications at this peer published."""
        self.deliveries = 0
        """Deliveries to subscriptions of this peer."""
        self.late_deliveries = 0
        """Those after the deadline of their subscription."""
        self.control: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        """Destinations given up, by reason."""
        self.refused: Counter[str] = Counter()
        """Mistakes of others, by reason: `stranger`, `garbage`, `misdirected`, `stale`, `oversize`, ..."""
        self.paths: Counter[str] = Counter()
        """How the paths to other peers were measured; `paths/traceroute_paths.py`."""
        self.failed: Counter[str] = Counter()
        """Failures of this peer and its machine: counted and logged, never fatal."""

    def sent_data(self, id_: EventId, destinations: int) -> None:
        """A packet of this event, for so many destinations."""
        self.data += 1
        self.data_unicast += destinations

    def sent_control(self, name: str) -> None:
        self.control[name] += 1
