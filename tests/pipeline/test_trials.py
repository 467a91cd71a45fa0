"""Trials are swept like scenarios: each runs once, each result is stored, each failure is a row."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.spark import needs_java
from wend.model.errors import ConfigError
from wend.pipeline.code_hash import hash_code
from wend.pipeline.sweeps.seed_means import means_by_setting
from wend.pipeline.sweeps.sweep import SweepResult, run_sweep
from wend.pipeline.sweeps.trials import Trial, TrialKind, Trials


class Box(msgspec.Struct, frozen=True):
    strategy: str
    side: int = 2
    height: float = 1.0


class Ball(msgspec.Struct, frozen=True):
    strategy: str
    radius: float = 1.0


def measure_box(box: Box, seed: int) -> dict[str, float]:
    if box.strategy == "broken":
        raise ValueError(f"a box of seed {seed} broke")
    return {"volume": box.side**2 * box.height + seed, "edge": float("nan") if box.strategy == "round" else 4.0}


def measure_ball(ball: Ball, seed: int) -> dict[str, float]:
    return {"volume": 4 * ball.radius**3, "shine": seed}


def box_cost(box: Box) -> float:
    return box.side


BOX = TrialKind("box", Box, measure_box, ("volume", "edge"), cost=box_cost)
BALL = TrialKind("ball", Ball, measure_ball, ("volume", "shine"))
BOXES = Trials((BOX,))
BOTH = Trials((BOX, BALL))


def test_equal_trials_have_equal_keys_however_they_were_written() -> None:
    said = [{"strategy": "a"}, {"strategy": "a", "side": 2.0}, {"kind": "box", "strategy": "a", "height": 1}]
    assert len({BOXES.key(BOXES.trial(fields, 1)) for fields in said}) == 1
    other = BOXES.trial({"strategy": "a", "side": 3}, 1)
    assert BOXES.key(other) != BOXES.key(BOXES.trial(said[0], 1))


def test_another_seed_is_another_run_of_the_same_setting() -> None:
    one, two = (BOXES.trial({"strategy": "a"}, seed) for seed in (1, 2))
    assert BOXES.key(one) != BOXES.key(two)
    assert BOXES.setting(one) == BOXES.setting(two)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"strategy": "a", "colour": 1}, "a trial 'box' has no field 'colour'; it has strategy, side, height"),
        ({"strategy": "a", "side": "wide"}, "a trial 'box' cannot have these fields: .* `\\$.side`"),
        ({"strategy": "a", "side": 2.5}, "a trial 'box' cannot have these fields"),
        ({"side": 2}, "missing required field `strategy`"),
        ({"kind": "cone", "strategy": "a"}, "no kind of trial 'cone'; the kinds are box"),
    ],
)
def test_fields_that_cannot_be_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BOXES.trial(fields, 1)


def test_several_kinds_share_a_table() -> None:
    with pytest.raises(ConfigError, match="a trial needs a kind, one of box, ball"):
        BOTH.trial({"strategy": "a"}, 1)
    assert BOTH.averaged == ("volume", "edge", "shine", "wall_s")
    row = BOTH.row(BOTH.trial({"kind": "ball", "strategy": "a"}, 7), 3)
    table = pa.Table.from_pylist([row], schema=BOTH.run_schema).to_pylist()[0]
    assert (table["kind"], table["radius"], table["side"], table["seed"], table["place"]) == ("ball", 1.0, None, 7, 3)
    assert BOTH.run_metrics(table, BOTH.code())["shine"] == 7.0


def test_columns_that_do_not_agree_are_refused() -> None:
    class Wide(msgspec.Struct):
        strategy: str
        side: float

    class Nameless(msgspec.Struct):
        side: int

    class Seeded(msgspec.Struct):
        strategy: str
        seed: int

    for fields, metrics in ((Wide, ()), (Nameless, ()), (Seeded, ()), (Ball, ("radius",)), (Ball, ("side",))):
        with pytest.raises(TypeError, match="trials 'other'"):
            Trials((BOX, TrialKind("other", fields, measure_ball, metrics)))


def test_a_metric_that_was_not_announced_is_an_error() -> None:
    shy = Trials((TrialKind("ball", Ball, measure_ball, ("volume",)),))
    row = shy.row(shy.trial({"strategy": "a"}, 1))
    with pytest.raises(TypeError, match="return 'shine', which is not one of their metrics"):
        shy.run_metrics(row, shy.code())


def test_the_code_of_a_trial_is_what_it_names_and_its_own_file() -> None:
    from wend.planning.flow_workload import draw_workload

    assert BOXES.code() == hash_code(("model", "topology"))
    planned = Trials((TrialKind("plan", Box, draw_workload, (), parts=("model",)),))
    assert planned.parts == ("model", "planning/flow_workload.py")
    with pytest.raises(ValueError, match="Wend's source has no planing"):
        hash_code(("model", "planing"))


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    return [
        BOXES.trial({"strategy": s, "side": side}, seed) for s in ("a", "round") for side in (1, 2) for seed in (1, 2)
    ]


@pytest.fixture(scope="module")
def swept(spark: Any, trials: list[Trial], tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return run_sweep(spark, BOXES, trials, "boxes", tmp_path_factory.mktemp("trials"), quiet=True)


@needs_java
@pytest.mark.spark
class TestSwept:
    def test_every_trial_is_a_row_with_typed_columns(self, swept: SweepResult, trials: list[Trial]) -> None:
        types = dict(swept.results.dtypes)
        assert (types["side"], types["height"], types["volume"], types["seed"]) == (
            "bigint",
            "double",
            "double",
            "bigint",
        )
        rows = swept.results.toArrow().to_pylist()
        assert {row["run"]: row["volume"] for row in rows} == {
            BOXES.key(trial): measure_box(trial.fields, trial.seed)["volume"]  # type: ignore[arg-type]
            for trial in trials
        }
        assert all(row["wall_s"] >= 0 and row["code"] == BOXES.code() for row in rows)
        assert {row["strategy"]: row["edge"] for row in rows} == {"a": 4.0, "round": None}

    def test_what_is_finished_is_not_run_again(self, spark: Any, swept: SweepResult, trials: list[Trial]) -> None:
        more = [*trials, BOXES.trial({"strategy": "a", "side": 9}, 1)]
        again = run_sweep(spark, BOXES, more, "boxes", swept.store.out, quiet=True)
        assert (again.runs, again.ran) == (9, 1)

    def test_means_are_over_seeds(self, swept: SweepResult) -> None:
        rows = means_by_setting(swept.results, ("volume", "edge")).toArrow().to_pylist()
        means = {(row["setting"], row["metric"]): (row["mean"], row["seeds"]) for row in rows}
        setting = BOXES.setting(BOXES.trial({"strategy": "a", "side": 2}, 0))
        assert means[setting, "volume"] == (5.5, 2)
        assert (BOXES.setting(BOXES.trial({"strategy": "round"}, 0)), "edge") not in means

    def test_a_trial_that_raises_is_a_row_with_its_error(self, spark: Any, tmp_path: Path) -> None:
        runs = [BOXES.trial({"strategy": s}, 1) for s in ("a", "broken")]
        done = run_sweep(spark, BOXES, runs, "boxes", tmp_path, quiet=True)
        (failure,) = done.failures
        assert (failure["strategy"], failure["error"]) == ("broken", "ValueError: a box of seed 1 broke")
        assert run_sweep(spark, BOXES, runs, "boxes", tmp_path, quiet=True).ran == 1

    def test_a_worker_with_other_code_says_so(self, spark: Any, trials: list[Trial], tmp_path: Path) -> None:
        other = run_sweep(spark, BOXES, trials[:1], "boxes", tmp_path, code="e" * 12, quiet=True)
        assert "this worker has Wend's code" in other.failures[0]["error"]
