"""How many injected outages of a run `wend data links` finds again, and how exactly.

    wend up --telemetry run --duration 60 --pf 0.06
    wend data links run --out links
    python -m benchmarks.recovered_outages run links

An outage counts as recovered if its begin and its end are within one detection time of what was injected. One on which
both ends agree, and which overlaps no injected outage of its link, is false. Outages that were there before the run
began, or that lasted when it ended, are left out.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from wend.model.units import MS
from wend.pipeline.storage.versioned_tables import read_table

_EDGE_NS = 500 * MS


def compare(run: dict[str, Any], found: list[dict[str, Any]], detection_ns: int) -> dict[str, Any]:
    """Injected outages against those that were found."""
    by_link: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    agreed = [row for row in found if row["agreed"]]
    for row in agreed:
        by_link[row["a"], row["b"]].append(row)
    injected = 0
    begins, ends, recovered, missed = [], [], 0, []
    first, last = run["begin_ns"], run["stop_ns"] - _EDGE_NS
    matched: set[int] = set()
    for outage in run["outages"]:
        link = min(outage["a"], outage["b"]), max(outage["a"], outage["b"])
        near = [row for row in by_link[link] if _overlap(row, outage)]
        matched |= {id(row) for row in near}
        if outage["begin_ns"] < first or outage["end_ns"] > last:
            continue
        injected += 1
        best = min(near, key=lambda row: _largest_error(row, outage), default=None)
        if best is None:
            missed.append(outage)
            continue
        begins.append(best["begin_ns"] - outage["begin_ns"])
        ends.append((best["end_ns"] or last) - outage["end_ns"])
        recovered += _largest_error(best, outage) <= detection_ns
    inside = [row for row in agreed if first <= row["begin_ns"] < last]
    false = [row for row in inside if id(row) not in matched]
    return {
        "injected": injected,
        "found": len(inside),
        "recovered": recovered,
        "recovered_share": recovered / injected if injected else None,
        "missed": len(missed),
        "false": len(false),
        "false_share": len(false) / len(inside) if inside else None,
        "not_agreed": sum(first <= row["begin_ns"] < last for row in found) - len(inside),
        "begin_error_ms": _quantiles(begins),
        "end_error_ms": _quantiles(ends),
    }


def _overlap(row: dict[str, Any], outage: dict[str, Any]) -> bool:
    end = row["end_ns"]
    return bool(row["begin_ns"] < outage["end_ns"] and (end is None or end > outage["begin_ns"]))


def _largest_error(row: dict[str, Any], outage: dict[str, Any]) -> int:
    """How far the worse of begin and end is off."""
    late = abs(row["end_ns"] - outage["end_ns"]) if row["end_ns"] is not None else 10**18
    return max(abs(row["begin_ns"] - outage["begin_ns"]), late)


def _quantiles(errors: list[int]) -> list[float]:
    """The least, the quantiles 5, 50 and 95 %, and the most, in milliseconds."""
    return [round(float(value) / MS, 1) for value in np.quantile(errors, (0, 0.05, 0.5, 0.95, 1))] if errors else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="The folder of `wend up --telemetry`.")
    parser.add_argument("tables", type=Path, help="The folder of `wend data links`.")
    parser.add_argument("--detection-ms", type=float, default=160.0)
    given = parser.parse_args()
    run = json.loads((given.run / "run.json").read_text())
    found = read_table(None, given.tables, "outages").to_pylist()
    print(json.dumps(compare(run, found, round(given.detection_ms * MS)), indent=1))


if __name__ == "__main__":
    main()
