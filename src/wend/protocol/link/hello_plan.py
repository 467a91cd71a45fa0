"""What this peer says to one neighbour in hellos, and when the next hello is due. `hellos.py` makes the plan."""

from wend.model.units import Nanos
from wend.protocol.messages import FailureNews


class HelloPlan:
    __slots__ = (
        "_reports_silence", "after_ns", "announced_ns", "early_ns", "interval_ns", "is_repetition", "last_news", "mode",
        "stretch", "within_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.mode: object = None
        """The mode of the schedule that the plan is for; None if the link has changed since."""
        self.within_ns: Nanos = 0
        """The silence that the next hello announces."""
        self.interval_ns: Nanos = 0
        """How long after the last packet the next hello is due."""
        self.early_ns: Nanos = 0
        """How long after the last packet it may go together with others."""
        self.stretch = 1
        """How many times longer than planned the announced silence is."""
        self.after_ns: Nanos = 0
        """How long after the next hello the one after it is due."""
        self.announced_ns: Nanos = 0
        """The longest silence that the last hello announced; 0 before the first one."""
        self.is_repetition = False
        """Whether the next hello says what the last one said, if this peer hears the neighbour."""
        self.last_news: tuple[FailureNews, ...] = ()
        """The news of the last hello."""
        self._reports_silence = False

    @property
    def reports_silence(self) -> bool:
        """Whether the last hello said that this peer does not hear the neighbour."""
        return self._reports_silence

    def set(
        self, mode: object, within_ns: Nanos, stretch: int, interval_ns: Nanos, early_ns: Nanos, after_ns: Nanos
    ) -> None:
        self.mode, self.stretch = mode, stretch
        self.within_ns, self.interval_ns, self.early_ns, self.after_ns = within_ns, interval_ns, early_ns, after_ns
        self.is_repetition = within_ns == self.announced_ns and not self._reports_silence

    def discard(self) -> None:
        """Something has changed, so the next hello needs a new plan."""
        self.mode = None

    def announce(self, within_ns: Nanos, heard: bool) -> None:
        """A hello leaves: it says whether this peer hears the neighbour, and how soon it will speak again."""
        self._reports_silence = not heard
        self.announced_ns = within_ns
        self.mode = None

    def retract_silence(self) -> bool:
        """A packet came. True if the neighbour has to learn that it is heard again, since the last hello denied it."""
        if not self._reports_silence:
            return False
        self._reports_silence = False
        self.is_repetition = self.within_ns == self.announced_ns
        return True

    def tell(self, news: tuple[FailureNews, ...]) -> None:
        """A hello with this news leaves."""
        self.last_news = news
