"""<d, r>: expected delay and delivery ratio towards a subscriber, and the sending lists computed from them.

The module follows dcrd sections III-A to III-C: equations 1-3, the order of Theorem 1 and Algorithm 1. Each
peer has a table with a row per neighbour and a column per (publisher, subscriber). Lists are per pair because
the budget D_XS = D_PS - sp(P, X) depends on the publisher. A batch changes a few columns, so an update computes
only those.

Two rules differ from the text. A peer skips neighbours with r = 0, which have no route yet. And it stops the
updates of a pair that keeps changing, and counts it: with poor links the hard filter `d_i < D_XS` can flip
list membership for ever.
"""

from collections.abc import Mapping, Sequence
from math import inf

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import LinkView

Pair = tuple[PeerId, PeerId]
Row = tuple[PeerId, float, float, list[float], list[float]]
"""A neighbour, alpha and gamma of the link to it, and its d and r by column."""


class Expectations(msgspec.Struct, frozen=True, gc=False, tag="x"):
    """A batch of <d, r>: expected delay and delivery ratio per (publisher, subscriber); dcrd section III-B."""

    version: int
    pairs: tuple[tuple[PeerId, PeerId], ...]
    delays_ns: tuple[float, ...]
    ratios: tuple[float, ...]


MAX_UPDATES = 100
"""A pair that is announced this often between two changes of the network counts as unstable."""
PAIRS_PER_MESSAGE = 500
"""Pairs per message, so that a message fits a datagram."""
_DELAY_TOLERANCE_NS = 10.0
_RATIO_TOLERANCE = 1e-12


def link_expectation(delay_ns: float, timeout_ns: float, reliability: float, m: int) -> tuple[float, float]:
    """Equation 1: expected delay and ratio of up to m transmissions over one link.

    The k-th transmission starts k - 1 timeouts after the first. With the paper's timer (one delay) this gives the
    printed k * alpha.
    """
    ratio = 1.0 - (1.0 - reliability) ** m
    if ratio <= 0.0:
        return float("inf"), 0.0
    total = sum(
        ((k - 1) * timeout_ns + delay_ns) * reliability * (1.0 - reliability) ** (k - 1) for k in range(1, m + 1)
    )
    return total / ratio, ratio


def sending_list(rows: Sequence[Row], column: int, budget: float) -> tuple[list[PeerId], float, float]:
    """Algorithm 1 for one pair: the sending list, d_X and r_X. The order of the rows breaks ties."""
    usable = []
    for neighbour, alpha, gamma, delays, ratios in rows:
        r, d = ratios[column], delays[column]
        if r > 0.0 and d < budget:
            via_r = gamma * r
            if via_r > 0.0:
                via_d = alpha + d
                usable.append((via_d / via_r, neighbour, via_d, via_r))
    usable.sort()
    total, spent, missed, order = 0.0, 0.0, 1.0, []
    for _, neighbour, via_d, via_r in usable:
        order.append(neighbour)
        spent += via_d
        total += spent * via_r * missed
        missed *= 1.0 - via_r
    own_r = 1.0 - missed
    return order, total / own_r if own_r > 0.0 else inf, own_r


def is_valid(batch: Expectations) -> bool:
    """Whether a neighbour's batch is well-formed and in range."""
    return len(batch.pairs) == len(batch.delays_ns) == len(batch.ratios) and all(
        d >= 0.0 and 0.0 <= r <= 1.0 for d, r in zip(batch.delays_ns, batch.ratios, strict=True)
    )


class ExpectationTable:
    """The <d, r> of the neighbours, the sending lists and <d, r> of this peer, and the updates it has to send.

    All lists of numbers below are by column. They are flat, since a large overlay has thousands of pairs.
    """

    def __init__(self) -> None:
        self.lists: dict[Pair, tuple[PeerId, ...]] = {}
        self._announcements: dict[PeerId, dict[Pair, tuple[int, float, float]]] = {}
        self._pairs: list[Pair] = []
        self._column: dict[Pair, int] = {}
        self._rows: dict[PeerId, Row] = {}
        """By neighbour, in the order of their ids."""
        self._changed: set[int] = set()
        """The columns that have changed since the last update."""
        self._unstable: set[int] = set()
        self._own_columns: set[int] = set()
        """The columns whose subscriber is this peer."""
        self._budget: list[float] = []
        self._own_d: list[float] = []
        self._own_r: list[float] = []
        self._announced_d: list[float] = []
        self._announced_r: list[float] = []
        """The values that the neighbours know."""
        self._updates: list[int] = []
        """Announcements since the network last changed."""
        self._version = 0

    @property
    def unstable_pairs(self) -> int:
        """The number of pairs that changed too often to announce them again."""
        return len(self._unstable)

    def last_announcement(self, sender: PeerId, pair: Pair) -> tuple[int, float, float] | None:
        """A neighbour's last announcement of a pair: version, d and r."""
        return self._announcements.get(sender, {}).get(pair)

    def own_expectation(self, pair: Pair) -> tuple[float, float]:
        """<d, r> of this peer."""
        column = self._column[pair]
        return self._own_d[column], self._own_r[column]

    def rebuild(
        self,
        me: PeerId,
        pairs: Mapping[Pair, Nanos | None],
        from_publisher: Mapping[PeerId, Mapping[PeerId, Nanos]],
        links: Mapping[PeerId, LinkView],
        m: int,
    ) -> None:
        """Rebuild the table from the same announcements after the network, the interest or the estimates changed."""
        self.drop_former_neighbours(links)
        told = {pair: (self._announced_d[c], self._announced_r[c]) for pair, c in self._column.items()}
        self._pairs = sorted(pairs)
        self._column = {pair: c for c, pair in enumerate(self._pairs)}
        count = len(self._pairs)
        self._rows = {}
        for n in sorted(links):
            alpha, gamma = link_expectation(links[n].delay_ns, links[n].timeout_ns, links[n].reliability, m)
            d, r = [inf] * count, [0.0] * count
            for pair, (_, heard_d, heard_r) in self._announcements.get(n, {}).items():
                if (column := self._column.get(pair)) is not None:
                    d[column], r[column] = heard_d, heard_r
            self._rows[n] = (n, alpha, gamma, d, r)
        self._own_columns = {c for c, (_, subscriber) in enumerate(self._pairs) if subscriber == me}
        self._budget = [_delay_budget(pairs[pair], from_publisher[pair[0]].get(me)) for pair in self._pairs]
        self._own_d, self._own_r = [inf] * count, [0.0] * count
        known = [told.get(pair, (inf, 0.0)) for pair in self._pairs]
        self._announced_d, self._announced_r = [d for d, _ in known], [r for _, r in known]
        self._updates = [0] * count
        self._changed = set(range(count))
        self._unstable.clear()
        self.lists = {pair: hops for pair, hops in self.lists.items() if pair in self._column}

    def store(self, sender: PeerId, batch: Expectations) -> bool:
        """Store a batch. Return whether anything is new. A batch older than a stored one changes nothing."""
        heard = self._announcements.setdefault(sender, {})
        row = self._rows.get(sender)
        news = False
        for pair, d, r in zip(batch.pairs, batch.delays_ns, batch.ratios, strict=False):
            known = heard.get(pair)
            if known is not None and known[0] >= batch.version:
                continue
            heard[pair] = (batch.version, d, r)
            column = self._column.get(pair)
            if row is not None and column is not None:
                news = True
                row[3][column], row[4][column] = d, r
                self._changed.add(column)
        return news

    def forget(self, sender: PeerId) -> None:
        """Forget the announcements of a neighbour that restarted: its versions begin anew."""
        self._announcements.pop(sender, None)
        if (row := self._rows.get(sender)) is not None:
            count = len(self._pairs)
            self._rows[sender] = (*row[:3], [inf] * count, [0.0] * count)
            self._changed.update(range(count))

    def drop_former_neighbours(self, links: Mapping[PeerId, LinkView]) -> None:
        """Remove former neighbours from the lists at once, before the next update computes new lists."""
        if any(n not in links for n in self._rows):
            self.lists = {pair: tuple([n for n in hops if n in links]) for pair, hops in self.lists.items()}

    def update(self) -> list[Expectations]:
        """Run Algorithm 1 for the changed columns. Return the results that the neighbours do not know yet."""
        if not self._rows:
            return []
        news, rows = [], list(self._rows.values())
        for column in sorted(self._changed):
            order, d, r = sending_list(rows, column, self._budget[column])
            self.lists[self._pairs[column]] = tuple(order)
            if column in self._own_columns:
                d, r = 0.0, 1.0
            self._own_d[column], self._own_r[column] = d, r
            told_r = self._announced_r[column]
            moved = abs(d - self._announced_d[column]) > _DELAY_TOLERANCE_NS or abs(r - told_r) > _RATIO_TOLERANCE
            if not moved or (r <= 0.0 and told_r <= 0.0):
                self._unstable.discard(column)
            elif self._updates[column] >= MAX_UPDATES:
                self._unstable.add(column)
            else:
                self._updates[column] += 1
                self._announced_d[column], self._announced_r[column] = d, r
                news.append(column)
        self._changed.clear()
        return self._make_batches(news)

    def all_announcements(self) -> list[Expectations]:
        """Return all announcements, for a neighbour that lacks some, and the pairs that recently became unreachable."""
        return self._make_batches(
            [c for c in range(len(self._pairs)) if self._announced_r[c] > 0.0 or self._updates[c]]
        )

    def _make_batches(self, columns: Sequence[int]) -> list[Expectations]:
        batches = []
        for i in range(0, len(columns), PAIRS_PER_MESSAGE):
            part = columns[i : i + PAIRS_PER_MESSAGE]
            self._version += 1
            batches.append(
                Expectations(
                    self._version,
                    tuple([self._pairs[c] for c in part]),
                    tuple([self._announced_d[c] for c in part]),
                    tuple([self._announced_r[c] for c in part]),
                )
            )
        return batches


def _delay_budget(deadline: Nanos | None, spent: Nanos | None) -> float:
    """D_XS: unbounded without a deadline, minus infinity if the publisher is unreachable."""
    if spent is None:
        return -inf
    return inf if deadline is None else float(deadline - spent)
