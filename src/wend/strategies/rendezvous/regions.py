"""The names of regions, and the regions in which filters and events meet.

A region is named by its subject (`attribute price`, `topic news`, `anything`) and by a code: the leading bits of the
cells of the attribute's values (`matching/order_cells.py`). The empty code is the whole range.
"""

from wend.matching.filters import Filter
from wend.matching.order_cells import (
    CELL_BITS,
    EVERYTHING,
    Interval,
    find_value_cells,
    find_values_cells,
    is_region,
    overlaps_any,
    region,
)
from wend.matching.values import Values
from wend.model.events import Event

ANYTHING = "anything"
_ATTRIBUTE = "attribute "
_TOPIC = "topic "
RegionId = tuple[str, str]
"""The name of a region's subject, and the region's code."""
WHOLE: list[Interval] = [EVERYTHING]


def key_text(region_id: RegionId) -> str:
    """The text whose key decides who owns the region."""
    name, code = region_id
    return f"{name}|{code}"


def is_valid(region_id: RegionId) -> bool:
    """Whether such a region may exist."""
    name, code = region_id
    if name.startswith(_ATTRIBUTE):
        return is_region(code)
    return not code and (name == ANYTHING or name.startswith(_TOPIC))


def can_split(region_id: RegionId) -> bool:
    name, code = region_id
    return name.startswith(_ATTRIBUTE) and len(code) < CELL_BITS


def halves(code: str) -> tuple[str, str]:
    """The codes of the two halves of a region."""
    return f"{code}0", f"{code}1"


def meets(code: str, cells: list[Interval]) -> bool:
    """Whether a region has some of these cells."""
    return overlaps_any(region(code), cells)


def filter_region(filter_: Filter) -> tuple[str, list[Interval]]:
    """The region name of a filter of one conjunction: its topic, or the attribute whose values it narrows the most."""
    if filter_.topic is not None:
        return _TOPIC + filter_.topic, WHOLE
    (conjunction,) = filter_.conjunctions
    values = conjunction.allowed().items() if conjunction.bindings else conjunction.values
    sides = [(name, allowed) for name, allowed in values if not allowed.absent]
    if not sides:
        return ANYTHING, WHOLE
    name, narrowest = min(sides, key=lambda side: (_width(side[1]), side[0]))
    return _ATTRIBUTE + name, find_values_cells(narrowest)


def _width(values: Values) -> int:
    return sum(high - low + 1 for low, high in find_values_cells(values))


def event_regions(event: Event) -> list[tuple[str, Interval]]:
    """The names of the regions where subscribers of an event may be, each with the cells of the event's value."""
    names = [(_ATTRIBUTE + name, find_value_cells(value)) for name, value in event.attributes.items()]
    topic = event.attributes.get("topic")
    if isinstance(topic, str):
        names.append((_TOPIC + topic, EVERYTHING))
    names.append((ANYTHING, EVERYTHING))
    return names


def event_cells(name: str, event: Event) -> Interval | None:
    """The cells of an event in regions of this name; None if it has none."""
    if not name.startswith(_ATTRIBUTE):
        return EVERYTHING
    value = event.attributes.get(name.removeprefix(_ATTRIBUTE))
    return None if value is None else find_value_cells(value)
