"""What live peers make of failing links on a busy machine: false failures, link-state packets, and added delay.

A window of the lab's comparison (20 peers of degree 5) runs at ordinary priority, first with Wend, then with a plain
UDP tree. Each outage has two ends; a peer that declares a link down says `link-down`. The oracle has the least delay
that is possible; a tree loses the events on long routes first, so the median delay of its deliveries is even lower.

`python -m benchmarks.lab_failures [--pf 0.06] [--duration 60] [--topology 1] [--json]`, as root.
"""

import argparse
import asyncio
import json
from collections import Counter
from typing import Any

from wend.drivers.live.status import StatusSnapshot
from wend.lab.bench.cell import Cell, CellSettings
from wend.lab.bench.measurement import measure_cell
from wend.lab.systems.system_table import SYSTEMS
from wend.lab.systems.wend import Wend

LINK_STATE = "link-state"


class CountingWend(Wend):
    """Wend as the comparison runs it. It keeps the counts of its peers at the start and the end of the window."""

    def __init__(self) -> None:
        super().__init__("wend", "adaptive")
        self.counted: list[list[StatusSnapshot]] = []

    async def data_packets(self) -> int | None:
        self.counted.append(list(await asyncio.gather(*(client.status() for client in self._clients.values()))))
        return None

    def since(self, what: str) -> Counter[str]:
        """The counts of all peers in the window, by name."""
        begin, end = (sum((Counter(getattr(one, what)) for one in self.counted[at]), Counter()) for at in (0, -1))
        return end - begin


def run(settings: CellSettings) -> Cell:
    return asyncio.run(measure_cell(settings, windows=1, tell=lambda _: None, name="failures", raise_priority=False))


def failures(pf: float, duration_s: float, topology: int) -> dict[str, Any]:
    system = CountingWend()
    SYSTEMS["wend"] = lambda: system
    how: dict[str, Any] = {"topology_seed": topology, "failure_seed": 100 * topology + 1, "pf": pf}
    ours, tree = (run(CellSettings(system=name, duration_s=duration_s, **how)) for name in ("wend", "udp-tree"))
    control, notices = system.since("control"), system.since("notices")
    return {
        "on_time": ours.metrics.on_time_ratio,
        "ends_of_outages": 2 * len(ours.outages),
        "link_downs": notices["link-down"],
        "link_state_share": control[LINK_STATE] / max(1, control.total()),
        "p50_ms": {"wend": ours.metrics.p50_ms, "udp-tree": tree.metrics.p50_ms, "oracle": ours.oracle.p50_ms},
        "cpu_share": ours.cpu_share,
        "late_acks": notices["late-ack"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pf", type=float, default=0.06)
    parser.add_argument("--duration", type=float, default=60.0)
    parser.add_argument("--topology", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = failures(given.pf, given.duration, given.topology)
    if given.json:
        print(json.dumps(found))
        return
    delays = found["p50_ms"]
    print(f"on time     {100 * found['on_time']:.2f} %, with {100 * found['cpu_share']:.0f} % of one core")
    print(f"link-downs  {found['link_downs']} for {found['ends_of_outages']} ends of outages")
    print(f"link-state  {100 * found['link_state_share']:.2f} % of all control packets")
    print(f"late ACKs   {found['late_acks']}")
    print(f"median      {delays['wend']:.1f} ms; tree {delays['udp-tree']:.1f}, oracle {delays['oracle']:.1f}")


if __name__ == "__main__":
    main()
