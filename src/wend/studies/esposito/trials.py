"""The trials of the esposito study: runs with crashes, the overlap of trees, and strategies under all faults."""

import msgspec

from wend.pipeline.code_hash import PARTS as SIMULATED
from wend.pipeline.sweeps.trials import TrialKind, Trials
from wend.studies.esposito.fault_matrix import COMBINED, FAULTS, FaultRow, play_fault
from wend.studies.esposito.runs import PRINTED_SCRIBE, RUN_METRICS, CrashRun, Metrics, run_crashes
from wend.studies.esposito.tree_overlap import OVERLAP_METRICS, OverlapRun, run_overlap

MATRIX = (*FAULTS, COMBINED)
MATRIX_SHARES = ("delivered", "on_time")
MATRIX_COUNTS = ("doubled", "lost", "broken")


class MatrixRun(msgspec.Struct, frozen=True):
    """Random worlds of one strategy: some with each fault."""

    strategy: str
    worlds: int = 2
    """Worlds with each fault."""


def matrix_metric(fault: str, metric: str) -> str:
    return f"{fault.replace(' ', '_')}_{metric}"


MATRIX_METRICS = (
    *(matrix_metric(fault, metric) for fault in MATRIX for metric in (*MATRIX_SHARES, *MATRIX_COUNTS)),
    "broken",
    "matrix_worlds",
)


def run_matrix(run: MatrixRun, seed: int) -> Metrics:
    """Play the worlds of one strategy. Returns shares of the expected deliveries, and counts per world. All strategies
    play the same worlds."""
    seeds = range((seed - 1) * run.worlds, seed * run.worlds)
    metrics: Metrics = {"matrix_worlds": len(MATRIX) * run.worlds, "broken": 0.0}
    for fault in MATRIX:
        rows = [play_fault(fault, run.strategy, one) for one in seeds]
        expected = max(1, sum(row.expected for row in rows))
        metrics[matrix_metric(fault, "delivered")] = sum(row.delivered for row in rows) / expected
        metrics[matrix_metric(fault, "on_time")] = sum(row.on_time for row in rows) / expected
        metrics[matrix_metric(fault, "doubled")] = sum(row.doubled for row in rows) / run.worlds
        metrics[matrix_metric(fault, "lost")] = sum(row.lost for row in rows) / run.worlds
        metrics[matrix_metric(fault, "broken")] = _count_broken(rows)
        metrics["broken"] += _count_broken(rows)
    return metrics


def _count_broken(rows: list[FaultRow]) -> float:
    return float(sum(len(row.broken) for row in rows))


NODE_S = {PRINTED_SCRIBE: 0.011, "scribe-acks": 0.025, "esposito": 0.028, "clusters-adaptive": 0.06}
"""By strategy: the seconds that a node takes in a run of 3 simulated minutes."""


def estimate_cost(run: CrashRun) -> float:
    """Estimate the seconds of a run."""
    return NODE_S.get(run.strategy, 0.037) * run.nodes * (run.duration_s + 60) / 180


_PARTS = (*SIMULATED, *(f"studies/esposito/{name}.py" for name in ("runs", "tree_overlap", "fault_matrix")))
TRIALS = Trials(
    (
        TrialKind("crashes", CrashRun, run_crashes, RUN_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("rare-crashes", CrashRun, run_crashes, RUN_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("overlap", OverlapRun, run_overlap, OVERLAP_METRICS, parts=_PARTS, cost=lambda run: 0.03 * run.nodes),
        TrialKind("matrix", MatrixRun, run_matrix, MATRIX_METRICS, parts=_PARTS, cost=lambda run: 3.0 * run.worlds),
    )
)
