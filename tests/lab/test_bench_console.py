"""`wend lab bench` without a network: refused arguments, and the report of finished cells."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.lab.test_comparison_page import some_cells
from wend.console.lab import bench_command
from wend.lab.bench.matrix import CellStore, Matrix
from wend.model.errors import ConfigError

app = typer.Typer()
app.callback()(lambda: None)
app.command("bench")(bench_command.bench)


def bench(*words: str) -> str:
    done = CliRunner().invoke(app, ["bench", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    store = CellStore(tmp_path)
    for cell in some_cells():
        store.save_cell(cell)
    return tmp_path


def test_the_report_of_finished_cells_is_a_table_for_each_pf(finished: Path) -> None:
    said = bench("--report-only", "--out", str(finished))
    assert said.count("1 events/s per topic, 64 bytes") == 2
    lines = [line.split() for line in said.splitlines()]
    assert ["wend", "0.9650", "0.9500", "200", "ms", "1.70", "1.42", "10", "25", "%"] in lines


def test_as_json_it_is_one_object(finished: Path) -> None:
    said = json.loads(bench("--report-only", "--out", str(finished), "--json"))
    (rows,) = said.values()
    assert {row["system"] for row in rows} == {"oracle", "wend", "udp-tree", "nats-ospf"}
    assert all(row["worlds"] == 2 for row in rows)


def test_the_page_is_written_where_it_is_wanted(finished: Path) -> None:
    page = finished / "docs" / "comparison.md"
    page.parent.mkdir()
    bench("--report-only", "--out", str(finished), "--docs", str(page))
    assert page.read_text().startswith("# Comparison with other systems")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--systems", "kafka"], "unknown system 'kafka'"),
        (["--systems", ","], "name at least one system"),
        (["--pf", "many"], "--pf is a list of numbers, separated by commas, not 'many'"),
        (["--topologies", ""], "--topologies needs at least one number"),
        (["--pf", "1.5", "--systems", "wend"], "pf must lie in 0..1, got 1.5"),
        (["--size-bytes", "5"], "at least 22 bytes"),
    ],
)
def test_a_call_that_cannot_work_is_refused_before_anything_runs(words: list[str], why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        bench(*words, "--out", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--docs", "/proc/none/page.md"], "cannot write /proc/none/page.md: "),
        (["--docs", "taken/page.md"], "cannot write taken/figures: Not a directory"),
        (["--docs", "page.md", "--figures", "taken/figures"], "cannot write taken/figures: Not a directory"),
        (["--out", "/proc/none"], "cannot write /proc/none/cells"),
        (["--out", "taken/figures"], "taken/figures is a file; cells need a folder"),
    ],
)
def test_output_paths_are_checked_before_the_measurement(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "figures").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_command, "_measure", lambda *_: pytest.fail("it measured"))
    with pytest.raises(ConfigError, match=why):
        bench("--out", "out", *words)


def test_the_help_shows_the_defaults_of_the_matrix() -> None:
    assert ",".join(f"{pf:g}" for pf in Matrix().pfs) == bench_command.DEFAULT_PFS
    assert Matrix().duration_s == 60
