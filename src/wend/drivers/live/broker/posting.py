"""A `Post` that a session serves: many publications with one answer. They may take several turns."""

from collections import Counter
from collections.abc import Callable

from wend.drivers.live import frames
from wend.drivers.live.access.grants import DENIALS
from wend.model.errors import WendError
from wend.model.publication import Publication
from wend.protocol.ports import Receipt


class Posting:
    """The events still to publish, and a count of the results so far."""

    def __init__(self, frame: frames.Post) -> None:
        self._ref = frame.ref
        self._left = iter(frame.events)
        self._accepted = self._refused = 0
        self._first: WendError | None = None
        """Why the first event that was refused was."""
        self._congested = False

    def serve(
        self, publish: Callable[[Publication], Receipt], must_pause: Callable[[], bool], counts: Counter[str]
    ) -> frames.Posted | None:
        """Publish events until the session must pause. Returns the answer once no event is left."""
        for event in self._left:
            try:
                receipt = publish(event.publication())
                self._accepted += 1
                self._congested = self._congested or receipt.congested
            except WendError as error:
                if error.code in DENIALS:
                    counts[error.code] += 1
                self._refused += 1
                self._first = self._first or error
            if must_pause():
                return None
        counts["denied"] += self._refused
        code, why = ("", "") if self._first is None else (self._first.code, str(self._first))
        return frames.Posted(self._ref, self._accepted, self._refused, code, why, self._congested)
