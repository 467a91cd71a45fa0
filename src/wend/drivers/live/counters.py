"""The counters of a live peer: packets, notices, drops, refusals and failures.

Several peers may share one set of counters, which then counts for all of them.
"""

from collections import Counter
from typing import Literal

from wend.model.events import EventId

FailureCode = Literal[
    "handle-input", "carry-out-effect", "tell-observer",
    "send", "receive", "multicast",
    "store-record", "withheld-ack", "lost-state-record", "damaged-record",
    "log-record", "damaged-log", "log-retention",
    "read-file", "read-keys", "load-plan", "read-pushed-plan",
    "telemetry", "telemetry-rows", "telemetry-segment", "telemetry-removed", "telemetry-left-over",
]  # fmt: skip

FAILURES: dict[FailureCode, str] = {
    "handle-input": "The peer could not handle an input because of a mistake in Wend; its log has the first twenty.",
    "carry-out-effect": "The same for an effect.",
    "tell-observer": "The same for an observer of the peer, such as telemetry.",
    "send": "The socket did not accept a datagram.",
    "receive": "The socket failed while the peer read it.",
    "multicast": "The peer could not join or send to a multicast group; its log says why.",
    "store-record": "The peer could not store a record. It tries again, and promises nothing meanwhile.",
    "withheld-ack": "The peer withheld an ACK because it could not write its store.",
    "lost-state-record": "The peer did not store the state of a neighbour, which sends it again after a restart.",
    "damaged-record": "The peer could not read some bytes of its store when it started; its log says which.",
    "log-record": "The peer could not write a record to a log. It tries again, and acknowledges nothing meanwhile.",
    "damaged-log": "The peer could not read the end of a log when it started; its log says how much.",
    "log-retention": "The peer could not remove the old events of a log.",
    "read-file": "The peer could not read its file again when a signal asked for it.",
    "read-keys": "The peer could not read its keys or grants again when a signal asked for it.",
    "load-plan": "The peer could not read a plan when a signal asked for it.",
    "read-pushed-plan": "The peer could not read the file of a plan that was pushed when it started.",
    "telemetry": "The peer could not look at its links and counters; its log says why.",
    "telemetry-rows": "The peer did not write rows of telemetry: the disk was full, failed, or was too slow.",
    "telemetry-segment": "The peer could not write a segment of telemetry.",
    "telemetry-removed": "The peer removed its oldest segment of telemetry, because `telemetry_bytes` was reached.",
    "telemetry-left-over": "The peer removed an unfinished segment of an earlier incarnation when it started.",
}


class Counters:
    def __init__(self) -> None:
        self.data = 0
        """Data packets handed to a link, retransmissions included."""
        self.data_unicast = 0
        """The same, but each packet counts once for each of its destinations."""
        self.publications = 0
        """Events that the applications at this peer published."""
        self.deliveries = 0
        """Deliveries to subscriptions of this peer."""
        self.late_deliveries = 0
        """Deliveries after the deadline of their subscription."""
        self.control: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        """Destinations for which an event was dropped, by reason."""
        self.refused: Counter[str] = Counter()
        """Mistakes of other hosts, by reason: `stranger`, `garbage`, `misdirected`, `stale`, `oversize`, ..."""
        self.paths: Counter[str] = Counter()
        """How the paths to other peers were measured; `paths/traceroute_paths.py`."""
        self.failed: Counter[str] = Counter()
        """Failures of this peer and its machine, by `FailureCode`: counted and logged, never fatal."""

    def count_data(self, id_: EventId, destinations: int) -> None:
        """Count a packet of this event."""
        self.data += 1
        self.data_unicast += destinations

    def count_control(self, name: str) -> None:
        self.control[name] += 1
