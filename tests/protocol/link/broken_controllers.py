"""Congestion controllers that are broken on purpose, for tests of what finds them."""

from wend.model.units import Nanos
from wend.protocol.link.copa import Copa


class NeverShrinks(Copa):
    def _adjust(self, now: Nanos, size: int, limited: bool) -> None:
        before = self.window
        super()._adjust(now, size, limited)
        self.window = max(before, self.window)


class NeverGrows(Copa):
    def _adjust(self, now: Nanos, size: int, limited: bool) -> None:
        before = self.window
        super()._adjust(now, size, limited)
        self.window = min(before, self.window)
