"""The plan of hellos to one neighbour: their content and when the next one is due. `hellos.py` makes the plan."""

from wend.model.units import Nanos
from wend.protocol.messages import FailureNews


class HelloPlan:
    __slots__ = (
        "_reports_silence", "after_ns", "announced_ns", "early_ns", "interval_ns", "is_repetition", "last_news", "mode",
        "stretch", "within_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.mode: object = None
        """The mode of the schedule for which the plan was made; None if the link has changed since."""
        self.within_ns: Nanos = 0
        """The longest silence that the next hello announces."""
        self.interval_ns: Nanos = 0
        """How long after the last packet the next hello is due."""
        self.early_ns: Nanos = 0
        """How long after the last packet the next hello may be sent early, together with others."""
        self.stretch = 1
        """The factor by which the announced silence exceeds the planned one."""
        self.after_ns: Nanos = 0
        """How long after the next hello the following one is due."""
        self.announced_ns: Nanos = 0
        """The longest silence that the last hello announced; 0 before the first one."""
        self.is_repetition = False
        """Whether the next hello repeats the last one, if this peer hears the neighbour."""
        self.last_news: tuple[FailureNews, ...] = ()
        """The news of the last hello."""
        self._reports_silence = False

    @property
    def reports_silence(self) -> bool:
        """Whether the last hello reported that this peer does not hear the neighbour."""
        return self._reports_silence

    def set(
        self, mode: object, within_ns: Nanos, stretch: int, interval_ns: Nanos, early_ns: Nanos, after_ns: Nanos
    ) -> None:
        self.mode, self.stretch = mode, stretch
        self.within_ns, self.interval_ns, self.early_ns, self.after_ns = within_ns, interval_ns, early_ns, after_ns
        self.is_repetition = within_ns == self.announced_ns and not self._reports_silence

    def discard(self) -> None:
        """Discard the plan: something has changed, so the next hello needs a new one."""
        self.mode = None

    def record_hello(self, within_ns: Nanos, heard: bool) -> None:
        """Record a hello as sent, with whether it reports hearing the neighbour and the silence that it announces."""
        self._reports_silence = not heard
        self.announced_ns = within_ns
        self.mode = None

    def retract_silence(self) -> bool:
        """Plan a new hello at once if the last one reported that this peer does not hear the neighbour. Return
        whether."""
        if not self._reports_silence:
            return False
        self._reports_silence = False
        self.is_repetition = self.within_ns == self.announced_ns
        return True

    def record_news(self, news: tuple[FailureNews, ...]) -> None:
        """Record that a hello with this news is sent."""
        self.last_news = news
