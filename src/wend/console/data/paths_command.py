"""`wend data paths`: the K shortest bottleneck-disjoint paths of a network, as a table.

If one process is faster than Spark, the command does not start Spark; `--spread` overrides this.
"""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wend.console.options import TOPOLOGIES, Degree, Json, Peers, Seed
from wend.console.outputs import Overwrite, check_output_folder, new_folder
from wend.console.scenario_flags import make_overlay
from wend.console.spark_options import Conf, Master, Ship
from wend.console.terminal import announce_compilation, facts_table, output_console, stop_on_signals
from wend.model.errors import ConfigError
from wend.model.flows import peers_by_name
from wend.model.rates import parse_rate

if TYPE_CHECKING:
    from wend.pipeline.paths_job import Targets
    from wend.planning.flow_network import CsrGraph
    from wend.topology.graph import Overlay


class SparkChoice(StrEnum):
    """Whether to use Spark: by size, never, or always."""

    AUTO = "auto"
    HERE = "here"
    SPARK = "spark"


def data_paths(
    topology: Annotated[str, typer.Option(help=TOPOLOGIES)],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the paths, as Parquet.")],
    k: Annotated[int, typer.Option(help="The most paths to each receiver.")] = 5,
    sources: Annotated[
        str | None,
        typer.Option(help="The peers at which paths start, separated by commas: names or numbers. By default, all."),
    ] = None,
    link_capacity: Annotated[
        str, typer.Option(help="Capacity per direction of links that state none: 40msg/s, 10Mbit/s.")
    ] = "1msg/s",
    peers: Peers = None,
    degree: Degree = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    spread: Annotated[SparkChoice, typer.Option(help="Whether to use Spark; auto decides by size.")] = SparkChoice.AUTO,
    master: Master = None,
    conf: Conf = None,
    ship: Ship = False,
    as_json: Json = False,
) -> None:
    """Find the K shortest paths without a common bottleneck, from each source to every other peer."""
    import numpy as np

    from wend.pipeline.paths_job import is_large
    from wend.planning.flow_network import FlowNetwork

    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    check_output_folder(out, overwrite)
    overlay = make_overlay(topology, peers, degree, seed)
    graph = FlowNetwork(overlay, link=parse_rate(link_capacity, "--link-capacity")).graph
    everyone = np.arange(overlay.peers, dtype=np.int32)
    targets = {source: everyone[everyone != source] for source in _parse_sources(sources, overlay)}
    on_spark = spread is SparkChoice.SPARK or (spread is SparkChoice.AUTO and is_large(graph, targets, k))
    began = time.perf_counter()
    with stop_on_signals("nothing was written"), new_folder(out) as (draft, scratch):
        if on_spark:
            count = _write_on_spark(graph, targets, k, draft, scratch, master, conf, ship)
        else:
            with announce_compilation():
                count = _write_locally(graph, targets, k, draft)
    took_s = time.perf_counter() - began
    about = {"paths": count, "sources": len(targets), "k": k, "on_spark": on_spark, "seconds": took_s, "out": str(out)}
    if as_json:
        print(json.dumps(about))
        return
    where = f"on {master or 'Spark'}" if on_spark else "in this process"
    rows = [("sources", str(len(targets)), ""), ("paths", f"{count:,}", where), ("time", f"{took_s:.1f} s", "")]
    output_console().print(facts_table(f"Paths: {out}", rows))


def _parse_sources(text: str | None, overlay: "Overlay") -> list[int]:
    if text is None:
        return list(range(overlay.peers))
    known = peers_by_name(overlay.names)
    chosen = []
    for name in (name.strip() for name in text.split(",")):
        peer = known.get(name, known.get(int(name)) if name.isdecimal() else None)
        if peer is None:
            raise ConfigError(f"--sources: {name!r} is not a peer of the topology")
        chosen.append(peer)
    return sorted(set(chosen))


def _write_locally(graph: "CsrGraph", targets: "Targets", k: int, draft: Path) -> int:
    from pyarrow import parquet

    from wend.pipeline.paths_job import SCHEMA, find_paths_locally

    count = 0
    try:
        draft.mkdir()
        with parquet.ParquetWriter(draft / "paths.parquet", SCHEMA) as file:
            for batch in find_paths_locally(graph, targets, k):
                file.write_batch(batch)
                count += batch.num_rows
    except OSError as error:
        raise ConfigError(f"cannot write the paths: {error.strerror or error}", code="unwritable") from None
    return count


def _write_on_spark(
    graph: "CsrGraph",
    targets: "Targets",
    k: int,
    draft: Path,
    scratch: Path,
    master: str | None,
    conf: list[str] | None,
    ship: bool,
) -> int:
    from wend.pipeline.paths_job import write_paths
    from wend.pipeline.spark.session import spark_session
    from wend.pipeline.spark.task_errors import translate_errors

    with translate_errors(), spark_session(master, conf=conf, ship=ship) as spark:
        return write_paths(spark, graph, targets, k, draft, scratch)
