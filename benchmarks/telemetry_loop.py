"""The whole loop of telemetry on this machine, against what was injected and measured by an exact clock.

`wend up --telemetry` runs an overlay whose links fail. Jobs on Spark find the outages and flows again from what its
peers wrote, replays play them under other strategies, and a recommendation follows. A plan is made for the measured
links and flows, and pushed to live peers on the same links (`benchmarks/planned_overlay.py`). This script says

- how many of the injected outages were found, within one detection time at both ends, and how many others;
- how far the replayed on-time ratio of the strategy that ran is from the measured one: at the recorded times of
  publication, and at other times; and what was on time by the ages that peers know, which lack what a host takes;
- whether the recommended strategy is the best on fresh seeds of the same scenario;
- whether all peers follow the plan, and what is on time since.

`python -m benchmarks.telemetry_loop [--duration 60] [--pf 0.06] [--seed 1] [--goal min-usage] [--folder DIR]
[--json]`

If the folder has a run already, with `run.json`, its telemetry is used and no overlay is started for it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.recovered_outages import compare
from wend.console.plan.push_command import ROLLED_BACK
from wend.drivers.scenarios import make_scenario
from wend.drivers.sim import simulate
from wend.model.units import parse_duration
from wend.pipeline.storage.versioned_tables import read_table

RAN = "adaptive"
STRATEGIES = ("adaptive", "dcrd", "d-tree")
FRESH = (101, 102, 103)
MASTER = "local[2]"
CAPACITY, GOAL = "100msg/s", "min-usage"
"""Of links, for the plan: these have none, so none was measured. They are nearly empty, and to balance them would make
routes longer for nothing. Peers watch what is on time, and roll such a plan back (`--goal balance`)."""
HOSTS = ("receiving", "local")
"""Causes of lateness in hosts, as far as peers see it."""


def wend(*words: str, allowed: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "wend.console.start", *words], capture_output=True, text=True, check=False
    )
    if done.returncode not in allowed:
        sys.exit(f"wend {' '.join(words)}\n{done.stderr}")
    return done.stdout


@contextmanager
def planned_overlay(run: Path, addresses: Path) -> Iterator[None]:
    """Live peers on the links of a run. Their addresses are in the file when they take clients."""
    words = [sys.executable, "-m", "benchmarks.planned_overlay", str(run), "--addresses", str(addresses)]
    with subprocess.Popen(words) as process:
        try:
            while not addresses.exists():
                if process.poll() is not None:
                    sys.exit("the peers for the plan did not start")
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def push(folder: Path, goal: str) -> dict[str, Any]:
    """Plan for the measured links and flows, and push it."""
    plan, addresses = folder / "plan", folder / "peers.txt"
    addresses.unlink(missing_ok=True)
    given = ("--link-capacity", CAPACITY, "--goal", goal, "--out", str(plan), "--overwrite")
    wend("plan", "--from", str(folder), *given)
    with planned_overlay(folder / "seen" / "run.json", addresses):
        words = ("plan", "push", str(plan), "--peer-file", str(addresses), "--watch", "20s", "--json")
        said = wend(*words, allowed=(0, ROLLED_BACK))
    report = json.loads(said)
    on_time = {name: report[name] and report[name]["share"] for name in ("before", "after")}
    return {"kept": report["kept"], "peers": len(report["peers"]), **on_time}


def lateness(folder: Path) -> dict[str, float | None]:
    """What was on time by the ages of events, and the share of late deliveries' time that they spent in hosts."""
    rows, causes = (read_table(None, folder / "late", name).to_pylist() for name in ("lateness", "causes"))
    late, judged = (sum(row[name] for row in rows) for name in ("late", "with_deadline"))
    spent = sum(row["time_ns"] for row in causes)
    in_hosts = sum(row["time_ns"] for row in causes if row["cause"] in HOSTS)
    return {"by_ages": 1 - late / judged if judged else None, "in_hosts": in_hosts / spent if spent else None}


def on_time_with_new_seeds(scenario: dict[str, Any]) -> dict[str, float]:
    """The share of events on time with new seeds of the same scenario, by strategy."""
    fields = {**scenario, "duration": "60s"}
    return {
        name: fmean(
            simulate(make_scenario({**fields, "strategy": name, "seed": seed, "topology": "regular"})).summary.on_time
            for seed in FRESH
        )
        for name in STRATEGIES
    }


def run_loop(folder: Path, duration: str, pf: float, seed: int, goal: str) -> dict[str, Any]:
    seen, replays = folder / "seen", folder / "replays"
    if not (seen / "run.json").exists():
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
    outages = compare(run, read_table(None, folder / "links", "outages").to_pylist(), detection_ns)
    ran = (RAN, run["scenario"]["redundancy"])
    variant = next(one for one in found["ranked"] if (one["strategy"], one["redundancy"]) == ran)
    measured, again = run["summary"]["on_time"], variant["recorded"]
    afresh = on_time_with_new_seeds(run["scenario"])
    return {
        "outages": outages,
        "measured": measured,
        **lateness(folder),
        "replayed": again,
        "difference_points": 100 * (again - measured),
        "replayed_moved": variant["on_time"]["mean"],
        "recommended": found["settings"],
        "fresh": afresh,
        "is_best": found["settings"]["strategy"] == max(afresh, key=lambda name: afresh[name]),
        "paragraph": found["paragraph"],
        "push": push(folder, goal),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duration", default="60")
    parser.add_argument("--pf", type=float, default=0.06)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--goal", default=GOAL, help="Of the plan, as of `wend plan`.")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = run_loop(options.folder or Path(name), options.duration, options.pf, options.seed, options.goal)
    if options.json:
        print(json.dumps(found))
        return
    print("\n".join(result_lines(found)))


def result_lines(found: dict[str, Any]) -> list[str]:
    seen, pushed = found["outages"], found["push"]
    before, after = (
        "unknown" if pushed[name] is None else f"{100 * pushed[name]:.1f} %" for name in ("before", "after")
    )
    return [
        f"outages:  {seen['recovered']} of {seen['injected']} injected ones found within one detection time, "
        f"{seen['false']} of {seen['found']} found are false",
        f"measured: {100 * found['measured']:.2f} % on time by an exact clock, {100 * found['by_ages']:.2f} % by ages; "
        f"late deliveries spent {100 * (found['in_hosts'] or 0):.1f} % of their ages in hosts",
        f"replayed: {100 * found['replayed']:.2f} % at the recorded times ({found['difference_points']:+.2f} points), "
        f"{100 * found['replayed_moved']:.2f} % with moved ones",
        f"fresh:    {', '.join(f'{name} {100 * share:.2f} %' for name, share in found['fresh'].items())}",
        f"best on fresh seeds is recommended: {found['is_best']}",
        f"push:     {'kept' if pushed['kept'] else 'rolled back'} by {pushed['peers']} peers; on time {before} "
        f"before, {after} since",
        found["paragraph"],
    ]


if __name__ == "__main__":
    main()
