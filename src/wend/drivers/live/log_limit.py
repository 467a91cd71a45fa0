"""A limit on log lines of one kind, so that other hosts can neither fill the disk nor make the log unreadable."""

from wend.model.units import Nanos


class LogLimit:
    """Allows a number of lines in each period, and counts the lines that it suppresses."""

    def __init__(self, lines: int, period_ns: Nanos) -> None:
        self._lines = lines
        self._period_ns = period_ns
        self._begun_ns: Nanos | None = None
        self._logged = 0
        self.suppressed = 0
        """Lines suppressed since the last line that was allowed."""

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
        """Return and reset the number of suppressed lines, to log it with the next line."""
        count, self.suppressed = self.suppressed, 0
        return count
