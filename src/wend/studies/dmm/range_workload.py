"""The workload of section VI of the dmm paper: range subscriptions and publications on ten attributes.

Subscriptions and publications are drawn as arrays, so that brute force over all pairs takes seconds: a run has
to deliver these pairs. Attribute a has the column a; 0 stands for an attribute that a publication lacks.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wend.drivers.sim.dht_workload import MatchingPairs, TimedPublication, TimedSubscription
from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.model.units import MS, SECOND, Nanos
from wend.topology.underlay import Ints

ATTRIBUTES = 10
NAMES = tuple(f"a{at}" for at in range(ATTRIBUTES))
HIGHEST = 256
MAX_PREDICATES = 5
SPACING_NS: Nanos = 10 * MS
"""Between two subscriptions, in all runs."""
PAUSE_NS: Nanos = 40 * SECOND
"""From the last subscription to the first publications."""
PERIOD_NS: Nanos = 10 * SECOND
ROUNDS = 10
"""Publications of each publisher."""

Distribution = Literal["uniform", "zipf"]
Values = NDArray[np.int16]


class RangeSubscriptions(NamedTuple):
    """(subscriptions, attributes): the bounds of each predicate. Without a predicate, the range holds 0, too."""

    low: Values
    high: Values
    subscriber: Ints

    @property
    def texts(self) -> list[str]:
        """The filters."""
        has_predicate = self.low > 0
        return [
            " and ".join(
                f"{NAMES[at]} >= {low[at]} and {NAMES[at]} <= {high[at]}" for at in np.flatnonzero(names).tolist()
            )
            for low, high, names in zip(self.low.tolist(), self.high.tolist(), has_predicate, strict=True)
        ]


class PointPublications(NamedTuple):
    """(publications, attributes): the value of each attribute, 0 if a publication lacks it."""

    values: Values
    publisher: Ints
    time_ns: Ints


class WorkloadDraws(NamedTuple):
    """How names and values are drawn."""

    names: NDArray[np.float64] | None
    values: NDArray[np.float64] | None

    @classmethod
    def for_distribution(cls, distribution: Distribution) -> "WorkloadDraws":
        """Make the draws of a distribution. Zipf (exponent 1) favours the first names and the lowest values."""
        if distribution == "uniform":
            return cls(None, None)
        names, values = (1.0 / np.arange(1, size + 1) for size in (ATTRIBUTES, HIGHEST))
        return cls(names / names.sum(), values / values.sum())

    def draw_subset(self, rng: np.random.Generator, count: int, least: int, most: int) -> NDArray[np.bool_]:
        """For each of `count` things, which attributes it has: `least` to `most` of them."""
        sizes = rng.integers(least, most, endpoint=True, size=count)
        keys = rng.random((count, ATTRIBUTES))
        if self.names is not None:  # the smallest exponential variables are a weighted sample without replacement
            keys = -np.log1p(-keys) / self.names
        rank = keys.argsort(axis=1).argsort(axis=1)
        return np.asarray(rank < sizes[:, None])

    def draw_values(self, rng: np.random.Generator, shape: tuple[int, int]) -> Values:
        drawn = rng.choice(HIGHEST, size=shape, p=self.values) + 1
        return drawn.astype(np.int16)


def draw_subscriptions(
    seed: int, count: int, subscribers: Ints, distribution: Distribution = "uniform", predicates: int = 0
) -> RangeSubscriptions:
    """Random ranges on 1 to 5 attributes. With `predicates`, on that many, and only the first selects."""
    if not 0 <= predicates <= ATTRIBUTES:
        raise ConfigError(f"a subscription has 1 to {ATTRIBUTES} predicates, got {predicates}")
    rng = stream(seed, "dmm", "subscriptions")
    draws = WorkloadDraws.for_distribution(distribution)
    has_predicate = draws.draw_subset(rng, count, predicates or 1, predicates or MAX_PREDICATES)
    one, other = (draws.draw_values(rng, (count, ATTRIBUTES)) for _ in range(2))
    low, high = np.minimum(one, other), np.maximum(one, other)
    if predicates:
        first = has_predicate.cumsum(axis=1) == 1
        wide = has_predicate & ~(first & has_predicate)
        low[wide], high[wide] = 1, HIGHEST
    low[~has_predicate], high[~has_predicate] = 0, HIGHEST
    turns = stream(seed, "dmm", "subscribers").permutation(subscribers)
    return RangeSubscriptions(low, high, turns[np.arange(count) % len(turns)])


def draw_publications(
    seed: int, publisher: Ints, time_ns: Ints, distribution: Distribution = "uniform", complete: bool = False
) -> PointPublications:
    """Values of 1 to 10 attributes, or of all."""
    rng = stream(seed, "dmm", "publications")
    draws = WorkloadDraws.for_distribution(distribution)
    has = draws.draw_subset(rng, len(publisher), ATTRIBUTES if complete else 1, ATTRIBUTES)
    values = draws.draw_values(rng, (len(publisher), ATTRIBUTES))
    values[~has] = 0
    order = np.lexsort((publisher, time_ns))
    return PointPublications(values, publisher[order], time_ns[order])


def find_matches(subscriptions: RangeSubscriptions, publications: PointPublications) -> MatchingPairs:
    """All pairs that match, by brute force."""
    low, high = np.ascontiguousarray(subscriptions.low.T), np.ascontiguousarray(subscriptions.high.T)
    matching = []
    for values in publications.values:
        holds = np.ones(low.shape[1], dtype=np.bool_)
        for at, value in enumerate(values):
            holds &= low[at] <= value
            if value:
                holds &= value <= high[at]
        matching.append(np.flatnonzero(holds))
    counts = [len(each) for each in matching]
    return MatchingPairs(
        np.repeat(np.arange(len(matching)), counts), np.concatenate([np.empty(0, dtype=np.int64), *matching])
    )


def draw_rounds(seed: int, publishers: Ints, begin_ns: Nanos, period_ns: Nanos, count: int) -> tuple[Ints, Ints]:
    """Publishers and times: each starts at a random time within the period, and publishes once per period."""
    phase = stream(seed, "dmm", "phases").integers(period_ns, size=len(publishers))
    times = begin_ns + phase[None, :] + period_ns * np.arange(count)[:, None]
    return np.tile(publishers, count), times.ravel()


def make_timed_subscriptions(drawn: RangeSubscriptions, begin_ns: Nanos, spacing_ns: Nanos) -> list[TimedSubscription]:
    return [
        TimedSubscription(begin_ns + at * spacing_ns, peer, at, text)
        for at, (peer, text) in enumerate(zip(drawn.subscriber.tolist(), drawn.texts, strict=True))
    ]


def make_timed_publications(drawn: PointPublications) -> list[TimedPublication]:
    return [
        TimedPublication(time, peer, {name: value for name, value in zip(NAMES, values, strict=True) if value})
        for time, peer, values in zip(
            drawn.time_ns.tolist(), drawn.publisher.tolist(), drawn.values.tolist(), strict=True
        )
    ]
