"""The page on scenarios has examples that work, and names the fields of all tables."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from wend.drivers.scenarios import Scenario, make_scenario
from wend.model.scenario import Content, Outages, Spread
from wend.model.settings import settings_of
from wend.pipeline.rows import COLUMNS, FROM_OUTSIDE
from wend.pipeline.scenario_files import load_scenarios

PAGE = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text()
INDENTED = re.findall(r"(?:^ {4}.*\n)+", PAGE, re.MULTILINE)
BLOCKS = [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in INDENTED]


def _shown(value: Any) -> str:
    return f"[{', '.join(f'{each:g}' for each in value)}]" if isinstance(value, tuple) else f"{value:g}"


def test_the_tables_name_their_fields_and_defaults() -> None:
    below = PAGE[PAGE.index("## Tables") :]
    for each in settings_of(Scenario):
        if each.kind == "table":
            assert f"`{each.name}`" in below
    for field in msgspec.structs.fields(Content):
        assert re.search(rf"`{field.name}`[^`]*?\(`?{re.escape(_shown(field.default))}", below), field.name
    for field in (*msgspec.structs.fields(Spread), *msgspec.structs.fields(Outages)):
        assert f"`{field.name}`" in below


def test_the_example_is_a_scenario() -> None:
    found = make_scenario(tomllib.loads(BLOCKS[0]))
    assert found.outages is not None
    assert found != Scenario()


def test_the_sweep_is_one(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(BLOCKS[1])
    runs = load_scenarios(tmp_path / "s.toml")
    assert len(runs) == 6 and len({run.settings["detection"] for run in runs}) == 2


def test_the_columns_that_it_names_are_there() -> None:
    assert f"`{FROM_OUTSIDE}`" in PAGE
    assert set(re.findall(r"`(\w+_ms)`", PAGE)) <= COLUMNS.keys()
