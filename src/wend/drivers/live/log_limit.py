"""A bound on log lines of one kind: whatever others send, the log stays readable and the disk does not fill."""

from wend.model.units import Nanos


class LogLimit:
    """Allows so many lines in each period, and counts those that it suppresses."""

    def __init__(self, lines: int, period_ns: Nanos) -> None:
        self._lines = lines
        self._period_ns = period_ns
        self._begun_ns: Nanos | None = None
        self._logged = 0
        self.suppressed = 0
        """Lines that were not allowed since the last one that was."""

    def allows(self, now: Nanos) -> bool:
        """Whether one more line may be logged now."""
        if self._begun_ns is None or now - self._begun_ns >= self._period_ns:
            self._begun_ns, self._logged = now, 0
        if self._logged >= self._lines:
            self.suppressed += 1
            return False
        self._logged += 1
        return True

    def take_suppressed(self) -> int:
        """How many lines were suppressed, to be reported with the next one."""
        count, self.suppressed = self.suppressed, 0
        return count
