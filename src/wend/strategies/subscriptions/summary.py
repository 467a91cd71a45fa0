"""The summary of a peer's own filters, which it announces: of bounded size, however many subscriptions it has.

The summary covers every filter of the peer. While the filters fit the bound, they are the summary. If they do not, the
peer announces groups of them, each as one conjunction that covers all its members:

    level 0              every subscription as it is
    level 1              groups by all attributes with a single value, and by the names of the others
    level 2              groups by the topic, and by the names of the others
    levels 3 to 14       groups by ever shorter prefixes of the topic, and by the names of the others
    level 15             groups by the names of the attributes
    level 16             `true`

In a group, each attribute whose values differ between members has the hull of their values: one range. The key of a
group follows from the key of any finer one. So the next level is made of the groups of this one, which are few. A finer
level is made of all filters, and only if it would fit half of the bound. That takes
long, so the peer waits until as many subscriptions have ended as remain, and few enough remain. Until then the summary
may cover more than necessary.
"""

from collections.abc import Callable, Iterable
from typing import Any

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import MAX_FILTER_CHARS, Filter
from wend.matching.printer import conjunction_text, is_expressible
from wend.matching.values import ABSENT, NUMBERS, PRESENT, Cuts, Values, next_value
from wend.model.events import Qos

SUMMARY_BYTES = 48_000
"""The bound. It is well below the longest control message, and many times the size that most peers need."""
ENTRY_BYTES = 96
"""The size of an entry without the text of its filter."""
MAX_REBUILT = 10_000
"""The most subscriptions for which a peer rebuilds its summary, because a rebuild blocks the peer."""
PREFIXES = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
TOPIC = "topic"
EXACT, EQUAL, BY_TOPIC, FIRST_PREFIX = 0, 1, 2, 3
BY_NAMES = FIRST_PREFIX + len(PREFIXES)
TRUE = BY_NAMES + 1

Constraints = tuple[tuple[str, Values], ...]
Member = tuple[int, str, Filter, Qos]
"""A subscription: number, text, filter, quality of service."""
SummaryEntry = tuple[str, Qos]
Key = tuple[Any, ...]
"""The properties that all members of a group share."""


class FilterGroup:
    """Some conjunctions of filters, and one conjunction that covers them all."""

    __slots__ = ("constraints", "count", "number", "qos", "text")

    def __init__(self, constraints: Constraints, qos: Qos, count: int) -> None:
        self.number = 0
        self.constraints = constraints
        self.qos = qos
        self.count = count
        self.text = _constraints_text(constraints)

    @property
    def size(self) -> int:
        return entry_bytes(self.text)

    def widen(self, constraints: Constraints, qos: Qos) -> bool:
        """Widen the group to cover these constraints, too, which have the same names. Returns whether it changed."""
        hull = tuple(
            [
                (name, _hull(mine, theirs))
                for (name, mine), (_, theirs) in zip(self.constraints, constraints, strict=True)
            ]
        )
        strictest = combine_qos(self.qos, qos)
        if hull == self.constraints and strictest == self.qos:
            return False
        if hull != self.constraints:
            self.constraints = hull
            self.text = _constraints_text(hull)
        self.qos = strictest
        return True


class FilterSummary:
    """The filters that a peer announces. `members` returns all its present subscriptions."""

    __slots__ = (
        "_count", "_ended_count", "_exact", "_groups", "_limit", "_members", "_next", "_touched", "is_replaced",
        "level", "size",
    )  # fmt: skip

    def __init__(self, members: Callable[[], Iterable[Member]], limit: int = SUMMARY_BYTES) -> None:
        self.level = EXACT
        self.size = 0
        """The approximate size of all entries."""
        self.is_replaced = False
        """Whether most entries have changed since `take_changes`."""
        self._members = members
        self._limit = limit
        self._exact: dict[int, SummaryEntry] = {}
        self._groups: dict[Key, FilterGroup] = {}
        self._next = -1
        self._count = 0
        self._ended_count = 0
        """The number of subscriptions that ended since the groups were made."""
        self._touched: dict[int, bool] = {}
        """Entries that changed since `take_changes`, and whether they existed then."""

    @property
    def is_exact(self) -> bool:
        return self.level == EXACT

    def __len__(self) -> int:
        return len(self._exact) if self.level == EXACT else len(self._groups)

    def entries(self) -> dict[int, SummaryEntry]:
        """The filters and their quality of service by number, in order."""
        if self.level == EXACT:
            return {number: self._exact[number] for number in sorted(self._exact)}
        groups = sorted(self._groups.values(), key=lambda group: group.number)
        return {group.number: (group.text, group.qos) for group in groups}

    @property
    def has_changes(self) -> bool:
        return self.is_replaced or bool(self._touched)

    def take_changes(self) -> tuple[int, ...]:
        """The numbers of all entries that were added, changed or removed since the last call."""
        changes = tuple(sorted(self._touched))
        self._touched.clear()
        self.is_replaced = False
        return changes

    # ---------------------------------------------------------------- changes

    def add(self, number: int, text: str, filter_: Filter, qos: Qos) -> None:
        self._count += 1
        if self.level == EXACT:
            self._exact[number] = (text, qos)
            self.size += entry_bytes(text)
            self._mark_changed(number, new=True)
        else:
            for conjunction in filter_.conjunctions:
                self._extend_group(
                    self._groups,
                    _group_key(self.level, constraints := _constraints(conjunction), qos),
                    constraints,
                    qos,
                    1,
                )
        while self.size > self._limit and self.level < TRUE:
            self._coarsen()

    def discard(self, number: int, filter_: Filter, qos: Qos) -> None:
        """Remove a subscription that was added with this filter and quality of service."""
        self._count -= 1
        if self.level == EXACT:
            self.size -= entry_bytes(self._exact.pop(number)[0])
            self._mark_removed(number)
            return
        self._ended_count += 1
        for conjunction in filter_.conjunctions:
            key = _group_key(self.level, _constraints(conjunction), qos)
            group = self._groups[key]
            group.count -= 1
            if not group.count:
                del self._groups[key]
                self.size -= group.size
                self._mark_removed(group.number)
        if self._ended_count >= self._count and self._count <= MAX_REBUILT:
            self._rebuild()

    def clear(self) -> None:
        self.level = EXACT
        self.size = self._count = self._ended_count = 0
        self._exact.clear()
        self._groups.clear()
        self._mark_replaced()

    def _mark_changed(self, number: int, new: bool = False) -> None:
        """Record that an entry is new or has changed."""
        self._touched.setdefault(number, not new)

    def _mark_removed(self, number: int) -> None:
        """Record that an entry was removed. If it was new since `take_changes`, nothing has changed."""
        if self._touched.get(number, True):
            self._touched[number] = True
        else:
            del self._touched[number]

    # ---------------------------------------------------------------- levels

    def _extend_group(
        self, groups: dict[Key, FilterGroup], key: Key, constraints: Constraints, qos: Qos, count: int
    ) -> None:
        group, grown, changed = _add_members(groups, key, constraints, qos, count)
        self.size += grown
        if not group.number:
            group.number = self._next
            self._next -= 1
            self._mark_changed(group.number, new=True)
        elif changed:
            self._mark_changed(group.number)

    def _coarsen(self) -> None:
        """Merge the groups of this level into those of the next one."""
        coarser: dict[Key, FilterGroup] = {}
        level, self.size = self.level + 1, 0
        if self.level == EXACT:
            for _, _, filter_, qos in self._members():
                for conjunction in filter_.conjunctions:
                    self._extend_group(
                        coarser, _group_key(level, constraints := _constraints(conjunction), qos), constraints, qos, 1
                    )
            self._exact.clear()
            self._ended_count = 0
        else:
            for key, group in self._groups.items():
                self._extend_group(coarser, _coarser_key(level, key), group.constraints, group.qos, group.count)
        self.level, self._groups = level, coarser
        self._mark_replaced()

    def _mark_replaced(self) -> None:
        self._touched.clear()
        self.is_replaced = True

    def _rebuild(self) -> None:
        """Rebuild at the finest level that fits in half of the bound, or else at the present level."""
        self._ended_count = 0
        if self._rebuild_exactly():
            return
        for level in range(EQUAL, self.level + 1):
            bound = self._limit // 2 if level < self.level else self._limit
            groups = _groups_at(level, self._members(), bound)
            if groups is not None:
                self._replace_groups(level, groups)
                return
        # narrower hulls may have longer texts, so that no level fits: the groups stay as they are

    def _rebuild_exactly(self) -> bool:
        exact: dict[int, SummaryEntry] = {}
        size = 0
        for number, text, _, qos in self._members():
            size += entry_bytes(text)
            if size > self._limit // 2:
                return False
            exact[number] = (text, qos)
        self.level, self.size, self._exact = EXACT, size, exact
        self._groups.clear()
        self._mark_replaced()
        return True

    def _replace_groups(self, level: int, groups: dict[Key, FilterGroup]) -> None:
        """Replace the groups. At the same level, entries keep their numbers."""
        before = self._groups if level == self.level else {}
        for key, group in groups.items():
            old = before.get(key)
            if old is None:
                group.number = self._next
                self._next -= 1
                self._mark_changed(group.number, new=True)
            else:
                group.number = old.number
                if (old.text, old.qos) != (group.text, group.qos):
                    self._mark_changed(group.number)
        if level != self.level:
            self._mark_replaced()
        self.level, self._groups = level, groups
        self.size = sum([group.size for group in groups.values()])


def entry_bytes(text: str) -> int:
    """The approximate size of an entry in a message."""
    return ENTRY_BYTES + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


def combine_qos(a: Qos, b: Qos) -> Qos:
    """The quality of service that satisfies both. Both state the same ones of deadline, factor and group. Events expire
    only if both state the same age."""
    if a is b or a == b:
        return a
    return Qos(
        a.deadline_ns if b.deadline_ns is None or (a.deadline_ns or 0) < b.deadline_ns else b.deadline_ns,
        a.factor if b.factor is None or (a.factor or 0.0) < b.factor else b.factor,
        None if a.reliability is None or b.reliability is None else max(a.reliability, b.reliability),
        a.order or b.order,
        a.expire and b.expire and a.deadline_ns == b.deadline_ns and a.factor == b.factor,
        a.group,
    )


def _groups_at(level: int, members: Iterable[Member], bound: int) -> dict[Key, FilterGroup] | None:
    """The groups of all members, without numbers; None if they take more bytes than the bound."""
    groups: dict[Key, FilterGroup] = {}
    size = 0
    for _, _, filter_, qos in members:
        for conjunction in filter_.conjunctions:
            constraints = _constraints(conjunction)
            size += _add_members(groups, _group_key(level, constraints, qos), constraints, qos, 1)[1]
        if size > bound:
            return None
    return groups


def _add_members(
    groups: dict[Key, FilterGroup], key: Key, constraints: Constraints, qos: Qos, count: int
) -> tuple[FilterGroup, int, bool]:
    """Add `count` members to the group with this key. Return the group, by how many bytes it grew, and whether it
    changed. A new group has no number."""
    if len(key) == 1:
        constraints = ()
    group = groups.get(key)
    if group is None:
        groups[key] = group = FilterGroup(constraints, qos, count)
        return group, group.size, True
    group.count += count
    before = group.size
    changed = group.widen(constraints, qos)
    return group, group.size - before, changed


def _constraints(one: Conjunction) -> Constraints:
    """The constraints in a form that a group can have. Bindings become the constraints that they imply."""
    constraints = one.values if not one.bindings else tuple(sorted(one.constraints()))
    for _, values in constraints:
        if values.absent or (values.booleans and values.numbers):
            return tuple(
                [(name, _plain_values(values)) for name, values in constraints if not values.absent or values == ABSENT]
            )
    return constraints


def _plain_values(values: Values) -> Values:
    return values if is_expressible(values) else PRESENT


def _group_key(level: int, constraints: Constraints, qos: Qos) -> Key:
    """The key of the group of a conjunction with these constraints."""
    kind = (qos.deadline_ns is None, qos.factor is None, qos.group)
    if level == TRUE:
        return (kind,)
    return (kind, *[_key_part(level, name, values) for name, values in constraints])


def _key_part(level: int, name: str, values: Values) -> tuple[str, str, Any]:
    """The part of a key for one attribute: its name, the kind of its values, and the value that all members share."""
    numbers, strings = values.numbers, values.strings
    if strings and not numbers:
        is_shared = (level == EQUAL or name == TOPIC) and _is_single_text(strings)
        return name, "text", _shared_value(level, strings[0], True) if is_shared else None
    if numbers and not strings:
        is_single = len(numbers) == 2 and next_value(numbers[0]) == numbers[1]
        return name, "number", numbers[0] if is_single and level == EQUAL else None
    if values.booleans and not numbers:
        return name, "boolean", values.booleans if level == EQUAL else None
    return name, "absent" if values.absent else "present", None


def _is_single_text(strings: Cuts) -> bool:
    return len(strings) == 2 and strings[1] == strings[0] + "\0"


def _shared_value(level: int, text: str, single: bool) -> tuple[str, bool] | None:
    """The value or the prefix that all members share at this level, and whether it is a value."""
    if level < FIRST_PREFIX:
        return text, single
    if level >= BY_NAMES:
        return None
    length = PREFIXES[level - FIRST_PREFIX]
    return (text[:length], False) if len(text) >= length else (text, single)


def _coarser_key(level: int, key: Key) -> Key:
    """The key at this level of the group with this key at the level before."""
    if level == TRUE:
        return key[:1]
    parts = []
    for name, kind, shared in key[1:]:
        if shared is not None and kind == "text" and name == TOPIC:
            parts.append((name, kind, _shared_value(level, *shared)))
        else:
            parts.append((name, kind, None))
    return (key[0], *parts)


def _constraints_text(constraints: Constraints) -> str:
    """The conjunction as text. It is wider if no text can express the constraints."""
    widened = tuple([(name, PRESENT if values == NUMBERS else values) for name, values in constraints])
    text = conjunction_text(Conjunction(widened))
    return text if len(text) <= MAX_FILTER_CHARS else "true"


def _hull(mine: Values, theirs: Values) -> Values:
    """One range that contains both sets, which are of the same kind."""
    if mine is theirs or mine in (theirs, PRESENT):
        return mine
    if mine.booleans:
        return mine if mine.booleans == (False, True) else Values(booleans=(False, True))
    if mine.numbers:
        cuts = _bounding_range(mine.numbers, theirs.numbers)
        return mine if cuts == mine.numbers else Values(numbers=cuts)
    cuts = _bounding_range(mine.strings, theirs.strings)
    return mine if cuts == mine.strings else Values(strings=cuts)


def _bounding_range(mine: Cuts, theirs: Cuts) -> Cuts:
    low = mine[0] if mine[0] <= theirs[0] else theirs[0]
    if len(mine) % 2 or len(theirs) % 2:
        return (low,)
    return low, mine[-1] if mine[-1] >= theirs[-1] else theirs[-1]
