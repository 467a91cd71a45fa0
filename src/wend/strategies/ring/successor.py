"""The watch over the successor on the ring: it sends a heartbeat once per period, and is probed if it falls silent."""

from typing import Final

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, Timer

SILENCE: Final = "silence"


class SuccessorCheck:
    """When the successor was last heard, and the leaf set that it sent."""

    __slots__ = ("_has_timer", "_heard_ns", "_leaves", "_silence_ns", "_successor")

    def __init__(self, silence_ns: Nanos) -> None:
        self._silence_ns = silence_ns
        self._successor: PeerId | None = None
        self._heard_ns: Nanos = 0
        self._leaves: tuple[PeerId, ...] | None = None
        """The successor's leaf set, if it was compared with this peer's and neither has changed since."""
        self._has_timer = False

    def repeats(self, now: Nanos, sender: PeerId, leaves: tuple[PeerId, ...]) -> bool:
        """Whether a heartbeat comes from the successor and says nothing new. Then there is nothing else to do."""
        if leaves != self._leaves or sender != self._successor:
            return False
        self._heard_ns = now
        return True

    def hear(self, now: Nanos, sender: PeerId, leaves: tuple[PeerId, ...]) -> None:
        """A heartbeat came whose leaf set will be compared."""
        if sender == self._successor:
            self._heard_ns = now
            self._leaves = leaves

    def compare_again(self) -> None:
        """Compare the next heartbeat even if it says nothing new: answers to the last comparison may be lost."""
        self._leaves = None

    def follow(self, now: Nanos, successor: PeerId | None) -> list[PluginEffect]:
        """The leaf set has changed, and has this successor now."""
        if successor != self._successor:
            self._successor = successor
            self._heard_ns = now
        self._leaves = None
        return self.timer()

    def suspect(self, now: Nanos) -> PeerId | None:
        """The timer has expired: the successor, if it has been silent for too long."""
        self._has_timer = False
        if now < self._heard_ns + self._silence_ns:
            return None
        self._heard_ns = now
        return self._successor

    def timer(self) -> list[PluginEffect]:
        """The next time to look for silence, unless a timer runs."""
        if self._has_timer or self._successor is None:
            return []
        self._has_timer = True
        return [Timer(self._heard_ns + self._silence_ns, SILENCE)]
