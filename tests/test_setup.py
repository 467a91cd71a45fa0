"""The set-up of .venv: extras are added, never removed, and nothing is installed twice."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = """#!/bin/sh
printf '%s\\n' "$*" >>"$(dirname "$0")/../calls"
"""


class Clone:
    """A clone with a .venv whose Python writes down how it was called, and does nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "scripts").mkdir()
        for name in ("pyproject.toml", "constraints.txt", "scripts/setup.sh"):
            shutil.copy(ROOT / name, root / name)
        python = root / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON)
        python.chmod(0o755)

    def prepare(self, extras: str) -> list[str]:
        """What was installed."""
        calls = self.root / ".venv" / "calls"
        calls.unlink(missing_ok=True)
        script = f'set -eu; root="{self.root}"; . "$root/scripts/setup.sh"; prepare {extras}'
        subprocess.run(["sh", "-c", script], check=True, capture_output=True, timeout=60)
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line.rpartition(" ")[2] for line in lines if "pip install" in line]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_what_is_installed_is_not_installed_again(clone: Clone) -> None:
    assert clone.prepare("sim") == [".[sim]"]
    assert clone.prepare("sim") == []


def test_extras_are_added_to_those_that_are_there(clone: Clone) -> None:
    assert clone.prepare("spark,dev") == [".[dev,spark]"]
    assert clone.prepare("sim") == [".[dev,sim,spark]"]
    assert clone.prepare("dev,sim") == clone.prepare("spark") == []


def test_another_declaration_is_installed_with_all_extras(clone: Clone) -> None:
    clone.prepare("sim,dev")
    with (clone.root / "constraints.txt").open("a") as file:
        file.write("another==1\n")
    assert clone.prepare("sim") == [".[dev,sim]"]
