"""`wend data topology`: from traceroute records to the network that they show."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.outputs import Overwrite
from wend.console.show import compiling, facts, messages, output, percent, stoppable
from wend.console.study import AsJson, Master, Ship
from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from wend.topology.traceroute_records import Truth

HELP = """Infer the network beneath from traceroute records.

Records are Parquet, a file or a folder: source and target (peers, long), time_ns (long), hops (array of addresses,
null where nobody answered) and reached (boolean). They may be incomplete and contradict each other.

The answer is Parquet: links (a, b, kind, seen, filled, first_ns, last_ns) and overlaps (a, b, c, d, q: overlay links
a-b and c-d share q routers). What could not be used is counted and printed.

With --synthetic N there need be no records: N are made up from a network, and what is inferred is compared with the
truth.
"""


def data_topology(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the answer goes.")],
    records: Annotated[str | None, typer.Option(metavar="PATH", help="Traceroute records, Parquet.")] = None,
    synthetic: Annotated[int | None, typer.Option(metavar="N", help="Make up N records instead.")] = None,
    underlay: Annotated[str, typer.Option(help="The network of made-up records.")] = "brite",
    peers: Annotated[int, typer.Option(help="Peers that trace (made-up records).")] = 250,
    degree: Annotated[int, typer.Option(help="Neighbours that each peer traces (made-up records).")] = 15,
    loss: Annotated[float, typer.Option(help="Share of hops that do not answer (made-up records).")] = 0.1,
    anonymous: Annotated[float, typer.Option(help="Share of routers that never answer (made-up records).")] = 0.0,
    seed: Annotated[int, typer.Option(help="Decides everything that is drawn (made-up records).")] = 1,
    least: Annotated[int, typer.Option(help="Links seen less often are left out.")] = 3,
    overlap: Annotated[bool, typer.Option("--overlap/--no-overlap", help="Compute the overlaps too.")] = True,
    overwrite: Overwrite = False,
    master: Master = "local[*]",
    ship: Ship = False,
    as_json: AsJson = False,
) -> None:
    """Infer the network beneath from traceroute records."""
    from wend.model.files import check_out, drafted
    from wend.pipeline.refusals import reworded
    from wend.pipeline.session import spark_session

    if (records is None) == (synthetic is None):
        raise ConfigError("give --records PATH or --synthetic N, one of them")
    for name, value, least_value in (("--synthetic", synthetic, 1), ("--least", least, 1), ("--degree", degree, 1)):
        if value is not None and value < least_value:
            raise ConfigError(f"{name} must be at least {least_value}, got {value}")
    check_out(out, overwrite, *([] if records is None else [records]))
    if records is not None and "://" not in records and not Path(records).exists():
        raise ConfigError(f"cannot read {records}: there is no such file or folder")
    with stoppable("nothing was written"), drafted(out) as (draft, _):
        truth = None
        if synthetic is not None:
            with compiling():
                truth = _made_up(draft / "records", synthetic, underlay, peers, degree, loss, anonymous, seed)
        with reworded(), spark_session(master, ship=ship) as spark:
            found = _infer(spark, records or str(draft / "records"), draft, least, overlap)
        if truth is not None:
            found |= _scored(truth, draft / "links")
    if as_json:
        print(json.dumps({**found, "out": str(out)}))
    else:
        _say(found, out)


def _made_up(
    folder: Path, count: int, underlay: str, peers: int, degree: int, loss: float, anonymous: float, seed: int
) -> "Truth":
    import numpy as np

    from wend.topology.catalog import make
    from wend.topology.overlays import scattered
    from wend.topology.placement import place
    from wend.topology.traceroute_records import Flaws, write_records

    placement = place(make(underlay, seed), peers, seed)
    overlay = scattered(placement, degree, seed)
    pairs = (np.array([link.a for link in overlay.links]), np.array([link.b for link in overlay.links]))
    messages().print(f"making up {count} records of {underlay}", style="bright_black")
    return write_records(folder, placement, pairs, count, seed=seed, flaws=Flaws(loss=loss, anonymous=anonymous))


def _infer(spark: Any, records: str, out: Path, least: int, overlap: bool) -> dict[str, Any]:
    from wend.pipeline.places import by_letter
    from wend.pipeline.topology import infer, read_records

    began = time.perf_counter()
    inferred = infer(read_records(spark, records), least=least)
    inferred.links.write.parquet(str(out / "links"))
    links_s = time.perf_counter() - began
    if overlap:
        inferred.overlaps.write.parquet(str(out / "overlaps"))
    counts = {row["what"]: row["seen"] for row in inferred.counts.toArrow().to_pylist()}
    links = spark.read.parquet(by_letter(out / "links")).groupBy("kind").count().toArrow().to_pylist()
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
        "overlaps": spark.read.parquet(by_letter(out / "overlaps")).count() if overlap else None,
    }


def _scored(truth: "Truth", folder: Path) -> dict[str, Any]:
    from pyarrow import parquet

    from wend.topology.traceroute_records import score

    rows = parquet.read_table(folder, columns=["a", "b", "kind"]).to_pylist()
    found = score(truth, [(row["a"], row["b"]) for row in rows if row["kind"] == "link"])
    return {
        "hops": truth.hops,
        "true_links": len(truth.links),
        "silent_routers": len(truth.silent),
        "recovered": found.recovered,
        "false": found.false,
    }


def _say(found: dict[str, Any], out: Path) -> None:
    records, seconds = found["records"], found["links_s"]
    rows = [
        ("records", f"{records}", f"{records / seconds:,.0f} rows/s until the links were written, {seconds:.1f} s"),
        ("links", f"{found['links']}", f"and {found['last_miles']} last miles"),
    ]
    if found["overlaps"] is not None:
        rows.append(("overlaps", f"{found['overlaps']}", "pairs of overlay links that share a router"))
    rows += [(what, f"{seen}", "") for what, seen in found["counts"].items() if what != "traces"]
    if "recovered" in found:
        rows.append(("recovered", percent(found["recovered"]), f"of {found['true_links']} links that were crossed"))
        rows.append(("false", percent(found["false"]), "of the links found"))
    output().print(facts(f"written to {out}, {found['all_s']:.1f} s in all", rows))
