"""The thesis's example (section 3.2): its delivery graphs, its choices, and an enumeration of all plans."""

import json
import re
import shlex
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from wend.console.app import app
from wend.model.plan import read_plan
from wend.planning.delivery_graphs import DeliveryGraphs, make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload, read_workload
from wend.planning.models import balance, minimise_usage
from wend.planning.plan_check import check_plan
from wend.planning.problem import Problem, make_problem
from wend.topology.maps import from_graphml

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "campr"
PAGE = (ROOT / "docs" / "explanation" / "planning.md").read_text(encoding="utf-8")


def scenario(flows: str, topology: str = "seven") -> tuple[FlowNetwork, FlowWorkload, DeliveryGraphs, Problem]:
    network = FlowNetwork(from_graphml(FILES / f"{topology}.graphml", delay_ms=(1.0, 1.0), loss=0.0, seed=1))
    workload = read_workload(FILES / f"{flows}.jsonl", network.names)
    graphs = make_delivery_graphs(network, workload, 2)
    return network, workload, graphs, make_problem(network, workload, graphs)


def named(network: FlowNetwork, graphs: DeliveryGraphs) -> list[list[str]]:
    """Every graph as its links, by the names of the thesis."""
    found = []
    for g in range(len(graphs.level)):
        arcs = graphs.arcs[graphs.ptr[g] : graphs.ptr[g + 1]]
        ends = zip(network.graph.tail[arcs], network.graph.head[arcs], strict=True)
        found.append(sorted(network.names[a] + network.names[b] for a, b in ends))
    return found


def every_split(problem: Problem, parts: int) -> tuple[float, float | None]:
    """The least y, and the least usage within the capacities, of all splits into `parts` equal parts."""
    graphs = [range(problem.of_flow[f], problem.of_flow[f + 1]) for f in range(len(problem.of_flow) - 1)]
    splits = [[c for c in product(range(parts + 1), repeat=len(g)) if sum(c) == parts] for g in graphs]
    least_y, least = np.inf, None
    for choice in product(*splits):
        shares = np.array([count for counts in choice for count in counts]) / parts
        y = float((problem.loads(shares) / problem.capacity).max())
        least_y = min(least_y, y)
        if y <= 1 + 1e-9:
            usage = problem.usage(shares)
            least = usage if least is None else min(least, usage)
    return least_y, least


ONE, TWO = ["12", "23", "37"], ["12", "24", "47"]
BOTH_ONE, VIA_TWO, VIA_FIVE = ["12", "23", "24", "37", "46"], ["12", "24", "46", "47"], ["15", "46", "47", "54"]


def test_one_receiver() -> None:
    network, _, graphs, problem = scenario("one")
    assert named(network, graphs) == [ONE, TWO]
    least = minimise_usage(problem)
    assert least is not None
    assert least.shares.tolist() == [0, 1], "the first path is too narrow; the whole flow fits on the second"
    assert (balance(problem).y, least.usage) == pytest.approx(every_split(problem, 30))
    assert balance(problem).shares == pytest.approx([1 / 3, 2 / 3])


def test_two_receivers() -> None:
    network, _, graphs, problem = scenario("two")
    assert named(network, graphs) == [BOTH_ONE, VIA_TWO, VIA_FIVE], "the second union is two trees"
    least = minimise_usage(problem)
    assert least is not None
    assert least.shares.tolist() == [0, 1, 0], "everything goes over node two to node four, and splits there"
    assert (balance(problem).y, least.usage) == pytest.approx(every_split(problem, 30))
    assert balance(problem).y == pytest.approx(30 / 35), "the link into node six carries everything on any route"


def test_two_senders() -> None:
    network, _, graphs, problem = scenario("three", "seven-wider")
    assert named(network, graphs) == [BOTH_ONE, VIA_TWO, VIA_FIVE, ["24", "46"], ["25", "46", "54"]]
    assert (problem.loads(problem.single_path_shares()) > problem.capacity).sum() == 2, (
        "2 -> 3 and 2 -> 4 are too narrow"
    )
    assert balance(problem).y == pytest.approx(1.0)
    # Without path splitting the text's choice is the only one that fits ...
    whole = [np.array(s) for s in product((0.0, 1.0), repeat=5) if sum(s[:3]) == 1 and sum(s[3:]) == 1]
    fitting = [s for s in whole if (problem.loads(s) <= problem.capacity).all()]
    assert [s.tolist() for s in fitting] == [[0, 1, 0, 0, 1]]
    assert every_split(problem, 1) == (pytest.approx(1.0), pytest.approx(180.0))
    # ... and with it there is a shorter plan: node one splits, node two uses its first graph.
    least = minimise_usage(problem)
    assert least is not None
    assert (balance(problem).y, least.usage) == pytest.approx(every_split(problem, 6))
    assert least.usage == pytest.approx(160.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(FILES, tmp_path / "examples" / "campr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wend(line: str) -> None:
    app(shlex.split(line)[1:], standalone_mode=False)


def test_the_commands_of_the_page_work(folder: Path) -> None:
    # The tests of Spark run the commands that need flows from Spark.
    lines = [
        line for line in re.findall(r"^    (wend plan [^\n]*)$", PAGE, re.MULTILINE) if "--workload flows " not in line
    ]
    assert len(lines) == 4
    for line in lines:
        wend(line)
    for name in ("one", "two", "three"):
        plan = read_plan(folder / name)
        assert check_plan(plan) == []
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| {name}: "))
        highest, single, usage, usage_single = re.findall(r"([\d.]+)(?: %| msg/s)", row)[-4:]
        assert 100 * plan.head.highest_load == pytest.approx(float(highest), abs=0.1)
        assert 100 * plan.head.highest_load_single == pytest.approx(float(single), abs=0.1)
        assert plan.head.usage == pytest.approx(float(usage), abs=0.1)
        assert plan.head.usage_single == pytest.approx(float(usage_single), abs=0.1)
    assert (folder / "three" / "plan.svg").read_text().startswith("<svg")


def test_the_page_states_the_capacities_of_the_files() -> None:
    network, *_ = scenario("one")
    for link in network.overlay.links:
        a, b = network.names[link.a], network.names[link.b]
        assert re.search(rf"\b{a}-{b} {link.delay_ns / 1e6:g} ms {link.capacity_msgs:g}\b", PAGE), f"{a}-{b}"


def test_json_has_the_metrics(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wend("wend plan --topology examples/campr/seven.graphml --workload examples/campr/one.jsonl --k 2 --json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["highest_load"] == pytest.approx(0.5)
    assert shown["fullest_before"][0] == {"where": "2 → 3", "load": 1.5}
