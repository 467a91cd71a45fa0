"""`make bench`: every benchmark once, as one table. `--json` for machines."""

import json
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.live import round_trips
from benchmarks.planning import path_rates, whole_plan
from benchmarks.simulation import simpy_rate, wend_rate


def main() -> None:
    ours, simpys = wend_rate(), simpy_rate()
    live = round_trips()
    paths = path_rates()
    popular, rare = whole_plan(1000, 10_000, 0.85, 3, "peer"), whole_plan(200, 10_000, 0.05, 3, "peer")
    figures = {
        "sim.transmissions_per_s": ours,
        "simpy.transmissions_per_s": simpys,
        "sim.over_simpy": ours / simpys,
        "live.round_trips_per_s": live["wend"],
        "live.bare_udp_round_trips_per_s": live["udp"],
        "live.share_of_bare_udp": live["wend"] / live["udp"],
        "planning.paths_s": paths["seconds"],
        "planning.paths_over_networkx": paths["ratio"],
        "planning.popular_plan_s": popular["seconds"],
        "planning.rare_plan_s": rare["seconds"],
    }
    if "--json" in sys.argv:
        print(json.dumps(figures, indent=2))
        return
    table = Table(title="Wend beside its peers, one core")
    table.add_column("what")
    table.add_column("Wend", justify="right")
    table.add_column("peer", justify="right")
    table.add_column("ratio", justify="right")
    table.add_row(
        "simulated transmissions/s (dcrd; SimPy `ack | timeout`)",
        f"{ours:,.0f}", f"{simpys:,.0f}", f"{ours / simpys:.1f} x",
    )  # fmt: skip
    table.add_row(
        "live round trips/s (publish, deliver, answer; bare asyncio UDP echo)",
        f"{live['wend']:,.0f}", f"{live['udp']:,.0f}", f"{live['wend'] / live['udp']:.2f} x",
    )  # fmt: skip
    table.add_row(
        "seconds per (publisher, receiver), 5 bottleneck-disjoint paths, 1000 peers (networkx)",
        f"{paths['seconds_per_pair']:.1e}", f"{paths['networkx_seconds_per_pair']:.1e}", f"{paths['ratio']:,.0f} x",
    )  # fmt: skip
    table.add_row(
        "whole plan, 1000 peers, 10 000 messages, popularity 85 %, k = 3", f"{popular['seconds']:.1f} s", "", ""
    )
    table.add_row("whole plan, 200 peers, 10 000 messages, popularity 5 %, k = 3", f"{rare['seconds']:.1f} s", "", "")
    Console().print(table)


if __name__ == "__main__":
    main()
