"""`wend plan`, and its errors: one sentence, exit code 2, and nothing written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.console.calls import COMPILING, Said

GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="n" for="node" attr.name="name" attr.type="string"/>
<key id="c" for="edge" attr.name="capacity" attr.type="string"/>
<key id="d" for="edge" attr.name="delay_ms" attr.type="double"><default>10</default></key>
<graph edgedefault="undirected">
<node id="0"><data key="n">a</data></node><node id="1"><data key="n">b</data></node>
<node id="2"><data key="n">c</data></node><node id="3"><data key="n">d</data></node>
<edge source="0" target="1"><data key="c">{ab}</data></edge><edge source="1" target="2"><data key="c">40</data></edge>
{cd}</graph></graphml>
"""
CD = '<edge source="2" target="3"><data key="c">40</data></edge>'


class Done(NamedTuple):
    returncode: object
    stdout: str
    stderr: str
    compiled: bool
    """Whether `stderr` had the message about compiling, which is removed from it."""


Wend = Callable[..., Done]


@pytest.fixture
def wend(monkeypatch: pytest.MonkeyPatch, said: Said) -> Wend:
    """Run the command in a folder."""

    def run(folder: Path, *words: str) -> Done:
        monkeypatch.chdir(folder)
        code, out, err = said(*words)
        return Done(code, out, err.replace(COMPILING, ""), COMPILING in err)

    return run


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "net.graphml").write_text(GRAPHML.format(ab="40", cd=CD))
    (tmp_path / "flows.jsonl").write_text('{"publisher": "a", "receivers": ["c", "d"], "rate": 30}\n')
    return tmp_path


def plan(here: Path, *more: str, topology: str = "net.graphml", workload: str = "flows.jsonl") -> list[str]:
    return ["plan", "--topology", topology, "--workload", workload, "--out", "out", *more]


def test_a_plan_is_made_checked_and_drawn(here: Path, wend: Wend) -> None:
    made = wend(here, *plan(here, "--goal", "min-usage", "--json"))
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["highest_load"] == pytest.approx(0.75)
    assert json.loads(wend(here, "plan", "check", "out", "--json").stdout) == {"sound": True, "faults": []}
    assert wend(here, "plan", "check", "out", "--topology", "net.graphml").returncode == 0
    shown = wend(here, "plan", "show", "out", "--out", "plan.svg")
    assert shown.returncode == 0, shown.stderr
    assert "75 %  a → b  (30 msg/s of 40 msg/s)" in (here / "plan.svg").read_text()
    again = wend(here, *plan(here))
    assert (again.returncode, again.stderr) == (2, "wend: out is not empty; --overwrite replaces it\n")
    again = wend(here, *plan(here, "--overwrite", "--link-capacity", "9"))
    assert again.returncode == 0
    assert (
        again.stderr == "wend: --link-capacity changes nothing here: the topology states the capacity of every link\n"
    )


@pytest.mark.parametrize(
    ("files", "words", "complaint"),
    [
        ({"flows.jsonl": '{"publisher": "a", "receivers": ["d"], "rate": 41}'}, [], "the workload does not fit"),
        ({"net.graphml": GRAPHML.format(ab="40", cd="")}, [], "is not a connected network"),
        ({"net.graphml": GRAPHML.format(ab="0", cd=CD)}, [], "link a-b needs a capacity above 0, got 0 msg/s"),
        ({"net.graphml": GRAPHML.format(ab="lots", cd=CD)}, [], "cannot read 'lots' as a rate"),
        ({"flows.jsonl": '{"publisher": "a", "receivers": ["d"], "rate": -3}'}, [], "the rate must be above 0, got -3"),
        ({"flows.jsonl": '{"publisher": "a", "receivers": ["e"]}'}, [], "receiver 'e' is not in the topology"),
        ({"flows.jsonl": '{"publisher": "a"}'}, [], "line 1 is not a flow: it lacks 'receivers'"),
        ({"flows.jsonl": ""}, [], "has no flow with a receiver other than its publisher"),
        ({}, ["--goal", "best"], "the goal must be min-usage, min-delay, on-time, balance or blend:B"),
        ({}, ["--k", "0"], "k must be at least 1, got 0"),
        ({}, ["--ranking", "best"], "there is no ranking 'best'"),
        ({}, ["--peer-capacity", "0"], "--peer-capacity must be above 0, got 0"),
        ({}, ["--link-capacity", "-5"], "--link-capacity must be above 0, got -5"),
        ({}, ["--peer-capacity", "much"], "--peer-capacity: cannot read 'much' as a rate"),
        ({}, ["--topology", "regular"], "no link or peer has a capacity"),
        ({}, ["--workload", "none.jsonl"], "cannot read none.jsonl"),
        ({}, ["--out", "net.graphml"], "is a file, but the output is a folder"),
        ({}, ["--out", "."], "is or contains the current folder"),
    ],
)
def test_an_error_is_one_sentence(
    wend: Wend, here: Path, files: dict[str, str], words: list[str], complaint: str
) -> None:
    for name, text in files.items():
        (here / name).write_text(text)
    before = sorted(path.name for path in here.iterdir())
    done = wend(here, *plan(here, *words))
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.startswith("wend: ")
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in here.iterdir()) == before


def test_a_plan_for_another_topology_is_refused(here: Path, wend: Wend) -> None:
    assert wend(here, *plan(here)).returncode == 0
    more = '<edge source="0" target="3"><data key="c">40</data></edge>'
    (here / "net.graphml").write_text(GRAPHML.format(ab="40", cd=CD + more))
    done = wend(here, "plan", "check", "out", "--topology", "net.graphml")
    assert done.returncode == 2
    assert "the plan is for another topology" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_damaged_plan_is_refused(here: Path, wend: Wend) -> None:
    assert wend(here, *plan(here)).returncode == 0
    head = here / "out" / "plan.json"
    head.write_text(head.read_text().replace('"usage": 90.0', '"usage": 9.0'))
    done = wend(here, "plan", "check", "out")
    assert (done.returncode, done.stderr) == (2, "wend: out: plan.json states that usage is 9, but it is 90\n")
    (here / "out" / "hops.parquet").unlink()
    for words in (("check",), ("show",)):
        done = wend(here, "plan", *words, "out")
        assert done.returncode == 2
        assert "out is not a complete plan: cannot read hops.parquet" in done.stderr
        assert done.stderr.count("\n") == 1
    head.write_text(head.read_text().replace('"content": "', '"content": "0'))
    done = wend(here, "plan", "check", "out")
    sentence = "wend: out is not one plan: plan.json and peers.parquet belong to different plans\n"
    assert (done.returncode, done.stderr) == (2, sentence)


def test_the_path_of_the_picture_is_checked_before_it_is_drawn(
    here: Path, wend: Wend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wend.planning import plan_drawing as drawing

    assert wend(here, *plan(here)).returncode == 0
    assert wend(here, "plan", "show", "out", "--out", "far/away/plan.svg").returncode == 0
    assert (here / "far" / "away" / "plan.svg").exists()
    (here / "out" / "plan.svg").mkdir()
    monkeypatch.setattr(drawing, "draw_plan", lambda made: pytest.fail("drawn in vain"))
    done = wend(here, "plan", "show", "out")
    sentence = "wend: out/plan.svg is a folder, not a file; choose another file with --out\n"
    assert (done.returncode, done.stderr) == (2, sentence)
    assert "missing is not a plan" in wend(here, "plan", "show", "missing").stderr


def test_the_most_valuable_part_is_planned_on_request(here: Path, wend: Wend) -> None:
    lines = [
        '{"publisher": "a", "receivers": ["d"], "rate": 30, "weight": 2}',
        '{"publisher": "b", "receivers": ["d"], "rate": 20}',
    ]
    (here / "flows.jsonl").write_text("\n".join(lines))
    done = wend(here, *plan(here, "--partial", "--json"))
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["partial"]
    assert shown["lost"] == [{"flow": 1, "receiver": "d", "share": pytest.approx(0.5)}]
    assert wend(here, "plan", "check", "out").returncode == 0


def test_workloads_are_drawn(here: Path, wend: Wend) -> None:
    done = wend(here, "plan", "workload", "--topology", "regular", "--peers", "20", "--degree", "4", "--messages", "50",
                "--popularity", "0.3", "--out", "far/drawn.parquet", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["out"] == "far/drawn.parquet"
    made = wend(
        here,
        *plan(
            here,
            "--peers",
            "20",
            "--degree",
            "4",
            "--link-capacity",
            "60",
            topology="regular",
            workload="far/drawn.parquet",
        ),
    )
    assert made.returncode == 0, made.stderr
    assert wend(here, "plan").returncode == 2


def test_the_first_plan_reports_that_it_compiles_and_the_next_does_not(
    here: Path, wend: Wend, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numba

    from wend.planning import planner as make

    slow, make_plan = numba.njit(lambda n: n + 1), make.make_plan

    def compiles_first(*words: Any, **more: Any) -> Any:
        slow(len(words))
        return make_plan(*words, **more)

    wend(here, *plan(here))
    monkeypatch.setattr(make, "make_plan", compiles_first)
    first, second = wend(here, *plan(here, "--overwrite")), wend(here, *plan(here, "--overwrite"))
    assert (first.returncode, first.stderr, first.compiled) == (0, "", True)
    assert (second.returncode, second.stderr, second.compiled) == (0, "", False)
