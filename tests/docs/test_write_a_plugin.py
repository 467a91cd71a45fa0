"""The page on plug-ins: those it shows run simulated, swept and live, and its tables name all that there is."""

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, get_args

import pytest

import wend
from tests.cores import pure_only
from tests.docs.pages import ROOT, blocks, files_of, section, write_files
from tests.drivers.live.net import known
from tests.ports import free_ports
from tests.spark import needs_java, shared_session
from wend.console.data.sweep_results import SettingMeans
from wend.drivers.live.config import PeerFile, load_peer_file
from wend.drivers.live.process import PeerProcess
from wend.drivers.settings import outside_plugins
from wend.model.settings import declared_settings
from wend.model.units import MS
from wend.pipeline.scenario_files import load_scenarios
from wend.pipeline.sweeps.simulations import SIMULATIONS
from wend.pipeline.sweeps.sweep import run_sweep
from wend.protocol import plugins
from wend.strategies.registry import PLUGINS

PAGE = "docs/how-to/write-a-plugin.md"
PLUGIN_FILES = {name: text for name, text in files_of(PAGE).items() if name.endswith(".py")}
CHOSEN = {"membership": "ring:Ring", "interest": "gossip:Gossip", "strategy": "least_loaded:LeastLoaded"}
SMALL: dict[str, Any] = {"topology": "full-mesh", "peers": 6, "topics": 4, "duration": "2s", "drain": "1s"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to start in, with the files that the page shows; nothing of it is left behind."""
    write_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in PLUGIN_FILES:  # an example of the same name may have been loaded
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    known = {kind: set(table) for kind, table in PLUGINS.items()}
    yield tmp_path
    for name in PLUGIN_FILES:
        sys.modules.pop(name.removesuffix(".py"), None)
    for kind, table in PLUGINS.items():
        for name in set(table) - known[kind]:
            del table[name]


# ---------------------------------------------------------------- the files


def test_each_is_short_and_has_a_message_a_timer_and_a_setting(folder: Path) -> None:
    assert {"ring.py", "gossip.py", "least_loaded.py"} <= PLUGIN_FILES.keys()
    assert [name for name, text in PLUGIN_FILES.items() if len(text.splitlines()) >= 60] == []
    made = outside_plugins(wend.Scenario(**CHOSEN, **SMALL).chosen)
    assert {each.kind for each in made.values()} == {"membership", "interest", "routing"}
    for name, each in made.items():
        assert each.messages is not None and declared_settings(each.settings)
        assert "api.Timer(" in PLUGIN_FILES[f"{name.partition(':')[0]}.py"]


def test_they_are_formatted_like_the_tree(folder: Path) -> None:
    for words in (["format", "--check"], ["check"]):
        call = [sys.executable, "-m", "ruff", *words, "--config", str(ROOT / "pyproject.toml"), *PLUGIN_FILES]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


# ---------------------------------------------------------------- simulated


def test_they_run_together_with_their_settings(folder: Path) -> None:
    plain = wend.simulate(wend.Scenario(**CHOSEN, **SMALL))
    assert plain.summary.delivered > 0
    assert {*CHOSEN.values()} <= plain.summary.control.keys(), "each sends messages of its own"
    wide = wend.simulate(wend.Scenario(**CHOSEN, **SMALL, ring_links=3))
    assert wide.summary.notices["linked"] > plain.summary.notices["linked"]
    chatty = wend.simulate(wend.Scenario(**CHOSEN, **SMALL, gossip_period="20ms", ring_period="0.5s"))
    for name in ("gossip:Gossip", "ring:Ring"):
        assert chatty.summary.control[name] > 1.5 * plain.summary.control[name]
    busy = wend.Scenario(**CHOSEN, **SMALL, rate=100)
    assert wend.simulate(busy.with_(load_penalty="10ms")).summary.trace_sha256 != (
        wend.simulate(busy.with_(load_penalty="0ms")).summary.trace_sha256
    )


def test_they_keep_their_promises(folder: Path) -> None:
    (block,) = [block for block in blocks(PAGE, "python") if block.startswith("import wend\n")]
    done = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- swept


@needs_java
@pytest.mark.spark
def test_they_are_swept_over_their_own_settings(folder: Path) -> None:
    spark = shared_session()
    for name in PLUGIN_FILES:
        spark.addArtifacts(str(folder / name), pyfile=True)
    shown = load_scenarios(folder / "sweep.toml")
    assert {0, MS // 10, MS} == {run.settings["load_penalty"] for run in shown if "load_penalty" in run.settings}
    small = [run.with_(**SMALL, rate=100) for run in shown if run.seed == 1 and run.pf == 0]
    mine = [run.with_(**CHOSEN, ring_links=links) for run in small[:2] for links in (1, 3)]
    swept = run_sweep(spark, SIMULATIONS, [*small, *mine], "plugins", folder / "out", quiet=True)
    assert swept.failures == []
    rows = SettingMeans(swept.results.toArrow().to_pylist(), [])
    assert {"strategy", "interest", "membership", "load_penalty", "ring_links"} <= set(rows.varied)
    local = {run["run"]: run["trace_sha256"] for run in rows.rows}
    for run in (*small[:3], *mine):
        assert local[SIMULATIONS.key(run)] == wend.simulate(run).summary.trace_sha256


# ---------------------------------------------------------------- live


def test_an_event_arrives_on_real_links(folder: Path) -> None:
    shown = (folder / "peer1.toml").read_text()
    ports = free_ports(3)

    def file(peer: int) -> Path:
        text = re.sub(r"(?s)\[\[neighbours.*", "", shown).replace("id = 1", f"id = {peer}")
        text = text.replace(":7701", f":{ports[peer - 1]}").replace(":7700", ":0")
        for other in {1, 2, 3} - {peer}:
            text += f'\n[[neighbours]]\nid = {other}\naddress = "127.0.0.1:{ports[other - 1]}"\n'
        (folder / f"{peer}.toml").write_text(text)
        return folder / f"{peer}.toml"

    async def scene() -> None:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            services = [PeerProcess(load_peer_file(file(peer))) for peer in (1, 2, 3)]
            for service in services:
                await service.start()
                stack.push_async_callback(service.stop)
            urls = [f"wend://127.0.0.1:{service.listener.address[1]}" for service in services]
            clients = [await stack.enter_async_context(wend.connect(url)) for url in urls]
            events = await stack.enter_async_context(clients[2].subscribe("topic = 'a'"))
            await known(clients[0], "a", 1)
            assert (await anext(events)).attributes == {"topic": "a"}
            senders = {"ring:Ring", "gossip:Gossip", "rerouting:Rerouting"}
            while not senders <= (status := await clients[0].status()).control.keys():
                await asyncio.sleep(0.02)
            assert status.plugins["gossip:Gossip"] == {"peers": 3}

    asyncio.run(scene())
    assert PeerFile.read({"id": 1, "ring_links": 3, "membership": "ring:Ring"}).settings == {"ring_links": 3}


# ---------------------------------------------------------------- the tables


@pure_only
@pytest.mark.parametrize(
    ("heading", "union"),
    [("What a plug-in is told", plugins.PluginInput), ("What it may answer", plugins.PluginEffect)],
)
def test_the_tables_name_every_input_and_effect_with_their_fields(heading: str, union: object) -> None:
    rows = re.findall(r"^\| `(\w+)(?:\((.*?)\))?` \| ([^|]+) \|", section(PAGE, heading), re.MULTILINE)
    assert {name: tuple(fields.split(", ")) if fields else () for name, fields, _ in rows} == {
        kind.__name__: kind.__struct_fields__ for kind in get_args(union)
    }
    if union is plugins.PluginEffect:
        for name, _, kind in rows:
            kinds = {each for each, allowed in plugins.ALLOWED.items() if name in {one.__name__ for one in allowed}}
            assert kinds == (set(kind.split(", ")) if kind != "all" else set(plugins.ALLOWED))


def public(kind: type) -> set[str]:
    """What a class declares itself."""
    return {name for name in {*vars(kind), *inspect.get_annotations(kind)} if not name.startswith("_")}


@pure_only
def test_the_view_has_what_the_page_says_and_no_more() -> None:
    seen = section(PAGE, "What it sees")
    assert set(re.findall(r"view\.(\w+)", seen)) == set(plugins.View.__slots__)
    for part, kind in (
        ("links[peer]", plugins.LinkView),
        ("graph", plugins.GraphView),
        ("outages", plugins.OutageEstimate),
    ):
        (row,) = [line for line in seen.splitlines() if line.startswith(f"| `view.{part}`")]
        assert set(re.findall(r"`(\w+)[`(\[]", row)) == public(kind), part


@pure_only
def test_the_page_names_every_declaration() -> None:
    rows = re.findall(r"^\| ([\w' ]+) \| (`.+?`) \| (.*) \|$", section(PAGE, "What it declares"), re.MULTILINE)
    for whose, kind in (
        ("all", plugins.Graph),
        ("membership", plugins.Membership),
        ("routing", plugins.Routing),
        ("interest", plugins.Interest),
    ):
        named = {name for of, cell, _ in rows if of == whose for name in re.findall(r"`(\w+)", cell)}
        common = set() if kind is plugins.Graph else public(plugins.Graph)
        assert named == public(kind) - common - {"handle"}
    (needs,) = [about for _, cell, about in rows if cell == "`needs`"]
    assert f"Needs({', '.join(plugins.Needs.__struct_fields__)})" in needs
