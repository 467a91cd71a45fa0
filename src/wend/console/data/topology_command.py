"""`wend data topology`: infer the underlay from traceroute records."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.options import Json
from wend.console.outputs import Overwrite, check_job_output
from wend.console.spark_options import Conf, Master, Ship
from wend.console.terminal import (
    announce_compilation,
    facts_table,
    message_console,
    output_console,
    percent_text,
    stop_on_signals,
)
from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from wend.topology.traceroute_records import Truth

TOPOLOGY_HELP = """Infer the underlay from traceroute records.

Records are Parquet, a file or a folder: source and target (peers, long), time_ns (long), hops (array of addresses,
null if no router answered) and reached (boolean). Records may be incomplete and contradict each other.

The result is Parquet: links (a, b, kind, seen, filled, first_ns, last_ns) and overlaps (a, b, c, d, q: overlay links
a-b and c-d share q routers). The command prints how many records it could not use.

With --synthetic N the command needs no records: it generates N from a known network, and compares the inferred
network with it.
"""


def data_topology(
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder for the result.")],
    records: Annotated[str | None, typer.Option(metavar="PATH", help="Traceroute records, Parquet.")] = None,
    synthetic: Annotated[int | None, typer.Option(metavar="N", help="Generate N records instead.")] = None,
    underlay: Annotated[str, typer.Option(help="The network of generated records.")] = "brite",
    peers: Annotated[int, typer.Option(help="Peers that trace (generated records).")] = 250,
    degree: Annotated[int, typer.Option(help="Neighbours that each peer traces (generated records).")] = 15,
    loss: Annotated[float, typer.Option(help="Share of hops that do not answer (generated records).")] = 0.1,
    anonymous: Annotated[float, typer.Option(help="Share of routers that never answer (generated records).")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of all random draws (generated records).")] = 1,
    least: Annotated[int, typer.Option(help="Leave out links that were seen less often than this.")] = 3,
    most_links: Annotated[
        int, typer.Option(help="Leave out of the overlaps routers that more overlay links than this cross.")
    ] = 2000,
    overlap: Annotated[bool, typer.Option("--overlap/--no-overlap", help="Also compute the overlaps.")] = True,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
    ship: Ship = False,
    as_json: Json = False,
) -> None:
    """Infer the underlay from traceroute records."""
    from wend.pipeline.spark.session import spark_session
    from wend.pipeline.spark.task_errors import translate_errors
    from wend.pipeline.storage.job_folders import local_path, new_output

    if (records is None) == (synthetic is None):
        raise ConfigError("give either --records PATH or --synthetic N")
    numbers = {"--synthetic": synthetic, "--least": least, "--degree": degree, "--most-links": most_links}
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    check_job_output(out, overwrite, *([] if records is None else [records]))
    _check_places(records, out)
    with stop_on_signals("nothing was written"), translate_errors(), ExitStack() as stack:
        truth, draft, folder = None, None, None
        if local_path(out) is not None:
            # Mistakes about the output and the generated records are found before Spark starts.
            draft = stack.enter_context(new_output(None, out, overwrite=overwrite))
            folder = local_path(draft.result)
        if synthetic is not None and folder is not None:
            with announce_compilation():
                truth = _generate_records(folder / "records", synthetic, underlay, peers, degree, loss, anonymous, seed)
        spark = stack.enter_context(spark_session(master, conf=conf, ship=ship))
        draft = draft or stack.enter_context(new_output(spark, out, overwrite=overwrite))
        results = _infer_underlay(spark, records or f"{draft.result}/records", draft.result, least, most_links, overlap)
        if truth is not None and folder is not None:
            results |= _score_links(truth, folder / "links")
    if as_json:
        print(json.dumps({**results, "out": out}))
    else:
        _print_results(results, out)


def _check_places(records: str | None, out: str) -> None:
    from wend.pipeline.storage.job_folders import local_path

    place = None if records is None else local_path(records)
    if place is not None and not place.exists():
        raise ConfigError(f"cannot read {records}: there is no such file or folder", code="unreadable")
    if records is None and local_path(out) is None:
        raise ConfigError(f"generated records need a local folder, not {out}")


def _generate_records(
    folder: Path, count: int, underlay: str, peers: int, degree: int, loss: float, anonymous: float, seed: int
) -> "Truth":
    from wend.topology.catalog import make
    from wend.topology.overlays import random_regular
    from wend.topology.placement import attach_peers
    from wend.topology.traceroute_records import Flaws, write_records

    placement = attach_peers(make(underlay, seed), peers, seed)
    overlay = random_regular(placement, degree, seed)
    message_console().print(f"generating {count} records of {underlay}", style="bright_black")
    return write_records(folder, placement, overlay.ends, count, seed=seed, flaws=Flaws(loss=loss, anonymous=anonymous))


def _infer_underlay(spark: Any, records: str, out: str, least: int, most_links: int, overlap: bool) -> dict[str, Any]:
    from wend.pipeline.storage.job_folders import literal_path
    from wend.pipeline.underlay_inference import infer_underlay, read_records

    began = time.perf_counter()
    inferred = infer_underlay(read_records(spark, records), least=least, most_links=most_links)
    inferred.links.write.parquet(f"{out}/links")
    links_s = time.perf_counter() - began
    if overlap:
        inferred.overlaps.write.parquet(f"{out}/overlaps")
    counts = {row["what"]: row["seen"] for row in inferred.counts.toArrow().to_pylist()}
    links = spark.read.parquet(literal_path(f"{out}/links")).groupBy("kind").count().toArrow().to_pylist()
    kinds = {row["kind"]: row["count"] for row in links}
    return {
        "records": counts["traces"]
        + counts["traces that met a router twice"]
        + counts["records without source, target or time"],
        "links": kinds.get("link", 0),
        "last_miles": kinds.get("last mile", 0),
        "counts": counts,
        "links_s": links_s,
        "all_s": time.perf_counter() - began,
        "overlaps": spark.read.parquet(literal_path(f"{out}/overlaps")).count() if overlap else None,
    }


def _score_links(truth: "Truth", folder: Path) -> dict[str, Any]:
    from pyarrow import parquet

    from wend.topology.traceroute_records import score_links

    rows = parquet.read_table(folder, columns=["a", "b", "kind"]).to_pylist()
    accuracy = score_links(truth, [(row["a"], row["b"]) for row in rows if row["kind"] == "link"])
    return {
        "hops": truth.hops,
        "true_links": len(truth.links),
        "silent_routers": len(truth.silent),
        "recovered": accuracy.recovered,
        "false": accuracy.false,
    }


def _print_results(results: dict[str, Any], out: str) -> None:
    records, seconds = results["records"], results["links_s"]
    rows = [
        ("records", f"{records}", f"{records / seconds:,.0f} rows/s until the links were written, {seconds:.1f} s"),
        ("links", f"{results['links']}", f"and {results['last_miles']} last miles"),
    ]
    if results["overlaps"] is not None:
        rows.append(("overlaps", f"{results['overlaps']}", "pairs of overlay links that share a router"))
    rows += [(what, f"{seen}", "") for what, seen in results["counts"].items() if what != "traces"]
    if "recovered" in results:
        rows.append(
            ("recovered", percent_text(results["recovered"]), f"of {results['true_links']} links that traces crossed")
        )
        rows.append(("false", percent_text(results["false"]), "of the links found"))
    output_console().print(facts_table(f"written to {out} in {results['all_s']:.1f} s", rows))
