"""Claims of the papers, and verdicts on them: a claim says what to measure, and this module judges the result.

A claim is computed seed by seed (a gain is the gain on the same topology), then averaged, with a 95 % interval. A
number of the paper is compared with the mean; otherwise few seeds with wide intervals would make every claim true. A
strict order (">" or "<") holds only if the whole interval says so. A verdict is *sure* if every mean within the
interval gives the same verdict. A run that failed, or found no solution, fails its claims.

The `claims.toml` of a paper has an entry for each claim:

fact              the statement of the paper (`papers.toml`) that it judges; by default the one with its own id
value, rel, tol   the paper's number, and how Wend's is compared with it: "=" within tol, ">=" or "<=" up to tol,
                  ">" or "<" strictly, "factor" up to tol times more or less
reason            why there is a tolerance that the paper does not state
metric, at, of    the metric of a run, the setting (fields of the run), the strategy
minus, over       another strategy or setting, to subtract or to divide by, seed by seed. A list of values stands for
                  the mean over them, several lists for all combinations, a list of tables for the mean over them
parts             the differences between the parts of a claim. Every part is judged on its own. The verdict does not
                  depend on a part with info = true
unsolved          whether a run without the metric found no solution, and fails the claim
plain             a plain number, not a share in percent
count             for traffic: shared (one copy per link) or unicast (one per destination)
doubt             no interpretation of the paper gives this number: the report shows it, and no verdict depends on it
figure            the figure that shows it; note: an explanation for the reader

`defaults` at the top has the fields of every setting, unless a claim overrides them.
"""

import tomllib
from collections.abc import Callable, Container, Iterable, Mapping
from importlib.resources import files
from itertools import product
from math import inf, sqrt
from operator import sub
from statistics import fmean, stdev
from typing import Any, Literal

import msgspec

from wend.pipeline.sweeps.seed_means import t_quantile
from wend.studies.paper_claims import PaperClaim, load_paper_claims
from wend.studies.study_model import Fields, Size

Relation = Literal["=", ">=", "<=", ">", "<", "factor"]
Verdict = Literal["met", "not met", "contradicted", "doubtful", "not run"]
Values = Mapping[str, Mapping[int, Mapping[str, float | None] | None]]
"""setting -> seed -> metric -> value; None instead of the metrics of a run that failed"""
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


class ClaimTerm(msgspec.Struct, frozen=True):
    """One metric in one setting."""

    metric: str
    fields: Fields


class ClaimOperand(msgspec.Struct, frozen=True):
    """One term, or the mean of several that the paper names together."""

    terms: tuple[ClaimTerm, ...]


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
        if not all(term.metric in shares for operand in self.operands() for term in operand.terms):
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
    fact: PaperClaim | None = None
    """The statement that this claim judges; None for other statements of the text, and for Wend's own claims."""
    reason: str = ""
    """Why there is a tolerance that the paper does not state."""
    doubt: bool = False
    unsolved: bool = False
    """Whether a run without the metric found no solution, and fails the claim."""
    plain: bool = False
    """Whether the value is a plain number, not a share in percent."""
    count: str = ""
    note: str = ""

    def settings(self) -> list[Fields]:
        return [term.fields for part in self.parts for operand in part.operands() for term in operand.terms]

    @property
    def is_own(self) -> bool:
        """Whether the claim is Wend's about itself, and not the paper's."""
        return ".own." in self.id

    @property
    def stated_tol(self) -> float:
        """The tolerance that the paper states, in the terms of `rel`."""
        stated = self.fact.tol if self.fact is not None else 0.0
        return max(stated, 1.0) if self.rel == "factor" else stated

    @property
    def adds_tolerance(self) -> bool:
        return not self.is_own and self.tol > self.stated_tol


class JudgedValue(msgspec.Struct, frozen=True, kw_only=True):
    """One number of a claim with the measured value. `within` is None if it was not measured."""

    part: ClaimValue
    ours: Estimate | None
    within: bool | None
    failed: int = 0
    """Runs that failed or found no solution."""
    could: frozenset[bool] = frozenset()
    """The values of `within` over the means of the 95 % interval; empty if the interval is unknown."""

    @property
    def is_sure(self) -> bool | None:
        return len(self.could) == 1 if self.could else None


class ClaimResult(msgspec.Struct, frozen=True, kw_only=True):
    claim: Claim
    parts: tuple[JudgedValue, ...]
    verdict: Verdict
    without: Verdict | None = None
    """The verdict without the tolerance that the paper does not state; None if there is no such tolerance."""

    @property
    def is_sure(self) -> bool | None:
        """Whether more seeds are unlikely to change the verdict; None if the numbers do not decide it."""
        gated = [judged.could for judged in self.parts if not judged.part.info]
        if self.verdict in ("doubtful", "not run") or not all(gated):
            return None
        return any(could == {False} for could in gated) or all(could == {True} for could in gated)


def load_claims(study: str) -> list[Claim]:
    return parse_claims(files("wend.studies").joinpath(study, "claims.toml").read_text(encoding="utf-8"))


def parse_claims(text: str) -> list[Claim]:
    content = tomllib.loads(text)
    facts = load_paper_claims()
    return [_parse_claim(entry, content.get("defaults", {}), facts) for entry in content["claim"]]


def _parse_claim(entry: dict[str, Any], defaults: Fields, facts: Mapping[str, PaperClaim]) -> Claim:
    differences = entry.get("parts", [{}])
    values = entry["value"] if isinstance(entry["value"], list) else [entry["value"]] * len(differences)
    base = {**entry, "at": {**defaults, **entry.get("at", {})}}
    parts = [_parse_part(base, own, value) for own, value in zip(differences, values, strict=True)]
    about = {name: entry[name] for name in ("id", "what", "setting", "figure", "rel")}
    optional = ("reason", "doubt", "unsolved", "plain", "count", "note")
    extra = {name: entry[name] for name in optional if name in entry}
    extra["fact"] = facts[entry["fact"]] if "fact" in entry else facts.get(entry["id"])
    extra.setdefault("plain", entry.get("metric") == "packets")
    return Claim(**about, **extra, tol=entry.get("tol", 0.0), parts=tuple(parts))


def _parse_part(entry: dict[str, Any], own: dict[str, Any], value: float) -> ClaimValue:
    at = {**entry["at"], **own.get("at", {})}
    metric = own.get("metric", entry.get("metric"))
    count = own.get("count", entry.get("count", ""))

    def terms(given: Fields) -> tuple[ClaimTerm, ...]:
        fields = {**at, **given}
        chosen = fields.pop("metric", f"packets_{count}" if metric == "packets" else metric)
        return tuple(ClaimTerm(chosen, each) for each in _expand_lists(fields))

    def operand(name: str) -> ClaimOperand | None:
        if isinstance(own.get(name), list):
            return ClaimOperand(tuple(term for each in own[name] for term in terms(each)))
        fields = {**entry.get(name, {}), **own.get(name, {})}
        return ClaimOperand(terms(fields)) if fields or name == "of" else None

    of = operand("of")
    assert of is not None
    label = own["label"] if "label" in own else _describe_part(own)
    return ClaimValue(label, float(value), of, operand("minus"), operand("over"), own.get("info", False))


def _expand_lists(fields: Fields) -> tuple[Fields, ...]:
    """Expand lists of values into settings: one for each combination."""
    listed = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    return tuple(dict(zip(listed, values, strict=True)) for values in product(*listed.values()))


def _describe_part(own: dict[str, Any]) -> str:
    """Describe how this part differs from the others of its claim."""
    words = [_describe_field(name, value) for name, value in own.get("at", {}).items()]
    words += [_describe_operand(own["of"])] if "of" in own else []
    words += [f"minus {_describe_operand(own['minus'])}"] if "minus" in own else []
    words += [f"over {_describe_operand(own['over'])}"] if "over" in own else []
    words += [describe_metric(own["metric"])] if "metric" in own else []
    return ", ".join(words)


def _describe_operand(operand: Fields) -> str:
    named = [_describe_field(name, value) for name, value in operand.items() if name != "metric"]
    return ", ".join(named) or describe_metric(operand["metric"])


def _describe_field(name: str, value: object) -> str:
    if isinstance(value, list):
        return f"the mean of {' and '.join(_describe_field(name, each) for each in value)}"
    if name in ("strategy", "topology"):
        return {"full-mesh": "full mesh"}.get(str(value), str(value))
    number = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{number} {name}" if name in _COUNTED else f"{_NAMES.get(name, name.replace('_', ' '))} {number}"


def describe_metric(metric: str) -> str:
    if metric.startswith("late_within_"):
        return f"within {metric.removeprefix('late_within_').replace('_', '.')} x"
    return metric.replace("_", " ")


def judge_claims(claims: Iterable[Claim], values: Values, size: Size) -> list[ClaimResult]:
    return [_judge_claim(claim, values, size) for claim in claims]


def _judge_claim(claim: Claim, values: Values, size: Size) -> ClaimResult:
    samples = [_values_by_seed(part, values, size, claim.unsolved) for part in claim.parts]
    parts = _judge_parts(claim, samples)
    without = None
    if claim.adds_tolerance:
        stated = msgspec.structs.replace(claim, tol=claim.stated_tol)
        without = _decide_verdict(stated, _judge_parts(stated, samples))
    return ClaimResult(claim=claim, parts=parts, verdict=_decide_verdict(claim, parts), without=without)


def _judge_parts(claim: Claim, samples: list[dict[int, float | None]]) -> tuple[JudgedValue, ...]:
    return tuple(_judge_part(claim, part, sample) for part, sample in zip(claim.parts, samples, strict=True))


def _judge_part(claim: Claim, part: ClaimValue, sample: dict[int, float | None]) -> JudgedValue:
    ours = estimate_mean([value for value in sample.values() if value is not None])
    failed = sum(value is None for value in sample.values())
    if failed:
        return JudgedValue(part=part, ours=ours, within=False, failed=failed, could=frozenset((False,)))
    if ours is None:
        return JudgedValue(part=part, ours=None, within=None)
    could = _possible_outcomes(claim, part, ours)
    if claim.rel in (">", "<") and could:
        return JudgedValue(part=part, ours=ours, within=could == {True}, could=could)
    return JudgedValue(
        part=part, ours=ours, within=is_relation_met(claim.rel, ours.mean, part.value, claim.tol), could=could
    )


def _decide_verdict(claim: Claim, parts: Iterable[JudgedValue]) -> Verdict:
    """Doubt and contradiction explain why a claim is not met. A claim whose parts are all within is met."""
    gated = [judged for judged in parts if not judged.part.info]
    if any(judged.within is None for judged in gated):
        return "not run"
    if all(judged.within for judged in gated):
        return "met"
    if any(_is_opposite(claim, judged) for judged in gated):
        return "contradicted"
    return "doubtful" if claim.doubt else "not met"


def _is_opposite(claim: Claim, judged: JudgedValue) -> bool:
    """Whether the whole interval shows the opposite of an order."""
    ordered = claim.rel in (">", "<") or (claim.fact is not None and claim.fact.rel == "order")
    if not ordered or judged.failed or judged.ours is None or judged.ours.half is None:
        return False
    low, high, value = judged.ours.mean - judged.ours.half, judged.ours.mean + judged.ours.half, judged.part.value
    if claim.rel in (">", ">="):
        return is_relation_met("<", high, value, 0.0)
    return claim.rel in ("<", "<=") and is_relation_met(">", low, value, 0.0)


def _possible_outcomes(claim: Claim, part: ClaimValue, ours: Estimate) -> frozenset[bool]:
    """Whether the claim may hold or fail within our interval. Values that hold form one interval around the paper's
    value, so three means suffice."""
    if ours.half is None:
        return frozenset()
    low, high = ours.mean - ours.half, ours.mean + ours.half
    nearest = min(max(part.value, low), high)
    return frozenset(is_relation_met(claim.rel, mean, part.value, claim.tol) for mean in (low, nearest, high))


def is_relation_met(rel: Relation, ours: float, paper: float, tol: float) -> bool:
    slip = 1e-9  # 0.98 - 0.96 is not exactly 0.02
    if rel == "=":
        return abs(ours - paper) <= tol + slip
    if rel == "factor":
        return paper <= ours * tol + slip and ours <= paper * tol + slip
    if rel in (">", "<"):
        return ours > paper + slip if rel == ">" else ours < paper - slip
    return ours >= paper - tol - slip if rel == ">=" else ours <= paper + tol + slip


Column = dict[int, float | None]
"""The value on each seed that was run; None if a run failed or found no solution."""


def _values_by_seed(part: ClaimValue, values: Values, size: Size, unsolved: bool) -> Column:
    of = _average_terms(part.of, values, size, unsolved)
    if part.minus is not None:
        return _combine_columns(of, _average_terms(part.minus, values, size, unsolved), sub)
    if part.over is not None:
        return _combine_columns(of, _average_terms(part.over, values, size, unsolved), _divide)
    return of


def _divide(one: float, other: float) -> float | None:
    return one / other if other else None


def _combine_columns(of: Column, others: Column, rule: Callable[[float, float], float | None]) -> Column:
    return {
        seed: None if one is None or other is None else rule(one, other)
        for seed, one in of.items()
        if seed in others
        for other in [others[seed]]
    }


def _average_terms(operand: ClaimOperand, values: Values, size: Size, unsolved: bool) -> Column:
    """The value of an operand on every seed on which all its terms were run."""
    tables = [values.get(size.setting_key(term.fields), {}) for term in operand.terms]
    metrics = [term.metric for term in operand.terms]
    column: Column = {}
    for seed in sorted(set.intersection(*(set(table) for table in tables))):
        runs = [table[seed] for table in tables]
        row = [None if run is None else run.get(metric) for run, metric in zip(runs, metrics, strict=True)]
        present = [value for value in row if value is not None]
        if len(present) == len(row):
            column[seed] = fmean(present)
        elif unsolved or None in runs:
            column[seed] = None
    return column


def estimate_mean(sample: list[float]) -> Estimate | None:
    """Mean and 95 % interval of a few values, as `wend.pipeline.sweeps.seed_means` computes them in Spark."""
    if not sample:
        return None
    seeds = len(sample)
    half = t_quantile(seeds) * stdev(sample) / sqrt(seeds) if seeds > 1 else None
    return Estimate(fmean(sample), half, seeds)
