"""Claims of the papers, and verdicts on them: a claim says what to measure, and this module judges the result.

A claim is computed seed by seed (a gain is the gain on the same topology), then averaged, with a 95 % interval. The
verdict depends on the mean alone; otherwise few seeds with wide intervals would make every claim true. A verdict is
*sure* if every mean within the interval gives the same verdict.

The `claims.toml` of a paper has an entry for each claim:

value, rel, tol   the paper's number, and how Wend's is compared with it: "=" within tol, ">=" or "<=" up to tol,
                  ">" or "<" strictly, "factor" up to tol times more or less
metric, at, of    the metric of a run, the setting (fields of the run), the strategy
minus, over       another strategy or setting, to subtract or to divide by, seed by seed. A list of values stands for
                  the mean over them, several lists for all combinations, a list of tables for the mean over them
parts             the differences between the parts of a claim. Every part is judged on its own. The verdict does not
                  depend on a part with info = true
plain             a plain number, not a share in percent
count             for traffic: shared (one copy per link) or unicast (one per destination)
doubt             no interpretation of the paper gives this number: the report shows it, and no verdict depends on it
figure            the figure that shows it; note: an explanation for the reader

`defaults` at the top has the fields of every setting, unless a claim overrides them.
"""

import tomllib
from collections.abc import Container, Iterable, Mapping
from importlib.resources import files
from itertools import product
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Any, Literal

import msgspec

from wend.pipeline.sweeps.seed_means import t_quantile
from wend.studies.study_model import Fields, Size

Relation = Literal["=", ">=", "<=", ">", "<", "factor"]
Verdict = Literal["met", "not met", "contradicted", "doubtful", "not run"]
Values = Mapping[str, Mapping[int, Mapping[str, float | None]]]
"""setting -> seed -> metric -> value"""
Bounds = tuple[float, float]
"""The least and the greatest possible value."""
ANY: Bounds = (-inf, inf)
SHARE: Bounds = (0.0, 1.0)

_NAMES = {"pf": "Pf", "pl": "Pl"}
_COUNTED = ("peers", "nodes", "messages")


class Estimate(msgspec.Struct, frozen=True):
    """A mean over seeds. `half` is half the width of the 95 % interval; it is unknown for one seed."""

    mean: float
    half: float | None
    seeds: int

    def interval(self, bounds: "Bounds") -> tuple[float, float] | None:
        """The 95 % interval, without the values that are impossible."""
        if self.half is None:
            return None
        low, high = bounds
        return max(self.mean - self.half, low), min(self.mean + self.half, high)


class ClaimOperand(msgspec.Struct, frozen=True):
    """One metric in one setting, or its mean over several settings that the paper names together."""

    metric: str
    settings: tuple[Fields, ...]


class ClaimValue(msgspec.Struct, frozen=True):
    """One number of a claim, and the measured expression: `of`, `of - minus` or `of / over`."""

    label: str
    value: float
    of: ClaimOperand
    minus: ClaimOperand | None = None
    over: ClaimOperand | None = None
    info: bool = False
    """Shown, but the verdict does not depend on it."""

    def operands(self) -> list[ClaimOperand]:
        return [operand for operand in (self.of, self.minus, self.over) if operand is not None]

    def bounds(self, shares: Container[str]) -> Bounds:
        """The possible values, if the metrics in `shares` are shares."""
        if not all(operand.metric in shares for operand in self.operands()):
            return ANY
        if self.over is not None:
            return 0.0, inf
        return SHARE if self.minus is None else (-1.0, 1.0)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    what: str
    setting: str
    figure: str
    rel: Relation
    tol: float
    parts: tuple[ClaimValue, ...]
    doubt: bool = False
    contradicted: bool = False
    """The model that the paper describes shows the opposite; `note` says why. It counts if the claim is not met."""
    plain: bool = False
    """Whether the value is a plain number, not a share in percent."""
    count: str = ""
    note: str = ""

    def settings(self) -> list[Fields]:
        return [fields for part in self.parts for operand in part.operands() for fields in operand.settings]


class JudgedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A part with our number. `within` is None if it was not run."""

    part: ClaimValue
    ours: Estimate | None
    within: bool | None
    could: frozenset[bool] = frozenset()
    """The values of `within` over the means of the 95 % interval; empty if the interval is unknown."""

    @property
    def sure(self) -> bool | None:
        return len(self.could) == 1 if self.could else None


class ClaimResult(msgspec.Struct, frozen=True, kw_only=True):
    claim: Claim
    parts: tuple[JudgedValue, ...]
    verdict: Verdict

    @property
    def sure(self) -> bool | None:
        """Whether more seeds are unlikely to change the verdict; None if the numbers do not decide it."""
        gated = [judged.could for judged in self.parts if not judged.part.info]
        if self.verdict in ("doubtful", "not run") or not all(gated):
            return None
        return any(could == {False} for could in gated) or all(could == {True} for could in gated)


def load_claims(study: str) -> list[Claim]:
    return parse_claims(files("wend.studies").joinpath(study, "claims.toml").read_text(encoding="utf-8"))


def parse_claims(text: str) -> list[Claim]:
    content = tomllib.loads(text)
    return [_claim(entry, content.get("defaults", {})) for entry in content["claim"]]


def _claim(entry: dict[str, Any], defaults: Fields) -> Claim:
    differences = entry.get("parts", [{}])
    values = entry["value"] if isinstance(entry["value"], list) else [entry["value"]] * len(differences)
    base = {**entry, "at": {**defaults, **entry.get("at", {})}}
    parts = [_part(base, own, value) for own, value in zip(differences, values, strict=True)]
    about = {name: entry[name] for name in ("id", "what", "setting", "figure", "rel")}
    extra = {name: entry[name] for name in ("doubt", "contradicted", "plain", "count", "note") if name in entry}
    extra.setdefault("plain", entry.get("metric") == "packets")
    return Claim(**about, **extra, tol=entry.get("tol", 0.0), parts=tuple(parts))


def _part(entry: dict[str, Any], own: dict[str, Any], value: float) -> ClaimValue:
    at = {**entry["at"], **own.get("at", {})}
    metric = own.get("metric", entry.get("metric"))
    count = own.get("count", entry.get("count", ""))

    def operand(name: str) -> ClaimOperand | None:
        if isinstance(own.get(name), list):
            return ClaimOperand(str(metric), tuple(one for each in own[name] for one in _alternatives({**at, **each})))
        fields = {**entry.get(name, {}), **own.get(name, {})}
        if not fields and name != "of":
            return None
        chosen = fields.pop("metric", f"packets_{count}" if metric == "packets" else metric)
        return ClaimOperand(chosen, _alternatives({**at, **fields}))

    of = operand("of")
    assert of is not None
    label = own["label"] if "label" in own else _label(own)
    return ClaimValue(label, float(value), of, operand("minus"), operand("over"), own.get("info", False))


def _alternatives(fields: Fields) -> tuple[Fields, ...]:
    """Expand lists of values into settings: one for each combination."""
    listed = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    return tuple(dict(zip(listed, values, strict=True)) for values in product(*listed.values()))


def _label(own: dict[str, Any]) -> str:
    """Describe how this part differs from the others of its claim."""
    words = [_field_words(name, value) for name, value in own.get("at", {}).items()]
    words += [_operand_words(own["of"])] if "of" in own else []
    words += [f"minus {_operand_words(own['minus'])}"] if "minus" in own else []
    words += [f"over {_operand_words(own['over'])}"] if "over" in own else []
    words += [metric_words(own["metric"])] if "metric" in own else []
    return ", ".join(words)


def _operand_words(operand: Fields) -> str:
    named = [_field_words(name, value) for name, value in operand.items() if name != "metric"]
    return ", ".join(named) or metric_words(operand["metric"])


def _field_words(name: str, value: object) -> str:
    if isinstance(value, list):
        return f"the mean of {' and '.join(_field_words(name, each) for each in value)}"
    if name in ("strategy", "topology"):
        return {"full-mesh": "full mesh"}.get(str(value), str(value))
    number = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{number} {name}" if name in _COUNTED else f"{_NAMES.get(name, name.replace('_', ' '))} {number}"


def metric_words(metric: str) -> str:
    if metric.startswith("late_within_"):
        return f"within {metric.removeprefix('late_within_').replace('_', '.')} x"
    return metric.replace("_", " ")


def judge(claims: Iterable[Claim], values: Values, size: Size) -> list[ClaimResult]:
    return [_judge(claim, values, size) for claim in claims]


def _judge(claim: Claim, values: Values, size: Size) -> ClaimResult:
    parts = []
    for part in claim.parts:
        ours = estimate(list(_per_seed(part, values, size).values()))
        within = None if ours is None else holds(claim.rel, ours.mean, part.value, claim.tol)
        could = frozenset[bool]() if ours is None else _could(claim, part, ours)
        parts.append(JudgedValue(part=part, ours=ours, within=within, could=could))
    return ClaimResult(claim=claim, parts=tuple(parts), verdict=_verdict(claim, parts))


def _verdict(claim: Claim, parts: list[JudgedValue]) -> Verdict:
    """Doubt and contradiction explain why a claim is not met. A claim whose parts are all within is met."""
    gated = [judged for judged in parts if not judged.part.info]
    if any(judged.within is None for judged in gated):
        return "not run"
    if all(judged.within for judged in gated):
        return "met"
    if claim.doubt:
        return "doubtful"
    return "contradicted" if claim.contradicted else "not met"


def _could(claim: Claim, part: ClaimValue, ours: Estimate) -> frozenset[bool]:
    """The values that hold form one interval around the paper's value, so three means of our interval suffice."""
    if ours.half is None:
        return frozenset()
    low, high = ours.mean - ours.half, ours.mean + ours.half
    nearest = min(max(part.value, low), high)
    return frozenset(holds(claim.rel, mean, part.value, claim.tol) for mean in (low, nearest, high))


def holds(rel: Relation, ours: float, paper: float, tol: float) -> bool:
    slip = 1e-9  # 0.98 - 0.96 is not exactly 0.02
    if rel == "=":
        return abs(ours - paper) <= tol + slip
    if rel == "factor":
        return paper <= ours * tol + slip and ours <= paper * tol + slip
    if rel in (">", "<"):
        return ours > paper + slip if rel == ">" else ours < paper - slip
    return ours >= paper - tol - slip if rel == ">=" else ours <= paper + tol + slip


def _per_seed(part: ClaimValue, values: Values, size: Size) -> dict[int, float]:
    """The value of a part on every seed on which all its operands were run."""
    of = _column(part.of, values, size)
    if part.minus is not None:
        other = _column(part.minus, values, size)
        return {seed: of[seed] - other[seed] for seed in of if seed in other}
    if part.over is not None:
        other = _column(part.over, values, size)
        return {seed: of[seed] / other[seed] for seed in of if other.get(seed)}
    return of


def _column(operand: ClaimOperand, values: Values, size: Size) -> dict[int, float]:
    """The value of an operand on every seed on which all its settings have one."""
    tables = [values.get(size.setting(fields), {}) for fields in operand.settings]
    seeds = sorted(set.intersection(*(set(table) for table in tables)))
    rows = {seed: [table[seed].get(operand.metric) for table in tables] for seed in seeds}
    present = {seed: [value for value in row if value is not None] for seed, row in rows.items()}
    return {seed: fmean(row) for seed, row in present.items() if len(row) == len(tables)}


def estimate(sample: list[float]) -> Estimate | None:
    """Mean and 95 % interval of a few values, as `wend.pipeline.sweeps.seed_means` computes them in Spark."""
    if not sample:
        return None
    seeds = len(sample)
    half = t_quantile(seeds) * stdev(sample) / sqrt(seeds) if seeds > 1 else None
    return Estimate(fmean(sample), half, seeds)
