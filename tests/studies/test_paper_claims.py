"""The claims of the studies judge what the papers state: every statement, with its numbers and its tolerance."""

from collections.abc import Iterator

import pytest

from wend.studies import STUDIES
from wend.studies.claims import Claim, load_claims
from wend.studies.paper_claims import load_paper_claims, load_unjudged_claims

AS_STRICT = {"=": ("=",), ">=": (">=", ">"), "<=": ("<=", "<"), "order": (">", "<", ">=", "<=", "="), "~": None}
"""The relations of a claim that are at least as strict as that of the paper; any for a rough size."""


def judged() -> Iterator[Claim]:
    for study in STUDIES:
        yield from load_claims(study)


def test_every_statement_is_judged_or_says_why_not() -> None:
    by_a_claim = {claim.fact.id for claim in judged() if claim.fact is not None}
    assert by_a_claim.isdisjoint(load_unjudged_claims())
    assert by_a_claim | load_unjudged_claims().keys() == load_paper_claims().keys()
    assert all(load_unjudged_claims().values())


@pytest.mark.parametrize("claim", [claim for claim in judged() if claim.fact is not None], ids=lambda claim: claim.id)
def test_a_claim_has_the_numbers_of_its_statement(claim: Claim) -> None:
    fact = claim.fact
    assert fact is not None and claim.id.partition(".")[0] == fact.paper
    relations = AS_STRICT[fact.rel]
    assert relations is None or claim.rel in relations
    if fact.rel in ("=", ">=", "<=") and claim.id == fact.id:
        gated = [part.value for part in claim.parts if not part.info]
        assert list(dict.fromkeys(gated)) == list(dict.fromkeys(fact.numbers))
        assert claim.tol == fact.tol or claim.reason
    assert not claim.doubt or fact.doubt, "only a paper's statement can be out of reach"
    assert claim.count == fact.count


def test_every_added_tolerance_has_its_reason() -> None:
    added = {claim.id for claim in judged() if claim.adds_tolerance}
    assert {claim.id for claim in judged() if claim.reason} == added
    assert {"quist.reliability.ts", "quist.reliability.brite"}.isdisjoint(added), "more than 37 % and 100 %, it says"


def test_only_statements_of_a_paper_are_doubtful() -> None:
    assert not any(claim.doubt for claim in judged() if claim.fact is None)


def test_the_statements_have_words() -> None:
    for claim in load_paper_claims().values():
        assert claim.paper in STUDIES and claim.metric and claim.setting
        assert claim.numbers or isinstance(claim.value, str)
