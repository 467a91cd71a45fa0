"""Replays of the lab's windows in the simulator: the same world and failures, and a table of differences."""

import json
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from tests.lab.labs import a_name, needs_lab, triangle
from tests.lab.test_bench_cells import a_cell
from wend.console.lab import replay_command
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.lab import Lab
from wend.lab.bench.cell import Cell, CellSettings
from wend.lab.bench.delivery_log import DeliveryMetrics
from wend.lab.bench.matrix import CellStore
from wend.lab.bench.simulated_replay import replay_cell
from wend.model.errors import ConfigError
from wend.model.units import SECOND
from wend.topology.faults import read_faults, write_faults

app = typer.Typer()
app.callback()(lambda: None)
app.command("replay")(replay_command.replay)


def window(system: str = "udp-tree") -> Cell:
    """A cell with the failures of its world."""
    settings = CellSettings(system=system, peers=6, degree=3, topics=4, pf=0.2, duration_s=15.0, cutoff_s=5.0)
    return msgspec.structs.replace(a_cell(settings), outages=list(settings.world().faults.outages()))


def test_a_simulated_tree_loses_events_to_failures() -> None:
    cell = window()
    played = replay_cell(cell)
    assert played is not None
    world = cell.settings.world()
    plain = simulate(world.scenario.with_(strategy="d-tree", seed=cell.settings.topology_seed, pf=0.0)).summary
    assert plain.on_time == 1.0
    assert 0.4 < played.on_time < 0.95
    assert played.delivery == pytest.approx(played.on_time, abs=0.01)


def test_the_difference_is_the_labs_ratio_minus_the_simulators_in_points() -> None:
    cell = window("wend")
    first = replay_cell(cell)
    assert first is not None and first.delivery == 1.0
    on_time = round(1000 * first.on_time)
    same = DeliveryMetrics(publications=1, expected=1000, delivered=1000, on_time=on_time, p50_ms=1.0, p99_ms=1.0)
    again = replay_cell(msgspec.structs.replace(cell, metrics=same))
    assert again is not None
    assert again.difference == pytest.approx(0.0, abs=0.1)


def test_systems_outside_the_simulator_are_skipped() -> None:
    assert replay_cell(window("nats")) is None


def test_the_command_shows_each_window(tmp_path: Path) -> None:
    CellStore(tmp_path).save_cell(window())
    CellStore(tmp_path).save_cell(window("nats"))
    said = CliRunner().invoke(app, ["replay", "--out", str(tmp_path)], catch_exceptions=False).stdout
    assert "udp-tree" in said and "nats" not in said and "points apart" in said
    found = CliRunner().invoke(app, ["replay", "--out", str(tmp_path), "--json"], catch_exceptions=False).stdout
    (row,) = json.loads(found)["replays"]
    assert (row["system"], row["pf"]) == ("udp-tree", 0.2)


def test_without_windows_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no finished cells"):
        CliRunner().invoke(app, ["replay", "--out", str(tmp_path)], catch_exceptions=False)


@needs_lab
def test_the_log_of_a_lab_can_be_simulated(tmp_path: Path) -> None:
    overlay = triangle()
    with Lab.up(overlay, name=a_name()) as lab:
        lab.cut(1)
        lab.heal(1)
        lab.cut(2)
        write_faults(tmp_path / "faults.parquet", overlay, lab.outages())
    found = list(read_faults(tmp_path / "faults.parquet", overlay).outages())
    assert [(link, start // SECOND) for link, start, _ in found] == [(1, 0), (2, 0)]
    assert found[0][1] == 0  # from the first change, as there is no schedule
    scenario = Scenario(topology="full-mesh", peers=3, topics=2, duration="2s")
    simulate(scenario.with_(failures=str(tmp_path / "faults.parquet")))
