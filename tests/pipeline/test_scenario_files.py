"""A sweep's file: all combinations of its lists, or one sentence."""

import json
import sys
from pathlib import Path

import pytest

from wend.drivers.scenarios import make_scenario
from wend.drivers.world import build_world
from wend.model.errors import ConfigError
from wend.model.units import MS
from wend.pipeline.scenario_files import load_scenarios
from wend.strategies.registry import PLUGINS


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_all_combinations_over_a_base(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "s.toml",
        'base = { peers = 12, ack = "free" }\n[sweep]\nstrategy = ["dcrd", "oracle"]\npf = [0, 0.1]\nseed = [1, 2]\n',
    )
    scenarios = load_scenarios(path)
    assert len(scenarios) == 8
    assert {scenario.peers for scenario in scenarios} == {12}
    assert {(s.strategy, s.pf, s.seed) for s in scenarios} == {
        (strategy, pf, seed) for strategy in ("dcrd", "oracle") for pf in (0.0, 0.1) for seed in (1, 2)
    }


def test_a_field_that_is_a_range_is_swept_by_a_list_of_ranges(tmp_path: Path) -> None:
    path = write(tmp_path, "s.toml", '[sweep]\ndelay = [["1ms", "2ms"], ["3ms", "4ms"]]\n')
    assert [scenario.delay_ns for scenario in load_scenarios(path)] == [(MS, 2 * MS), (3 * MS, 4 * MS)]


def test_one_scenario_per_line(tmp_path: Path) -> None:
    path = write(tmp_path, "s.jsonl", '{"seed": 4}\n\n{"seed": 5, "pf": 0}\n')
    assert [scenario.seed for scenario in load_scenarios(path)] == [4, 5]


def test_small_overlays_have_as_many_topics_as_peers(tmp_path: Path) -> None:
    """As in `wend sim`, unless the file says how many."""
    path = write(tmp_path, "s.toml", "[base]\ndegree = 3\n[sweep]\npeers = [6, 20]\n")
    assert [len(build_world(scenario).topics) for scenario in load_scenarios(path)] == [6, 10]
    nodes = "".join(f'<node id="{n}"/>' for n in "abcd")
    edges = "".join(f'<edge source="{a}" target="{b}"/>' for a, b in ("ab", "bc", "cd"))
    (tmp_path / "m.graphml").write_text(f'<graphml><graph edgedefault="undirected">{nodes}{edges}</graph></graphml>')
    where = f'"topology": {json.dumps(str(tmp_path / "m.graphml"))}'
    path = write(tmp_path, "s.jsonl", f'{{{where}}}\n{{{where}, "topics": 2}}\n{{{where}, "seed": 2}}\n')
    assert [len(build_world(scenario).topics) for scenario in load_scenarios(path)] == [4, 2, 4]
    with pytest.raises(ConfigError, match=r"s\.jsonl, line 1: topology 'none\.graphml' is neither"):
        load_scenarios(write(tmp_path, "s.jsonl", '{"topology": "none.graphml"}\n'))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("s.toml", "[sweep", "is not a TOML file"),
        ("s.toml", "", "has no scenario: it needs a \\[base\\] or a \\[sweep\\] with at least one field"),
        ("s.toml", "[base]\n[sweep]\n", "has no scenario"),
        ("s.toml", "[sweep]\nduration = [5]", 'duration needs a unit: "5s", not 5'),
        ("s.toml", "[sweep]\nm = [1, 2]", "there is no setting 'm'"),
        ("s.jsonl", '{}\n{"duration_s": 5}\n', "line 2: there is no setting 'duration_s': did you mean duration"),
        ("s.toml", "[sweeps]\npf = [0]", "only the tables base and sweep"),
        ("s.toml", "[sweep]\npf = 0.1", "sweep.pf must be a list"),
        ("s.toml", "[sweep]\npf = []", "sweep.pf must be a list"),
        ("s.toml", "sweep = 3", "sweep must be a table"),
        ("s.toml", "[sweep]\npf = [2.0]", "pf must lie in 0..1"),
        ("s.toml", "[sweep]\nspeed = [2.0]", "there is no setting 'speed'"),
        ("s.toml", "[base]\ndegree = 30", "degree 30 needs at least 31 peers"),
        ("s.jsonl", "{}\n[1]\n", "line 2 is not a JSON object"),
        ("s.jsonl", "\n", "has no scenario"),
        ("s.csv", "pf", "neither a .toml nor a .jsonl"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        load_scenarios(write(tmp_path, name, text))
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_scenarios(tmp_path / "none.toml")


def test_a_plug_in_of_one_scenario_is_known_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings may stand in the base; the order of the strategies makes no difference."""
    (tmp_path / "gaining.py").write_text(
        "from typing import Annotated\n"
        "from wend.model.settings import Settings, setting\n"
        "from wend.strategies.source_trees.plugin import DelayTree\n"
        "class GainSettings(Settings):\n"
        "    gain: Annotated[float, setting('How much it gains.')] = 1.0\n"
        "class Gaining(DelayTree):\n"
        "    settings = GainSettings\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = '[base]\ngain = 2.5\n[sweep]\nstrategy = ["dcrd", "gaining:Gaining"]\n'
    try:
        plain, gaining = load_scenarios(write(tmp_path, "s.toml", text))
        assert gaining.flat()["gain"] == 2.5
        assert plain.flat() == make_scenario({"strategy": "dcrd"}).flat()
    finally:
        del PLUGINS["routing"]["gaining:Gaining"], sys.modules["gaining"]
