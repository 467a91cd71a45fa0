"""Verdicts on invented numbers: each verdict occurs, and each can fail to."""

import math
from typing import Any

import pytest

from wend.studies.claims import ClaimResult, Estimate, is_relation_met, judge_claims, load_claims, parse_claims
from wend.studies.dcrd.study import DCRD
from wend.studies.study_model import Size

SIZE = Size(name="test", duration_s=10.0, seeds=3)

CLAIM = """
[[claim]]
id = "x.one"
what = "a gain"
setting = "degree 5"
figure = "3"
value = 0.10
rel = "="
tol = 0.02
metric = "on_time"
at = { topology = "regular", degree = 5, ack = "free" }
of = { strategy = "dcrd" }
"""


def values(**per_strategy: Any) -> dict[str, dict[int, dict[str, float | None]]]:
    """setting -> seed -> metrics, for strategies at degree 5 with a free ACK."""
    return {
        SIZE.setting_key({"ack": "free", "topology": "regular", "degree": 5, "strategy": name.replace("_", "-")}): {
            seed: (sample if isinstance(sample, dict) else {"on_time": sample})
            for seed, sample in enumerate(samples, 1)
        }
        for name, samples in per_strategy.items()
    }


def verdict(text: str, **per_strategy: Any) -> ClaimResult:
    (result,) = judge_claims(parse_claims(text), values(**per_strategy), SIZE)
    return result


@pytest.mark.parametrize(
    ("rel", "ours", "expected"),
    [
        ("=", 0.10, True), ("=", 0.12, True), ("=", 0.08, True), ("=", 0.121, False), ("=", 0.079, False),
        (">=", 0.08, True), (">=", 0.5, True), (">=", 0.079, False),
        ("<=", 0.12, True), ("<=", -1.0, True), ("<=", 0.121, False),
        (">", 0.101, True), (">", 0.1, False), (">", 0.099, False), ("<", 0.099, True), ("<", 0.1, False),
    ],
)  # fmt: skip
def test_relations(rel: Any, ours: float, expected: bool) -> None:
    assert is_relation_met(rel, ours, 0.10, 0.02) is expected


@pytest.mark.parametrize(("ours", "expected"), [(5.0, True), (20.0, True), (4.9, False), (20.1, False), (0.0, False)])
def test_a_factor_goes_both_ways(ours: float, expected: bool) -> None:
    assert is_relation_met("factor", ours, 10.0, 2.0) is expected


def test_the_mean_over_seeds_is_judged_and_its_interval_is_shown() -> None:
    result = verdict(CLAIM, dcrd=[0.05, 0.10, 0.15])
    (part,) = result.parts
    assert result.verdict == "met"
    assert part.ours is not None and part.ours.half is not None
    assert part.ours.mean == pytest.approx(0.10)
    assert part.ours.half == pytest.approx(0.1242, abs=1e-4)  # 4.303 * 0.05 / sqrt(3)


def test_a_claim_can_fail() -> None:
    assert verdict(CLAIM, dcrd=[0.2, 0.2, 0.2]).verdict == "not met"


ORDER = CLAIM.replace("value = 0.10", "value = 0.0").replace('rel = "="', 'rel = ">"').replace("tol = 0.02\n", "")


@pytest.mark.parametrize(
    ("sample", "expected", "sure"),
    [
        ([0.02, 0.03, 0.04], "met", True),
        ([0.01, 0.05, 0.15], "not met", False),
        ([0.0, 0.0, 0.0], "not met", True),
        ([-0.15, -0.05, 0.02], "not met", False),
        ([-0.04, -0.03, -0.02], "contradicted", True),
    ],
)
def test_a_strict_order_needs_the_whole_interval(sample: list[float], expected: str, sure: bool) -> None:
    result = verdict(ORDER, dcrd=sample)
    assert (result.verdict, result.is_sure) == (expected, sure)
    mirrored = verdict(ORDER.replace('">"', '"<"'), dcrd=[-each for each in sample])
    assert (mirrored.verdict, mirrored.is_sure) == (expected, sure)


def test_one_seed_shows_an_order_but_contradicts_nothing() -> None:
    assert (verdict(ORDER, dcrd=[0.1]).verdict, verdict(ORDER, dcrd=[0.1]).is_sure) == ("met", None)
    assert verdict(ORDER, dcrd=[-0.1]).verdict == "not met"


def test_a_number_that_is_missed_is_not_contradicted() -> None:
    assert verdict(CLAIM, dcrd=[-0.2, -0.2, -0.2]).verdict == "not met"
    assert verdict(ORDER + "doubt = true\n", dcrd=[-0.04, -0.03, -0.02]).verdict == "contradicted"


def test_a_failed_run_fails_its_claims() -> None:
    (claim,) = parse_claims(CLAIM)
    setting = SIZE.setting_key(claim.settings()[0])
    (result,) = judge_claims([claim], {setting: {1: {"on_time": 0.1}, 2: None, 3: {"on_time": 0.1}}}, SIZE)
    assert (result.verdict, result.is_sure, result.parts[0].failed) == ("not met", True, 1)
    assert result.parts[0].ours is not None and result.parts[0].ours.seeds == 2


def test_an_unsolved_run_fails_a_claim_about_solutions() -> None:
    sample = [{"on_time": 0.1}, {"on_time": None}, {"on_time": 0.1}]
    assert verdict(CLAIM, dcrd=sample).verdict == "met"
    result = verdict(CLAIM + "unsolved = true\n", dcrd=sample)
    assert (result.verdict, result.parts[0].failed) == ("not met", 1)
    assert verdict(CLAIM + "unsolved = true\n").verdict == "not run"


def test_a_ratio_over_nothing_is_a_failure() -> None:
    result = verdict(CLAIM + 'over = { strategy = "oracle" }\n', dcrd=[0.1] * 3, oracle=[1.0, 1.0, 0.0])
    assert (result.verdict, result.parts[0].failed) == ("not met", 1)


def test_a_tolerance_that_the_paper_does_not_state_is_known_with_the_verdict_without_it() -> None:
    assert verdict(CLAIM, dcrd=[0.10] * 3).without == "met"
    assert verdict(CLAIM, dcrd=[0.11] * 3).without == "not met"
    stated = CLAIM.replace('id = "x.one"', 'id = "x.one"\nfact = "dcrd.factor"')  # ± 0.02
    assert verdict(stated, dcrd=[0.11] * 3).without is None
    assert verdict(CLAIM.replace("x.one", "x.own.one"), dcrd=[0.11] * 3).without is None


def test_a_wide_interval_does_not_make_a_claim_come_true() -> None:
    assert verdict(CLAIM, dcrd=[0.0, 0.2, 0.3]).verdict == "not met"


@pytest.mark.parametrize(
    ("rel", "sample", "expected", "sure"),
    [
        ("=", [0.10, 0.101, 0.102], "met", True),
        ("=", [0.09, 0.11, 0.13], "met", False),
        ("=", [0.2, 0.201, 0.202], "not met", True),
        ("=", [0.10, 0.14, 0.18], "not met", False),
        ("=", [-0.5, 0.2, 0.9], "not met", False),
        (">=", [0.5, 0.6, 0.7], "met", True),
        (">=", [0.05, 0.10, 0.15], "met", False),
        (">=", [0.05, 0.07, 0.09], "not met", False),
        (">=", [0.01, 0.02, 0.03], "not met", True),
        ("<=", [0.10, 0.13, 0.16], "not met", False),
        ("<=", [0.0, 0.01, 0.02], "met", True),
    ],
)  # fmt: skip
def test_a_verdict_is_sure_unless_the_interval_reaches_across_a_bound(
    rel: str, sample: list[float], expected: str, sure: bool
) -> None:
    result = verdict(CLAIM.replace('rel = "="', f'rel = "{rel}"'), dcrd=sample)
    assert (result.verdict, result.is_sure) == (expected, sure)


def test_one_part_that_surely_fails_makes_the_whole_sure() -> None:
    text = CLAIM.replace("value = 0.10", "value = [0.10, 0.30, 0.10]")
    text += 'parts = [{ label = "open" }, { label = "no" }, { label = "for information", info = true }]\n'
    result = verdict(text, dcrd=[0.05, 0.10, 0.15])
    assert [part.is_sure for part in result.parts] == [False, True, False]
    assert (result.verdict, result.is_sure) == ("not met", True)
    assert verdict(text.replace("0.30", "0.10"), dcrd=[0.05, 0.10, 0.15]).is_sure is False
    assert verdict(text.replace("0.30", "0.10"), dcrd=[0.10, 0.10, 0.10]).is_sure is True


def test_nothing_is_sure_or_unsure_without_an_interval_or_a_gate() -> None:
    assert verdict(CLAIM, dcrd=[0.1]).is_sure is None
    assert verdict(CLAIM).is_sure is None
    assert verdict(CLAIM + "doubt = true\n", dcrd=[0.55, 0.60, 0.65]).is_sure is None


def test_a_difference_is_taken_seed_by_seed() -> None:
    text = CLAIM + 'minus = { strategy = "d-tree" }\n'
    result = verdict(text, dcrd=[0.5, 0.7, 0.9], d_tree=[0.4, 0.6, 0.8])
    assert result.verdict == "met"
    assert result.parts[0].ours is not None
    assert result.parts[0].ours.half == pytest.approx(0.0, abs=1e-9)
    assert verdict(text, dcrd=[0.5, 0.7, 0.9], d_tree=[0.5, 0.7, 0.9]).verdict == "not met"


def test_seeds_that_one_side_lacks_are_left_out() -> None:
    text = CLAIM + 'minus = { strategy = "d-tree" }\n'
    result = verdict(text, dcrd=[0.5, 0.7, 0.9], d_tree=[0.4, 0.6])
    assert result.parts[0].ours is not None
    assert result.parts[0].ours.seeds == 2


def test_a_ratio_and_the_way_of_counting() -> None:
    text = CLAIM.replace('metric = "on_time"', 'metric = "packets"\ncount = "unicast"').replace("0.10", "1.5")
    text += 'over = { strategy = "oracle" }\n'
    dcrd = [{"packets_unicast": 3.0, "packets_shared": 9.0}] * 3
    assert verdict(text, dcrd=dcrd, oracle=[{"packets_unicast": 2.0, "packets_shared": 1.0}] * 3).verdict == "met"
    other = text.replace("unicast", "shared")
    assert verdict(other, dcrd=dcrd, oracle=[{"packets_unicast": 2.0, "packets_shared": 1.0}] * 3).verdict == "not met"


def test_each_side_may_be_counted_its_own_way() -> None:
    text = CLAIM.replace('metric = "on_time"', 'metric = "packets"\ncount = "shared"').replace("0.10", "0.5")
    text += 'over = { strategy = "oracle", metric = "packets_unicast" }\n'
    both = {"packets_unicast": 4.0, "packets_shared": 2.0}
    assert verdict(text, dcrd=[both] * 3, oracle=[both] * 3).verdict == "met"


def test_every_part_is_judged_on_its_own() -> None:
    text = CLAIM.replace("value = 0.10", "value = [0.10, 0.30]")
    text += 'parts = [{ minus = { strategy = "d-tree" } }, { minus = { strategy = "r-tree" } }]\n'
    mixed = verdict(text, dcrd=[0.5] * 3, d_tree=[0.4] * 3, r_tree=[0.4] * 3)
    assert [part.within for part in mixed.parts] == [True, False]
    assert [part.part.label for part in mixed.parts] == ["minus d-tree", "minus r-tree"]
    assert mixed.verdict == "not met"
    assert verdict(text, dcrd=[0.5] * 3, d_tree=[0.4] * 3, r_tree=[0.2] * 3).verdict == "met"


def test_a_list_of_strategies_is_their_mean_and_information_decides_nothing() -> None:
    text = (
        CLAIM.replace("0.10", "1.50")
        + """
parts = [
    { over = { strategy = ["d-tree", "r-tree"] } },
    { over = { strategy = "d-tree" }, info = true },
]
"""
    )
    result = verdict(text, dcrd=[0.6] * 3, d_tree=[0.2] * 3, r_tree=[0.6] * 3)
    assert [part.ours and round(part.ours.mean, 6) for part in result.parts] == [1.5, 3.0]
    assert [part.within for part in result.parts] == [True, False]
    assert result.verdict == "met"
    assert verdict(text, dcrd=[0.6] * 3, d_tree=[0.4] * 3, r_tree=[0.6] * 3).verdict == "not met"
    assert verdict(text, dcrd=[0.6] * 3, d_tree=[0.4] * 3).verdict == "not run"


def test_the_verdict_agrees_with_the_parts() -> None:
    """A claim whose parts are all within is met. Doubt says why one is not, and never gates."""
    text = f"{CLAIM}doubt = true\n"
    within, outside = verdict(text, dcrd=[0.1] * 3), verdict(text, dcrd=[0.9] * 3)
    assert (within.verdict, within.parts[0].within) == ("met", True)
    assert (outside.verdict, outside.parts[0].within) == ("doubtful", False)


def test_an_interval_ends_where_values_are_impossible() -> None:
    assert Estimate(0.99, 0.03, 5).interval((0.0, 1.0)) == (0.96, 1.0)
    assert Estimate(0.01, 0.03, 5).interval((0.0, 1.0)) == (0.0, 0.04)
    assert Estimate(0.5, None, 1).interval((0.0, 1.0)) is None
    plain, difference, ratio = (
        parse_claims(CLAIM + text)[0].parts[0]
        for text in ("", 'minus = { strategy = "d-tree" }\n', 'over = { strategy = "oracle" }\n')
    )
    assert plain.bounds({"on_time"}) == (0.0, 1.0)
    assert difference.bounds({"on_time"}) == (-1.0, 1.0)
    assert ratio.bounds({"on_time"}) == (0.0, math.inf)
    assert plain.bounds(set()) == (-math.inf, math.inf)
    assert {"delivery", "on_time", "late_within_1_5"} <= DCRD.shares()
    assert "packets_shared" not in DCRD.shares()


def test_what_was_not_run_is_not_judged() -> None:
    assert verdict(CLAIM).verdict == "not run"
    assert verdict(CLAIM, dcrd=[{"on_time": None}] * 3).verdict == "not run"
    text = CLAIM + 'minus = { strategy = "d-tree" }\n'
    assert verdict(text, dcrd=[0.1] * 3).verdict == "not run"


def test_a_value_too_few_or_too_many_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        parse_claims(CLAIM.replace("value = 0.10", "value = [0.1, 0.2]"))


def test_the_claims_of_the_study_are_whole() -> None:
    claims = load_claims("dcrd")
    assert len({claim.id for claim in claims}) == len(claims) > 29
    for claim in claims:
        assert all(SIZE.make_runs(fields) for fields in claim.settings()), claim.id
        assert all("strategy" in fields for fields in claim.settings()), claim.id
        assert claim.is_own or all(fields["ack"] == "free" for fields in claim.settings()), claim.id
        assert len(claim.parts) == 1 or all(part.label for part in claim.parts), claim.id


@pytest.mark.parametrize("study", ["dcrd", "campr"])
def test_doubtful_claims_say_why(study: str) -> None:
    assert all(claim.note for claim in load_claims(study) if claim.doubt)


def test_lists_of_several_fields_stand_for_all_combinations() -> None:
    text = CLAIM.replace("degree = 5", "degree = [5, 6], pf = [0.1, 0.2]")
    (claim,) = parse_claims(text)
    assert [(s["degree"], s["pf"], s["strategy"]) for s in claim.settings()] == [
        (5, 0.1, "dcrd"), (5, 0.2, "dcrd"), (6, 0.1, "dcrd"), (6, 0.2, "dcrd"),
    ]  # fmt: skip


def test_parts_that_differ_in_other_fields_are_named_by_them() -> None:
    text = CLAIM + "parts = [{ of = { degree = 8 }, minus = { degree = 5 } }, { at = { messages = 10 } }]\n"
    (claim,) = parse_claims(text)
    assert [part.label for part in claim.parts] == ["degree 8, minus degree 5", "10 messages"]


def test_each_term_of_a_mean_may_have_its_own_metric() -> None:
    both = '{ strategy = "dcrd", metric = "one" }, { strategy = "dcrd", metric = "three" }'
    text = CLAIM + f'parts = [{{ label = "bend", of = {{ metric = "two" }}, minus = [{both}] }}]\n'
    (part,) = verdict(text, dcrd=[{"one": 0.1, "two": 0.4, "three": 0.5}] * 3).parts
    assert part.ours is not None and part.ours.mean == pytest.approx(0.1)
