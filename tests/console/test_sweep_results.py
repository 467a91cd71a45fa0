"""What a sweep prints fits 80 columns and says nothing absurd; its means are a file too. Without Spark."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from wend.console.data.sweep_results import SettingMeans, failure_sentences, make_means_table, number_text, write_means
from wend.drivers.scenarios import Scenario
from wend.pipeline.scenario_rows import FROM_OUTSIDE, run_row

FIGURES = {
    "delivery": (0.88, 1.0165),
    "on_time": (0.99996, None),
    "packets_shared": (1.7, 3.8119),
    "packets_unicast": (157.3468, 0.2541),
    "delay_p99_ms": (45.8093, 42.7135),
}


def means(*strategies: str) -> SettingMeans:
    """The last one has no figures: all its runs failed."""
    settings = [{**run_row(Scenario()), "strategy": name, "setting": name} for name in strategies]
    found = [
        {"setting": setting["setting"], "metric": name, "seeds": 2, "mean": mean, "half": half}
        for setting in settings[:-1]
        for name, (mean, half) in FIGURES.items()
    ]
    return SettingMeans(settings, found)


def printed(of: SettingMeans) -> str:
    text = io.StringIO()
    Console(file=text, width=80).print(make_means_table(of))
    return text.getvalue()


def test_the_table_fits_and_cuts_nothing() -> None:
    text = printed(means("d-tree", "some_module:Strategy", "mist:Raises"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for word in ("d-tree", "some_module:Strategy", "mist:Raises", "delivered", "on time", "p99 ms", "45.8", "± 42.7"):
        assert word in text
    assert "157 " in text and "± 0.254" in text


def test_a_share_is_never_said_to_be_beyond_all() -> None:
    text = printed(means("d-tree", "mist:Raises"))
    assert "0.880" in text and "0–1" in text and "1.02" not in text
    assert "0.9999" in text, "and not rounded up to all"


@given(st.floats(1e-4, 9e6))
def test_three_digits_count(value: float) -> None:
    assert float(number_text(value)) == pytest.approx(value, rel=0.005001)
    assert "e" not in number_text(value)


def test_the_means_are_a_file(tmp_path: Path) -> None:
    write_means(means("d-tree", "mist:Raises"), FIGURES, tmp_path / "m.csv")
    with (tmp_path / "m.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["strategy"], first["seeds"], first["delivery"], first["delivery_half"]) == (
        "d-tree", "2", "0.88", "1.0165",
    )  # fmt: skip
    assert first["on_time_half"] == ""
    assert (second["strategy"], second["seeds"], second["delivery"]) == ("mist:Raises", "0", "")


def test_a_setting_of_a_plugin_from_outside_is_a_column(tmp_path: Path) -> None:
    settings = [
        {**run_row(Scenario()), "strategy": "d-tree", "setting": "a"},
        {**run_row(Scenario()), "strategy": "dcrd", "setting": "b", FROM_OUTSIDE: '{"gain":"1ms","period":"1s"}'},
        {**run_row(Scenario()), "strategy": "dcrd", "setting": "c", FROM_OUTSIDE: '{"gain":"2ms","period":"1s"}'},
    ]
    found = SettingMeans(settings, [])
    assert found.varied == ["strategy", "gain", "period"]
    assert [row["gain"] for row in found.rows] == [None, "1ms", "2ms"]
    write_means(found, [], tmp_path / "m.csv")
    assert (tmp_path / "m.csv").read_text().splitlines()[:2] == ["strategy,gain,period,seeds", "d-tree,,,0"]
    assert "2ms" in printed(found) and "{" not in printed(found)


def test_failures_name_the_line_and_are_said_once() -> None:
    trace = (
        'Traceback:\n  File "/opt/wend/drivers/sim/run.py", line 9, in run\n'
        '  File "/tmp/spark-1/mist.py", line 4, in handle\n'
        '  File "/opt/wend/protocol/view.py", line 70, in link\nKeyError: 3\n'
    )
    failure: dict[str, Any] = {"strategy": "mist:Raises", "error": "KeyError: 3", "traceback": trace}
    assert failure_sentences([failure | {"seed": 2}, failure | {"seed": 1}], ["mist.py"]) == [
        "mist:Raises, seeds 1, 2: mist.py, line 4: KeyError: 3"
    ]
    assert failure_sentences([failure | {"seed": 1}], []) == ["mist:Raises, seed 1: KeyError: 3"]
    told = failure | {"seed": 1, "error": "mist.py, line 4: no link"}
    assert failure_sentences([told], ["mist.py"]) == ["mist:Raises, seed 1: mist.py, line 4: no link"]
