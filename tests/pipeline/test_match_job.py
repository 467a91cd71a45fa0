"""Matching tables of events and subscriptions: both plans give the same rows, and bad tables are refused."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark import needs_java
from wend.matching.filters import parse
from wend.model.errors import ConfigError, WendError
from wend.model.events import Attributes, Range
from wend.pipeline.match import match_input, match_job, partitioned_plan
from wend.pipeline.match.match_job import MatchJob, MatchSummary
from wend.pipeline.storage.json_lines import is_json_lines
from wend.pipeline.storage.mapped_pickle import dump_mapped, load_mapped
from wend.pipeline.workload_generator import draw_event_block, draw_subscription_block, make_workload

pytestmark = [needs_java, pytest.mark.spark]

FILTERS = {
    "bound": "length < 2 * height",
    "equal": "location = 'Stuttgart' and temperature in [10, 20]",
    "either": "temperature < 0 or open = true",
    "not": "not (temperature in ]5, 15[)",
    "absent": "open absent and temperature exists",
    "prefix": "location prefix 'St'",
    "set": "temperature in {3, 15, 9007199254740993}",
    "all": "true",
    "none": "false",
    "texts": "location > 'T'",
}
EVENTS: dict[int, Attributes] = {
    1: {"temperature": 15, "location": "Stuttgart"},
    2: {"temperature": -3.5, "open": True, "length": 3, "height": 2},
    3: {"temperature": Range(8, 11), "location": "Stade"},
    4: {"temperature": Range(None, 0, high_open=True), "location": Range("A", "Z"), "length": 4, "height": 2},
    5: {"open": False},
    6: {"temperature": 9007199254740993, "location": "Ulm"},
    7: {"temperature": "15"},
    8: {},
}


def brute_force(filters: dict[Any, str], events: dict[Any, Attributes]) -> list[tuple[Any, Any]]:
    wanted = {key: parse(text) for key, text in filters.items()}
    return sorted((row, key) for row, event in events.items() for key, one in wanted.items() if one.matches(event))


def plain(value: Any) -> Any:
    if not isinstance(value, Range):
        return value
    ends = {"low": value.low, "high": value.high, "low_open": value.low_open, "high_open": value.high_open}
    return {name: end for name, end in ends.items() if end is not None and end is not False}


def write_lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def write_subscriptions(path: Path, filters: dict[Any, str]) -> str:
    pq.write_table(pa.table({"id": list(filters), "filter": list(filters.values())}), path)
    return str(path)


def as_flat_lines(folder: Path) -> str:
    rows = [{"id": key, **{name: plain(value) for name, value in event.items()}} for key, event in EVENTS.items()]
    return write_lines(folder / "flat.jsonl", rows)


def as_nested_lines(folder: Path) -> str:
    rows = [{"id": key, "attributes": {name: plain(v) for name, v in event.items()}} for key, event in EVENTS.items()]
    return write_lines(folder / "nested.jsonl", rows)


def as_json_column(folder: Path) -> str:
    texts = [json.dumps({name: plain(value) for name, value in event.items()}) for event in EVENTS.values()]
    pq.write_table(pa.table({"id": list(EVENTS), "attributes": texts}), folder / "json.parquet")
    return str(folder / "json.parquet")


SHAPES: list[Callable[[Path], str]] = [as_flat_lines, as_nested_lines, as_json_column]


def answer(out: Path) -> list[tuple[Any, Any]]:
    return sorted((row["event"], row["subscription"]) for row in pq.read_table(out).to_pylist())


def run(spark: Any, subscriptions: str, events: str, out: Path, plan: str, **more: Any) -> MatchSummary:
    job = MatchJob(spark, subscriptions, events)
    return job.run(job.plan(plan), out, **more)


def both(spark: Any, subscriptions: str, events: str, folder: Path, **more: Any) -> list[tuple[Path, MatchSummary]]:
    """The result of each plan. One survey of the tables serves both."""
    job = MatchJob(spark, subscriptions, events)
    return [(folder / plan, job.run(job.plan(plan), folder / plan, **more)) for plan in ("broadcast", "partitioned")]


def test_a_table_is_read_letter_by_letter(spark: Any, tmp_path: Path) -> None:
    """A local path is no pattern."""
    for folder, rows in (("of[12]", 3), ("of1", 5)):
        (tmp_path / folder).mkdir()
        write_lines(tmp_path / folder / "e.jsonl", [{"id": i, "attributes": {"x": i}} for i in range(rows)])
    assert match_input.read_events(spark, str(tmp_path / "of[12]" / "e.jsonl")).rows.count() == 3


@pytest.mark.parametrize("shape", SHAPES)
def test_every_kind_of_filter_and_value(spark: Any, tmp_path: Path, shape: Callable[[Path], str]) -> None:
    wanted = write_subscriptions(tmp_path / "s.parquet", FILTERS)
    expected = brute_force(FILTERS, EVENTS)
    for out, done in both(spark, wanted, shape(tmp_path), tmp_path):
        assert answer(out) == expected
        assert done.matches == len(expected)


RANGE = pa.struct([("low", pa.float64()), ("high", pa.float64()), ("high_open", pa.bool_())])
COLUMNS = {
    "id": pa.array(["e1", "e2", "e3"]),
    "temperature": pa.array([{"low": 3.0, "high": 3.0}, None, {"low": 4.0, "high": 9.0, "high_open": True}], RANGE),
    "open": pa.array([True, None, False]),
    "two words": pa.array([1.5, float("nan"), None]),
    "location": pa.array([None, "Stuttgart", "Ulm"]),
    "small": pa.array([1, 2, 3], pa.int8()),
}


def test_a_column_for_each_attribute(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table(COLUMNS), tmp_path / "e.parquet")
    filters = {
        1: "temperature = 3",
        2: "temperature in [9, 10]",
        3: "open absent",
        4: "`two words` exists",
        5: "location prefix 'S' and small = 2",
        6: "small > 1 and not (location = 'Ulm')",
        7: "temperature < 5 and open = false",
    }
    wanted = write_subscriptions(tmp_path / "s.parquet", filters)
    for out, _ in both(spark, wanted, str(tmp_path / "e.parquet"), tmp_path):
        # NaN matches nothing and does not exist; a range that ends before 9 does not reach it.
        assert answer(out) == [("e1", 1), ("e1", 4), ("e2", 3), ("e2", 5), ("e2", 6), ("e3", 7)]


def test_a_map_of_attributes(spark: Any, tmp_path: Path) -> None:
    rows = pa.array([[("x", 1.0)], [("x", 3.0), ("y", 2.0)], []], pa.map_(pa.string(), pa.float64()))
    pq.write_table(pa.table({"id": [1, 2, 3], "attributes": rows}), tmp_path / "e.parquet")
    wanted = write_lines(tmp_path / "s.jsonl", [{"id": "a", "filter": "x > y"}, {"id": "b", "filter": "y absent"}])
    run(spark, wanted, str(tmp_path / "e.parquet"), tmp_path / "out", "partitioned")
    assert answer(tmp_path / "out") == [(1, "b"), (2, "a"), (3, "b")]


def workload(folder: Path, events: int, subscriptions: int, **more: Any) -> tuple[str, str]:
    """The first rows of a workload, as `wend data generate` writes them."""
    drawn = make_workload("narrow", 11, **more)
    for name, draw, count in (
        ("events", draw_event_block, events),
        ("subscriptions", draw_subscription_block, subscriptions),
    ):
        (folder / name).mkdir(parents=True)
        rows = draw(drawn, 0).slice(0, count)
        pq.write_table(pa.Table.from_batches([rows]), folder / name / "rows.parquet")
    return str(folder / "subscriptions"), str(folder / "events")


def test_both_plans_give_the_same_rows_and_counts(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small blocks and slices, so that a region has several of both.
    monkeypatch.setattr(partitioned_plan, "BLOCK_ROWS", 40)
    monkeypatch.setattr(partitioned_plan, "SLICE_ROWS", 100)
    tables = workload(tmp_path / "in", 300, 200, ranges=0.1, present=(6, 10))
    (rows, _), (other_rows, _) = both(spark, *tables, tmp_path / "pairs")
    (counts, _), (other_counts, _) = both(spark, *tables, tmp_path / "counts", count=True)
    pairs = answer(rows)
    assert len(pairs) == len(set(pairs)) > 100
    assert answer(other_rows) == pairs
    for side, name in enumerate(("event", "subscription")):
        expected = Counter(pair[side] for pair in pairs)
        for out in (counts, other_counts):
            found = pq.read_table(out / f"{name}s").to_pylist()
            assert {row[name]: row["matches"] for row in found if row["matches"]} == expected
            assert len(found) == (300, 200)[side]


def test_counts_leave_nobody_out(spark: Any, tmp_path: Path) -> None:
    wanted, events = write_subscriptions(tmp_path / "s.parquet", FILTERS), as_flat_lines(tmp_path)
    pairs = brute_force(FILTERS, EVENTS)
    for out, done in both(spark, wanted, events, tmp_path, count=True):
        for side, name, ids in ((0, "event", EVENTS), (1, "subscription", FILTERS)):
            rows = pq.read_table(out / f"{name}s").to_pylist()
            expected = dict.fromkeys(ids, 0) | Counter(pair[side] for pair in pairs)
            assert sorted((row[name], row["matches"]) for row in rows) == sorted(expected.items())
        assert done.matches == len(pairs)


@pytest.mark.parametrize(("plan", "count"), [("broadcast", True), ("partitioned", False)])
def test_no_subscriptions_or_no_events_is_no_match(spark: Any, tmp_path: Path, plan: str, count: bool) -> None:
    subscriptions, events = workload(tmp_path / "in", 0, 5)
    assert run(spark, subscriptions, events, tmp_path / "a", plan, count=count).matches == 0
    subscriptions, events = workload(tmp_path / "more", 5, 0)
    assert run(spark, subscriptions, events, tmp_path / "b", plan, count=count).matches == 0


def test_the_plan_is_chosen_by_size(spark: Any, tmp_path: Path) -> None:
    subscriptions, events = workload(tmp_path / "in", 10, 5000)
    job = MatchJob(spark, subscriptions, events)
    assert job.plan().name == "broadcast"
    assert job.plan(task_memory_mb=1).name == "partitioned"
    assert "fits 1,024 MB" in job.plan().why
    assert job.plan("partitioned").planes


BAD_FILES: dict[str, tuple[Callable[[Path], str], str]] = {
    "not Parquet": (lambda folder: _text(folder / "x.parquet"), "cannot read"),
    "no lines": (lambda folder: write_lines(folder / "x.jsonl", []), "has no"),
    "no JSON": (lambda folder: _text(folder / "x.jsonl"), "is not a JSON object"),
    "no id": (lambda folder: write_lines(folder / "x.jsonl", [{"filter": "x = 1", "x": 1}]), "has no id"),
    "no id column": (lambda folder: _table(folder, {"filter": ["true"]}), "has no column id"),
    "an id twice": (lambda folder: _table(folder, {"id": [1, 2, 1], "filter": ["true"] * 3}), "has the id 1 2 times"),
    "an id that is null": (lambda folder: _table(folder, {"id": [1, None], "filter": ["true"] * 2}), "without an id"),
    "an id that is a date": (lambda folder: _table(folder, {"id": [1.5], "filter": ["true"]}), "holds double"),
    "ids of two kinds": (
        lambda folder: write_lines(folder / "x.jsonl", [{"id": 1, "filter": "x = 1"}, {"id": "a", "filter": "x = 1"}]),
        "the first id is an integer, but 'a' is not",
    ),
}


def _text(path: Path) -> str:
    path.write_text("hello\n")
    return str(path)


def _folder(path: Path) -> str:
    path.mkdir()
    return str(path)


def _table(folder: Path, columns: dict[str, Any]) -> str:
    pq.write_table(pa.table(columns), folder / "x.parquet")
    return str(folder / "x.parquet")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda folder: str(folder / "none.parquet"), "there is no"),
        (lambda folder: _text(folder / "x.csv"), "neither Parquet"),
        (lambda folder: _folder(folder / "empty"), "holds neither Parquet nor JSON lines"),
    ],
)
def test_a_path_says_what_it_holds(tmp_path: Path, make: Callable[[Path], str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        is_json_lines(make(tmp_path))
    assert is_json_lines(as_flat_lines(tmp_path)) and not is_json_lines(
        write_subscriptions(tmp_path / "s.parquet", FILTERS)
    )


def refused(spark: Any, subscriptions: str, events: str, out: Path) -> str:
    """The error message. Nothing may be left in the output folder."""
    with pytest.raises(WendError) as caught:
        run(spark, subscriptions, events, out, "auto")
    assert sorted(path.name for path in out.parent.iterdir() if path.name.lstrip(".").startswith(out.name)) == []
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_table_that_cannot_be_used_is_refused(spark: Any, tmp_path: Path, name: str) -> None:
    make, sentence = BAD_FILES[name]
    bad = make(tmp_path)
    assert sentence in refused(spark, bad, as_flat_lines(tmp_path), tmp_path / "out")
    good = write_subscriptions(tmp_path / "s.parquet", {1: "x = 1"})
    assert sentence in refused(spark, good, bad, tmp_path / "out")


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"id": [1], "when": pa.array([0], pa.timestamp("us"))}, "the column when of"),
        ({"id": [1]}, "has no column but id"),
        ({"id": [1], "attributes": ["{}"], "x": [1]}, "has a column x beside attributes"),
        ({"id": [1], "x": pa.array([{"from": 1}])}, "the column x of"),
        ({"id": [1], "x": pa.array([{"low": 5, "high": 2}])}, "a range from 5 to 2 is empty"),
        ({"id": [1], "attributes": ['{"x": [1]}']}, "of an event"),
        ({"id": [1], "attributes": pa.array([None], pa.string())}, "has null for attributes"),
    ],
)
def test_events_that_cannot_be_read_are_refused(
    spark: Any, tmp_path: Path, columns: dict[str, Any], sentence: str
) -> None:
    wanted = write_subscriptions(tmp_path / "s.parquet", {1: "x = 1"})
    assert sentence in refused(spark, wanted, _table(tmp_path, columns), tmp_path / "out")


@pytest.mark.parametrize("plan", ["broadcast", "partitioned"])
def test_a_filter_that_cannot_be_read_names_its_subscription(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str
) -> None:
    # With an empty sample, a task is the first to parse the filter.
    monkeypatch.setattr(match_job, "SAMPLE_ROWS", 0)
    wanted = write_subscriptions(tmp_path / "s.parquet", {1: "x = 1", 2: "x <"})
    job = MatchJob(spark, wanted, as_flat_lines(tmp_path))
    with pytest.raises(ConfigError, match="the filter of subscription 2, 'x <': ") as caught:
        job.run(job.plan(plan), tmp_path / "out")
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_what_is_there_is_replaced_only_when_told_so_and_only_by_something_whole(spark: Any, tmp_path: Path) -> None:
    wanted, events, out = (
        write_subscriptions(tmp_path / "s.parquet", {1: "true"}),
        as_flat_lines(tmp_path),
        tmp_path / "o",
    )
    out.mkdir()
    (out / "precious").write_text("kept")
    with pytest.raises(ConfigError, match="--overwrite"):
        run(spark, wanted, events, out, "auto")
    bad = write_lines(tmp_path / "bad.jsonl", [{"id": 1, "x": 1}, {"id": 2, "x": [1]}])
    with pytest.raises(WendError):
        run(spark, wanted, bad, out, "auto", overwrite=True)
    assert (out / "precious").read_text() == "kept"
    run(spark, wanted, events, out, "auto", overwrite=True)
    assert len(answer(out)) == len(EVENTS)
    assert not (out / "precious").exists() and not list(tmp_path.glob(".o.*"))


def test_compiled_subscriptions_are_kept_by_content(spark: Any, tmp_path: Path) -> None:
    events, index = as_flat_lines(tmp_path), tmp_path / "index"

    def matched(filters: dict[Any, str], out: str) -> set[str]:
        wanted = write_subscriptions(tmp_path / "s.parquet", filters)
        job = MatchJob(spark, wanted, events, max_bad=0.2)
        job.run(job.plan("broadcast"), tmp_path / out, index=index)
        assert answer(tmp_path / out) == brute_force({k: v for k, v in filters.items() if k != "bad"}, EVENTS)
        return {path.name for path in index.iterdir()}

    first = matched(FILTERS, "a")
    (kept,) = (index / name for name in first)
    written = kept.stat().st_mtime_ns
    assert matched(FILTERS, "b") == first and kept.stat().st_mtime_ns == written
    # Filters that cannot be read are told each time.
    assert matched(FILTERS | {"bad": "x <"}, "c") == matched(FILTERS | {"bad": "x <"}, "d") == first
    assert pq.read_table(tmp_path / "d" / "_quarantine").num_rows == 1
    assert len(matched(FILTERS | {"more": "true"}, "e")) == 2


def test_a_packed_object_shares_its_arrays(tmp_path: Path) -> None:
    numbers = np.arange(100_000)
    size = dump_mapped({"numbers": numbers, "ids": pa.array(["a", "b"]), "few": (1, 2)}, tmp_path / "packed")
    assert size == (tmp_path / "packed").stat().st_size
    found = load_mapped(tmp_path / "packed")
    assert np.array_equal(found["numbers"], numbers) and found["few"] == (1, 2)
    assert found["ids"].to_pylist() == ["a", "b"]
    found["numbers"][0] = 7
    assert load_mapped(tmp_path / "packed")["numbers"][0] == 0
