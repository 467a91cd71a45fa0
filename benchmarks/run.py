"""`make bench`: every benchmark once, as one table. `--json` for machines."""

import json
import sys

from rich.console import Console
from rich.table import Table

from benchmarks import matching
from benchmarks.live import round_trips
from benchmarks.simulation import simpy_rate, wend_rate
from benchmarks.underlay import measure


def main() -> None:
    ours, simpys = wend_rate(), simpy_rate()
    live = round_trips()
    beneath = measure()
    figures = {
        "sim.transmissions_per_s": ours,
        "simpy.transmissions_per_s": simpys,
        "sim.over_simpy": ours / simpys,
        "live.round_trips_per_s": live["wend"],
        "live.bare_udp_round_trips_per_s": live["udp"],
        "live.share_of_bare_udp": live["wend"] / live["udp"],
        **beneath,
    }
    matched = matching.table()
    for (count, width), found in matched.items():
        figures |= {f"matching.{count}.{width}.{name}": value for name, value in found._asdict().items()}
        figures[f"matching.{count}.{width}.over_scan"] = found.batch / found.scan
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
    for (count, width), found in matched.items():
        table.add_row(
            f"events/s matched in batches against {count:,} {width} filters (NumPy scan)",
            f"{found.batch:,.0f}", f"{found.scan:,.0f}", f"{found.batch / found.scan:.0f} x",
        )  # fmt: skip
        table.add_row(
            f"  one by one; adds/s {found.adds:,.0f}, removes/s {found.removes:,.0f}, "
            f"{found.array_bytes:,.0f} bytes each ({found.resident_bytes:,.0f} with keys)",
            f"{found.single:,.0f}", "", f"{found.single / found.scan:.0f} x",
        )  # fmt: skip
    for what, name in (
        ("CPU seconds for all ways of 1640 routers (SciPy's Dijkstra)", "all_ways"),
        ("CPU seconds for joint reliability of 250 peers, 5 trees (plain Python)", "joint"),
    ):
        mine = beneath[f"underlay.{name}_s"]
        other = beneath[f"underlay.{name}_{'scipy' if name == 'all_ways' else 'python'}_s"]
        table.add_row(what, f"{mine:.2f}", f"{other:.2f}", f"{other / mine:.1f} x")
    Console().print(table)


if __name__ == "__main__":
    main()
