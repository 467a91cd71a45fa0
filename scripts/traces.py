"""The hashes of some 340 simulated runs: every strategy, membership, persistence, capacities and underlays.

A run has two hashes: `sha256` of its trace, and `counts` of its control messages, notices and drops, which also covers
what strategies say to each other without events. A change that should not alter behaviour leaves both as they are.

    python scripts/traces.py                  # compare all runs with tests/drivers/sim/traces.json
    python scripts/traces.py random/dcrd      # those whose names begin so
    python scripts/traces.py --write          # record the present hashes: say in the commit message why they changed
"""

import hashlib
import json
import sys
from multiprocessing import Pool
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[1] / "tests" / "drivers" / "sim" / "traces.json"


def read_traces() -> dict[str, dict[str, Any]]:
    """By name: the scenario of a run, and its hashes."""
    runs: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return runs


def trace_hashes(scenario: dict[str, Any]) -> dict[str, str]:
    from wend.drivers.scenarios import make_scenario
    from wend.drivers.sim import simulate

    summary = simulate(make_scenario(scenario)).summary
    counts = json.dumps([summary.control, summary.notices, summary.drops], sort_keys=True)
    return {"sha256": summary.trace_sha256, "counts": hashlib.sha256(counts.encode()).hexdigest()}


def main() -> None:
    prefixes = tuple(word for word in sys.argv[1:] if not word.startswith("--"))
    runs = {name: run for name, run in read_traces().items() if not prefixes or name.startswith(prefixes)}
    with Pool() as pool:
        made = dict(zip(runs, pool.map(trace_hashes, [run["scenario"] for run in runs.values()], 4), strict=True))
    changed = [name for name, run in runs.items() if run != {**run, **made[name]}]
    for name in changed:
        print(f"changed: {name}")
    print(f"{len(runs) - len(changed)} of {len(runs)} runs are as recorded")
    if "--write" in sys.argv[1:]:
        recorded = {name: {**run, **made.get(name, {})} for name, run in read_traces().items()}
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(run)}" for name, run in recorded.items())
        RECORDED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    elif changed:
        sys.exit(1)


if __name__ == "__main__":
    main()
