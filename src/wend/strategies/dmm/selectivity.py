"""Selectivity of attributes: the attribute of a filter that the fewest of the latest events meet.

The paper leaves the choice of the primary attribute open (section IV-C). The share of the domain misleads if some
values or attributes are more frequent than others.
"""

from wend.matching.filters import Filter
from wend.matching.zcode import Cells
from wend.model.events import Event, EventId
from wend.strategies.dmm.spaces import SpaceName, Spaces
from wend.strategies.ring.bounded import put_newest

MAX_EVENTS = 64
FEWEST_EVENTS = 16
"""With fewer events, the share of the domain decides."""
PRIOR_EVENTS = 4
"""The share of the domain counts like so many events."""
GAIN = 2.0
"""An entry moves to another attribute if this many times fewer events meet that one."""


class ObservedEvents:
    """The cells of the latest events, by attribute."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._events: dict[EventId, dict[str, Cells]] = {}

    def add(self, event: Event) -> None:
        if event.id not in self._events:
            sides = {
                name: self._spaces[(name,)].event_box({name: value}).sides[0]
                for name, value in event.attributes.items()
            }
            put_newest(self._events, event.id, sides, MAX_EVENTS)

    def choose_root(self, filter_: Filter, current: SpaceName | None = None) -> SpaceName:
        """The space of the attribute that the fewest events meet. The current one stays unless another is better by
        far."""
        home = self._spaces.home(filter_)
        if len(home) <= 1 or len(self._events) < FEWEST_EVENTS:
            return self._spaces.root(filter_) if current is None else current
        (conjunction,) = filter_.conjunctions
        space = self._spaces[home]
        sides = space.conjunction_box(conjunction).sides
        shares = {
            name: (self._count_events(name, side) + PRIOR_EVENTS * share) / (len(self._events) + PRIOR_EVENTS)
            for name, side, share in zip(home, sides, space.shares(conjunction), strict=True)
        }
        best = min(shares, key=lambda name: (shares[name], name))
        if current is not None and shares[current[0]] < GAIN * shares[best]:
            return current
        return (best,)

    def _count_events(self, name: str, side: Cells) -> int:
        """How many events have a value of the attribute in these cells."""
        low, high = side
        found = [sides[name] for sides in self._events.values() if name in sides]
        return sum(first <= high and low <= last for first, last in found)
