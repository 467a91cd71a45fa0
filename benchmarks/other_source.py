"""CPU time of the simulator with this source beside another one, such as the checkout of an earlier commit.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.other_source /tmp/before/src [--rounds N] [--only dcrd,clusters]

Each run is a process of its own, and runs of both sources alternate, so that both meet the same load of the machine.
A load only adds to CPU time, so the least of all rounds is compared. `steady` leaves out what a short run takes, too.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1] / "src"
SETTINGS: dict[str, tuple[int, dict[str, object]]] = {
    "dcrd": (200, {"topology": "regular", "degree": 8}),
    "adaptive": (60, {"topology": "regular", "degree": 8}),
    "rendezvous": (40, {"peers": 40}),
    "clusters": (100, {"topology": "full-mesh", "clusters": 4}),
}
"""By strategy: how many seconds to simulate, and the settings besides `pf`."""
SHORT = 5
RUN = """
import json, sys, time
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import run
from wend.drivers import world as worlds
build_world = getattr(worlds, "build_world", None) or worlds.build  # earlier commits have `build` and `play`
play_world = getattr(run, "play_world", None) or run.play
world = build_world(Scenario(**json.loads(sys.argv[1])))
began = time.process_time()
play_world(world)
print(time.process_time() - began)
"""


def cpu_s(source: Path, strategy: str, seconds: int) -> float:
    scenario = {**SETTINGS[strategy][1], "strategy": strategy, "pf": 0.06, "duration": f"{seconds}s"}
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", RUN, json.dumps(scenario)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def compare(other: Path, strategy: str, rounds: int) -> str:
    seconds = SETTINGS[strategy][0]
    least: dict[tuple[Path, int], float] = {}
    for number in range(rounds):
        for source in (other, HERE) if number % 2 else (HERE, other):
            for duration in (SHORT, seconds):
                taken = cpu_s(source, strategy, duration)
                least[source, duration] = min(taken, least.get((source, duration), taken))
    here, there = least[HERE, seconds], least[other, seconds]
    steady = (here - least[HERE, SHORT]) / (there - least[other, SHORT])
    return f"{strategy:11} {here:7.3f} s  other {there:7.3f} s  ratio {here / there:.3f}  steady {steady:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of the simulator beside that of another source")
    parser.add_argument("other", type=Path, help="the folder `src` of the other source")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(SETTINGS), help="strategies, with commas between")
    arguments = parser.parse_args()
    for strategy in arguments.only.split(","):
        print(compare(arguments.other.resolve(), strategy, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
