"""How near `adaptive` comes to the best possible while links fail, lose packets, or fail for other times.

Every row is one kind of world: 20 peers, deadlines of `factor` times the shortest delay, ACKs that take real round
trips. All strategies of a row run in the same worlds; a seed decides everything but the strategy. `oracle` knows at any
time which links are up, and is the best possible.

`python -m benchmarks.failing_links`; `--only 1,4` for some rows, `--duration SECONDS`, `--seeds N`, `--jobs N`,
`--json` for machines.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from wend.drivers.scenarios import make_scenario
from wend.drivers.sim.run import simulate

DOWN = 0.06
"""The share of time that links are down, in the rows about lengths of outages."""


def _outage_spread(mean_s: float) -> dict[str, Any]:
    up = {"kind": "exponential", "mean_s": mean_s * (1.0 - DOWN) / DOWN}
    return {"pf": 0.0, "outages": {"up": up, "down": {"kind": "exponential", "mean_s": mean_s}}}


FAILING: dict[str, dict[str, Any]] = {
    "degree 5, Pf .06, factor 3": {"degree": 5, "pf": 0.06, "factor": 3.0},
    "degree 5, Pf .1, factor 3": {"degree": 5, "pf": 0.1, "factor": 3.0},
    "degree 8, Pf .06, factor 1.5": {"degree": 8, "pf": 0.06, "factor": 1.5},
    "degree 8, Pf .06, factor 2": {"degree": 8, "pf": 0.06, "factor": 2.0},
    "degree 8, Pf .06, factor 3": {"degree": 8, "pf": 0.06, "factor": 3.0},
    **{f"outages of {mean:g} s": {"degree": 8, "factor": 3.0, **_outage_spread(mean)} for mean in (0.3, 2.0, 10.0)},
}
LOSING: dict[str, dict[str, Any]] = {
    f"loss of {loss:.0%}": {"degree": 8, "pf": 0.0, "pl": loss, "factor": 3.0} for loss in (0.01, 0.05, 0.1)
}
ROWS = {name: ("oracle", fields) for name, fields in FAILING.items()} | {
    name: ("multipath", fields) for name, fields in LOSING.items()
}
"""Each with the strategy beside which `adaptive` stands."""


class Run(msgspec.Struct, frozen=True):
    on_time: float
    packets: int
    control_per_s: float


class ComparedRow(msgspec.Struct, frozen=True):
    """The means of one row."""

    name: str
    beside: str
    on_time: float
    on_time_beside: float
    packets: float
    """Data packets of `adaptive`, as a multiple of those of the other strategy."""
    control_per_s: float


def run(strategy: str, fields: dict[str, Any], seed: int, duration_s: float) -> Run:
    common = {"strategy": strategy, "peers": 20, "ack": "round-trip", "seed": seed, "duration": f"{duration_s}s"}
    scenario = make_scenario({**common, **fields})
    summary = simulate(scenario).summary
    control = sum(summary.control.values()) - summary.control.get("acks", 0)
    return Run(summary.on_time, summary.data_packets, control / duration_s)


def compare(name: str, runs: list[Run], others: list[Run]) -> ComparedRow:
    count = len(runs)
    return ComparedRow(
        name,
        ROWS[name][0],
        sum(one.on_time for one in runs) / count,
        sum(one.on_time for one in others) / count,
        sum(one.packets for one in runs) / sum(one.packets for one in others),
        sum(one.control_per_s for one in runs) / count,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(f"{number}" for number in range(1, len(ROWS) + 1)))
    parser.add_argument("--duration", type=float, default=600.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [list(ROWS)[int(number) - 1] for number in options.only.split(",")]
    console = Console(stderr=True)
    found = []
    with ProcessPoolExecutor(options.jobs) as pool:
        asked = {
            (name, strategy): [
                pool.submit(run, strategy, ROWS[name][1], seed, options.duration)
                for seed in range(1, options.seeds + 1)
            ]
            for name in chosen
            for strategy in ("adaptive", ROWS[name][0])
        }
        for name in chosen:
            runs, others = ([one.result() for one in asked[name, s]] for s in ("adaptive", ROWS[name][0]))
            found.append(compare(name, runs, others))
            console.print(f"{name}: {found[-1]}", style="dim")
    if options.json:
        json.dump([msgspec.to_builtins(row) for row in found], sys.stdout, indent=2)
        return
    table = Table("worlds", "beside", "its on time", "adaptive's", "points", "data packets", "control packets/s")
    for row in found:
        points = 100.0 * (row.on_time_beside - row.on_time)
        rates = (f"{100 * row.on_time_beside:.3f} %", f"{100 * row.on_time:.3f} %", f"{points:.3f}")
        table.add_row(row.name, row.beside, *rates, f"{row.packets:.3f} x", f"{row.control_per_s:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
