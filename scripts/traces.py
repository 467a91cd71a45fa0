"""The trace hashes of some 250 simulated runs: every strategy, membership, persistency, capacities and underlays.

A peer's behaviour is all in its traces, so a change that should not alter behaviour leaves every hash as it is.

    python scripts/traces.py                  # compare all runs with tests/drivers/sim/traces.json
    python scripts/traces.py random/dcrd      # those whose names begin so
    python scripts/traces.py --write          # record the present hashes: say in the commit message why they changed
"""

import json
import sys
from multiprocessing import Pool
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[1] / "tests" / "drivers" / "sim" / "traces.json"


def read() -> dict[str, dict[str, Any]]:
    """By name: the scenario of a run, and the hash of its trace."""
    found: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def trace_hash(scenario: dict[str, Any]) -> str:
    from wend.drivers.scenarios import make_scenario
    from wend.drivers.sim import simulate

    return simulate(make_scenario(scenario)).summary.trace_sha256


def main() -> None:
    prefixes = tuple(word for word in sys.argv[1:] if not word.startswith("--"))
    runs = {name: run for name, run in read().items() if not prefixes or name.startswith(prefixes)}
    with Pool() as pool:
        hashes = dict(zip(runs, pool.map(trace_hash, [run["scenario"] for run in runs.values()], 4), strict=True))
    changed = [name for name, run in runs.items() if run["sha256"] != hashes[name]]
    for name in changed:
        print(f"changed: {name}")
    print(f"{len(runs) - len(changed)} of {len(runs)} traces are as recorded")
    if "--write" in sys.argv[1:]:
        recorded = {name: {**run, "sha256": hashes.get(name, run["sha256"])} for name, run in read().items()}
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(run)}" for name, run in recorded.items())
        RECORDED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    elif changed:
        sys.exit(1)


if __name__ == "__main__":
    main()
