"""The page on strategies: the one it shows keeps its promises, and its tables name all that there is."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.docs.test_docs import FENCED, files_of
from wend.pipeline.scenario_files import load_scenarios
from wend.protocol import plugins

PAGE = (Path(__file__).parents[2] / "docs" / "strategy.md").read_text()


def section(heading: str) -> str:
    return PAGE[PAGE.index(f"## {heading}\n") + 3 :].split("\n## ")[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the files that the page shows."""
    for name, text in files_of("strategy.md").items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_strategy_keeps_its_promises(folder: Path) -> None:
    (block,) = [block for kind, block in FENCED.findall(section("ACKs and custody")) if kind == "python"]
    call = [sys.executable, "-c", block]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_the_sweep_can_be_read(folder: Path) -> None:
    scenarios = load_scenarios(folder / "sweep.toml")
    assert {"greedy:Greedy", "oracle"} <= {scenario.strategy for scenario in scenarios}


@pytest.mark.parametrize(
    ("heading", "union"),
    [("What it is told", plugins.PluginInput), ("What it may answer", plugins.PluginEffect)],
)
def test_the_tables_name_every_input_and_effect(heading: str, union: object) -> None:
    told = set(re.findall(r"`(\w+)", section(heading)))
    # that it changed itself is for the plug-ins that routing asks
    assert {kind.__name__ for kind in get_args(union)} - {"Changed"} <= told


def test_the_view_has_what_the_page_says() -> None:
    seen = section("What it sees")
    for part, kind in (
        ("links[peer]", plugins.LinkView),
        ("graph", plugins.GraphView),
        ("interest", plugins.InterestView),
        ("liveness", plugins.OutageEstimate),
    ):
        (row,) = [line for line in seen.splitlines() if line.startswith(f"| `view.{part}`")]
        named = set(re.findall(r"`(\w+)[`(\[]", row))
        assert named, part
        assert [name for name in named if not hasattr(kind, name)] == []
    assert set(re.findall(r"view\.(\w+)", seen)) == set(plugins.View.__slots__)
