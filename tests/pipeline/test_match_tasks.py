"""The tasks of both plans, without Spark: their rows equal those of testing every filter."""

import gc
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.strategies import events, filters, range_events
from wend.matching.batch_index import BatchIndex
from wend.matching.filters import Filter, parse
from wend.model.errors import FilterError
from wend.model.events import Attributes
from wend.pipeline.match import broadcast_plan, match_output, partitioned_plan
from wend.pipeline.match.attribute_regions import choose_planes
from wend.pipeline.match.match_input import parse_filters
from wend.pipeline.storage.mapped_pickle import dump_mapped

PAIRS = pa.schema([("event", pa.int64()), ("subscription", pa.string())])
COUNTS = PAIRS.append(pa.field("matches", pa.int64()))
Pairs = list[tuple[int, str]]


def readable(texts: list[str]) -> dict[str, str]:
    found = {}
    for number, text in enumerate(texts):
        try:
            parse(text)
        except FilterError:
            continue
        found[f"s{number}"] = text
    return found


def event_batch(published: list[Attributes]) -> pa.RecordBatch:
    texts = [msgspec.json.encode(event).decode() for event in published]
    ids = pa.array(range(len(published)), pa.int64())
    return pa.RecordBatch.from_arrays([ids, pa.array(texts, pa.string()), ids], ["id", "attributes", "hash"])


def subscription_batch(wanted: dict[str, str]) -> pa.RecordBatch:
    columns = [pa.array(list(wanted), pa.string()), pa.array(list(wanted.values()), pa.string())]
    return pa.RecordBatch.from_arrays(columns, ["id", "filter"])


def by_blocks(wanted: dict[str, str], published: list[Attributes], count: bool) -> list[pa.RecordBatch]:
    """The broadcast plan, with every second filter in each of two block files."""
    with tempfile.TemporaryDirectory() as folder:
        for part in (0, 1):
            ids = list(wanted)[part::2]
            index = BatchIndex(parse(wanted[key]) for key in ids)
            dump_mapped((pa.array(ids, pa.string()), index), Path(folder) / f"block-{part}")
        task = broadcast_plan.match_count_batches if count else broadcast_plan.match_pair_batches
        schema = COUNTS if count else PAIRS
        return list(task(iter([event_batch(published)]), folder, ("block-0", "block-1"), schema))


def by_regions(wanted: dict[str, str], published: list[Attributes], count: bool) -> list[pa.RecordBatch]:
    """The partitioned plan, with a shuffle and sort in plain Python."""
    planes = choose_planes([parse(text) for text in wanted.values()], 10**6)
    schema = pa.schema([("plane", pa.int32()), ("region", pa.string()), ("subscription", pa.string())])
    schema = schema.append(pa.field("filter", pa.binary()))
    (sent,) = partitioned_plan.route_subscription_batches(iter([subscription_batch(wanted)]), tuple(planes), schema, "")
    sent_rows = sent.to_pylist()
    known = Counter((row["plane"], row["region"]) for row in sent_rows)
    population = [{"plane": plane, "region": code, "subscriptions": n} for (plane, code), n in known.items()]
    layout = partitioned_plan.make_layout(planes, population)
    load = [
        row
        for batch in partitioned_plan.count_event_batches(iter([event_batch(published)]), layout)
        for row in batch.to_pylist()
    ]
    layout, expected = partitioned_plan.add_slices(layout, load)
    routed = list(partitioned_plan.route_event_batches(iter([event_batch(published)]), layout))
    assert sum(batch.num_rows for batch in routed) == expected
    regions = {(region.plane, region.code): region for region in layout.regions}
    rows = [row for batch in routed for row in batch.to_pylist()]
    for at, row in enumerate(sent_rows):
        region = regions[row["plane"], row["region"]]
        for turn in range(region.slices):
            group = region.first + at % region.blocks * region.slices + turn
            rows.append({"group": group, "is_event": False, **{n: row[n] for n in ("subscription", "filter")}})
    rows.sort(key=lambda row: (row["group"], row["is_event"]))
    types = {"group": pa.int64(), "is_event": pa.bool_(), "wide": pa.bool_(), "event": pa.int64()}
    types |= {"attributes": pa.string(), "subscription": pa.string(), "filter": pa.binary()}
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(types.items())))
    # A batch may end anywhere, also within a group.
    batches: Iterator[pa.RecordBatch] = iter(table.to_batches(max_chunksize=3))
    return list(partitioned_plan.match_group_batches(batches, layout, COUNTS if count else PAIRS, "", count))


def pairs_of(batches: list[pa.RecordBatch]) -> Pairs:
    return sorted((row["event"], row["subscription"]) for batch in batches for row in batch.to_pylist())


def counts_of(batches: list[pa.RecordBatch]) -> Counter[int | str]:
    found: Counter[int | str] = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            assert (row["event"] is None) != (row["subscription"] is None)
            found[row["subscription"] if row["event"] is None else row["event"]] += row["matches"]
    return +found


def brute_force(wanted: dict[str, Filter], published: list[Attributes]) -> Pairs:
    return sorted(
        (row, key) for row, event in enumerate(published) for key, one in wanted.items() if one.matches(event)
    )


@pytest.mark.parametrize("plan", [by_blocks, by_regions])
def test_pairs_come_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch, plan: Callable[..., Any]) -> None:
    """Every event matches every filter."""
    monkeypatch.setattr(match_output, "MAX_BATCH_PAIRS", 100)
    monkeypatch.setattr(match_output, "MAX_BATCH_BYTES", 1200)  # an id of 8 bytes and one of up to 11: 44 pairs
    wanted = {f"s{at}": "true" for at in range(70)}
    published: list[Attributes] = [{"x": at} for at in range(50)]
    batches = plan(wanted, published, False)
    assert pairs_of(batches) == brute_force({key: parse(text) for key, text in wanted.items()}, published)
    assert max(batch.num_rows for batch in batches) <= 1200 // 16
    assert counts_of(plan(wanted, published, True)) == Counter(
        {**dict.fromkeys(wanted, 50), **dict.fromkeys(range(50), 70)}
    )


def test_the_size_of_batches_follows_the_pairs() -> None:
    size = match_output.MatchBatchSize(50_000)
    assert size.events == match_output.MAX_BATCH_PAIRS // 50_000
    for _ in range(5):
        size.adapt(size.events, 0)
    assert size.events == match_output.MAX_BATCH_EVENTS
    size.adapt(1000, 50_000_000)
    assert size.events == 20


def test_a_worker_maps_the_blocks_of_one_job_only() -> None:
    by_blocks({"a": "true", "b": "true"}, [{"x": 1}], False)
    by_blocks({"a": "true", "b": "true"}, [{"x": 1}], False)
    gc.collect()
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/block-" in line]
    assert 0 < len(mapped) <= 2


def test_a_second_job_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, read = [], []

    def counted_index(filters: Any) -> BatchIndex:
        compiled.append(1)
        return BatchIndex(filters)

    def counted(ids: pa.Array, filters: pa.Array) -> Any:
        read.append(len(ids))
        return parse_filters(ids, filters)

    monkeypatch.setattr(broadcast_plan, "BatchIndex", counted_index)
    monkeypatch.setattr(broadcast_plan, "parse_filters", counted)
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: SimpleNamespace(partitionId=lambda: 0))
    schema = pa.schema([("file", pa.string()), ("subscription", pa.int64()), ("reason", pa.string())])
    kept = tmp_path / "kept"
    kept.mkdir()

    def job(name: str, filters: list[str], code: str = "code") -> list[dict[str, Any]]:
        (tmp_path / name).mkdir()
        batch = pa.RecordBatch.from_pydict({"id": range(len(filters)), "filter": filters})
        done = broadcast_plan._compile_batches(iter([batch]), str(tmp_path / name), (str(kept), code), schema)  # noqa: SLF001
        return [row for found in done for row in found.to_pylist()]

    first = job("one", ["a = 1", "b > 2"])
    assert (len(compiled), read) == (1, [2])
    assert job("two", ["a = 1", "b > 2"]) == first
    assert (len(compiled), read) == (1, [2]), "the second job parsed or compiled again"
    job("three", ["a = 1", "b > 3"])
    job("four", ["a = 1", "b > 2"], code="other code")
    assert (len(compiled), read) == (3, [2, 2, 2])


worlds = st.tuples(
    st.lists(filters, min_size=1, max_size=12), st.lists(st.one_of(events, range_events), min_size=1, max_size=8)
)


@settings(max_examples=60)
@given(worlds)
def test_both_plans_find_what_asking_every_filter_finds(world: tuple[list[str], list[Attributes]]) -> None:
    wanted, published = readable(world[0]), world[1]
    expected = brute_force({key: parse(text) for key, text in wanted.items()}, published)
    counted = Counter(one for pair in expected for one in pair)
    assert pairs_of(by_blocks(wanted, published, False)) == expected
    assert pairs_of(by_regions(wanted, published, False)) == expected
    assert counts_of(by_blocks(wanted, published, True)) == counted
    assert counts_of(by_regions(wanted, published, True)) == counted


def test_regions_with_many_of_both_are_cut_into_blocks_and_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned_plan, "BLOCK_ROWS", 3)
    monkeypatch.setattr(partitioned_plan, "SLICE_ROWS", 4)
    rng = np.random.default_rng(3)
    lows = rng.integers(0, 50, (40, 2)).tolist()
    wanted = {f"s{at}": f"x in [{x}, {x + 9}]" + f" and y >= {y}" * (at % 2) for at, (x, y) in enumerate(lows)}
    published: list[Attributes] = [{"x": int(x), "y": int(y)} for x, y in rng.integers(0, 60, (30, 2))]
    expected = brute_force({key: parse(text) for key, text in wanted.items()}, published)
    assert len(expected) > 50
    assert pairs_of(by_regions(wanted, published, False)) == expected
    assert counts_of(by_regions(wanted, published, True)) == Counter(one for pair in expected for one in pair)
