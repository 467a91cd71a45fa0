"""Plug-ins from outside the tree: found by name, refused in a sentence, and part of the key of a run."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.errors import raises
from wend.drivers.live.config import load_peer_file as load_file
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.pipeline.scenario_rows import run_row, scenario_key
from wend.pipeline.sweeps.simulations import SIMULATIONS
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Kind
from wend.strategies.registry import PLUGINS, ROUTING, load, make_peer

SOURCE = """
from typing import Annotated

import msgspec

from wend.model.settings import Settings, setting
from wend.strategies.link_state.plugin import LinkStateGraph
from wend.strategies.flooded.plugin import FloodedInterest
from wend.strategies.tdo.plugin import RandomLinks
from wend.protocol.plugins import Arrived, Forward, MakeLink, Membership, Needs, Routing, Tell, Timer
from wend.strategies.dcrd.plugin import Dcrd

class Mine(Dcrd): ...
class Others(FloodedInterest): ...
class Links(RandomLinks): ...
class Map(LinkStateGraph): ...
class Mapped(Dcrd):
    needs = Needs(graphs=("link-state", "outsider:Map"))
class Unmapped(Dcrd):
    needs = Needs(graphs=("link-state", "outsider:Nowhere"))
class NoHandle(Routing): ...
class BadNeeds(Dcrd):
    needs = {"failure_detector": True}
class BadSettings(Dcrd):
    settings = dict
class Known(Settings, frozen=True, kw_only=True):
    detection_ns: Annotated[int, setting("How soon.")] = 1
class TakenSetting(Dcrd):
    settings = Known
class WorldSettings(Settings, frozen=True, kw_only=True):
    degree: Annotated[int, setting("How many.")] = 1
class TakenWorldSetting(Dcrd):
    settings = WorldSettings
class Parameter(Dcrd):
    def __init__(self, config, more): ...
class Nothing: ...
number = 7

class Returns(Routing):
    def handle(self, now, event, view): ...
class Raises(Routing):
    def handle(self, now, event, view): return [event.nothing]
class Stranger(Routing):
    def handle(self, now, event, view):
        return [to(99, event)] if isinstance(event, Arrived) else []
class Header(Routing):
    def handle(self, now, event, view):
        return [to(view.neighbours[0], event, (1,))] if isinstance(event, Arrived) else []
class Multiplies(Routing):
    def handle(self, now, event, view):
        return [to(peer, event) for peer in view.links] if isinstance(event, Arrived) else []
def to(peer, event, header=None):
    return Forward(peer, event.event, event.born_ns, event.dests, event.path, header)
class Note(msgspec.Struct, frozen=True, tag="note"): ...
class Undeclared(Routing):
    def handle(self, now, event, view): return [Tell(n, None, Note()) for n in view.neighbours]
class LinksPeers(FloodedInterest):
    def handle(self, now, event, view): return [MakeLink(view.neighbours[0], ())]
class Forwards(Membership):
    def handle(self, now, event, view): return ["a packet"]
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
    before, known = set(sys.modules), {kind: set(table) for kind, table in PLUGINS.items()}
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("outsider", "torn", "needy", "house"):
            del sys.modules[name]
    for kind, table in PLUGINS.items():
        for name in set(table) - known[kind]:
            del table[name]


@pytest.mark.parametrize("name", ["outsider:Mine", "house.room:Mine"])
def test_it_runs_like_one_of_the_tree(folder: Path, name: str) -> None:
    assert (
        simulate(SMALL.with_(strategy=name)).summary.trace_sha256
        == simulate(SMALL.with_(strategy="dcrd")).summary.trace_sha256
    )
    config = folder / "peer.toml"
    config.write_text(f'id = 1\nstrategy = "{name}"\n')
    assert load_file(config).peer_config(1).strategy == name


def test_so_do_those_of_other_kinds(folder: Path) -> None:
    like = SMALL.with_(topology="full-mesh", interest="flooded", membership="random", membership_degree=2)
    mine = like.with_(interest="outsider:Others", membership="outsider:Links")
    assert simulate(mine).summary.trace_sha256 == simulate(like).summary.trace_sha256
    config = folder / "peer.toml"
    config.write_text('id = 1\ninterest = "outsider:Others"\nmembership = "outsider:Links"\n')
    made = load_file(config).peer_config(1)
    assert (made.interest, made.membership) == ("outsider:Others", "outsider:Links")


def test_a_graph_is_loaded_with_the_plug_in_that_needs_it(folder: Path) -> None:
    found = simulate(SMALL.with_(strategy="outsider:Mapped")).summary
    assert found.control["outsider:Map"] == found.control["link-state"] > 0
    with raises("invalid-setting", match="graph 'outsider:Nowhere': outsider has no class Nowhere"):
        load("routing", "outsider:Unmapped")
    assert "outsider:Nowhere" not in PLUGINS["graph"]


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("routing", "nowhere:Mine", "there is no module nowhere, neither installed nor in "),
        ("routing", "house.cellar:Mine", "there is no module house.cellar, neither"),
        ("routing", "needy:Mine", "needy cannot be imported: ModuleNotFoundError: No module named 'nobody_has_this'"),
        ("routing", "torn:Mine", "torn cannot be imported: SyntaxError: "),
        ("routing", "outsider:Yours", "outsider has no class Yours"),
        ("routing", "outsider:number", "outsider has no class number"),
        ("routing", "outsider:Nothing", "'outsider:Nothing' does not inherit from wend.protocol.plugins.Routing"),
        ("routing", "outsider:Others", "'outsider:Others' does not inherit from wend.protocol.plugins.Routing"),
        ("interest", "outsider:Mine", "interest 'outsider:Mine' does not inherit from wend.protocol.plugins.Interest"),
        ("membership", "outsider:Mine", "membership 'outsider:Mine' does not inherit from "),
        ("graph", "outsider:Mine", "graph 'outsider:Mine' does not inherit from wend.protocol.plugins.Graph"),
        ("routing", "outsider:NoHandle", "'outsider:NoHandle' has no method handle(self, now, event, view)"),
        ("routing", "outsider:BadNeeds", "'outsider:BadNeeds': its needs are a dict, not Needs(...)"),
        ("routing", "outsider:BadSettings", "'outsider:BadSettings': its settings are not a subclass of Settings"),
        (
            "routing",
            "outsider:TakenSetting",
            "'outsider:TakenSetting' declares the setting detection, which exists already",
        ),
        ("routing", "outsider:Parameter", "'outsider:Parameter' cannot be made: "),
        ("routing", "outsider.py:Mine", "there is no module outsider.py, neither"),
        ("routing", "out sider:Mine", "is not of the form MODULE:CLASS"),
        ("routing", ":Mine", "is not of the form MODULE:CLASS"),
        ("routing", "a:b:c", "is not of the form MODULE:CLASS"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(folder: Path, kind: Kind, name: str, sentence: str) -> None:
    with raises("invalid-setting") as refused:
        load(kind, name)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert name not in PLUGINS[kind]


def test_a_setting_of_the_world_is_taken_too(folder: Path) -> None:
    with raises("invalid-setting", match="a plug-in declares the setting 'degree', which exists already"):
        SMALL.with_(strategy="outsider:TakenWorldSetting")


@pytest.mark.parametrize(
    ("setting", "title", "sentence"),
    [
        ("strategy", "Returns", "told Changed, answered None where a list of effects is due"),
        ("strategy", "Raises", "told Changed, failed at line .* of outsider.py: AttributeError: "),
        ("strategy", "Stranger", "answered a Forward to 99, which is not a neighbour"),
        ("strategy", "Header", "answered a Forward whose header is a tuple, but it declares none"),
        ("strategy", "Multiplies", r"multiplies its copies: \d+ transmissions for \d+ published after "),
        ("strategy", "Undeclared", "sent a Note, which it does not declare among its messages"),
        ("interest", "LinksPeers", r"answered MakeLink\(.*\), which no interest plug-in may"),
        ("membership", "Forwards", "answered 'a packet', which no membership plug-in may"),
    ],
)
def test_what_it_does_wrong_while_it_runs_is_a_sentence(folder: Path, setting: str, title: str, sentence: str) -> None:
    with raises("invalid-setting", match=f"outsider:{title}.* {sentence}") as refused:
        simulate(SMALL.with_(topology="full-mesh", **{setting: f"outsider:{title}"}))
    assert "\n" not in str(refused.value)


def test_a_mistake_inside_the_tree_is_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROUTING[SMALL.strategy], "handle", lambda *_: None)
    with pytest.raises(TypeError):
        simulate(SMALL)


def test_other_source_is_another_run(folder: Path) -> None:
    for name, file in (("outsider:Mine", "outsider.py"), ("house.room:Mine", "house/__init__.py")):
        scenario = SMALL.with_(strategy=name)
        row = run_row(scenario)
        metrics = SIMULATIONS.run_metrics(row, SIMULATIONS.code())
        assert metrics["trace_sha256"] == simulate(SMALL.with_(strategy="dcrd")).summary.trace_sha256
        (folder / file).write_text((folder / file).read_text() + "\nCHANGED = True\n")
        assert scenario_key(scenario) != row["run"]
        with raises("invalid-setting", match=f"the source of {name} on this worker is not the driver"):
            SIMULATIONS.run_metrics(row, SIMULATIONS.code())


def test_equal_scenarios_have_one_key() -> None:
    assert scenario_key(Scenario(duration="5s")) == scenario_key(Scenario(duration="5.0s"))


@pytest.mark.parametrize(
    ("strategy", "membership", "said"),
    [
        ("adaptive", "pastry", "adaptive sends over links, and pastry makes none"),
        ("rendezvous", "chain", "rendezvous writes to any peer, and chain makes links: choose pastry"),
        ("clusters", "pastry", "clusters needs the membership clusters, got pastry"),
    ],
)
def test_strategies_and_memberships_that_do_not_go_together(strategy: str, membership: str, said: str) -> None:
    with raises("invalid-setting", match=said):
        make_peer(PeerConfig(peer=1, strategy=strategy, membership=membership))
