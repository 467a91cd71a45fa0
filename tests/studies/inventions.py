"""A finished study with invented values, without Spark and without a simulator: for tests of pages and pictures."""

from collections.abc import Iterator
from zlib import crc32

from msgspec.structs import replace

from wend.studies.claims import Estimate, estimate_mean, judge_claims, load_claims
from wend.studies.study_model import Fields, Study
from wend.studies.study_run import StudyResults


def invented_study(study: Study, size_name: str = "default", figures: tuple[str, ...] = ()) -> StudyResults:
    """Every metric of every setting has a value that its name decides: a share just below 1, or a small number."""
    chosen = study.select(list(figures), study.strategies())
    size = study.find_size(size_name)
    claims = [claim for claim in load_claims(study.name) if not figures or claim.figure in figures]
    operands = [operand for claim in claims for part in claim.parts for operand in part.operands()]
    asked: list[tuple[Fields, str]] = [(term.fields, term.metric) for one in operands for term in one.terms]
    asked += [*_shown(chosen, size_name)]
    values: dict[str, dict[int, dict[str, float | None]]] = {}
    estimates: dict[tuple[str, str], Estimate] = {}
    for fields, metric in asked:
        setting = size.setting_key(fields)
        if (setting, metric) in estimates:
            continue
        sample = [_value(setting, metric, seed) for seed in range(1, size.seeds + 1)]
        for seed, value in enumerate(sample, 1):
            values.setdefault(setting, {}).setdefault(seed, {})[metric] = value
        found = estimate_mean(sample)
        assert found is not None
        estimates[setting, metric] = found
    return StudyResults(
        study=chosen, size=size, claims=judge_claims(claims, values, size), estimates=estimates, left_out=[],
        runs=len(values) * size.seeds, ran=0, failures=[], code="invented", elapsed_s=61.0, simulated_wall_s=3700.0,
    )  # fmt: skip


def with_size(finished: StudyResults, **changes: object) -> StudyResults:
    return replace(finished, size=replace(finished.size, **changes))


def _shown(study: Study, size_name: str) -> Iterator[tuple[Fields, str]]:
    size = study.find_size(size_name)
    for figure in study.figures:
        for panel in figure.panels:
            for _, points in figure.points_by_series(panel, size):
                yield from ((point.fields, point.metric) for point in points if point.metric)
    for table in study.tables:
        yield from ((fields, row.metric) for _, fields in table.columns for row in table.rows)
    if study.comparison is not None:
        for _, at in study.comparison.rows:
            for series in study.comparison.series:
                for metric in (study.comparison.metric, study.comparison.price):
                    yield {**at, **series.fields}, metric


def _value(setting: str, metric: str, seed: int) -> float:
    share = crc32(f"{setting} {metric}".encode()) / 2**32
    base = 1.2 + 2 * share if metric.startswith("packets") else 1 - 0.25 * share**3
    return base - 0.004 * (crc32(f"{setting} {metric} {seed}".encode()) / 2**32)
