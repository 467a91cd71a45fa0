"""The page on scenarios names every field, its default and its choices, as the code has them."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from wend.drivers.scenarios import Scenario, make_scenario
from wend.model.scenario import Content, Spread

PAGE = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| `(.+?)` \| (.*?) \| (.+) \|$", re.MULTILINE)
UNITS = {"ms": "ms", "s": "s", "hz": "1/s", "bytes": "bytes", "msgs": "messages"}


def test_every_field_has_its_row_with_default_and_unit() -> None:
    rows = [(name, default, unit.strip()) for name, default, unit, _ in ROW.findall(PAGE)]
    assert rows == [
        (field.name, _shown(field.default), UNITS.get(field.name.rsplit("_", 1)[-1] if "_" in field.name else "", ""))
        for field in msgspec.structs.fields(Scenario)
    ]


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return f"[{', '.join(f'{each:g}' for each in value)}]"
        case str():
            return f'"{value}"'
    return str(value)


def test_every_choice_is_named_in_its_row() -> None:
    said = {name: text + default for name, default, _, text in ROW.findall(PAGE)}
    info = inspect.type_info(Scenario)
    assert isinstance(info, inspect.StructType)
    choices = {f.name: f.type.values for f in info.fields if isinstance(f.type, inspect.LiteralType)}
    assert {"ack", "redundancy", "trace"} <= set(choices)
    for name, values in choices.items():
        assert [value for value in values if f"{value}" not in said[name]] == [], name


def test_the_tables_name_their_fields_and_defaults() -> None:
    below = PAGE[PAGE.index("## Tables") :]
    for field in msgspec.structs.fields(Content):
        assert re.search(rf"`{field.name}`[^`]*?\(`?{re.escape(_shown(field.default))}", below), field.name
    for field in msgspec.structs.fields(Spread):
        assert f"`{field.name}`" in below


def test_the_example_is_a_scenario() -> None:
    block = re.search(r"(?:^ {4}.*\n)+", PAGE, re.MULTILINE)
    assert block is not None
    found = make_scenario(tomllib.loads(re.sub(r"^ {4}", "", block[0], flags=re.MULTILINE)))
    assert found.outages is not None
    assert found != Scenario()
