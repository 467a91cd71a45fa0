"""The sides of a box: the values that a filter allows for each attribute, in a form that is fast to test.

Most filters are one box, and most values are integers: then a side is tested by two comparisons.
"""

from bisect import bisect_right
from math import ceil, inf
from typing import Any

from wend.matching.values import Values
from wend.model.events import Attributes

Side = tuple[str, Any, Any, bool, Values]
"""The attribute's name, the least integer of its interval, the least integer beyond it, whether no number outside of it
is allowed, and all allowed values."""
Sides = tuple[Side, ...]


def side(name: str, values: Values) -> Side:
    cuts = values.numbers
    if not cuts or len(cuts) > 2:
        return name, 0, 0, not cuts, values
    low, high = (*cuts, inf)[:2]
    return name, low if low == -inf else ceil(low), high if high == inf else ceil(high), True, values


def fits(sides: Sides, attributes: Attributes) -> bool:
    """Whether an event lies in the box."""
    for name, low, high, single, values in sides:
        value = attributes.get(name)
        if type(value) is int:
            if not low <= value < high and (single or not values.allows(value)):
                return False
        elif type(value) is str:
            if not bisect_right(values.strings, value) & 1:
                return False
        elif not (values.absent if value is None else values.allows(value)):
            return False
    return True
