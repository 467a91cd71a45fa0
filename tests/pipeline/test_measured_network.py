"""Plans for what telemetry has measured."""

import json
from math import inf
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.pipeline.recorded_tables import write_square, write_table
from wend.console.app import app
from wend.model.errors import ConfigError
from wend.model.rates import Rate
from wend.model.units import MS
from wend.pipeline.storage.versioned_tables import read_table
from wend.pipeline.telemetry.link_windows import LINKS
from wend.pipeline.telemetry.measured_network import measured_overlay
from wend.pipeline.telemetry.recordings import one_way_loss


def row(a: int, b: int, delay: int | None, samples: int = 1, **more: float) -> dict[str, object]:
    return {"a": a, "b": b, "delay_mean_ns": delay, "samples": samples, "loss_ab": 0.0, "sent_ab": 9, **more}


def test_windows_of_a_link_are_one_link() -> None:
    rows = [
        row(1, 3, 10 * MS, 3, capacity_ab_bps=4000, capacity_ba_bps=9000),
        row(1, 3, 20 * MS, 1, capacity_ab_bps=5000),
        row(2, 3, 7 * MS),
        row(0, 2, None),
    ]
    overlay = measured_overlay(pa.Table.from_pylist(rows))
    assert overlay.peers == 4
    assert [(one.a, one.b, one.delay_ns, one.capacity_bps) for one in overlay.links] == [
        (0, 2, 12_500_000, inf),  # never measured: as long as the longest
        (1, 3, 12_500_000, 5000),  # the highest that was measured, of the narrower direction
        (2, 3, 7 * MS, inf),
    ]


def test_a_plan_counts_on_what_a_link_carries_when_it_works() -> None:
    rows = [
        row(0, 1, MS, 3, capacity_ba_bps=8000, availability=0.5, loss_ba=0.36, begin_ns=5),
        row(0, 1, MS, 1, availability=0.9, begin_ns=9),
        row(1, 2, MS, 1, availability=0.0, begin_ns=9),
    ]
    first, second = measured_overlay(pa.Table.from_pylist(rows), Rate(100.0)).links
    loss = 0.75 * one_way_loss(rows[0])
    assert first.capacity_bps == pytest.approx(8000 * 0.6 * (1 - loss)) and first.capacity_msgs == inf
    assert second.capacity_msgs == pytest.approx(0.1), "a link that never worked stays in the network"
    (later, _) = measured_overlay(pa.Table.from_pylist(rows), Rate(100.0), since_ns=9).links
    assert later.capacity_msgs == pytest.approx(90.0)


def test_the_columns_of_capacities_are_those_of_the_table() -> None:
    assert {f"capacity_{one}_bps" for one in ("ab", "ba")} <= set(LINKS.names)


def test_what_cannot_be_planned_gets_a_sentence() -> None:
    with pytest.raises(ConfigError, match="no delays"):
        measured_overlay(pa.Table.from_pylist([row(1, 2, None)]))
    with pytest.raises(ConfigError, match="ids below 10000, and there is a peer 70000"):
        measured_overlay(pa.Table.from_pylist([row(1, 70_000, MS)]))


def test_the_command_plans_from_tables(tmp_path: Path) -> None:
    write_square(tmp_path / "tables")
    tables, out = str(tmp_path / "tables"), tmp_path / "plan"
    said = CliRunner().invoke(
        app, ["plan", "--from", tables, "--link-capacity", "40msg/s", "--out", str(out), "--json"]
    )
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout.splitlines()[-1])
    assert (found["flows"], found["peers"], found["delivered"]) == (1, 5, 10.0)
    assert found["highest_load"] == pytest.approx(0.125), "half on each side of the square"
    assert (out / "plan.json").is_file()
    beside = tmp_path / "each"
    for job, kept in (("links", ("links", "outages")), ("workload", ("flows", "deadlines"))):
        for name in kept:
            write_table(beside / job, name, read_table(None, tmp_path / "tables", name).to_pylist())
    given = ["plan", "--from", str(beside), "--link-capacity", "40msg/s", "--out", str(tmp_path / "same"), "--json"]
    said = CliRunner().invoke(app, given)
    assert json.loads(said.stdout.splitlines()[-1])["highest_load"] == found["highest_load"], "a folder for each job"
    said = CliRunner().invoke(app, ["plan", "--from", str(beside / "links"), "--link-capacity", "40msg/s"])
    assert isinstance(said.exception, ConfigError) and "has no table flows, and neither has" in str(said.exception)
    said = CliRunner().invoke(app, ["plan", "--from", tables, "--topology", "regular"])
    assert isinstance(said.exception, ConfigError) and "leave out --topology" in str(said.exception)
