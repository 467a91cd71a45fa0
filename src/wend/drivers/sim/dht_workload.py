"""The input of a large simulation as plain data: calls of applications, and peers that come and go.

Results refer to a subscription by its position in `Workload.subscriptions`, and to a publication by its position in
`Workload.publications`.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import Attributes, PeerId, Qos
from wend.model.units import FOREVER, Nanos
from wend.topology.underlay import Ints

NO_QOS: Final = Qos()


class TimedSubscription(NamedTuple):
    time_ns: Nanos
    peer: PeerId
    number: int
    """The peer's own number for it."""
    filter: str
    qos: Qos = NO_QOS


class TimedUnsubscription(NamedTuple):
    time_ns: Nanos
    peer: PeerId
    number: int


class TimedPublication(NamedTuple):
    time_ns: Nanos
    peer: PeerId
    attributes: Attributes
    payload: bytes = b""


class PeerChange(NamedTuple):
    """Some peers crash, restart with their stores, join for the first time, or leave gracefully."""

    time_ns: Nanos
    what: Literal["crash", "restart", "join", "leave"]
    peers: tuple[PeerId, ...]


class Workload(NamedTuple):
    subscriptions: Sequence[TimedSubscription] = ()
    unsubscriptions: Sequence[TimedUnsubscription] = ()
    publications: Sequence[TimedPublication] = ()
    changes: Sequence[PeerChange] = ()
    """Peers that never join start at time 0."""

    def check(self, peers: int) -> None:
        """Raise ConfigError for a peer or a subscription that does not exist."""
        known = set()
        for one in self.subscriptions:
            _check_peer(one.peer, peers)
            if (one.peer, one.number) in known:
                raise ConfigError(f"peer {one.peer} has two subscriptions with the number {one.number}")
            known.add((one.peer, one.number))
        for ended in self.unsubscriptions:
            if (ended.peer, ended.number) not in known:
                raise ConfigError(f"peer {ended.peer} has no subscription {ended.number} to end")
        for event in self.publications:
            _check_peer(event.peer, peers)
        for change in self.changes:
            for peer in change.peers:
                _check_peer(peer, peers)


class MatchingPairs(NamedTuple):
    """Publications with the subscriptions that they match, by position: two columns."""

    publication: Ints
    subscription: Ints

    def select(self, holds: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "MatchingPairs":
        return MatchingPairs(self.publication[holds], self.subscription[holds])


def find_due_pairs(workload: Workload, pairs: MatchingPairs, settling_ns: Nanos = 0) -> MatchingPairs:
    """The pairs that must be delivered: publisher and subscriber were up, and the subscription was active.

    A subscription is active from `settling_ns` after its start."""
    ends = {(one.peer, one.number): one.time_ns for one in workload.unsubscriptions}
    since = _int_column([one.time_ns + settling_ns for one in workload.subscriptions])
    until = _int_column([ends.get((one.peer, one.number), FOREVER) for one in workload.subscriptions])
    subscriber = _int_column([one.peer for one in workload.subscriptions])
    times = _int_column([one.time_ns for one in workload.publications])
    publisher = _int_column([one.peer for one in workload.publications])
    at = times[pairs.publication]
    holds = (since[pairs.subscription] <= at) & (at < until[pairs.subscription])
    for peer, down in _downtimes(workload).items():
        concerned = (subscriber[pairs.subscription] == peer) | (publisher[pairs.publication] == peer)
        for start, end in down:
            holds &= ~(concerned & (start <= at) & (at < end))
    return pairs.select(holds)


def _downtimes(workload: Workload) -> dict[PeerId, list[tuple[Nanos, Nanos]]]:
    """The times when each peer is down."""
    gone: dict[PeerId, Nanos] = {}
    downtimes: dict[PeerId, list[tuple[Nanos, Nanos]]] = {}
    for change in sorted(workload.changes, key=lambda change: change.time_ns):
        for peer in change.peers:
            if change.what in ("crash", "leave"):
                gone.setdefault(peer, change.time_ns)
            else:
                start = gone.pop(peer, 0 if change.what == "join" else change.time_ns)
                downtimes.setdefault(peer, []).append((start, change.time_ns))
    for peer, start in gone.items():
        downtimes.setdefault(peer, []).append((start, FOREVER))
    return downtimes


def _int_column(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _check_peer(peer: PeerId, peers: int) -> None:
    if not 0 <= peer < peers:
        raise ConfigError(f"there is no peer {peer} among {peers}")
