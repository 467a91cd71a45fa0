"""Flows from matches equal those of a loop over all events; tables that do not fit together are refused."""

import json
import re
import shlex
import shutil
from collections import defaultdict
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.spark import needs_java
from wend.console.app import app
from wend.matching.filters import parse
from wend.model.errors import ConfigError
from wend.model.flows import read_flows
from wend.model.plan import read_plan
from wend.model.units import MINUTE, SECOND
from wend.pipeline.flows_job import distant_times, invalid_values, missing_values, observed_span, write_flows
from wend.pipeline.match.match_input import read_events
from wend.planning.plan_check import check_plan

pytestmark = [needs_java, pytest.mark.spark]
ROOT = Path(__file__).parents[2]

Flows = dict[tuple[Any, tuple[Any, ...]], tuple[float, float, float]]


def by_hand(pairs: list[tuple[int, int]], events: list[dict[str, Any]], homes: dict[int, Any], span_s: float) -> Flows:
    """Rate, mean size and mean weight by publisher and receivers, event by event."""
    found: dict[tuple[Any, tuple[Any, ...]], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        wanted = {homes[s] for e, s in pairs if e == event["id"]} - {event["publisher"]}
        if wanted:
            found[event["publisher"], tuple(sorted(wanted))].append(event)
    return {
        key: (
            len(group) / span_s,
            fsum(e["size_bytes"] for e in group) / len(group),
            fsum(e["weight"] for e in group) / len(group),
        )
        for key, group in found.items()
    }


def flows_in(folder: Path) -> Flows:
    read = list(read_flows(folder))
    found = {(f.publisher, tuple(f.receivers)): (float(f.rate), f.size_bytes, f.weight) for f in read}
    assert len(found) == len(read), "two flows with the same publisher and receivers"
    return found


def assert_same(found: Flows, expected: Flows) -> None:
    assert set(found) == set(expected)
    for key, metrics in expected.items():
        assert found[key][0] == pytest.approx(metrics[0]), key
        assert found[key][1:] == metrics[1:], "sums depend on the order in which they are added"


def drawn(seed: int) -> tuple[list[tuple[int, int]], list[dict[str, Any]], dict[int, Any]]:
    """Few peers with several subscriptions each, so that sets of receivers repeat."""
    rng = np.random.Generator(np.random.PCG64(seed))
    homes = {s: int(rng.integers(4)) for s in range(9)}
    events = [
        {
            "id": e, "publisher": int(rng.integers(4)), "size_bytes": int(rng.integers(50)) * 10,
            "weight": float(rng.random()), "time_ns": e * SECOND,
        }
        for e in range(80)
    ]  # fmt: skip
    pairs = [(e, s) for e in range(80) for s in homes if rng.random() < 0.15]
    return pairs, events, homes


def written(folder: Path, pairs: Any, events: list[dict[str, Any]], homes: dict[int, Any]) -> tuple[str, str, str]:
    """Matches, subscriptions and events, as Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("matches.parquet", "subscriptions.parquet", "events.parquet")
    places = [str(folder / name) for name in names]
    pq.write_table(pa.table({"event": [e for e, _ in pairs], "subscription": [s for _, s in pairs]}), places[0])
    table = {"id": list(homes), "filter": ["true"] * len(homes), "peer": list(homes.values())}
    pq.write_table(pa.table(table), places[1])
    pq.write_table(pa.Table.from_pylist(events), places[2])
    return places[0], places[1], places[2]


def test_flows_are_those_of_a_loop_over_all_events(spark: Any, tmp_path: Path) -> None:
    pairs, events, homes = drawn(1)
    places = written(tmp_path, pairs, events, homes)
    expected = by_hand(pairs, events, homes, 60.0)
    found = write_flows(spark, *places, tmp_path / "flows", span=MINUTE)
    assert_same(flows_in(tmp_path / "flows"), expected)
    rates = {key: round(rate * 60) for key, (rate, *_) in expected.items()}
    assert max(rates.values()) > 1, "nothing was merged"
    assert found.flows == len(expected) and found.events == 80
    assert 0 < found.unwanted == 80 - sum(rates.values())
    assert found.deliveries == pytest.approx(sum(n * len(to) for (_, to), n in rates.items()) / 60)
    # Again as JSON lines, with names instead of numbers, and the span of the events: 79 gaps of a second, plus one.
    names = ["a", "b", "c", "d"]
    for event in events:
        event |= {"publisher": names[event["publisher"]], "attributes": {"x": 1}}
    named = {s: names[p] for s, p in homes.items()}
    lines = [{"id": s, "filter": "true", "peer": p} for s, p in named.items()]
    for name, rows in (("subscriptions", lines), ("events", events)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    texts = (places[0], str(tmp_path / "subscriptions.jsonl"), str(tmp_path / "events.jsonl"))
    again = write_flows(spark, *texts, tmp_path / "again")
    assert again.span_s == 80
    assert_same(flows_in(tmp_path / "again"), by_hand(pairs, events, named, 80.0))


def test_what_events_say_of_themselves_beside_attributes_is_none(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "events.parquet")
    pq.write_table(pa.table({"id": [1], "attributes": ['{"x": 1}'], "publisher": ["a"], "size_bytes": [3]}), path)
    assert read_events(spark, path).rows.columns == ["id", "attributes"]


EVENT = {"id": 1, "publisher": 0, "size_bytes": 10, "weight": 1.0, "time_ns": 5}


@pytest.mark.parametrize(
    ("sentence", "pairs", "events", "homes"),
    [
        ("event 2 has no publisher, but others have one", [], [EVENT, EVENT | {"id": 2, "publisher": None}], {7: 1}),
        ("are numbers, but peers in", [], [EVENT], {7: "a"}),
        ("holds double; it must hold peers, by number or by name", [], [EVENT | {"publisher": 0.5}], {7: 1}),
        ("has a match of event 3, which is not in", [(1, 7), (3, 7)], [EVENT], {7: 1}),
        ("has a match of subscription 9, which is not in", [(1, 9)], [EVENT], {7: 1}),
        ("no peer but the publisher wants any of them", [(1, 7)], [EVENT], {7: 0}),
    ],
)
def test_tables_that_do_not_go_together_are_refused(
    spark: Any, tmp_path: Path, sentence: str, pairs: Any, events: list[dict[str, Any]], homes: dict[int, Any]
) -> None:
    with pytest.raises(ConfigError, match=sentence) as told:
        write_flows(spark, *written(tmp_path, pairs or [(1, 7)], events, homes), tmp_path / "flows", span=SECOND)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "flows").exists()


def seen(**metrics: Any) -> dict[str, Any]:
    """A survey of two events."""
    plain = {"rows": 2, "known_publisher": 2, "known_time_ns": 2, "least_time_ns": 0, "most_time_ns": 10}
    return {**plain, "known_size_bytes": 0, "known_weight": 0, **metrics}


def test_metrics_that_make_no_sense_have_a_reason() -> None:
    for name, value in (("weight", -1.0), ("size_bytes", float("nan")), ("weight", float("inf"))):
        metrics = {f"known_{name}": 2, f"least_{name}": min(value, 0.0), f"most_{name}": value}
        ((wrong, text, *_),) = invalid_values(seen(**metrics))
        assert name in wrong and f"has a {name} of" in text
    assert invalid_values(seen()) == []
    assert missing_values(seen(known_weight=1), "event", ["weight"])[0][0] == "weight IS NULL"
    assert missing_values(seen(known_weight=2), "event", ["weight"]) == []


def test_the_span_of_events() -> None:
    with pytest.raises(ConfigError, match="e has no column time_ns: give --span"):
        observed_span(seen(known_time_ns=0), "e")
    with pytest.raises(ConfigError, match="all events in e have the same time: give --span"):
        observed_span(seen(most_time_ns=0), "e")
    assert observed_span(seen(), "e") == 20
    assert distant_times(seen(middle_time_ns=[4, 6])) == []
    assert distant_times(seen(middle_time_ns=[4, 6], most_time_ns=27))[0][0] == "time_ns < -16BD OR time_ns > 26BD"


def test_a_clock_that_was_not_set_changes_no_rate(spark: Any, tmp_path: Path) -> None:
    pairs, events, homes = drawn(1)
    good = written(tmp_path / "good", pairs, events, homes)
    expected = write_flows(spark, *good, tmp_path / "expected")
    odd = {"id": 999, "publisher": 0, "size_bytes": 5, "weight": 1.0, "time_ns": -(10**18)}
    lost = {**odd, "id": 998, "publisher": None, "time_ns": events[0]["time_ns"]}
    bad = written(tmp_path / "bad", [*pairs, (999, 0), (998, 0)], [*events, odd, lost], homes)
    found = write_flows(spark, *bad, tmp_path / "found", max_bad=0.05)
    assert (found.span_s, found.events, found.quarantined) == (expected.span_s, 80, 2)
    assert_same(flows_in(tmp_path / "found"), flows_in(tmp_path / "expected"))
    rows = {row["id"]: row for row in pq.read_table(tmp_path / "found" / "_quarantine").to_pylist()}
    assert "is far from that of all others" in rows["999"]["reason"] and "has no publisher" in rows["998"]["reason"]
    assert (rows["999"]["line"], rows["998"]["line"]) == (81, 82)
    with pytest.raises(
        ConfigError, match=r"2 of 82 rows cannot be used, more than --max-bad 0\.01; the first is in ev"
    ):
        write_flows(spark, *bad, tmp_path / "refused")


def test_one_clock_at_zero_among_a_hundred_thousand_events_changes_no_rate(spark: Any, tmp_path: Path) -> None:
    """The epoch is where a clock begins that nobody has set. It made every rate wrong: the span was decades."""
    count, now = 100_000, 1_763_424_000 * SECOND
    places = [str(tmp_path / name) for name in ("matches.parquet", "subscriptions.parquet", "events.parquet")]
    numbers = np.arange(count)
    pq.write_table(pa.table({"event": numbers, "subscription": np.zeros(count, dtype=np.int64)}), places[0])
    pq.write_table(pa.table({"id": [0], "filter": ["true"], "peer": [1]}), places[1])
    times = now + numbers * (SECOND // 1000)
    times[70_000] = 0
    pq.write_table(pa.table({"id": numbers, "publisher": np.zeros(count, dtype=np.int64), "time_ns": times}), places[2])
    found = write_flows(spark, *places, tmp_path / "out")
    assert (found.events, found.quarantined) == (count - 1, 1)
    assert found.span_s == pytest.approx(100.0, rel=1e-3)
    assert flows_in(tmp_path / "out")[0, (1,)][0] == pytest.approx(1000.0, rel=1e-3)


@pytest.mark.usefixtures("spark_commands")
def test_the_example_of_the_page_goes_from_events_to_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "how-to" / "plan-capacity.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    wend (data .*|plan .* --workload flows .*)$", page, re.MULTILINE)
    assert [line.split()[1] for line in commands] == ["match", "flows", "--topology", "paths"]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    for line in commands:
        done = CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)
        assert done.exit_code == 0, done.output
    telemetry = tmp_path / "examples" / "telemetry"
    events = [json.loads(line) for line in (telemetry / "events.jsonl").read_text().splitlines()]
    lines = [json.loads(line) for line in (telemetry / "subscriptions.jsonl").read_text().splitlines()]
    filters = {line["id"]: parse(line["filter"]) for line in lines}
    pairs = [(e["id"], s) for e in events for s, one in filters.items() if one.matches(_attributes(e))]
    span = float(re.search(r"--span (\d+)s", page)[1])  # type: ignore[index]
    expected = by_hand(pairs, events, {line["id"]: line["peer"] for line in lines}, span)
    assert_same(flows_in(tmp_path / "flows"), expected)
    plan = read_plan(tmp_path / "plan")
    assert check_plan(plan) == []
    assert plan.head.flows == len(expected)


def _attributes(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "id"}
