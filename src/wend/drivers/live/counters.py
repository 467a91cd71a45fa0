"""What a live peer counts: everything that goes out, and everything that goes wrong.

Several peers may share one set, and then it speaks for their overlay.
"""

from collections import Counter

from wend.protocol.messages import Data, Fragment, Message, as_unicast, control_name


class Counters:
    def __init__(self) -> None:
        self.data = 0
        """Data packets handed to a link, retransmissions included."""
        self.data_unicast = 0
        """The same, with one packet for each destination carried."""
        self.control: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        """Destinations given up, by reason."""
        self.refused: Counter[str] = Counter()
        """Others' mistakes: `stranger`, `garbage`, `misdirected`, `stale`, `oversize`, ... by reason."""
        self.paths: Counter[str] = Counter()
        """How the ways to other peers were measured; `paths/traced.py`."""
        self.failed: Counter[str] = Counter()
        """Our own mistakes, and the machine's: counted and logged, never fatal."""

    def sent(self, message: Message) -> None:
        if type(message) is Data or type(message) is Fragment:
            self.data += 1
            self.data_unicast += as_unicast(message)
        else:
            self.control[control_name(message)] += 1

    def flat(self) -> dict[str, int]:
        """One table, for a person or a status frame."""
        found = {"data": self.data, "data_unicast": self.data_unicast}
        for name in ("control", "notices", "drops", "refused", "paths", "failed"):
            found |= {f"{name}.{what}": count for what, count in sorted(getattr(self, name).items())}
        return found
