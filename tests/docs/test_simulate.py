"""The pages on scenarios and sweeps have examples that work, and name the fields of all tables."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from tests.docs.pages import blocks, files_of, read, section, write_files
from wend.drivers.scenarios import Scenario, make_scenario
from wend.model.fault_settings import Congestion, DelaySpikes, Outages, Partitions, Spread
from wend.model.scenario import Content
from wend.model.settings import declared_settings
from wend.model.trace import TABLES
from wend.pipeline.rows import COLUMNS, FROM_OUTSIDE
from wend.pipeline.scenario_files import load_scenarios
from wend.studies.study_model import Size

SIMULATE, SWEEP = "docs/how-to/simulate.md", "docs/how-to/sweep-and-studies.md"


def _shown(value: Any) -> str:
    return f"[{', '.join(f'{each:g}' for each in value)}]" if isinstance(value, tuple) else f"{value:g}"


def test_the_page_names_the_fields_and_defaults_of_tables() -> None:
    tables = section(SIMULATE, "Write a scenario file")
    for each in declared_settings(Scenario):
        if each.kind == "table":
            assert f"`{each.name}`" in tables
    own = [field for table in (Content, Partitions, DelaySpikes, Congestion) for field in msgspec.structs.fields(table)]
    for field in own:
        if field.default is not msgspec.NODEFAULT:
            assert re.search(rf"`{field.name}`[^`]*?\(`?{re.escape(_shown(field.default))}", tables), field.name
    for field in (*msgspec.structs.fields(Spread), *msgspec.structs.fields(Outages)):
        assert f"`{field.name}`" in tables


def test_the_page_names_the_tables_of_a_trace() -> None:
    assert TABLES.keys() <= set(re.findall(r"`(\w+)`", section(SIMULATE, "Write a trace")))


def test_the_example_is_a_scenario() -> None:
    found = make_scenario(tomllib.loads(files_of(SIMULATE)["harsh.toml"]))
    assert found.outages is not None
    assert found != Scenario()


def test_the_sweep_is_one(tmp_path: Path) -> None:
    write_files(SWEEP, tmp_path)
    runs = load_scenarios(tmp_path / "sweep.toml")
    assert len(runs) == 54 and len({run.settings["detection"] for run in runs}) == 2


def test_the_columns_that_the_page_names_are_there() -> None:
    page = read(SWEEP)
    assert f"`{FROM_OUTSIDE}`" in page
    assert {"detection_ms"} <= set(re.findall(r"`(\w+_ms)`", page)) <= COLUMNS.keys()


def test_the_trial_is_one() -> None:
    (block,) = blocks(SWEEP, "python")
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, SWEEP, "exec"), names)
    smoke, default = names["SIZES"]
    assert isinstance(smoke, Size) and (smoke.thin, default.seeds) == (True, 5)
    (kind,) = names["TRIALS"].kinds
    assert kind.run(kind.fields(strategy="a"), 2) == {"loss": 0.002}
