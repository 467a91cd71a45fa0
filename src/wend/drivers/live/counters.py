"""The counters of a live peer: packets, notices, drops, refusals and failures.

Several peers may share one set of counters, which then counts for all of them.
"""

from collections import Counter

from wend.protocol.messages import ACKS, Ack, Data, Fragment, Message, as_unicast, control_name


class Counters:
    def __init__(self) -> None:
        self.data = 0
        """Data packets handed to a link, retransmissions included."""
        self.data_unicast = 0
        """The same, with one packet for each destination that a packet is for."""
        self.control: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        """Destinations given up, by reason."""
        self.refused: Counter[str] = Counter()
        """Mistakes of others, by reason: `stranger`, `garbage`, `misdirected`, `stale`, `oversize`, ..."""
        self.paths: Counter[str] = Counter()
        """How the paths to other peers were measured; `paths/traced.py`."""
        self.failed: Counter[str] = Counter()
        """Failures of this peer and its machine: counted and logged, never fatal."""

    def sent(self, message: Message) -> None:
        if type(message) is Ack:
            self.control[ACKS] += 1
        elif type(message) is Data or type(message) is Fragment:
            self.data += 1
            self.data_unicast += as_unicast(message)
        else:
            self.control[control_name(message)] += 1
