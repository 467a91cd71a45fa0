"""A sweep runs each scenario once, stores its result, and continues if one of them fails."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.spark import deadly, invented, needs_java, poisoned, summary
from wend.drivers.scenarios import Scenario
from wend.model.errors import ConfigError
from wend.pipeline.scenario_rows import METRICS, scenario_key
from wend.pipeline.sweeps.seed_means import means_by_setting
from wend.pipeline.sweeps.simulations import SIMULATIONS, Simulations
from wend.pipeline.sweeps.sweep import MAX_TRIES, SweepResult, execute_runs, run_frame, run_sweep
from wend.studies.claims import estimate_mean

pytestmark = [needs_java, pytest.mark.spark]

SCENARIOS = [
    Scenario(strategy=strategy, pf=pf, seed=seed)
    for strategy in ("dcrd", "oracle")
    for pf in (0.02, 0.1)
    for seed in (1, 2, 3)
]


def run(spark: Any, out: Path, scenarios: list[Scenario] = SCENARIOS, **options: Any) -> SweepResult:
    work = Simulations(options.pop("run", invented))
    return run_sweep(spark, work, scenarios, "test", out, quiet=True, **{"code": "0" * 12, **options})


def files_of(swept: SweepResult) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in swept.store.folder.iterdir()}


@pytest.fixture(scope="module")
def swept(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return run(spark, tmp_path_factory.mktemp("sweep"))


def test_every_run_is_a_row_with_typed_columns(swept: SweepResult) -> None:
    types = dict(swept.results.dtypes)
    assert (types["pf"], types["peers"], types["ack"]) == ("double", "bigint", "string")
    assert (types["on_time"], types["data_packets"]) == ("double", "bigint")
    assert types["control"] == "map<string,bigint>"
    assert (types["study"], types["code"]) == ("string", "string")
    assert set(METRICS) <= set(types)
    rows = swept.results.toArrow().to_pylist()
    assert len(rows) == swept.runs == swept.ran == len(SCENARIOS)
    expected = {scenario_key(s): (s.strategy, s.pf, s.seed, invented(s).on_time) for s in SCENARIOS}
    assert {r["run"]: (r["strategy"], r["pf"], r["seed"], r["on_time"]) for r in rows} == expected
    # A hash that has only digits stays a string.
    assert {(row["study"], row["code"]) for row in rows} == {("test", "0" * 12)}


def test_results_are_parquet_partitioned_by_study(swept: SweepResult) -> None:
    assert swept.store.folder == swept.store.out / "runs" / "study=test" / f"code={'0' * 12}"
    assert set(files_of(swept)) == {f"{scenario_key(scenario)}.parquet" for scenario in SCENARIOS}


def test_what_is_finished_is_not_run_again(spark: Any, swept: SweepResult) -> None:
    before = files_of(swept)
    again = run(spark, swept.store.out, run=poisoned)
    assert (again.ran, again.failures) == (0, [])
    assert files_of(again) == before
    assert again.results.count() == len(SCENARIOS)


def test_more_scenarios_run_only_what_is_new(spark: Any, swept: SweepResult) -> None:
    before = files_of(swept)
    more = run(spark, swept.store.out, [*SCENARIOS[:2], Scenario(seed=9)])
    assert (more.runs, more.ran) == (3, 1)
    assert more.results.count() == 3
    assert before.items() <= files_of(more).items()


def test_changed_code_runs_everything_anew(spark: Any, swept: SweepResult) -> None:
    anew = run(spark, swept.store.out, SCENARIOS[:2], code="f" * 12)
    assert anew.ran == 2
    assert {row["code"] for row in anew.results.toArrow().to_pylist()} == {"f" * 12}


def test_equal_scenarios_run_once(spark: Any, tmp_path: Path) -> None:
    assert run(spark, tmp_path, [Scenario(), Scenario(), Scenario(pf=0.06)]).ran == 1


def test_a_poisoned_run_is_a_row_with_its_error_and_stops_no_other(spark: Any, tmp_path: Path) -> None:
    first = run(spark, tmp_path, run=poisoned)
    rows = first.results.toArrow().to_pylist()
    failed = {row["seed"]: row for row in rows if row["error"]}
    assert len(rows) == len(SCENARIOS)
    assert set(failed) == {2}
    assert failed[2]["error"] == "ValueError: seed 2 is even"
    assert failed[2]["on_time"] is None
    assert "poisoned" in failed[2]["traceback"]
    assert len(first.failures) == 4
    assert {row["seeds"] for row in means_by_setting(first.results, ["on_time"]).toArrow().to_pylist()} == {2}

    healed = run(spark, tmp_path)
    assert (healed.ran, healed.failures) == (4, [])
    assert not [name for name in files_of(healed) if "error" in name]


def test_runs_that_kill_their_process_or_never_end_are_quarantined_and_the_rest_finishes(
    spark: Any, tmp_path: Path
) -> None:
    runner = partial(deadly, folder=str(tmp_path))
    scenarios = [Scenario(seed=seed) for seed in (1, 2, 3, 4)]
    first = run(spark, tmp_path / "out", scenarios, run=runner, limit_s=3.0)
    rows = {row["seed"]: row for row in first.results.toArrow().to_pylist()}
    assert {seed: row["error"] is None for seed, row in rows.items()} == {1: True, 2: False, 3: False, 4: True}
    assert "RunDied: the run ended its process (signal SIGKILL" in rows[2]["error"]
    assert f"{MAX_TRIES} times" in rows[2]["error"]
    assert "RunTimeout: the run took longer than 3 s" in rows[3]["error"]
    started = Counter((tmp_path / "started").read_text().split())
    assert started == {"1": 1, "2": MAX_TRIES, "3": 1, "4": 1}

    again = run(spark, tmp_path / "out", scenarios, run=runner)
    assert again.ran == 0 and len(again.failures) == 2
    place = Path(rows[2]["error"].rpartition("remove ")[2])
    place.unlink()
    healed = run(spark, tmp_path / "out", scenarios)
    assert (healed.ran, len(healed.failures)) == (1, 1)


def test_results_are_gathered_into_one_file_and_stay_what_they_are(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(spark, tmp_path, run=poisoned)
    before = {row["run"]: row for row in first.results.toArrow().to_pylist()}
    (one,) = [path for path in first.store.folder.iterdir() if path.name.startswith(scenario_key(SCENARIOS[0]))]
    saved = one.read_bytes()
    first.store.compact(SIMULATIONS.result_schema, most=3)
    one.write_bytes(saved)  # as if a crash had come before the single files were removed
    again = run(spark, tmp_path, run=poisoned)
    assert (again.ran, len(again.failures)) == (4, 4)
    names = sorted(name.partition("-")[0] for name in files_of(again) if "error" not in name)
    assert names == ["compacted"]
    assert {row["run"]: row for row in again.results.toArrow().to_pylist()} == before
    assert run(spark, tmp_path).ran == 4


def test_the_task_returns_what_it_wrote_and_finds_what_was_written(spark: Any, tmp_path: Path) -> None:
    frame = run_frame(spark, SIMULATIONS, SCENARIOS[:3])
    rows = execute_runs(frame, tmp_path, Simulations(invented), "c", 3).toArrow().to_pylist()
    # As after the retry of a task: the files exist, so the poisoned runner is not called.
    again = execute_runs(frame, tmp_path, Simulations(poisoned), "c", 3).toArrow().to_pylist()
    assert sorted(again, key=lambda row: row["run"]) == sorted(rows, key=lambda row: row["run"])


def test_one_run_per_partition_slowest_first(spark: Any) -> None:
    from pyspark.sql import functions as f

    frame = run_frame(spark, SIMULATIONS, SCENARIOS).repartitionById(len(SCENARIOS), "place")
    found = frame.select("place", f.spark_partition_id().alias("partition")).toArrow().to_pylist()
    assert all(row["place"] == row["partition"] for row in found)


def test_a_worker_with_other_code_says_so(spark: Any, tmp_path: Path) -> None:
    other = run_sweep(spark, SIMULATIONS, SCENARIOS[:1], "test", tmp_path, code="e" * 12, quiet=True)
    assert "this worker has Wend's code" in other.failures[0]["error"]


def test_nothing_to_run_is_said(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to run"):
        run(spark, tmp_path, [])


def test_a_folder_that_cannot_be_made_is_said(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot make the output folder"):
        run(spark, tmp_path)


def test_mean_and_interval_are_those_of_plain_python(swept: SweepResult) -> None:
    rows = means_by_setting(swept.results, ["on_time", "delivery"]).toArrow().to_pylist()
    assert len(rows) == 4 * 2
    runs = swept.results.toArrow().to_pylist()
    for row in rows:
        sample = [run[row["metric"]] for run in runs if run["setting"] == row["setting"]]
        expected = estimate_mean(sample)
        assert expected is not None and expected.half is not None
        assert row["seeds"] == expected.seeds == 3
        assert row["mean"] == pytest.approx(expected.mean)
        assert row["half"] == pytest.approx(expected.half)


def test_one_seed_has_a_mean_and_no_interval(spark: Any, tmp_path: Path) -> None:
    alone = run(spark, tmp_path, SCENARIOS[:1])
    (row,) = means_by_setting(alone.results, ["on_time"]).toArrow().to_pylist()
    assert (row["seeds"], row["half"]) == (1, None)


def test_the_interval_is_students() -> None:
    found = estimate_mean([1.0, 2.0, 3.0])
    assert found is not None and found.half is not None
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)  # t(2) = 4.303, s = 1


def test_made_up_summaries_are_complete() -> None:
    assert summary().delivery == 0.99
