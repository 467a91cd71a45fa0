"""The deliveries of a large simulation against those that were due, found by brute force."""

from typing import NamedTuple

import numpy as np

from wend.drivers.sim.dht_results import DhtResults
from wend.drivers.sim.dht_workload import MatchingPairs, Workload
from wend.matching.filters import parse


class DeliveryAccount(NamedTuple):
    """Deliveries against what was due, in pairs of publication and subscription."""

    due: int
    delivered: int
    """Of those that were due; a repetition counts once."""
    missing: MatchingPairs
    undue: int
    """Deliveries to a subscription that was not due: the event does not match it, or came around its start or end."""
    repeated: int

    @property
    def ratio(self) -> float:
        return self.delivered / self.due if self.due else 1.0


def account(workload: Workload, due: MatchingPairs, results: DhtResults) -> DeliveryAccount:
    """Compare the deliveries of a run with those that were due."""
    size = max(1, len(workload.subscriptions))
    position = {(one.peer, one.number): at for at, one in enumerate(workload.subscriptions)}
    made = results.deliveries
    found = [position[peer, number] for peer, number in zip(made.peer, made.number, strict=True)]
    got = made.column("publication") * size + np.array(found, dtype=np.int64)
    once = np.unique(got)
    expected = np.unique(due.publication * size + due.subscription)
    missing = np.setdiff1d(expected, once, assume_unique=True)
    return DeliveryAccount(
        due=len(expected),
        delivered=len(expected) - len(missing),
        missing=MatchingPairs(missing // size, missing % size),
        undue=len(np.setdiff1d(once, expected, assume_unique=True)),
        repeated=len(got) - len(once),
    )


def brute_force(workload: Workload) -> MatchingPairs:
    """All pairs that match, whenever they were made: every filter applied to every event."""
    filters = [parse(one.filter) for one in workload.subscriptions]
    found = [
        (event, wanted)
        for event, published in enumerate(workload.publications)
        for wanted, filter_ in enumerate(filters)
        if filter_.matches(published.attributes)
    ]
    columns = np.array(found, dtype=np.int64).reshape(-1, 2)
    return MatchingPairs(columns[:, 0], columns[:, 1])
