"""Strategies from outside the tree: found by name, refused in a sentence, and part of what a run is known by."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wend.drivers.live.config import load
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.strategies import learn
from wend.model.errors import ConfigError
from wend.pipeline.rows import run_row, scenario_key
from wend.pipeline.simulations import SIMULATIONS
from wend.protocol.tables import ROUTING

SOURCE = """
from wend.protocol.plugins import Arrived, Forward, Routing
from wend.protocol.routing.dcrd import Dcrd

class Mine(Dcrd): ...
class Deaf(Routing): ...
class Loose(Dcrd):
    traits = {"probes": True}
class Mute(Routing):
    def handle(self, now, event, view): ...
class Clumsy(Routing):
    def handle(self, now, event, view): return [event.nothing]
class Stray(Routing):
    def handle(self, now, event, view):
        return [to(99, event)] if isinstance(event, Arrived) else []
class Rabbit(Routing):
    def handle(self, now, event, view):
        return [to(peer, event) for peer in view.links] if isinstance(event, Arrived) else []
def to(peer, event):
    return Forward(peer, event.event, event.born_ns, event.dests, event.path)
class Hungry(Dcrd):
    def __init__(self, appetite): ...
class Nothing: ...
number = 7
"""
SMALL = Scenario(peers=6, degree=3, duration="2s", drain="1s", topics=2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to start in, with two modules; nothing of it is left behind."""
    (tmp_path / "outsider.py").write_text(SOURCE)
    (tmp_path / "torn.py").write_text("class Mine(\n")
    (tmp_path / "needy.py").write_text("import nobody_has_this\n")
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "__init__.py").touch()
    (tmp_path / "house" / "room.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before, known = set(sys.modules), set(ROUTING)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("outsider", "torn", "needy", "house"):
            del sys.modules[name]
    for name in set(ROUTING) - known:
        del ROUTING[name]


@pytest.mark.parametrize("name", ["outsider:Mine", "house.room:Mine"])
def test_it_runs_like_one_of_the_tree(folder: Path, name: str) -> None:
    assert simulate(SMALL.with_(strategy=name)).summary.trace_sha256 == simulate(SMALL).summary.trace_sha256
    config = folder / "peer.toml"
    config.write_text(f'id = 1\nstrategy = "{name}"\n')
    assert load(config).peer_config(1).strategy == name


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere:Mine", "there is no module nowhere, neither installed nor in "),
        ("house.cellar:Mine", "there is no module house.cellar, neither"),
        ("needy:Mine", "needy cannot be imported: ModuleNotFoundError: No module named 'nobody_has_this'"),
        ("torn:Mine", "torn cannot be imported: SyntaxError: "),
        ("outsider:Yours", "outsider has no class Yours"),
        ("outsider:number", "outsider has no class number"),
        ("outsider:Nothing", "'outsider:Nothing' is none: it does not inherit from "),
        ("outsider:Deaf", "'outsider:Deaf' is none: it has no method handle(self, now, event, view)"),
        ("outsider:Loose", "'outsider:Loose': its traits are a dict, not Traits(...)"),
        ("outsider:Hungry", "'outsider:Hungry' cannot be made: "),
        ("outsider.py:Mine", "there is no module outsider.py, neither"),
        ("out sider:Mine", "is not of the form MODULE:CLASS"),
        (":Mine", "is not of the form MODULE:CLASS"),
        ("a:b:c", "is not of the form MODULE:CLASS"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(folder: Path, name: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        learn(name)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert name not in ROUTING


@pytest.mark.parametrize(
    ("title", "sentence"),
    [
        ("Mute", "strategy 'outsider:Mute', told Changed, answered None where a list of effects is due"),
        ("Clumsy", "strategy 'outsider:Clumsy', told Changed, failed at line .* of outsider.py: AttributeError: "),
        ("Stray", "strategy 'outsider:Stray', told Arrived, answered a Forward to 99, which is no neighbour"),
        ("Rabbit", r"outsider:Rabbit multiplies its copies: \d+ transmissions for \d+ published after "),
    ],
)
def test_what_it_does_wrong_while_it_runs_is_a_sentence(folder: Path, title: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        simulate(SMALL.with_(strategy=f"outsider:{title}"))
    assert "\n" not in str(refused.value)


def test_a_mistake_inside_the_tree_is_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROUTING["dcrd"], "handle", lambda *_: None)
    with pytest.raises(TypeError):
        simulate(SMALL)


def test_other_source_is_another_run(folder: Path) -> None:
    for name, file in (("outsider:Mine", "outsider.py"), ("house.room:Mine", "house/__init__.py")):
        scenario = SMALL.with_(strategy=name)
        row = run_row(scenario)
        metrics = SIMULATIONS.run_metrics(row, SIMULATIONS.code())
        assert metrics["trace_sha256"] == simulate(SMALL).summary.trace_sha256
        (folder / file).write_text((folder / file).read_text() + "\n# changed\n")
        assert scenario_key(scenario) != row["run"]
        with pytest.raises(ConfigError, match=f"the source of {name} on this worker is not the driver"):
            SIMULATIONS.run_metrics(row, SIMULATIONS.code())


def test_equal_scenarios_have_one_key() -> None:
    assert scenario_key(Scenario(duration="5s")) == scenario_key(Scenario(duration="5.0s"))
