"""<d, r>: expected delay and delivery ratio towards a subscriber, and the sending lists computed from them.

The module follows dcrd sections III-A to III-C: equations 1-3, the order of Theorem 1 and Algorithm 1. Each
peer has a table with a row per neighbour and a column per (publisher, subscriber). Lists are per pair because
the budget D_XS = D_PS - sp(P, X) depends on the publisher. NumPy computes all columns at once.

Two rules differ from the text. A peer skips neighbours with r = 0, which have no route yet. And it stops the
updates of a pair that keeps changing, and counts it: with poor links the hard filter `d_i < D_XS` can flip
list membership for ever.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

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


Matrix = np.ndarray[Any, np.dtype[np.float64]]

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
    alpha: Matrix, gamma: Matrix, d: Matrix, r: Matrix, budget: Matrix
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], Matrix, Matrix]:
    """Algorithm 1 for many pairs: (order, length of the list, d_X, r_X) per column.

    alpha, gamma: per neighbour; d, r: neighbours x pairs; budget: per pair.
    """
    usable = (r > 0.0) & (d < budget)
    via_d = np.where(usable, alpha[:, None] + np.where(usable, d, 0.0), 0.0)
    via_r = np.where(usable, gamma[:, None] * r, 0.0)
    usable &= via_r > 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(usable, via_d / via_r, np.inf)
    order = np.argsort(ratio, axis=0, kind="stable")
    sorted_d = np.take_along_axis(via_d, order, axis=0)
    sorted_r = np.take_along_axis(via_r, order, axis=0)
    missed = np.cumprod(1.0 - sorted_r, axis=0)
    before = np.vstack([np.ones((1, d.shape[1])), missed[:-1]])
    own_r = 1.0 - missed[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        own_d = np.where(own_r > 0.0, (np.cumsum(sorted_d, axis=0) * sorted_r * before).sum(axis=0) / own_r, np.inf)
    return order, usable.sum(axis=0), own_d, own_r


def sensible(batch: Expectations) -> bool:
    """Whether a neighbour's batch is well-formed and in range."""
    return len(batch.pairs) == len(batch.delays_ns) == len(batch.ratios) and all(
        d >= 0.0 and 0.0 <= r <= 1.0 for d, r in zip(batch.delays_ns, batch.ratios, strict=True)
    )


class ExpectationTable:
    """The <d, r> of the neighbours, the sending lists and <d, r> of this peer, and the updates it has to send."""

    def __init__(self) -> None:
        self.lists: dict[Pair, tuple[PeerId, ...]] = {}
        self.unsettled = 0
        self._heard: dict[PeerId, dict[Pair, tuple[int, float, float]]] = {}
        self._neighbours: tuple[PeerId, ...] = ()
        self._pairs: tuple[Pair, ...] = ()
        self._row: dict[PeerId, int] = {}
        self._column: dict[Pair, int] = {}
        self._mine: Any = None
        self._d = self._r = np.zeros((0, 0))
        self._own_d = self._own_r = np.zeros(0)
        self._said_d = self._said_r = np.zeros(0)
        self._updates: Any = np.zeros(0, dtype=np.int64)
        self._alpha = self._gamma = self._budget = np.zeros(0)
        self._version = 0

    def heard(self, sender: PeerId, pair: Pair) -> tuple[int, float, float] | None:
        """A neighbour's last announcement of a pair: version, d and r."""
        return self._heard.get(sender, {}).get(pair)

    def own(self, pair: Pair) -> tuple[float, float]:
        """<d, r> of this peer."""
        column = self._column[pair]
        return float(self._own_d[column]), float(self._own_r[column])

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
        said = {pair: (self._said_d[c], self._said_r[c]) for pair, c in self._column.items()}
        self._neighbours = tuple(sorted(links))
        self._row = {n: i for i, n in enumerate(self._neighbours)}
        self._pairs = tuple(sorted(pairs))
        self._column = {pair: c for c, pair in enumerate(self._pairs)}
        count = len(self._pairs)
        self._mine = np.array([s == me for _, s in self._pairs], dtype=bool)
        self._budget = np.array([_budget(pairs[p], from_publisher[p[0]].get(me)) for p in self._pairs])
        estimates = [
            per_link(links[n].delay_ns, links[n].timeout_ns, links[n].reliability, m) for n in self._neighbours
        ]
        self._alpha = np.array([delay for delay, _ in estimates])
        self._gamma = np.array([ratio for _, ratio in estimates])
        self._d = np.full((len(self._neighbours), count), np.inf)
        self._r = np.zeros((len(self._neighbours), count))
        for n, row in self._row.items():
            for pair, (_, d, r) in self._heard.get(n, {}).items():
                if (column := self._column.get(pair)) is not None:
                    self._d[row, column], self._r[row, column] = d, r
        self._said_d = np.array([said.get(p, (np.inf, 0.0))[0] for p in self._pairs])
        self._said_r = np.array([said.get(p, (np.inf, 0.0))[1] for p in self._pairs])
        self._updates = np.zeros(count, dtype=np.int64)
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
                self._d[row, column], self._r[row, column] = d, r
                news = True
        return news

    def forget(self, sender: PeerId) -> None:
        """Forget the announcements of a neighbour that restarted: its versions begin anew."""
        self._heard.pop(sender, None)
        if (row := self._row.get(sender)) is not None:
            self._d[row], self._r[row] = np.inf, 0.0

    def keep_to(self, links: Mapping[PeerId, LinkView]) -> None:
        """Remove former neighbours from the lists at once, before the next update computes new lists."""
        if any(n not in links for n in self._neighbours):
            self.lists = {pair: tuple([n for n in found if n in links]) for pair, found in self.lists.items()}

    def update(self) -> list[Expectations]:
        """Run Algorithm 1. Return the results that the neighbours do not know yet."""
        if not self._pairs or not self._neighbours:
            return []
        order, length, d, r = combine(self._alpha, self._gamma, self._d, self._r, self._budget)
        self._own_d, self._own_r = np.where(self._mine, 0.0, d), np.where(self._mine, 1.0, r)
        rows, lengths = order.T.tolist(), length.tolist()
        names = self._neighbours
        self.lists = {pair: tuple([names[i] for i in rows[c][: lengths[c]]]) for c, pair in enumerate(self._pairs)}
        with np.errstate(invalid="ignore"):
            moved = np.abs(self._own_d - self._said_d) > _DELAY_TOLERANCE_NS
        moved |= np.abs(self._own_r - self._said_r) > _RATIO_TOLERANCE
        moved &= (self._own_r > 0.0) | (self._said_r > 0.0)
        news = moved & (self._updates < MAX_UPDATES)
        self.unsettled = int((moved & ~news).sum())
        self._updates[news] += 1
        self._said_d[news], self._said_r[news] = self._own_d[news], self._own_r[news]
        return self._batches(np.flatnonzero(news).tolist())

    def everything(self) -> list[Expectations]:
        """Return all announcements, for a neighbour that knows nothing or missed some, with pairs that recently became
        unreachable."""
        return self._batches(np.flatnonzero((self._said_r > 0.0) | (self._updates > 0)).tolist())

    def _batches(self, columns: Sequence[int]) -> list[Expectations]:
        batches = []
        for i in range(0, len(columns), BATCH):
            part = columns[i : i + BATCH]
            self._version += 1
            batches.append(
                Expectations(
                    self._version,
                    tuple([self._pairs[c] for c in part]),
                    tuple(self._said_d[part].tolist()),
                    tuple(self._said_r[part].tolist()),
                )
            )
        return batches


def _budget(deadline: Nanos | None, spent: Nanos | None) -> float:
    """D_XS: unbounded without a deadline, minus infinity if the publisher is unreachable."""
    if spent is None:
        return -np.inf
    return np.inf if deadline is None else float(deadline - spent)
