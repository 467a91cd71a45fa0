"""Payloads, the delivery log, and stored cells, which the bench does not measure again."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from wend.lab.bench import matrix
from wend.lab.bench.cell import Cell, CellSettings, Traffic
from wend.lab.bench.delivery_log import (
    MIN_BYTES,
    WARMUP,
    DeliveryLog,
    DeliveryMetrics,
    Stamp,
    compute_best_metrics,
    make_payload,
    read_stamp,
)
from wend.lab.bench.matrix import CellStore, Matrix
from wend.lab.emulator_control import MARKER
from wend.model.errors import ConfigError, LabError
from wend.model.units import MS, SECOND
from wend.topology.faults import Intervals


def metrics(on_time: int = 90, delivered: int = 95, expected: int = 100) -> DeliveryMetrics:
    return DeliveryMetrics(
        publications=10, expected=expected, delivered=delivered, on_time=on_time, p50_ms=40.0, p99_ms=200.0
    )


def a_cell(settings: CellSettings, *, on_time: int = 90, data: int = 130, canary_late: int = 0) -> Cell:
    return Cell(
        settings=settings,
        metrics=metrics(on_time),
        oracle=metrics(99, 100),
        oracle_packets=125,
        canary=metrics(88 - canary_late, 88),
        traffic=Traffic(data=data, control=600, bytes=9000),
        cpu_share=0.25,
        discards=[],
        kept_anyway=False,
        exited=[],
        converged_s=1.0,
        version="1.0",
        machine="2 cores",
        outages=[(0, SECOND, 2 * SECOND)],
        late=[],
        canary_late=[],
    )


# ---------------------------------------------------------------- publications


def test_a_payload_has_its_topic_number_and_time() -> None:
    stamp = Stamp(3, 17, 123_456_789_000)
    data = make_payload(stamp, 64)
    assert (len(data), data[:8]) == (64, MARKER)
    assert read_stamp(data) == stamp
    assert read_stamp(make_payload(stamp, MIN_BYTES)) == stamp
    assert read_stamp(b"something else, and long enough") is None
    assert read_stamp(MARKER) is None


def test_the_delivery_log_counts_first_deliveries_within_the_cutoff() -> None:
    world = CellSettings(system="udp-tree", peers=6, degree=3, topics=2).world()
    topic = world.topics[0]
    near, *others = topic.subscribers
    deadline = world.deadline_ns(topic.publisher, near)
    log = DeliveryLog(world)
    first, second, third = (Stamp(0, n, n * SECOND) for n in range(3))
    for stamp in (first, second, third):
        log.record_publication(stamp)
    log.record_delivery(near, make_payload(first, 64), first.time_ns + deadline)
    log.record_delivery(near, make_payload(first, 64), first.time_ns + deadline + 1)  # a copy
    log.record_delivery(near, make_payload(second, 64), second.time_ns + deadline + 1)  # late
    log.record_delivery(near, make_payload(third, 64), third.time_ns + 11 * SECOND)  # after the cut-off
    log.record_delivery(topic.publisher, make_payload(first, 64), first.time_ns + 1)  # not a subscriber
    log.record_delivery(near, make_payload(Stamp(0, WARMUP, 0), 64), 5)  # warm-up: not counted

    found = log.compute_metrics(10 * SECOND)
    assert (found.publications, found.expected) == (3, 3 * len(topic.subscribers))
    assert (found.delivered, found.on_time, found.duplicates, found.strays) == (2, 1, 1, 1)
    late = [(entry.sequence, entry.delay_ns) for entry in log.late_deliveries(10 * SECOND) if entry.subscriber == near]
    assert late == [(1, deadline + 1), (2, None)]
    assert len(log.late_deliveries(10 * SECOND)) == 2 + 3 * len(others)


def test_the_oracle_waits_for_links_and_takes_detours() -> None:
    world = CellSettings(system="udp-tree", peers=6, degree=3, topics=1, pf=0.0).world()
    topic = world.topics[0]
    published = {(0, 0): 2 * SECOND}
    free, packets = compute_best_metrics(world, published, 10 * SECOND)
    assert free.on_time == free.delivered == free.expected == len(topic.subscribers)
    assert 0 < packets <= 5

    around = [world.overlay.link(topic.publisher, n) for n in world.overlay.neighbours(topic.publisher)]
    world.faults = Intervals(len(world.overlay.links), [(link, 2 * SECOND, 3 * SECOND) for link in around])
    cut_off, _ = compute_best_metrics(world, published, 10 * SECOND)
    assert (cut_off.delivered, cut_off.on_time) == (free.delivered, 0)
    assert cut_off.p50_ms > SECOND / MS


def test_failures_and_topologies_have_seeds_of_their_own() -> None:
    one = CellSettings(system="wend", topology_seed=1, failure_seed=101).world()
    other = CellSettings(system="nats", topology_seed=1, failure_seed=101).world()
    later = CellSettings(system="wend", topology_seed=1, failure_seed=102).world()
    assert one.overlay.links == other.overlay.links == later.overlay.links
    assert one.topics == later.topics
    assert list(one.faults.outages()) == list(other.faults.outages()) != list(later.faults.outages())


# ---------------------------------------------------------------- the matrix


def test_invalid_settings_raise_a_sentence() -> None:
    with pytest.raises(ConfigError, match="unknown system 'kafka': choose from udp-tree"):
        CellSettings(system="kafka")
    with pytest.raises(ConfigError, match="at least 22 bytes, got 3"):
        CellSettings(system="wend", size_bytes=3)
    with pytest.raises(ConfigError, match="unknown system 'x'"):
        matrix.parse_systems("wend,x")


def test_a_key_changes_with_every_setting_and_only_then() -> None:
    base = CellSettings(system="wend")
    assert base.key() == CellSettings(system="wend", pf=0.06).key()
    keys = {base.key(), CellSettings(system="nats").key(), CellSettings(system="wend", pf=0.1).key()}
    keys |= {CellSettings(system="wend", rate_hz=50.0).key(), CellSettings(system="wend", failure_seed=2).key()}
    assert len(keys) == 5


def test_the_full_matrix_has_three_topologies_with_two_failure_seeds_each() -> None:
    cells = Matrix(systems=("wend", "nats")).cells()
    worlds = {(c.topology_seed, c.failure_seed) for c in cells}
    assert (len(cells), len(worlds), len({t for t, _ in worlds})) == (2 * 6 * 4, 6, 3)
    assert [c.system for c in cells[:4]] == ["wend", "nats"] * 2
    assert len(matrix.shorten_matrix(Matrix(pfs=(0.06,))).cells()) == len(matrix.SYSTEMS)


class Log:
    def __init__(self) -> None:
        self.said: list[str] = []

    def on_begin(self, settings: CellSettings) -> None:
        self.said.append(f"begin {settings.system}")

    def on_progress(self, text: str) -> None:
        self.said.append(text)

    def on_end(self, cell: Cell) -> None:
        self.said.append(f"end {cell.settings.system}")

    def on_failure(self, settings: CellSettings, why: str) -> None:
        self.said.append(f"fail {settings.system}: {why}")


def test_finished_cells_are_not_run_again_and_failed_ones_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"nats"}

    async def measure(settings: CellSettings, **_: object) -> Cell:
        if settings.system in broken:
            raise LabError("it crashed")
        return a_cell(settings)

    monkeypatch.setattr(matrix, "measure_cell", measure)
    todo, store = (
        Matrix(systems=("wend", "nats"), topologies=(1,), failures=(1,), pfs=(0.06,)).cells(),
        CellStore(tmp_path),
    )
    first, second, third = Log(), Log(), Log()
    assert asyncio.run(matrix.measure_missing(todo, store, first)) == 1
    assert first.said == ["begin wend", "end wend", "begin nats", "fail nats: it crashed"]
    broken.clear()
    assert asyncio.run(matrix.measure_missing(todo, store, second)) == 0
    assert second.said == ["begin nats", "end nats"]
    assert asyncio.run(matrix.measure_missing(todo, store, third)) == 0
    assert third.said == []
    assert sorted(c.settings.system for c in store.load_cells()) == ["nats", "wend"]
    assert store.load_cells()[0] == a_cell(store.load_cells()[0].settings)


def test_the_error_names_a_file_that_is_not_a_cell(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    store.save_cell(a_cell(CellSettings(system="wend")))
    (tmp_path / "cells" / "bad.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"bad\.json is not a cell"):
        store.load_cells()


def test_a_window_with_a_late_canary_is_run_again_three_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    from wend.lab.bench import measurement

    lateness = [5, 4, 0]

    async def fake(settings: CellSettings, name: str, tell: object) -> Cell:
        return a_cell(settings, canary_late=lateness.pop(0))

    monkeypatch.setattr(measurement, "_measure_window", fake)
    settings = CellSettings(system="wend")
    found = asyncio.run(measurement.measure_cell(settings, windows=4, tell=lambda _: None))
    assert ([round(gap, 2) for gap in found.discards], found.kept_anyway) == ([0.05, 0.04], False)
    lateness = [5, 5, 5, 5, 0]
    found = asyncio.run(measurement.measure_cell(settings, windows=4, tell=lambda _: None))
    assert (len(found.discards), found.kept_anyway, lateness) == (3, True, [0])


def test_a_cell_round_trips_through_json() -> None:
    cell = a_cell(CellSettings(system="wend"))
    assert msgspec.json.decode(msgspec.json.encode(cell), type=Cell) == cell
