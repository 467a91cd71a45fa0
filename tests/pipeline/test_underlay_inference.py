"""`wend data topology` against the same rules in one process, and against the network of generated records."""

import json
import random
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.oracles import topology_inference as inference
from tests.oracles.topology_inference import Traceroute
from tests.spark import needs_java
from wend.drivers.scenarios import Scenario
from wend.drivers.world import build_world
from wend.model.errors import ConfigError, WendError
from wend.pipeline.underlay_inference import infer_underlay, read_records
from wend.topology.catalog import make
from wend.topology.link_overlap import count_overlaps
from wend.topology.overlays import random_regular
from wend.topology.placement import Placement, attach_peers
from wend.topology.traceroute import Tracer
from wend.topology.traceroute_counts import RECORDS
from wend.topology.traceroute_records import Flaws, score_links, write_records

pytestmark = [needs_java, pytest.mark.spark]


def frame(spark: Any, traces: Iterable[Traceroute]) -> Any:
    rows = [
        {
            "source": trace.source,
            "target": trace.target,
            "time_ns": number,
            "hops": [None if hop is None else f"r{hop:04}" for hop in trace.hops],
            "reached": trace.reached,
        }
        for number, trace in enumerate(traces)
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=RECORDS))


def named(node: tuple[str, int | str]) -> str:
    return f"r{node[1]:04}" if node[0] == "router" else f"{node[0]}:{node[1]}"


def traces_of(placement: Placement, tracer: Tracer, attempts: int) -> list[Traceroute]:
    pairs = [(a, b) for a in range(placement.peers) for b in range(placement.peers) if a != b]
    return [Traceroute(a, b, tracer.trace(a, b, n)) for a, b in pairs for n in range(attempts)]


def cut_short(traces: list[Traceroute], share: float) -> list[Traceroute]:
    """The traces, a share of which end before their target."""
    rng = random.Random(2)
    return [
        Traceroute(t.source, t.target, t.hops[: rng.randrange(len(t.hops))], False) if rng.random() < share else t
        for t in traces
    ]


def flawed() -> list[Traceroute]:
    """Lost answers, silent routers, early ends, loops, a route that contradicts the others, a tie next to a peer."""
    placement = attach_peers(make("power-law", 1), 9, 1)
    tracer = Tracer(placement, seed=2, anonymous=0.1, loss=0.15)
    strange = [
        Traceroute(0, 1, (5, 6, 5)),
        Traceroute(2, 3, (1, None, 299)),
        Traceroute(4, 4, (8,)),
        Traceroute(0, 1, ()),
    ]
    tie = [Traceroute(20, 21, hops) for hops in ((900, 999, 950), (901, 902, 950), *[(None, None, 950)] * 3)]
    return cut_short(traces_of(placement, tracer, 4), 0.1) + strange + tie


def test_spark_infers_what_one_process_infers(spark: Any) -> None:
    traces, least = flawed(), 2
    known = inference.infer(traces, least=least)
    found = infer_underlay(frame(spark, traces), least=least)
    links = {(row["a"], row["b"]): row["seen"] for row in found.links.toArrow().to_pylist()}
    plain = {link: n for link, n in links.items() if "unknown" not in "".join(link)}
    expected = {tuple(sorted(map(named, link))): n for link, n in known.links.items()}
    assert plain == {link: n for link, n in expected.items() if "unknown" not in "".join(link)}

    def shapes(rows: dict[Any, int]) -> list[list[tuple[str, int]]]:
        """Unknown routers by their neighbours, because their numbers depend on the order."""
        near: dict[str, list[tuple[str, int]]] = {}
        for link, n in rows.items():
            for one, other in (link, link[::-1]):
                if one.startswith("unknown"):
                    near.setdefault(one, []).append((other, n))
        return sorted(sorted(each) for each in near.values())

    assert shapes(links) == shapes(expected)
    assert shapes(links), "some routers never answer"
    counts = {row["what"]: row["seen"] for row in found.counts.toArrow().to_pylist()}
    assert counts["traces that met a router twice"] == known.looped == 1
    assert counts["holes that nothing fills"] == known.holes > 0
    assert counts["links seen too seldom"] == known.rare
    assert counts["traces"] == len(traces) - 1


def test_a_router_on_too_many_paths_is_left_out_and_counted(spark: Any) -> None:
    traces = [
        Traceroute(a, b, hops) for a, b, hops in [(1, 2, (10, 11)), (3, 4, (10, 11)), (5, 6, (10, 12)), (7, 8, (12,))]
    ]
    # Three links cross router 10.
    for most, pairs, left_out in ((3, 4, 0), (2, 2, 1)):
        found = infer_underlay(frame(spark, traces), least=1, most_links=most)
        assert found.overlaps.count() == pairs
        counts = {row["what"]: row["seen"] for row in found.counts.toArrow().to_pylist()}
        assert counts["routers on too many paths for overlaps"] == left_out


def test_overlaps_are_those_of_the_underlay(spark: Any) -> None:
    placement = attach_peers(make("power-law", 1), 10, 1)
    overlay = random_regular(placement, 4, 1)
    tracer = Tracer(placement, seed=3, loss=0.1)
    traces = [Traceroute(e.a, e.b, tracer.trace(e.a, e.b, n)) for e in overlay.links for n in range(12)]
    found = infer_underlay(frame(spark, traces)).overlaps.toArrow().to_pylist()
    q = count_overlaps(placement, overlay).toarray()
    place_of = {(link.a, link.b): i for i, link in enumerate(overlay.links)}
    expected = {(i, j): int(q[i, j]) for i in range(len(q)) for j in range(i + 1, len(q)) if q[i, j]}
    assert {(place_of[r["a"], r["b"]], place_of[r["c"], r["d"]]): r["q"] for r in found} == expected


def test_links_say_when_they_were_seen_and_how_often_in_a_hole(spark: Any) -> None:
    whole = Traceroute(0, 1, (10, 11, 12))
    found = infer_underlay(frame(spark, [whole, whole, whole, Traceroute(1, 0, (12, None, 10))]), least=1)
    rows = {(r["a"], r["b"]): r for r in found.links.toArrow().to_pylist()}
    assert rows["r0010", "r0011"] == {
        "a": "r0010", "b": "r0011", "kind": "link", "seen": 4, "filled": 1, "first_ns": 0, "last_ns": 3,
    }  # fmt: skip
    assert rows["peer:0", "r0010"]["kind"] == "last mile"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flaws", "least_recovered"), [(Flaws(loss=0.1, flap=0.002), 0.98), (Flaws(loss=0.0, anonymous=0.1), 0.9)]
)
def test_made_up_records_give_their_network_back(
    spark: Any, tmp_path: Path, flaws: Flaws, least_recovered: float
) -> None:
    placement = attach_peers(make("brite", 1), 60, 1)
    overlay = random_regular(placement, 8, 1)
    pairs = (np.array([link.a for link in overlay.links]), np.array([link.b for link in overlay.links]))
    truth = write_records(tmp_path / "r", placement, pairs, 12_000, seed=1, flaws=flaws)
    rows = infer_underlay(read_records(spark, str(tmp_path / "r"))).links.where("kind = 'link'").toArrow().to_pylist()
    found = score_links(truth, [(row["a"], row["b"]) for row in rows])
    assert found.recovered >= least_recovered
    assert found.false < (0.01 if not flaws.anonymous else 0.05)


def test_bad_records_are_refused_in_a_sentence(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^cannot read .* as Parquet: "):
        read_records(spark, str(tmp_path / "nothing"))
    spark.createDataFrame([(1, 2)], "source long, target long").write.parquet(str(tmp_path / "few"))
    with pytest.raises(ConfigError, match="few: traceroute records need a column time_ns of type bigint, got none"):
        read_records(spark, str(tmp_path / "few"))
    with pytest.raises(ConfigError, match="least must be at least 1, got 0"):
        infer_underlay(frame(spark, [Traceroute(0, 1, (1,))]), least=0)


def test_an_empty_table_is_an_empty_network(spark: Any) -> None:
    found = infer_underlay(frame(spark, []))
    assert found.links.count() == 0
    assert found.overlaps.count() == 0
    assert {row["seen"] for row in found.counts.toArrow().to_pylist()} == {0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "o"), "give either --records PATH or --synthetic N"),
        (("--out", "o", "--records", "r", "--synthetic", "5"), "give either --records PATH or --synthetic N"),
        (("--out", "o", "--records", "nothing"), "cannot read nothing: there is no such file or folder"),
        (("--out", "full", "--records", "r"), "full is not empty; --overwrite replaces it"),
        (
            ("--out", "full", "--records", "full/links", "--overwrite"),
            "full/links is in full, which",
        ),
        (("--out", "o", "--synthetic", "5", "--loss", "2"), "loss must be a share from 0 to below 1"),
        (("--out", "o", "--synthetic", "5", "--underlay", "moon"), "there is no network 'moon'"),
    ],
)
def test_the_command_says_its_mistakes(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from wend.console.app import main

    (tmp_path / "full" / "links").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["wend", "data", "topology", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_what_fails_half_way_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overlaps fail after the generated records and the links were written."""
    from wend.console.data import topology_command
    from wend.pipeline.spark import session
    from wend.pipeline.storage.job_folders import local_path

    def half(_: Any, records: str, draft: str, *__: Any) -> Any:
        written, folder = local_path(records), local_path(draft)
        assert written is not None and folder is not None and list(written.iterdir())
        (folder / "links").mkdir()
        raise RuntimeError("no room\nat all")

    monkeypatch.setattr(session, "spark_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr(topology_command, "_infer_underlay", half)
    out = tmp_path / "out"
    (out / "links").mkdir(parents=True)
    made = {"synthetic": 50, "peers": 10, "degree": 4, "underlay": "topohub:topozoo/Abilene"}
    with pytest.raises(WendError, match=r"^the Spark job failed, .*: no room "):
        topology_command.data_topology(out, **made, overwrite=True)
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["out", "out/links"]


@pytest.mark.usefixtures("spark_commands")
def test_a_scenario_reads_the_output_of_the_command(tmp_path: Path) -> None:
    """The generated records and the scenario have the same network, peers and silent routers."""
    from wend.console.app import app

    out = str(tmp_path / "network")
    words = ["--underlay", "power-law", "--synthetic", "5000", "--peers", "20", "--degree", "6", "--loss", "0"]
    done = CliRunner().invoke(
        app, ["data", "topology", *words, "--anonymous", "0.1", "--out", out], catch_exceptions=False
    )
    assert done.exit_code == 0, done.stderr
    world = build_world(Scenario(underlay="power-law", peers=20, anonymous=0.1, inferred_topology=out))
    holes = open_ = 0
    for a in range(20):
        for b in range(20):
            traced = world.find_path(a, b)
            assert traced is not None
            holes += traced.count(None)
            open_ += world.complete_path(a, b, traced).count(None)
    assert holes > 100
    assert open_ < holes / 2


@pytest.mark.usefixtures("spark_commands")
def test_the_command_makes_records_up_and_scores_itself(tmp_path: Path) -> None:
    from wend.console.app import app

    words = ["--synthetic", "5000", "--peers", "40", "--degree", "6", "--out", str(tmp_path / "o"), "--json"]
    done = CliRunner().invoke(app, ["data", "topology", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["records"] == 5000
    assert said["recovered"] >= 0.98
    assert said["false"] < 0.01
    assert said["overlaps"] > 100
