"""The whole loop of telemetry on this machine, against what was injected and measured by an exact clock.

`wend up --telemetry` runs an overlay whose links fail. Jobs on Spark find the outages and flows again from what its
peers wrote, replays play them under other strategies, and a recommendation follows. This script says

- how many of the injected outages were found, within one detection time at both ends, and how many others;
- how far the replayed on-time ratio of the strategy that ran is from the measured one;
- whether the recommended strategy is the best on fresh seeds of the same scenario.

`python -m benchmarks.telemetry_loop [--duration 60] [--pf 0.06] [--seed 1] [--folder DIR] [--json]`
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.recovered_outages import compare
from wend.drivers.scenarios import make_scenario
from wend.drivers.sim import simulate
from wend.model.units import parse_duration
from wend.pipeline.tables import read_local

RAN = "adaptive"
STRATEGIES = ("adaptive", "dcrd", "d-tree")
FRESH = (101, 102, 103)
MASTER = "local[2]"


def wend(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "wend.console.start", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"wend {' '.join(words)}\n{done.stderr}")
    return done.stdout


def fresh(scenario: dict[str, Any]) -> dict[str, float]:
    """What is on time on fresh seeds of the same scenario, by strategy."""
    fields = {**scenario, "duration": "60s"}
    return {
        name: fmean(
            simulate(make_scenario({**fields, "strategy": name, "seed": seed, "topology": "regular"})).summary.on_time
            for seed in FRESH
        )
        for name in STRATEGIES
    }


def loop(folder: Path, duration: str, pf: float, seed: int) -> dict[str, Any]:
    seen, replays = folder / "seen", folder / "replays"
    wend(
        "up", "--telemetry", str(seen), "--duration", duration, "--pf", str(pf), "--seed", str(seed),
        "--strategies", RAN, "--json",
    )  # fmt: skip
    for job in ("links", "late", "workload"):
        wend("data", job, str(seen), "--out", str(folder / job), "--master", MASTER)
    wend(
        "data", "replay", "--links", str(folder / "links"), "--workload", str(folder / "workload"),
        "--out", str(replays), "--strategies", ",".join(STRATEGIES), "--master", MASTER,
    )  # fmt: skip
    found = json.loads(wend("data", "recommend", str(replays), "--json"))
    run = json.loads((seen / "run.json").read_text())
    detection_ns = parse_duration(run["scenario"]["detection"])
    outages = compare(run, read_local(folder / "links", "outages").to_pylist(), detection_ns)
    replayed = {(one["strategy"], one["redundancy"]): one["on_time"]["mean"] for one in found["ranked"]}
    measured = run["summary"]["on_time"]
    again = replayed[RAN, run["scenario"]["redundancy"]]
    afresh = fresh(run["scenario"])
    return {
        "outages": {name: outages[name] for name in ("injected", "recovered_share", "false_share")},
        "measured": measured,
        "replayed": again,
        "difference_points": 100 * (again - measured),
        "recommended": found["settings"],
        "fresh": afresh,
        "is_best": found["settings"]["strategy"] == max(afresh, key=lambda name: afresh[name]),
        "paragraph": found["paragraph"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duration", default="60")
    parser.add_argument("--pf", type=float, default=0.06)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = loop(options.folder or Path(name), options.duration, options.pf, options.seed)
    if options.json:
        print(json.dumps(found))
        return
    seen = found["outages"]
    print(
        f"outages: {seen['injected']} injected, {100 * seen['recovered_share']:.1f} % found within one detection",
        end="",
    )
    print(f" time, {100 * seen['false_share']:.1f} % of those found are false")
    print(f"on time: {100 * found['measured']:.2f} % measured, {100 * found['replayed']:.2f} % replayed", end=" ")
    print(f"({found['difference_points']:+.2f} points)")
    print(f"fresh:   {', '.join(f'{name} {100 * share:.2f} %' for name, share in found['fresh'].items())}")
    print(f"best on fresh seeds: {found['is_best']}\n{found['paragraph']}")


if __name__ == "__main__":
    main()
