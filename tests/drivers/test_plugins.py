"""Plug-ins from outside the tree: found by name, refused in a sentence, and part of what a run is known by."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wend.drivers.live.config import load as load_file
from wend.drivers.plugins import load
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.model.errors import ConfigError
from wend.pipeline.rows import run_row, scenario_key
from wend.pipeline.simulations import SIMULATIONS
from wend.protocol.plugins import Kind
from wend.protocol.tables import PLUGINS, ROUTING

SOURCE = """
from typing import Annotated

import msgspec

from wend.model.settings import Settings, setting
from wend.protocol.graph.link_state import LinkStateGraph
from wend.protocol.interest.flooded import FloodedInterest
from wend.protocol.membership.random_links import RandomLinks
from wend.protocol.plugins import Arrived, Changed, Forward, GiveUp, MakeLink, Needs, Routing, Tell
from wend.protocol.routing.dcrd import Dcrd

class Mine(Dcrd): ...
class MyInterest(FloodedInterest): ...
class MyMembership(RandomLinks): ...
class MyGraph(LinkStateGraph): ...
class Silent(Routing): ...
class Loose(Dcrd):
    needs = {"failure_detector": True}
class Unset(Dcrd):
    settings = {"redundancy": 2}
class Taking(Settings, frozen=True, kw_only=True):
    ack: Annotated[bool, setting("Whether there are any.")] = True
class Thief(Dcrd):
    settings = Taking
class Surveyor(Dcrd):
    needs = Needs(graphs=("link-state", "outsider:MyGraph"))
class Lost(Dcrd):
    needs = Needs(graphs=("link-state", "outsider:Nowhere"))
class Mute(Routing):
    def handle(self, now, event, view): ...
class Clumsy(Routing):
    def handle(self, now, event, view): return [event.nothing]
class Stray(Routing):
    def handle(self, now, event, view):
        return [to(99, event)] if isinstance(event, Arrived) else []
class Boss(Routing):
    def handle(self, now, event, view):
        return [MakeLink(99, ())] if isinstance(event, Arrived) else []
class Gossip(Routing):
    def handle(self, now, event, view):
        return [Tell(peer, None, view.config) for peer in view.links] if isinstance(event, Changed) else []
class Label(msgspec.Struct): ...
class Forger(Dcrd):
    def handle(self, now, event, view):
        made = super().handle(now, event, view)
        return [msgspec.structs.replace(e, header=Label()) if isinstance(e, Forward) else e for e in made]
class Rabbit(Routing):
    def handle(self, now, event, view):
        return [to(peer, event) for peer in view.links] if isinstance(event, Arrived) else []
def to(peer, event):
    return Forward(peer, event.event, event.born_ns, event.dests, event.path)
class Hungry(Dcrd):
    def __init__(self, config, appetite): ...
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
    before, known = set(sys.modules), {kind: dict(table) for kind, table in PLUGINS.items()}
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("outsider", "torn", "needy", "house"):
            del sys.modules[name]
    for kind, table in PLUGINS.items():
        for name in set(table) - set(known[kind]):
            del table[name]


@pytest.mark.parametrize("name", ["outsider:Mine", "house.room:Mine"])
def test_it_runs_like_one_of_the_tree(folder: Path, name: str) -> None:
    assert simulate(SMALL.with_(strategy=name)).summary.trace_sha256 == simulate(SMALL).summary.trace_sha256
    config = folder / "peer.toml"
    config.write_text(f'id = 1\nstrategy = "{name}"\n')
    assert load_file(config).peer_config(1).strategy == name


@pytest.mark.parametrize(
    ("setting", "name", "of_the_tree"),
    [("interest", "outsider:MyInterest", "flooded"), ("membership", "outsider:MyMembership", "random")],
)
def test_so_do_plug_ins_of_other_kinds(folder: Path, setting: str, name: str, of_the_tree: str) -> None:
    whole = SMALL.with_(topology="full-mesh")
    mine, theirs = (simulate(whole.with_(**{setting: one})).summary for one in (name, of_the_tree))
    assert mine.trace_sha256 == theirs.trace_sha256
    assert sum(mine.control.values()) == sum(theirs.control.values())
    assert mine.control[name] == theirs.control[of_the_tree] > 0
    config = folder / "peer.toml"
    config.write_text(f'id = 1\n{setting} = "{name}"\n')
    assert getattr(load_file(config).peer_config(1), setting) == name


def test_a_graph_is_loaded_with_the_strategy_that_needs_it(folder: Path) -> None:
    found = simulate(SMALL.with_(strategy="outsider:Surveyor")).summary
    assert found.control["outsider:MyGraph"] == found.control["link-state"] > 0
    with pytest.raises(ConfigError, match="graph 'outsider:Nowhere': outsider has no class Nowhere"):
        load("routing", "outsider:Lost")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere:Mine", "there is no module nowhere, neither installed nor in "),
        ("house.cellar:Mine", "there is no module house.cellar, neither"),
        ("needy:Mine", "needy cannot be imported: ModuleNotFoundError: No module named 'nobody_has_this'"),
        ("torn:Mine", "torn cannot be imported: SyntaxError: "),
        ("outsider:Yours", "outsider has no class Yours"),
        ("outsider:number", "outsider has no class number"),
        ("outsider:Nothing", "strategy 'outsider:Nothing' does not inherit from wend.protocol.plugins.Routing"),
        ("outsider:MyInterest", "strategy 'outsider:MyInterest' does not inherit from wend.protocol.plugins.Routing"),
        ("outsider:Silent", "strategy 'outsider:Silent' has no method handle(self, now, event, view)"),
        ("outsider:Loose", "strategy 'outsider:Loose': its needs are a dict, not Needs(...)"),
        ("outsider:Unset", "strategy 'outsider:Unset': its settings are not a subclass of Settings"),
        ("outsider:Thief", "strategy 'outsider:Thief' declares the setting ack, which there is already"),
        ("outsider:Hungry", "'outsider:Hungry' cannot be made: "),
        ("outsider.py:Mine", "there is no module outsider.py, neither"),
        ("out sider:Mine", "is not of the form MODULE:CLASS"),
        (":Mine", "is not of the form MODULE:CLASS"),
        ("a:b:c", "is not of the form MODULE:CLASS"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(folder: Path, name: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load("routing", name)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert name not in ROUTING


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("membership", "membership 'outsider:Mine' does not inherit from wend.protocol.plugins.Membership"),
        ("graph", "graph 'outsider:Mine' does not inherit from wend.protocol.plugins.Graph"),
        ("interest", "interest 'outsider:Mine' does not inherit from wend.protocol.plugins.Interest"),
    ],
)
def test_a_plug_in_of_another_kind_is_refused(folder: Path, kind: Kind, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load(kind, "outsider:Mine")
    assert "outsider:Mine" not in PLUGINS[kind]


@pytest.mark.parametrize(
    ("title", "sentence"),
    [
        ("Mute", "plug-in 'outsider:Mute', told Changed, answered None where a list of effects is due"),
        ("Clumsy", "'outsider:Clumsy', told Changed, failed at line .* of outsider.py: AttributeError: "),
        ("Stray", "plug-in 'outsider:Stray' answered a Forward to 99, which is not a neighbour"),
        ("Boss", r"plug-in 'outsider:Boss' answered MakeLink\(.*\), which a routing plug-in may not"),
        ("Gossip", "plug-in 'outsider:Gossip' sent a PeerConfig, which it does not declare among its messages"),
        ("Forger", "plug-in 'outsider:Forger' answered a Forward with a Label, which is not the header it declares"),
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
