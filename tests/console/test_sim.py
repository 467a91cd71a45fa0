"""`wend sim`: what it prints and writes, and what it says of options that change nothing."""

import json
from pathlib import Path

import pytest

from tests.console.calls import Said, wend
from wend.drivers.scenarios import Scenario, make_scenario


def test_sim_prints_one_object() -> None:
    shown = json.loads(wend("sim", "--duration", "10", "--json").stdout)
    assert make_scenario(shown["scenario"]) == Scenario(duration="10s", topics=10)
    assert (shown["scenario"]["strategy"], shown["scenario"]["duration"]) == ("adaptive", "10s")
    assert shown["expected"] > 0 and 0.9 < shown["delivery"] <= 1
    assert set(shown["packets_per_subscriber"]) == {"shared", "unicast"}
    assert set(shown["late_within"]) == {"1.25", "1.5", "1.75"}
    assert set(shown["delay_ms"]) == {"p50", "p99", "mean"}
    assert shown["outage_known_ms"]["mean"] > 0  # adaptive uses the failure detector


def test_sim_takes_a_file_and_flags_win_over_it(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("peers = 10\ndegree = 4\nduration = '5s'\nstrategy = 'd-tree'")
    shown = wend("sim", "--scenario", str(tmp_path / "s.toml"), "--strategy", "dcrd").stdout
    assert "dcrd on regular, 10 peers, 20 links" in shown
    assert "\x1b" not in shown


def test_sim_writes_its_trace_and_replaces_none_unasked(said: Said, tmp_path: Path) -> None:
    words = ("sim", "--duration", "1", "--trace", str(tmp_path / "t"), "--trace-level", "hops")
    assert said(*words)[0] == 0
    assert (tmp_path / "t" / "hops.parquet").exists()
    code, _, err = said(*words)
    assert (code, err) == (2, f"wend: {tmp_path / 't'} is not empty; --overwrite replaces it\n")
    (tmp_path / "t" / "old").touch()
    assert said(*words, "--overwrite")[0] == 0
    assert "old" not in [path.name for path in (tmp_path / "t").iterdir()]


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (("--trees", "3"), "wend: --trees changes nothing here: it is for mrst and spt-k, not for adaptive\n"),
        (
            ("--strategy", "dcrd", "--detection", "90ms"),
            "wend: --detection changes nothing here: dcrd does not use the failure detector\n",
        ),
        (("--detection", "90ms", "--redundancy", "none"), ""),
        (
            ("--topology", "full-mesh", "--degree", "3"),
            "wend: --degree changes nothing here: it is for regular or random, not ",
        ),
        (("--queue", "3"), "wend: --queue changes nothing here: nothing has a capacity\n"),
        (("--queue", "3", "--link-capacity", "40"), ""),
    ],
)
def test_sim_says_which_options_change_nothing(said: Said, words: tuple[str, ...], note: str) -> None:
    code, out, err = said("sim", "--duration", "1", "--peers", "8", "--topics", "8", *words)
    assert code == 0
    assert err.startswith(note) and err.count("\n") == bool(note)
    adaptive = "--strategy" not in words
    assert ("detection" in out) == adaptive
    assert ("90 ms" in out) == (adaptive and "--detection" in words)


SQUARE = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d" for="edge" attr.name="delay_ms" attr.type="double"><default>10</default></key>
<graph edgedefault="undirected">
<node id="0"/><node id="1"/><node id="2"/><node id="3"/><edge source="0" target="1"/><edge source="1" target="2"/>
<edge source="2" target="3"/><edge source="3" target="0"/></graph></graphml>"""


def test_a_small_overlay_has_a_topic_for_each_peer_and_says_so(said: Said, tmp_path: Path) -> None:
    note = "wend: {} topics, one for each peer; --topics says otherwise\n"
    (tmp_path / "square.graphml").write_text(SQUARE)
    on_map = ("sim", "--topology", str(tmp_path / "square.graphml"), "--duration", "1", "--json")
    code, out, err = said(*on_map)
    assert (code, err, json.loads(out)["scenario"]["topics"]) == (0, note.format(4), 4)
    assert json.loads(out)["scenario"]["peers"] == 4, "what is played"
    code, out, err = said(*on_map, "--topics", "3")
    assert (code, err, json.loads(out)["scenario"]["topics"]) == (0, "", 3)
    error = json.loads(said(*on_map, "--topics", "5")[2])["error"]
    assert error == {"code": "invalid-setting", "sentence": "5 topics need 5 publishers, but there are 4 peers"}
    (tmp_path / "s.toml").write_text("peers = 6\ntopics = 2")
    code, out, err = said("sim", "--scenario", str(tmp_path / "s.toml"), "--duration", "1", "--json")
    assert (code, err, json.loads(out)["scenario"]["topics"]) == (0, "", 2)
    assert said("sim", "--peers", "6", "--duration", "1")[2] == note.format(6)


def test_the_headline_states_what_is_played(said: Said, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "peers = 6\ndegree = 3\ntopics = 2\n"
        "[outages]\nup = { kind = 'exponential', mean_s = 60 }\ndown = { kind = 'uniform', low_s = 1, high_s = 5 }\n"
        "[peer_outages]\nup = { kind = 'fixed', mean_s = 4 }\ndown = { kind = 'fixed', mean_s = 1 }\n"
        "[congestion]\nup = { kind = 'fixed', mean_s = 3 }\ndown = { kind = 'fixed', mean_s = 2 }\n"
    )
    out = said("sim", "--scenario", str(tmp_path / "s.toml"), "--duration", "2", "--corruption", "0.01")[1]
    words = " ".join(out.split())
    assert "Pf" not in words
    assert "outages of 3 s after 60 s, crashes of 1 s after 4 s, congestion of 2 s after 3 s, corruption 0.01" in words
    assert "to subscribers that were up when it was published" in words
    out = said("sim", "--topology", str(_latent(tmp_path)), "--duration", "1", "--topics", "2")
    assert "Pf 0.06" in out[1]
    assert out[2] == (
        "wend: 4 of 4 links state no delay (delay_ms, latency_ms, delay, dist, length): drawn from 10-50 ms; "
        "latency is none of these and is not read\n"
    )


def _latent(folder: Path) -> Path:
    path = folder / "latent.graphml"
    path.write_text(SQUARE.replace("delay_ms", "latency"))
    return path


PLUGIN = """
from typing import Annotated
from wend.model.settings import Settings, setting
from wend.strategies.source_trees.plugin import DelayTree

class GainSettings(Settings):
    title = "Gain"
    gain: Annotated[float, setting("How much it gains.", low=0)] = 1.0

class Gaining(DelayTree):
    settings = GainSettings
"""


def test_a_plug_in_from_outside_brings_its_options(tmp_path: Path) -> None:
    (tmp_path / "gaining.py").write_text(PLUGIN)
    call = ("sim", "--duration", "1", "--json", "--gain", "2.5")
    named = wend(*call, "--strategy", "gaining:Gaining", folder=tmp_path)
    assert named.returncode == 0, named.stderr
    assert json.loads(named.stdout)["scenario"]["gain"] == 2.5
    assert "How much it gains." in wend("sim", "--strategy=gaining:Gaining", "--help", folder=tmp_path).stdout
    refused = wend(*call, folder=tmp_path)
    assert refused.returncode == 2 and "No such option" in refused.stderr
