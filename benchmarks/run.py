"""`make bench`: runs the benchmarks beside their references. `--only simulation,live` selects; `--json` prints JSON."""

import json
import sys
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks import (
    carrying,
    interest,
    link_cost,
    live,
    matching,
    memory,
    planning,
    publishing,
    restarting,
    rings,
    simulation,
    slow_subscribers,
    underlay,
)
from benchmarks.rows import Row

BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "simulation": simulation.rows,
    "live": live.rows,
    "link_cost": link_cost.rows,
    "carrying": carrying.rows,
    "publishing": publishing.rows,
    "restarting": restarting.rows,
    "slow_subscribers": slow_subscribers.rows,
    "matching": matching.rows,
    "interest": interest.rows,
    "memory": memory.rows,
    "rings": rings.rows,
    "underlay": underlay.rows,
    "planning": planning.rows,
}


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if argument != "--json"]
    chosen = arguments[1].split(",") if arguments[:1] == ["--only"] and len(arguments) == 2 else list(BENCHMARKS)
    if (arguments and chosen == list(BENCHMARKS)) or not set(chosen) <= set(BENCHMARKS):
        sys.exit(f"usage: python -m benchmarks.run [--only NAME,NAME] [--json]; there are {', '.join(BENCHMARKS)}")
    if "--json" in sys.argv:
        found = [row for name in chosen for row in BENCHMARKS[name]()]
        print(json.dumps({row.name: row.values() for row in found}, indent=2))
        return
    table = Table("benchmark", "Wend", "reference", "ratio")
    for name in chosen:
        Console(stderr=True).print(f"{name} ...", style="dim")
        for row in BENCHMARKS[name]():
            table.add_row(*row.shown())
    Console().print(table)


if __name__ == "__main__":
    main()
