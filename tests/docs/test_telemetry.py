"""The page on telemetry: its commands run, one after the other, and end in a recommendation."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.docs.pages import read, section
from tests.spark import needs_java
from wend.console.app import app
from wend.model.telemetry import TABLES

PAGE = "docs/telemetry.md"
SHORT = {
    "--duration 60": "--duration 6 --peers 8 --topics 4",
    "--out replays": "--out replays --seeds 1 --redundancy tight",
}


@needs_java
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark_commands")
def test_the_commands_lead_to_a_recommendation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    wend (.+)$", section(PAGE, "Ten minutes on one machine"), re.MULTILINE)
    assert [words.split()[:2] for words in commands][-1] == ["data", "recommend"]
    said: Any = None
    for words in commands:
        for long, short in SHORT.items():
            words = words.replace(long, short)
        said = CliRunner().invoke(app, shlex.split(words))
        assert said.exit_code == 0, f"{words}: {said.output} {said.exception!r}"
    assert 'strategy = "adaptive"' in said.output
    assert (tmp_path / "recommendation.svg").read_text().startswith("<svg")
    planning, pushing = re.findall(r"^    wend (.+)$", section(PAGE, "A plan for what was measured"), re.MULTILINE)
    places = {".": str(tmp_path), "plan": str(tmp_path / "plan")}
    command, *others = shlex.split(planning)
    said = CliRunner().invoke(app, [command, *(places.get(word, word) for word in others)])
    assert said.exit_code == 0, f"{planning}: {said.output} {said.exception!r}"
    assert (tmp_path / "plan" / "plan.json").is_file() and pushing.startswith("plan push plan ")


def test_the_page_names_every_table() -> None:
    assert set(re.findall(r"`(\w+)`", section(PAGE, "In the file of a peer"))) >= TABLES.keys()
    assert "![" in read(PAGE)
