"""<d, r>: expected delay and delivery ratio towards a subscriber, and the sending lists computed from them.

The module follows dcrd sections III-A to III-C: equations 1-3, the order of Theorem 1 and Algorithm 1. Each
peer has a table with a row per neighbour and a column per (publisher, subscriber). Lists are per pair because
the budget D_XS = D_PS - sp(P, X) depends on the publisher. A batch changes a few columns, so an update computes
only those.

Two rules differ from the text. A peer skips neighbours with r = 0, which have no route yet. And it stops the
updates of a pair that keeps changing, and counts it: with poor links the hard filter `d_i < D_XS` can flip
list membership for ever.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import LinkView

Pair = tuple[PeerId, PeerId]


class Expectations(msgspec.Struct, frozen=True, gc=False, tag="x"):
    """A batch of <d, r>: expected delay and delivery ratio per (publisher, subscriber); dcrd section III-B."""

    version: int
    pairs: tuple[tuple[PeerId, PeerId], ...]
    delays_ns: tuple[float, ...]
    ratios: tuple[float, ...]


MAX_UPDATES = 100
"""After so many announcements of one pair between two changes of the network, the pair counts as unstable."""
BATCH = 500
"""Pairs per message, so that a message fits a datagram."""
_DELAY_TOLERANCE_NS = 10.0
_RATIO_TOLERANCE = 1e-12


def per_link(delay_ns: float, timeout_ns: float, reliability: float, m: int) -> tuple[float, float]:
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


def combine(
    links: Sequence[tuple[int, float, float]], d: Sequence[float], r: Sequence[float], budget: float
) -> tuple[list[int], float, float]:
    """Algorithm 1 for one pair: the neighbours of the sending list in order, d_X and r_X.

    `links` has each neighbour with the alpha and gamma of its link, in the order that breaks ties; d and r are theirs.
    """
    usable = []
    for (neighbour, alpha, gamma), delay, ratio in zip(links, d, r, strict=True):
        if ratio > 0.0 and delay < budget:
            via_r = gamma * ratio
            if via_r > 0.0:
                via_d = alpha + delay
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


def sensible(batch: Expectations) -> bool:
    """Whether a neighbour's batch is well-formed and in range."""
    return len(batch.pairs) == len(batch.delays_ns) == len(batch.ratios) and all(
        d >= 0.0 and 0.0 <= r <= 1.0 for d, r in zip(batch.delays_ns, batch.ratios, strict=True)
    )


class _Column:
    """The values of one pair. `own` is <d, r> of this peer, `told` what its neighbours know of it."""

    __slots__ = ("budget", "d", "mine", "number", "own_d", "own_r", "pair", "r", "told_d", "told_r", "updates")

    def __init__(self, number: int, pair: Pair, mine: bool, budget: float, d: list[float], r: list[float]) -> None:
        self.number = number
        """Its place in the order of the pairs."""
        self.pair = pair
        self.mine = mine
        """Whether this peer is the subscriber."""
        self.budget = budget
        self.d = d
        self.r = r
        self.own_d = self.told_d = inf
        self.own_r = self.told_r = 0.0
        self.updates = 0
        """Announcements since the network last changed."""


class ExpectationTable:
    """The <d, r> of the neighbours, the sending lists and <d, r> of this peer, and the updates it has to send."""

    def __init__(self) -> None:
        self.lists: dict[Pair, tuple[PeerId, ...]] = {}
        self._heard: dict[PeerId, dict[Pair, tuple[int, float, float]]] = {}
        self._neighbours: tuple[PeerId, ...] = ()
        self._row: dict[PeerId, int] = {}
        self._column: dict[Pair, _Column] = {}
        self._columns: list[_Column] = []
        """In the order of the pairs."""
        self._changed: set[int] = set()
        """The numbers of the columns that have changed since the last update."""
        self._unsettled: set[int] = set()
        self._links: list[tuple[PeerId, float, float]] = []
        """Each neighbour with the alpha and gamma of its link."""
        self._version = 0

    @property
    def unsettled(self) -> int:
        """The number of pairs that changed too often to announce them again."""
        return len(self._unsettled)

    def heard(self, sender: PeerId, pair: Pair) -> tuple[int, float, float] | None:
        """A neighbour's last announcement of a pair: version, d and r."""
        return self._heard.get(sender, {}).get(pair)

    def own(self, pair: Pair) -> tuple[float, float]:
        """<d, r> of this peer."""
        column = self._column[pair]
        return column.own_d, column.own_r

    def reshape(
        self,
        me: PeerId,
        pairs: Mapping[Pair, Nanos | None],
        from_publisher: Mapping[PeerId, Mapping[PeerId, Nanos]],
        links: Mapping[PeerId, LinkView],
        m: int,
    ) -> None:
        """Rebuild the table from the same announcements after the network, the interest or the estimates changed."""
        self.keep_to(links)
        self._neighbours = tuple(sorted(links))
        self._row = {n: i for i, n in enumerate(self._neighbours)}
        self._links = [
            (n, *per_link(links[n].delay_ns, links[n].timeout_ns, links[n].reliability, m)) for n in self._neighbours
        ]
        heard = [self._heard.get(n, {}) for n in self._neighbours]
        nothing = (0, inf, 0.0)
        before, self._column = self._column, {}
        for number, pair in enumerate(sorted(pairs)):
            rows = [each.get(pair, nothing) for each in heard]
            budget = _budget(pairs[pair], from_publisher[pair[0]].get(me))
            made = _Column(number, pair, pair[1] == me, budget, [d for _, d, _ in rows], [r for _, _, r in rows])
            if (former := before.get(pair)) is not None:
                made.told_d, made.told_r = former.told_d, former.told_r
            self._column[pair] = made
        self._columns = list(self._column.values())
        self._changed = set(range(len(self._columns)))
        self._unsettled.clear()
        self.lists = {pair: found for pair, found in self.lists.items() if pair in self._column}

    def hear(self, sender: PeerId, batch: Expectations) -> bool:
        """Store a batch. Return True if something is new. A batch older than a known one changes nothing."""
        heard = self._heard.setdefault(sender, {})
        row = self._row.get(sender)
        news = False
        for pair, d, r in zip(batch.pairs, batch.delays_ns, batch.ratios, strict=False):
            known = heard.get(pair)
            if known is not None and known[0] >= batch.version:
                continue
            heard[pair] = (batch.version, d, r)
            column = self._column.get(pair)
            if row is not None and column is not None:
                news = True
                if column.d[row] != d or column.r[row] != r:
                    column.d[row], column.r[row] = d, r
                    self._changed.add(column.number)
        return news

    def forget(self, sender: PeerId) -> None:
        """Forget the announcements of a neighbour that restarted: its versions begin anew."""
        self._heard.pop(sender, None)
        if (row := self._row.get(sender)) is not None:
            for column in self._columns:
                column.d[row], column.r[row] = inf, 0.0
                self._changed.add(column.number)

    def keep_to(self, links: Mapping[PeerId, LinkView]) -> None:
        """Remove former neighbours from the lists at once, before the next update computes new lists."""
        if any(n not in links for n in self._neighbours):
            self.lists = {pair: tuple([n for n in found if n in links]) for pair, found in self.lists.items()}

    def update(self) -> list[Expectations]:
        """Run Algorithm 1 where something changed. Return the results that the neighbours do not know yet."""
        if not self._neighbours:
            return []
        news = []
        for number in sorted(self._changed):
            column = self._columns[number]
            order, d, r = combine(self._links, column.d, column.r, column.budget)
            self.lists[column.pair] = tuple(order)
            if column.mine:
                d, r = 0.0, 1.0
            column.own_d, column.own_r = d, r
            moved = abs(d - column.told_d) > _DELAY_TOLERANCE_NS or abs(r - column.told_r) > _RATIO_TOLERANCE
            if not moved or (r <= 0.0 and column.told_r <= 0.0):
                self._unsettled.discard(number)
            elif column.updates >= MAX_UPDATES:
                self._unsettled.add(number)
            else:
                column.updates += 1
                column.told_d, column.told_r = d, r
                news.append(column)
        self._changed.clear()
        return self._batches(news)

    def everything(self) -> list[Expectations]:
        """Return all announcements, for a neighbour that knows nothing or missed some, with pairs that recently became
        unreachable."""
        return self._batches(column for column in self._columns if column.told_r > 0.0 or column.updates)

    def _batches(self, columns: Iterable[_Column]) -> list[Expectations]:
        batches, all_ = [], list(columns)
        for i in range(0, len(all_), BATCH):
            part = all_[i : i + BATCH]
            self._version += 1
            batches.append(
                Expectations(
                    self._version,
                    tuple([column.pair for column in part]),
                    tuple([column.told_d for column in part]),
                    tuple([column.told_r for column in part]),
                )
            )
        return batches


def _budget(deadline: Nanos | None, spent: Nanos | None) -> float:
    """D_XS: unbounded without a deadline, minus infinity if the publisher is unreachable."""
    if spent is None:
        return -inf
    return inf if deadline is None else float(deadline - spent)
