"""Times in the store when clocks are set, hosts restart, or the beginning of the file is damaged."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.drivers.live.store_records import damage, pending
from wend.drivers.live.store import store as stores
from wend.drivers.live.store.store import Store
from wend.model.events import EventId
from wend.model.units import SECOND, Nanos
from wend.protocol.records import (
    DeliveredRecord,
    PendingRecord,
    StateRecord,
)
from wend.strategies.clusters.interest.messages import FollowedSince, PublishedEvent
from wend.strategies.link_state.plugin import LinkState

HOUR = 3600 * SECOND


class Clocks:
    """The clocks of a host that somebody sets, and that restarts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns = 1_800_000_000 * SECOND
        self.monotonic_ns = 1_000 * SECOND
        self.boot = "a"
        monkeypatch.setattr(stores.time, "time_ns", lambda: self.wall_ns)
        monkeypatch.setattr(stores.time, "monotonic_ns", lambda: self.monotonic_ns)
        monkeypatch.setattr(stores, "boot_name", lambda: self.boot)

    def passes(self, time_ns: Nanos) -> None:
        self.wall_ns += time_ns
        self.monotonic_ns += time_ns

    def restarts(self) -> None:
        self.boot += "b"
        self.monotonic_ns = 10 * SECOND

    def age(self, store: Store) -> Nanos:
        """Of the only event that is stored."""
        (born,) = (record.born_ns for record in store.records if isinstance(record, PendingRecord))
        return self.monotonic_ns - born


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocks]:
    yield Clocks(monkeypatch)


def begin(path: Path, clocks: Clocks) -> Store:
    store = Store(path)
    store.append(pending(1, born_ns=clocks.monotonic_ns))
    return store


@pytest.mark.parametrize("set_by_ns", [0, 1000 * HOUR, -1000 * HOUR])
def test_a_clock_that_is_set_changes_no_age_while_the_host_runs(
    tmp_path: Path, clocks: Clocks, set_by_ns: Nanos
) -> None:
    begin(tmp_path / "s", clocks).close()
    clocks.passes(HOUR)
    clocks.wall_ns += set_by_ns
    store = Store(tmp_path / "s")
    assert clocks.age(store) == HOUR
    store.close()


@pytest.mark.parametrize("set_by_ns", [1000 * HOUR, -1000 * HOUR])
def test_a_clock_that_is_set_while_the_peer_runs_changes_no_age_after_a_restart_of_the_host(
    tmp_path: Path, clocks: Clocks, set_by_ns: Nanos
) -> None:
    store = begin(tmp_path / "s", clocks)
    clocks.wall_ns += set_by_ns
    store.append(DeliveredRecord(EventId(1, 1, 9)))  # the next record says that the clock was set
    store.close()
    clocks.passes(HOUR)
    clocks.restarts()
    store = Store(tmp_path / "s")
    assert clocks.age(store) == HOUR
    store.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_times_in_the_state_of_plug_ins_are_translated_too(tmp_path: Path, clocks: Clocks, restarts: bool) -> None:
    now = clocks.monotonic_ns
    bodies = [PublishedEvent(1, (), pending(1).event, now - HOUR), FollowedSince("g", now), LinkState(1, (1, 2), ())]
    store = Store(tmp_path / "s")
    for key, body in enumerate(bodies):
        store.append(StateRecord("plug-in", key, body))
    assert [one.body for one in store.records if isinstance(one, StateRecord)] == bodies
    store.close()
    clocks.passes(SECOND)
    if restarts:
        clocks.restarts()
    store = Store(tmp_path / "s")
    published, followed, links = (one.body for one in store.records if isinstance(one, StateRecord))
    store.close()
    assert clocks.monotonic_ns - published["born_ns"] == HOUR + SECOND
    assert clocks.monotonic_ns - followed["since_ns"] == SECOND
    assert msgspec.convert(links, LinkState) == bodies[2]


def test_an_event_of_the_future_is_not_young_for_ever(tmp_path: Path, clocks: Clocks) -> None:
    begin(tmp_path / "s", clocks).close()
    clocks.restarts()
    clocks.wall_ns -= 1000 * HOUR  # the clock lost its battery
    store = Store(tmp_path / "s")
    assert clocks.age(store) == 0
    store.close()
    for hours in (1, 2, 3):
        clocks.passes(HOUR)
        clocks.restarts()
        store = Store(tmp_path / "s")
        assert clocks.age(store) == hours * HOUR
        store.close()


@pytest.mark.parametrize("lost", [13, 21, 30, 50])
def test_incarnations_grow_though_the_clock_was_set_back_and_the_beginning_is_damaged(
    tmp_path: Path, clocks: Clocks, lost: int
) -> None:
    store = Store(tmp_path / "s")
    before = store.incarnation
    store.close()
    clocks.wall_ns -= HOUR

    def flip(content: bytearray) -> None:
        content[lost] ^= 4

    damage(tmp_path / "s", flip)
    store = Store(tmp_path / "s")
    assert store.damaged and store.incarnation == before + 1
    store.close()
