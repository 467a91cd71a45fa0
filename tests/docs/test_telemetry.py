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
FOLDERS = ("seen", "lake", "links", "late", "workload", "replays", "recommendation.svg")


@needs_java
@pytest.mark.slow
@pytest.mark.spark
def test_the_commands_lead_to_a_recommendation(spark_commands: None, tmp_path: Path) -> None:
    commands = re.findall(r"^    wend (.+)$", section(PAGE, "Ten minutes on one machine"), re.MULTILINE)
    assert [words.split()[:2] for words in commands][-1] == ["data", "recommend"]
    said: Any = None
    for words in commands:
        for long, short in SHORT.items():
            words = words.replace(long, short)
        group, command, *others = shlex.split(words)
        # the workers of the shared session have another current folder
        others = [str(tmp_path / word) if word.split("/")[0] in FOLDERS else word for word in others]
        said = CliRunner().invoke(app, [group, command, *others])
        assert said.exit_code == 0, f"{words}: {said.output} {said.exception!r}"
    assert 'strategy = "adaptive"' in said.output
    assert (tmp_path / "recommendation.svg").read_text().startswith("<svg")


def test_the_page_names_every_table() -> None:
    assert set(re.findall(r"`(\w+)`", section(PAGE, "In the file of a peer"))) >= TABLES.keys()
    assert "![" in read(PAGE)
