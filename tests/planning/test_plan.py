"""Plans as files: written, read, checked, and refused after every kind of damage."""

import json
import re
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.planning.nets import overlay, random_network, workload
from wend.model.errors import ConfigError
from wend.model.forwarding import read_forwarding
from wend.model.plan import TABLES, Plan, fingerprint, read_plan
from wend.model.rates import Rate
from wend.planning import route_choice
from wend.planning.arrays import TOLERANCE, round_noise
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import Flow, make_workload
from wend.planning.models import Goal, Solution, parse_goal
from wend.planning.plan_check import check_plan, find_losses
from wend.planning.plan_drawing import choose_style, draw_plan
from wend.planning.planner import make_plan
from wend.planning.problem import Problem
from wend.topology.graph import Overlay, OverlayLink

BUTTERFLY = [
    (0, 1, 10, 40.0), (1, 2, 10, 20.0), (2, 6, 10, 40.0), (1, 3, 12, 40.0), (3, 6, 12, 40.0), (0, 4, 15, 40.0),
    (4, 3, 15, 40.0), (3, 5, 10, 60.0),
]  # fmt: skip


def butterfly() -> FlowNetwork:
    return FlowNetwork(overlay(7, BUTTERFLY), peer=Rate(100.0))


@cache
def example(goal: str = "balance", rate: float = 30) -> Plan:
    network = butterfly()
    made = make_workload([Flow(0, [5, 6], rate, 100), Flow(1, [5], 5, 100, 2.0)], network.names)
    return make_plan(network, made, parse_goal(goal), 3)


@pytest.mark.parametrize("goal", ["min-usage", "balance", "blend:0.3"])
def test_every_plan_passes_its_check_and_survives_its_files(goal: str, tmp_path: Path) -> None:
    made = 0
    for seed in range(24):
        rng = np.random.Generator(np.random.PCG64(seed))
        network = random_network(rng, 8, 8, ("link", "peer", "both")[seed % 3], capacities=12)
        flows = workload(network, rng, 6)
        plan = make_plan(network, flows, parse_goal(goal), 3, partial=True)
        assert check_plan(plan, network) == []
        made += not plan.head.partial
        plan.write(tmp_path / str(seed))
        again = read_plan(tmp_path / str(seed))
        assert check_plan(again, network) == []
        assert again.head == msgspec.structs.replace(plan.head, content=again.content_hash)
        assert [again.published_flows(p) for p in range(8)] == [plan.published_flows(p) for p in range(8)]
    assert made > 10


def test_forwarding_reaches_every_receiver_once() -> None:
    plan = example()
    (flow,) = plan.published_flows(0)
    assert flow.receivers == (5, 6)
    assert sum(share for _, share in flow.shares) == pytest.approx(1.0)
    assert len(flow.shares) > 1
    hops = list(zip(*(plan.hops[name].tolist() for name in ("graph", "peer", "next")), strict=True))
    for graph, _ in flow.shares:
        arrived: list[int] = []
        todo = [0]
        while todo:
            here = todo.pop()
            arrived.append(here)
            todo += [to for of, peer, to in hops if (of, peer) == (graph, here)]
        assert len(set(arrived)) == len(arrived)
        assert {5, 6} <= set(arrived)


def test_a_fingerprint_depends_on_the_topology_alone() -> None:
    assert fingerprint(3, [(0, 1), (2, 1)]) == fingerprint(3, [(1, 2), (1, 0)])
    assert len({fingerprint(3, [(0, 1)]), fingerprint(4, [(0, 1)]), fingerprint(3, [(0, 2)])}) == 3


def test_an_overload_is_refused_or_planned_in_part() -> None:
    network = butterfly()
    flows = make_workload([Flow(0, [5, 6], 60, weight=1.0), Flow(1, [5], 20, weight=5.0)], network.names)
    with pytest.raises(
        ConfigError, match=r"does not fit with k = 3: at best, link 3 -> 5 would carry 80 msg/s and can carry 60"
    ):
        make_plan(network, flows, Goal("balance"), 3)
    plan = make_plan(network, flows, Goal("balance"), 3, partial=True)
    assert plan.head.partial
    assert check_plan(plan, network) == []
    assert find_losses(plan) == [(0, 5, pytest.approx(1 / 3))], (
        "the flow with the lower weight loses, and only as much as it must"
    )
    assert plan.head.delivered == pytest.approx(60 + 40 + 20)
    assert plan.head.value == pytest.approx(60 + 40 + 5 * 20)


def test_another_network_is_detected() -> None:
    plan = example()
    assert check_plan(plan, FlowNetwork(overlay(7, [*BUTTERFLY[:-1], (2, 5, 10, 40.0)]))) == [
        f"the plan is for another topology ({plan.head.topology[:12]}, 7 peers), not for this one "
        f"({fingerprint(7, [e[:2] for e in BUTTERFLY[:-1]] + [(2, 5)])[:12]}, 7 peers)"
    ]
    narrow = [(a, b, d, 10.0 if (a, b) == (3, 5) else c) for a, b, d, c in BUTTERFLY]
    assert check_plan(plan, FlowNetwork(overlay(7, narrow))) == ["link 3 -> 5 carries 35 msg/s and can carry 10 msg/s"]
    assert check_plan(plan, FlowNetwork(overlay(7, BUTTERFLY), peer=Rate(34.0))) == [
        "peer 3 carries 35 msg/s and can carry 34 msg/s",
        "peer 5 carries 35 msg/s and can carry 34 msg/s",
    ]


# ---------------------------------------------------------------- damage

Damage = Callable[[Path], None]


def column(table: str, name: str, change: Callable[[np.ndarray], object]) -> Damage:
    """Replace a column by the result of `change` on a copy of it."""

    def apply(folder: Path) -> None:
        path = folder / f"{table}.parquet"
        old = parquet.read_table(path)
        index = old.schema.get_field_index(name)
        values = old.column(name).to_pylist()
        copy = np.array(values, dtype=object) if isinstance(values[0], list | str) else np.array(values)
        changed = change(copy)
        new = pa.array(list(copy if changed is None else changed), type=old.schema.field(name).type)  # type: ignore[call-overload]
        parquet.write_table(old.set_column(index, old.schema.field(name), new), path)

    return apply


def set_at(index: int, value: object) -> Callable[[np.ndarray], object]:
    def change(values: np.ndarray) -> None:
        values[index] = value

    return change


def head(**changes: object) -> Damage:
    def apply(folder: Path) -> None:
        path = folder / "plan.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return apply


def rows(table: str, choose: Callable[[pa.Table], pa.Table]) -> Damage:
    def apply(folder: Path) -> None:
        path = folder / f"{table}.parquet"
        parquet.write_table(choose(parquet.read_table(path)), path)

    return apply


def text(name: str, content: str) -> Damage:
    return lambda folder: (folder / name).write_text(content) and None


def gone(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def hop(peer: int, graph: int, following: int, instead: tuple[int, int, int] | None) -> Damage:
    """Replace one hop by another, or remove it; hops stay sorted."""

    def choose(table: pa.Table) -> pa.Table:
        found = [tuple(row.values()) for row in table.to_pylist()]
        found.remove((peer, graph, following))
        if instead is not None:
            found.append(instead)
        found.sort()
        return pa.table([pa.array(c, pa.int32()) for c in zip(*found, strict=True)], schema=table.schema)

    return rows("hops", choose)


def more_hops(*more: tuple[int, int, int]) -> Damage:
    def choose(table: pa.Table) -> pa.Table:
        found = sorted([tuple(row.values()) for row in table.to_pylist()] + list(more))
        return pa.table([pa.array(c, pa.int32()) for c in zip(*found, strict=True)], schema=table.schema)

    return rows("hops", choose)


UNREADABLE: dict[str, tuple[Damage, str]] = {
    "no head": (gone("plan.json"), "is not a plan: cannot read plan.json"),
    "head is no JSON": (
        text("plan.json", "{"),
        "plan.json is not the header of a plan: it is not JSON, or it is truncated",
    ),
    "head is a list": (text("plan.json", "[]"), "is not the header of a plan: it must be a table, not a list"),
    "head without version": (text("plan.json", "{}"), "is not the header of a plan: it lacks 'version'"),
    "a field has another type": (
        head(flows="two"),
        "the header of a plan: flows must be a whole number, not a text",
    ),
    "a field is a fraction": (head(k=2.5), "is not the header of a plan: k must be a whole number, not a fraction"),
    "other-version": (head(version=9), "has version 9; this Wend reads version 3"),
    "head lacks a field": (text("plan.json", '{"version": 3}'), "it lacks 'topology'"),
    "head has a foreign field": (head(colour="red"), "there is no field 'colour'"),
    "no hops": (gone("hops.parquet"), "is not a complete plan: cannot read hops.parquet"),
    "hops are no table": (text("hops.parquet", "hops"), "hops.parquet is not a Parquet file, or it is truncated"),
    "a column is missing": (
        rows("graphs", lambda t: t.drop_columns(["share"])),
        "column 'share' is missing",
    ),
    "a column has another type": (
        rows("graphs", lambda t: t.set_column(2, "share", t.column("share").cast(pa.string()))),
        "graphs.parquet: column 'share' must hold fractions of 64 bits, not texts",
    ),
    "a column that is searched has another type": (
        rows("hops", lambda t: t.set_column(0, "peer", t.column("peer").cast(pa.string()))),
        "hops.parquet: column 'peer' must hold whole numbers of 32 bits, not texts",
    ),
    "a list of other numbers": (
        rows("flows", lambda t: t.set_column(2, "receivers", t.column("receivers").cast(pa.list_(pa.int64())))),
        "column 'receivers' must hold lists of whole numbers of 32 bits, not lists of whole numbers of 64 bits",
    ),
    "a gap in a list": (
        rows("flows", lambda t: t.set_column(2, "receivers", pa.array([[None]] * len(t), pa.list_(pa.int32())))),
        "column 'receivers' has missing values",
    ),
    "a column has gaps": (
        rows("graphs", lambda t: t.set_column(2, "share", pa.array([None] * len(t), pa.float64()))),
        "column 'share' has missing values",
    ),
}

UNSOUND: dict[str, tuple[Damage, str]] = {
    "a flow is missing": (rows("flows", lambda t: t.slice(0, 1)), "plan.json states 2 flows, but there are 1"),
    "a graph is missing": (rows("graphs", lambda t: t.slice(1)), "graphs, but there are"),
    "numbers are off": (column("flows", "flow", set_at(1, 5)), "flows are not numbered from 0"),
    "an arc is a loop": (column("arcs", "b", set_at(0, 0)), "an arc is a loop or leads out of the network"),
    "an arc is there twice": (column("arcs", "b", set_at(1, 1)), "arcs are not sorted, or one occurs twice"),
    "an arc is one-way": (column("arcs", "b", set_at(1, 6)), "an arc has no counterpart in the other direction"),
    "another topology": (head(topology="0" * 64), "the plan is for another topology"),
    "a link without capacity": (column("arcs", "capacity_msgs", set_at(0, 0.0)), "link 0 -> 1 has no capacity above 0"),
    "a peer without capacity": (column("peers", "capacity_msgs", set_at(3, -1.0)), "peer 3 has no capacity above 0"),
    "a strange publisher": (column("flows", "publisher", set_at(0, 7)), "flow 0 has a publisher that does not exist"),
    "a strange receiver": (column("flows", "receivers", set_at(0, [5, 70])), "flow 0 has a receiver that does not"),
    "no receivers": (column("flows", "receivers", set_at(1, [])), "flow 1 has no receiver"),
    "receivers twice": (column("flows", "receivers", set_at(0, [5, 5, 6])), "names its receivers twice or out of"),
    "a selfish flow": (column("flows", "receivers", set_at(1, [1, 5])), "flow 1 is received by its own publisher"),
    "a negative rate": (column("flows", "rate_msgs", set_at(0, -1.0)), "flow 0 has no rate above 0"),
    "a negative weight": (column("flows", "weight", set_at(1, -1.0)), "flow 1 has a negative size or weight"),
    "a graph of no flow": (column("graphs", "flow", set_at(0, 9)), "delivery graph 0 belongs to flow 9"),
    "graphs out of order": (column("graphs", "flow", lambda v: v[::-1]), "delivery graphs are not sorted by flow"),
    "a negative share": (column("graphs", "share", set_at(0, -0.5)), "delivery graph 0 carries a share of -0.5"),
    "a share that is no number": (column("graphs", "share", set_at(0, float("nan"))), "carries a share of nan"),
    "shares that do not add up": (column("graphs", "share", lambda v: v * 0.9), "of flow 0 sum to 0.9, not to 1"),
    "a flow without a graph": (column("graphs", "flow", lambda v: v * 0), "flow 1 has no delivery graph"),
    "a hop of no graph": (column("hops", "graph", set_at(0, 44)), "is for delivery graph 44, which does not exist"),
    "a hop where no link is": (column("hops", "next", set_at(0, 6)), "a hop leads from 0 to 6, but they have no link"),
    "hops out of order": (rows("hops", lambda t: t.take(list(range(len(t)))[::-1])), "hops are not sorted"),
    "a hop twice": (rows("hops", lambda t: pa.concat_tables([t.slice(0, 1), t])), "or one occurs twice"),
    "a load is retouched": (
        column("arcs", "after_msgs", lambda v: v + 1), "the stated loads of links are not those of the hops"
    ),
    "a peer's load is retouched": (
        column("peers", "after_msgs", lambda v: v * 2), "the stated loads of peers are not those of the hops"
    ),
    "a flattering head": (head(highest_load=0.1), "plan.json states that highest_load is 0.1, but it is"),
    "a modest usage": (head(usage=1.0), "plan.json states that usage is 1, but it is"),
    "too much delivered": (head(delivered=1e6), "plan.json states that delivered is 1e+06, but it is"),
    "a link too full": (
        column("arcs", "capacity_msgs", lambda v: np.where(v == 60, 20, v)),
        "link 3 -> 5 carries 35 msg/s and can carry 20 msg/s"
    ),
    "a peer too full": (
        column("peers", "capacity_msgs", set_at(5, 10.0)), "peer 5 carries 35 msg/s and can carry 10 msg/s"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_invalid_files_are_refused(name: str, tmp_path: Path) -> None:
    example().write(tmp_path)
    damage, complaint = UNREADABLE[name]
    damage(tmp_path)
    with pytest.raises(ConfigError) as raised:
        read_plan(tmp_path)
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError) as raised:
        read_forwarding(tmp_path, butterfly().fingerprint, 0)
    assert complaint in str(raised.value), "a peer that reads its own tables has the same error"


@pytest.mark.parametrize("name", UNSOUND)
def test_damage_is_found_and_named(name: str, tmp_path: Path) -> None:
    example().write(tmp_path)
    damage, complaint = UNSOUND[name]
    damage(tmp_path)
    found = check_plan(read_plan(tmp_path))
    assert any(complaint in sentence for sentence in found), found


def hops_of(plan: Plan, graph: int) -> list[tuple[int, int]]:
    mine = plan.hops["graph"] == graph
    return list(zip(plan.hops["peer"][mine].tolist(), plan.hops["next"][mine].tolist(), strict=True))


def test_graphs_that_are_no_trees_are_named(tmp_path: Path) -> None:
    plan = example("min-usage")
    assert hops_of(plan, 0) == [(0, 1), (1, 3), (3, 5), (3, 6)], "the graph that is damaged below"
    for number, (damage, complaint) in enumerate(
        [
            (hop(3, 0, 6, None), "delivery graph 0 of flow 0 does not reach receiver 6"),
            (more_hops((2, 0, 6), (1, 0, 2)), "delivery graph 0 of flow 0 brings messages to 6 twice"),
            (more_hops((3, 0, 4), (4, 0, 0)), "delivery graph 0 of flow 0 leads back to its publisher 0"),
            (hop(0, 0, 1, None), "delivery graph 0 of flow 0 has a hop from 1, which the messages never reach"),
            (hop(3, 0, 6, (2, 0, 6)), "delivery graph 0 of flow 0 has a hop from 2, which the messages never reach"),
            (more_hops((1, 0, 2)), "delivery graph 0 of flow 0 ends at 2, which is not a receiver"),
        ]
    ):
        folder = tmp_path / str(number)
        plan.write(folder)
        damage(folder)
        assert check_plan(read_plan(folder)) == [complaint]


def test_of_many_faults_some_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    network = butterfly()
    flows = make_workload([Flow(p, [q], 0.1) for p in range(7) for q in range(7) if p != q], network.names)
    make_plan(network, flows, Goal("balance"), 2).write(tmp_path)
    column("flows", "weight", lambda v: v * -1)(tmp_path)
    found = check_plan(read_plan(tmp_path))
    assert len(found) == 6
    assert found[-1] == "... and 37 more of this kind"


@pytest.mark.parametrize("before", ["plan.json", *TABLES])
def test_a_plan_that_is_replaced_during_reading_is_the_old_or_the_new_one(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another plan replaces it just before one of its files is opened."""
    folder, other = tmp_path / "plan", example("min-usage")
    example().write(folder)
    opened = parquet.ParquetFile

    def swapped(path: Path) -> object:
        if path.stem == before and json.loads((folder / "plan.json").read_text())["content"] != other.content_hash:
            other.write(folder)
        return opened(path)

    monkeypatch.setattr(parquet, "ParquetFile", swapped)
    assert read_plan(folder).content_hash == (example() if before == "plan.json" else other).content_hash


def test_the_header_is_json(tmp_path: Path) -> None:
    plan = example()
    plan.write(tmp_path)
    shown = json.loads((tmp_path / "plan.json").read_text())
    assert shown == msgspec.to_builtins(plan.head) | {"content": plan.content_hash}
    assert shown["highest_load"] <= 1 < shown["highest_load_single"]


@given(st.floats(1e-9, 1e9))
def test_only_noise_is_rounded(value: float) -> None:
    """The values of plan.json are within the check's tolerance of the loads, whatever their size."""
    assert abs(round_noise(value) - value) <= TOLERANCE / 2 * value
    assert round_noise(round_noise(value)) == round_noise(value)


def test_noise_of_the_solver_is_neither_written_nor_drawn() -> None:
    assert round_noise(0.75000007) == 0.75
    assert round_noise(90.0000063) == 90.0
    assert round_noise(0.123456789) == 0.123456789
    assert choose_style(0.75 * (1 + TOLERANCE / 2)) == choose_style(0.75) != choose_style(0.7501)
    assert choose_style(1e-12) != choose_style(0.0), "a link in use is not drawn as unused"


def test_a_plan_is_drawn_where_its_map_has_the_peers(tmp_path: Path) -> None:
    """North on top. A plan without positions has a spring layout."""
    positions = ((9.0, -48.0), (9.0, -54.0), (14.0, -51.0))
    land = overlay(3, [(0, 1, 10, 50), (1, 2, 10, 50), (0, 2, 10, 50)])
    land.positions = positions
    made = make_plan(FlowNetwork(land), make_workload([Flow(0, [1, 2])], land.names), parse_goal("balance"), 2)
    made.write(tmp_path)
    south, north, east = drawn_at(read_plan(tmp_path))
    assert north[1] < east[1] < south[1]
    assert north[0] == south[0] < east[0]
    table = parquet.read_table(tmp_path / "peers.parquet").drop_columns(["x", "y"])
    parquet.write_table(table, tmp_path / "peers.parquet")
    assert len(set(drawn_at(read_plan(tmp_path)))) == 3


def drawn_at(plan: Plan) -> list[tuple[float, float]]:
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', draw_plan(plan))
    return [(float(x), float(y)) for x, y in circles[: plan.head.peers]]


def test_every_hop_of_a_partial_plan_leads_to_a_receiver() -> None:
    """Rows with much unused capacity make some dual values slightly negative."""
    ms = 10**6
    links = [
        OverlayLink(0, 1, ms),
        OverlayLink(0, 2, ms, 0.0, inf, 1e9),
        OverlayLink(0, 3, 10 * ms, 0.0, 40.0, 1e6),
        OverlayLink(1, 7, 0),
        OverlayLink(2, 5, 10 * ms, 0.0, 40.0),
        OverlayLink(2, 7, 10 * ms, 0.0, 40.0),
        OverlayLink(3, 4, 10 * ms, 0.0, inf, 1e3),
        OverlayLink(3, 6, 0, 0.0, inf, 1e3),
        OverlayLink(4, 7, 10 * ms),
        OverlayLink(5, 6, 1, 0.0, inf, 1e3),
    ]
    peers = ((40.0, inf), (inf, 1e3), (inf, inf), (40.0, inf), (inf, 1e5), (1e6, inf), (40.0, 1e4), (inf, 1e5))
    network = FlowNetwork(Overlay(8, links, (), peers))
    flows = [
        Flow(2, [0, 1, 6], 1e4, 0.0, 5.0), Flow(3, [1], 1e4, 0.0, 1.0), Flow(1, [3, 7], 1e-6, 1.0, 0.0),
        Flow(6, [2, 4, 5], 1.0, 1e6, 1.0),
    ]  # fmt: skip
    plan = make_plan(network, make_workload(flows, network.names), parse_goal("min-usage"), 4, partial=True)
    assert plan.head.partial
    assert check_plan(plan, network) == []


def test_flows_without_weight_have_no_partial_plan() -> None:
    network = FlowNetwork(Overlay(2, [OverlayLink(0, 1, 10)]), link=Rate(5.0))
    worthless = make_workload([Flow(0, [1], 10.0, 0.0, 0.0)], network.names)
    with pytest.raises(ConfigError, match="every flow has a weight of 0"):
        make_plan(network, worthless, parse_goal("balance"), 1, partial=True)


def test_a_plan_with_an_overload_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """With shares that the solver could have rounded so: everything on the narrowest path."""
    network = butterfly()
    made = make_workload([Flow(0, [6], 30)], network.names)

    def rounded(problem: Problem, goal: Goal, **limits: float) -> Solution:
        return Solution(problem.single_path_shares(), 1.0, 0.0, 0)

    monkeypatch.setattr(route_choice, "solve", rounded)
    with pytest.raises(ConfigError, match=r"loads a link or peer to 1\.5 times its capacity"):
        make_plan(network, made, parse_goal("balance"), 3)
