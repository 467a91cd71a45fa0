"""What makes another plan worth while, and the command that makes it."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.pipeline.recorded_tables import write_table
from wend.console.plan.watch_command import PlanMonitor, watch
from wend.drivers.live.plans.push import PushReport
from wend.model.errors import ConfigError
from wend.model.flows import Flow
from wend.model.plan import read_plan
from wend.model.rates import Rate
from wend.pipeline.telemetry.measured_network import measured_overlay
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload, make_workload
from wend.planning.models import parse_goal
from wend.planning.plan_changes import compare_plan
from wend.planning.planner import make_plan

WINDOW = 60 * 10**9
SQUARE = [(0, 1), (1, 2), (2, 3), (0, 3)]
Rows = list[dict[str, Any]]


def link(a: int, b: int, begin_ns: int = 0, **more: Any) -> dict[str, Any]:
    fields = {
        "loss_ab": 0.0,
        "loss_ba": 0.0,
        "availability": 1.0,
        "observed_ns": WINDOW,
        "delay_mean_ns": 5_000_000,
        "samples": 10,
    }
    return {"begin_ns": begin_ns, "window_ns": WINDOW, "a": a, "b": b, **fields, **more}


def flow(publisher: int, receivers: list[int], rate: float, **more: Any) -> dict[str, Any]:
    return {"publisher": publisher, "receivers": receivers, "rate": rate, "size_bytes": 100.0, "weight": 1.0, **more}


LINKS = [link(a, b) for a, b in SQUARE]
FLOWS = [flow(0, [2], 4.0), flow(1, [3], 4.0)]


def write(folder: Path, links: Rows, flows: Rows) -> Path:
    """A folder of tables, as jobs write it."""
    shutil.rmtree(folder, ignore_errors=True)
    write_table(folder, "links", links)
    write_table(folder, "flows", flows)
    return folder


def network(rows: Rows, capacity: float = 10.0) -> FlowNetwork:
    return FlowNetwork(measured_overlay(pa.Table.from_pylist(rows), Rate(capacity)))


def workload(rows: Rows) -> FlowWorkload:
    return make_workload([msgspec.convert(row, Flow) for row in rows], [str(peer) for peer in range(4)])


# ---------------------------------------------------------------- what has changed


def test_nothing_changed_is_no_reason_and_each_change_is_one() -> None:
    made = make_plan(network(LINKS), workload(FLOWS), parse_goal("balance"), 3)
    same = compare_plan(made, network(LINKS), workload(FLOWS))
    assert (same.topology, same.workload, same.links) == (False, 0.0, 0.0)
    assert same.load == pytest.approx(made.head.highest_load) and same.reasons(0.0) == []

    def reasons(rows: Rows, flows: Rows) -> str:
        return "; ".join(compare_plan(made, network(rows), workload(flows)).reasons(0.2))

    assert reasons(LINKS[:3], [flow(0, [2], 4.0)]) == "the network has other links"
    assert reasons(LINKS, [FLOWS[0], flow(1, [3], 6.0)]) == "25 % of the workload has changed"
    assert reasons(LINKS, [FLOWS[0], flow(1, [3], 5.0)]) == ""
    assert reasons(LINKS, [FLOWS[0], flow(1, [2, 3], 4.0)]) == "100 % of the workload has changed"
    worse = [link(0, 1, availability=0.5), *LINKS[1:]]
    assert reasons(worse, FLOWS) == "the capacity of a link has changed by 50 %"
    full = [flow(0, [2], 4.7), flow(1, [3], 4.7)]
    narrow = compare_plan(made, network(LINKS, 4.0), workload(full))
    assert "the plan would load a link or peer to" in narrow.reasons(9.0)[0]


# ---------------------------------------------------------------- the commands


def look(folder: Path, capsys: pytest.CaptureFixture[str], **more: Any) -> dict[str, Any]:
    watch(str(folder / "tables"), folder / "plan", link_capacity="10", once=True, as_json=True, **more)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_watch_plans_again_when_something_changed_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "tables", links=LINKS, flows=FLOWS)
    first = look(tmp_path, capsys)
    assert first["replanned"] and first["why"] == ["there is no plan yet"]
    again = look(tmp_path, capsys)
    assert not again["replanned"] and "the plan stays: workload 0 %" in again["sentence"]
    write(tmp_path / "tables", links=LINKS, flows=[FLOWS[0], flow(1, [3], 8.0)])
    changed = look(tmp_path, capsys)
    assert changed["replanned"] and changed["why"] == ["50 % of the workload has changed"]
    assert read_plan(tmp_path / "plan").id == changed["plan"]
    assert not look(tmp_path, capsys)["replanned"]


def test_the_watch_moves_few_flows_and_takes_the_most_valuable_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "tables", links=LINKS, flows=FLOWS)
    look(tmp_path, capsys)
    write(tmp_path / "tables", links=LINKS, flows=[*FLOWS, flow(2, [3], 3.0)])
    more = look(tmp_path, capsys)
    assert more["moved"]["flows"] <= 1 and more["moved"]["common"] == 2 and "of 2 flows move" in more["sentence"]
    write(tmp_path / "tables", links=LINKS, flows=[flow(0, [2], 40.0), FLOWS[1]])
    part = look(tmp_path, capsys)
    assert 0 < part["partial"] < 1 and "not everything fits" in part["sentence"]
    assert read_plan(tmp_path / "plan").head.partial


def test_a_plan_that_is_rolled_back_is_not_written_and_not_pushed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "tables", links=LINKS, flows=FLOWS)
    pushed: list[int] = []

    def run_push(made: Any, *_: object, **__: object) -> PushReport:
        pushed.append(made.id)
        return PushReport(plan=made.id, version=len(pushed), peers=(), kept=len(pushed) > 1, why="because")

    monkeypatch.setattr("wend.console.plan.push_command.run_push", run_push)
    watcher = PlanMonitor(tmp_path / "plan", parse_goal("balance"), 3, 0, 0.2, ["wend://a:1"], None, {})  # type: ignore[arg-type]

    def seen() -> dict[str, Any]:
        return watcher.check_plan(str(tmp_path / "tables"), "10", 0)

    assert seen()["sentence"].endswith("rolled back: because")
    assert "is not pushed again" in seen()["sentence"]
    assert len(pushed) == 1 and not (tmp_path / "plan").exists()
    write(tmp_path / "tables", links=LINKS, flows=[FLOWS[0], flow(1, [3], 8.0)])
    assert seen()["pushed"] and len(pushed) == 2 and (tmp_path / "plan" / "plan.json").exists()
    with pytest.raises(ConfigError, match="name the peers of the plan"):
        look(tmp_path, capsys, push=True)
