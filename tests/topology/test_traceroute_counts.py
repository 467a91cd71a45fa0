"""Counts of records against a count one by one, and synthetic records against their ground truth."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from wend.model.errors import ConfigError
from wend.topology.catalog import make
from wend.topology.placement import attach_peers
from wend.topology.traceroute_counts import COUNTS, RECORDS, count
from wend.topology.traceroute_records import Flaws, Truth, router_address, score_links, write_records

HOPS = st.lists(st.none() | st.sampled_from([f"r{i}" for i in range(5)]), max_size=7)
ENDS = st.none() | st.integers(0, 3)
RECORD = st.fixed_dictionaries(
    {
        "source": ENDS,
        "target": ENDS,
        "time_ns": st.none() | st.integers(0, 99),
        "hops": st.none() | HOPS,
        "reached": st.none() | st.booleans(),
    }
)


def expected(records: list[dict]) -> Counter:  # type: ignore[type-arg]
    """(kind, a, b, gap, middle) -> count, in plain Python."""
    found: Counter = Counter()  # type: ignore[type-arg]
    place_of = {f"peer:{i}": i for i in range(4)} | {f"r{i}": 10 + i for i in range(5)}  # as `inference.Node` sorts

    def add(kind: str, a: str, b: str, gap: int = 0, middle: tuple[str, ...] = ()) -> None:
        if place_of[a] > place_of[b]:
            a, b, middle = b, a, middle[::-1]
        found[kind, a, b, gap, "\n".join(middle)] += 1

    for record in records:
        if record["source"] is None or record["target"] is None or record["time_ns"] is None:
            found["unusable", None, None, 0, ""] += 1
            continue
        hops = record["hops"] or []
        known = [hop for hop in hops if hop is not None]
        if len(set(known)) < len(known):
            found["looped", None, None, 0, ""] += 1
            continue
        low, high = (f"peer:{end}" for end in sorted((record["source"], record["target"])))
        path = [f"peer:{record['source']}", *hops] + ([f"peer:{record['target']}"] if record["reached"] else [])
        add("pair", low, high)
        for hop in known:
            add("member", low, high, middle=(hop,))
        positions = [i for i, node in enumerate(path) if node is not None]
        for i, j in pairwise(positions):
            add("link" if j == i + 1 else "hole", path[i], path[j], j - i - 1)
            if j == i + 2:
                around = sorted((path[i], path[j]), key=place_of.__getitem__)
                add("missing", low, high, middle=tuple(around))
        for inside in (1, 2, 3):
            for i in range(len(path) - inside - 1):
                segment = path[i : i + inside + 2]
                if None not in segment:
                    add("stretch", segment[0], segment[-1], inside, tuple(segment[1:-1]))
    return found


@settings(max_examples=80)
@given(st.lists(RECORD, max_size=12), st.integers(1, 5))
def test_counting_columns_is_counting_records(records: list[dict], size: int) -> None:  # type: ignore[type-arg]
    table = pa.Table.from_pylist(records, schema=RECORDS)
    rows = [row for batch in count(table.to_batches(max_chunksize=size), 3) for row in batch.to_pylist()]
    got: Counter = Counter()  # type: ignore[type-arg]
    for row in rows:
        got[row["kind"], row["a"], row["b"], row["gap"], row["middle"]] += row["seen"]
    assert got == expected(records)
    times = {r["time_ns"] for r in records}
    assert all(r["first_ns"] in times and r["last_ns"] in times for r in rows if r["a"] is not None)
    assert all(batch.schema.equals(COUNTS) for batch in count(table.to_batches(), 3))


def test_synthetic_records_are_paths_with_the_given_flaws(tmp_path: Path) -> None:
    placement = attach_peers(make("power-law", 1), 12, 1)
    flaws = Flaws(loss=0.1, anonymous=0.1, cut=0.1, flap=0.0)
    truth = write_records(tmp_path / "r", placement, placement.pairs(), 3000, seed=4, flaws=flaws)
    rows = parquet.read_table(tmp_path / "r").to_pylist()
    assert len(rows) == 3000
    answered = hops = 0
    for row in rows:
        path = [router_address(router) for router in placement.path(row["source"], row["target"])]
        assert all(hop in (None, name) for hop, name in zip(row["hops"], path, strict=False))
        assert (len(row["hops"]) == len(path)) == row["reached"]
        assert not truth.silent & set(row["hops"])
        hops += len(row["hops"])
        answered += sum(hop is not None for hop, name in zip(row["hops"], path, strict=False))
    assert truth.hops == hops
    assert answered / hops < 0.9
    assert sum(not row["reached"] for row in rows) / 3000 == pytest.approx(0.1, abs=0.03)
    paths = [placement.path(a, b) for a in range(12) for b in range(a)]
    crossed = {tuple(sorted((router_address(x), router_address(y)))) for path in paths for x, y in pairwise(path)}
    assert truth.links == crossed, "3000 records cross all links between 12 peers"
    again = write_records(tmp_path / "s", placement, placement.pairs(), 3000, seed=4, flaws=flaws)
    assert again == truth
    assert parquet.read_table(tmp_path / "s").equals(parquet.read_table(tmp_path / "r"))


def test_a_trace_that_flaps_ends_on_another_path(tmp_path: Path) -> None:
    placement = attach_peers(make("power-law", 1), 12, 1)
    flaws = Flaws(loss=0.0, cut=0.0, flap=0.5)
    truth = write_records(tmp_path / "r", placement, placement.pairs(), 500, seed=4, flaws=flaws)
    rows = parquet.read_table(tmp_path / "r").to_pylist()
    steps = {tuple(sorted(step)) for row in rows for step in pairwise(row["hops"])}
    assert steps - truth.links, "links that do not exist"
    assert all(row["hops"][0] == router_address(int(placement.homes[row["source"]])) for row in rows)


def test_the_score_detects_missing_false_and_duplicate_links() -> None:
    truth = Truth(frozenset({("a", "b"), ("b", "c"), ("b", "s"), ("c", "s")}), frozenset({"s"}), 0)
    assert score_links(truth, truth.links - {("a", "b")}) == (0.75, 0.0)
    assert score_links(truth, [("a", "b"), ("b", "c"), ("a", "c")]) == (0.5, pytest.approx(1 / 3))
    assert score_links(truth, [("b", "unknown:0"), ("c", "unknown:0"), ("a", "b"), ("b", "c")]) == (1.0, 0.0)
    assert score_links(truth, [("b", "unknown:0"), ("b", "unknown:1")]) == (0.25, 0.5)
    assert score_links(truth, []) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("flaws", "pairs", "said"),
    [
        (Flaws(loss=1.0), 1, "loss must be a share from 0 to below 1, got 1"),
        (Flaws(cut=-0.1), 1, "cut must be a share from 0 to below 1, got -0.1"),
        (Flaws(), 0, "need at least one pair and one trace, got 0 and"),
    ],
)
def test_impossible_records_are_refused(tmp_path: Path, flaws: Flaws, pairs: int, said: str) -> None:
    placement = attach_peers(make("power-law", 1), 2, 1)
    ends = (np.zeros(pairs, dtype=np.int64), np.ones(pairs, dtype=np.int64))
    with pytest.raises(ConfigError, match=said):
        write_records(tmp_path, placement, ends, 5, seed=1, flaws=flaws)
