"""Every field of a scenario and every metric of a summary is a typed column, and nothing is lost on the way."""

import math
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pytest

from tests.spark import summary
from wend.drivers.scenarios import Scenario, make_scenario
from wend.drivers.sim import simulate
from wend.model.fault_settings import Outages, Spread
from wend.model.settings import Settings, setting
from wend.model.summary import Late, Summary
from wend.model.units import SECOND, Nanos
from wend.pipeline import scenario_rows as rows
from wend.pipeline.sweeps.run_kind import fill_columns
from wend.strategies.registry import PLUGINS

OUTAGES = Outages(up=Spread("exponential", mean_s=60.0), down=Spread("uniform", low_s=1.0, high_s=5.0))


def there_and_back(scenario: Scenario) -> Scenario:
    table = pa.Table.from_pylist([rows.run_row(scenario, 3)], schema=rows.RUN_SCHEMA)
    return rows.scenario_from_row(table.to_pylist()[0])


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(),
        Scenario(strategy="oracle", topology="full-mesh", peers=7, topics=3, pf=0.0, ack="free", transmissions=2),
        Scenario(outages=OUTAGES, peer_outages=OUTAGES, heal="12.5s", persistence=True),
        Scenario(strategy="dmm", domains={"x": [1, 256], "y": [0.5, 2.5, 0.25]}),
    ],
)
def test_a_scenario_survives_its_row(scenario: Scenario) -> None:
    assert there_and_back(scenario) == scenario


def test_every_setting_of_a_scenario_is_a_column() -> None:
    assert {*rows.COLUMNS, rows.FROM_OUTSIDE} <= set(rows.RUN_SCHEMA.names) & set(rows.RESULT_SCHEMA.names)
    assert {each.name for each in rows.COLUMNS.values()} == Scenario().flat().keys()
    for schema in (rows.RUN_SCHEMA, rows.RESULT_SCHEMA):
        assert len(set(schema.names)) == len(schema.names), "no setting has the name of a metric"


def test_durations_are_numbers_of_their_unit() -> None:
    row = rows.run_row(Scenario(duration="1.5min", detection="90ms", delay=("1ms", "0.2s"), queue=3))
    assert (row["duration_s"], row["detection_ms"], row["delay_ms"], row["queue_msgs"]) == (90.0, 90.0, [1.0, 200.0], 3)


class GainSettings(Settings):
    """Of a plug-in from outside the tree."""

    gain_ns: Annotated[Nanos, setting("How long it gains.", unit="s")] = SECOND


def test_settings_of_plug_ins_from_outside_travel_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("Gaining", (PLUGINS["routing"]["d-tree"],), {"settings": GainSettings})
    monkeypatch.setitem(PLUGINS["routing"], "outside:Gaining", kind)
    monkeypatch.setitem(sys.modules, "outside", type(sys)("outside"))
    scenario = Scenario(strategy="outside:Gaining", gain="2min")
    assert rows.run_row(scenario)[rows.FROM_OUTSIDE] == '{"gain":"120s"}'
    assert there_and_back(scenario) == scenario
    assert rows.run_row(Scenario())[rows.FROM_OUTSIDE] == "{}"
    assert rows.scenario_key(scenario) == rows.scenario_key(scenario.with_(gain="120.0s"))
    assert rows.scenario_key(scenario) != rows.scenario_key(scenario.with_(gain="121s"))
    assert rows.scenario_key(scenario.with_(strategy="adaptive")) == rows.scenario_key(Scenario())


def test_columns_have_the_types_of_their_fields() -> None:
    types = {field.name: field.type for field in rows.RUN_SCHEMA}
    assert types["peers"] == pa.int64()
    assert types["pf"] == pa.float64()
    assert types["ack"] == pa.string()
    assert types["persistence"] == pa.bool_()
    assert types["delay_ms"] == pa.list_(pa.float64())
    assert pa.types.is_struct(types["outages"])


def test_a_field_of_an_unknown_kind_is_refused_loudly() -> None:
    with pytest.raises(TypeError, match="no column type"):
        rows.arrow_type(complex)


def test_equal_scenarios_have_equal_keys_however_they_were_written() -> None:
    crash = {"up": {"kind": "fixed", "mean_s": 1}, "down": {"kind": "fixed", "mean_s": 1}}
    for one, same in (
        ({"pf": 0}, {"pf": 0.0}),
        ({"peers": 30, "degree": 6}, {"peers": 30.0, "degree": 6}),
        ({"detection": "160ms"}, {"detection": "0.16s"}),
        ({}, {"transmissions": 1, "monitoring": "5min", "drain": "10000ms"}),
        ({"peer_outages": crash}, {"peer_outages": Outages(Spread("fixed", mean_s=1.0), Spread("fixed", mean_s=1.0))}),
        ({"peer_outages": Outages(Spread("fixed", mean_s=1), Spread("fixed", mean_s=1))}, {"peer_outages": crash}),
    ):
        assert rows.scenario_key(make_scenario(one)) == rows.scenario_key(make_scenario(same))


def test_another_seed_is_another_run_of_the_same_setting() -> None:
    one, two = Scenario(seed=1), Scenario(seed=2)
    assert rows.scenario_key(one) != rows.scenario_key(two)
    assert rows.setting_key(one) == rows.setting_key(two)
    assert rows.setting_key(one) != rows.setting_key(Scenario(seed=1, pf=0.07))


def test_a_map_that_changed_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "map.graphml"
    path.write_text("one")
    before = rows.scenario_key(Scenario(topology=str(path)))
    path.write_text("two")
    assert rows.scenario_key(Scenario(topology=str(path))) != before


def test_flows_or_a_plan_that_changed_are_another_run(tmp_path: Path) -> None:
    flows, plan = tmp_path / "flows.jsonl", tmp_path / "plan"
    flows.write_text('{"publisher": 0, "receivers": [1]}')
    plan.mkdir()
    (plan / "hops.parquet").write_bytes(b"these")
    scenario = Scenario(flows=str(flows), plan=str(plan))
    keys = [rows.scenario_key(scenario)]
    flows.write_text('{"publisher": 0, "receivers": [2]}')
    keys.append(rows.scenario_key(scenario))
    (plan / "hops.parquet").write_bytes(b"those")
    keys.append(rows.scenario_key(scenario))
    assert len(set(keys)) == 3


def test_a_share_of_nothing_is_null_and_not_a_number() -> None:
    row = rows.summary_metrics(summary(late=Late(math.nan, 0.5, 1.0)))
    assert row["late_within_1_25"] is None
    assert row["late_within_1_5"] == 0.5
    some = Scenario(peers=4, degree=2, topics=2, duration="5s", pf=0.0, pl=0.0, popularity=(1.0, 1.0))
    punctual = rows.summary_metrics(simulate(some).summary)
    assert (punctual["late_within_1_25"], punctual["delivered"] > 0) == (None, True)
    dead = rows.summary_metrics(simulate(some.with_(pf=1.0)).summary)
    assert dead["delay_p50_ms"] is dead["delay_p99_ms"] is dead["delay_mean_ms"] is None
    assert (dead["delivered"], dead["expected"] > 0) == (0, True)


def numbered(struct: type[msgspec.Struct], numbers: Iterator[int]) -> tuple[Any, list[Any]]:
    """A struct with another number in each of its fields, and what was put where, in their order."""
    plain = {float: float, int: int, str: str, float | None: float}
    fields: dict[str, Any] = {}
    put: list[Any] = []
    for name, hint in get_type_hints(struct).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            fields[name], inner = numbered(hint, numbers)
            put += inner
        elif get_origin(hint) is dict:
            fields[name] = {f"of {name}": next(numbers)}
            put.append(list(fields[name].items()))
        else:
            fields[name] = plain[hint](next(numbers))
            put.append(fields[name])
    return struct(**fields), put


def test_every_field_of_a_summary_arrives_in_a_column_of_its_own() -> None:
    made, put = numbered(Summary, count(1000))
    row = rows.summary_metrics(made)
    read = pa.Table.from_pylist([row], schema=rows.RESULT_SCHEMA).select(list(rows.METRICS)).to_pylist()[0]
    assert read.pop("control_packets") == sum(made.control.values())
    assert list(read.values()) == put
    assert (read["outage_known_p95_ms"], read["missing"]) == (made.outage_known_ms.p95, list(made.missing.items()))


def test_units_end_the_names_of_columns() -> None:
    assert {"packets_shared", "late_within_1_75", "delay_p99_ms", "outage_known_mean_ms"} <= set(rows.METRICS)
    assert rows.METRICS["outage_known_unnoticed_share"] == pa.float64()


def test_a_result_fits_its_schema() -> None:
    row = {
        **fill_columns(rows.run_row(Scenario(outages=OUTAGES)), rows.RESULT_SCHEMA),
        **rows.summary_metrics(summary()),
    }
    table = pa.Table.from_pylist([row], schema=rows.RESULT_SCHEMA)
    assert set(row) == set(rows.RESULT_SCHEMA.names)
    assert table["control_packets"][0].as_py() == 132
    assert dict(table["control"][0].as_py()) == {"acks": 125, "probes": 7}
    assert table["error"][0].as_py() is None
