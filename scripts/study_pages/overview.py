"""The overview: five papers, and every statement of theirs with the verdicts of the claims that judge it."""

from typing import Any

from study_pages.study_page import anchor, counts, papers_claims, statement
from wend.studies import STUDIES
from wend.studies.paper_claims import load_paper_claims, load_unjudged_claims

PAGE = """\
# The papers, and what Wend makes of them

<!-- Written by scripts/studies.py from the reports of the studies. -->

Wend has the algorithms of five papers. A [study](../how-to/sweep-and-studies.md#run-a-study) repeats the evaluation of
each, and judges what the paper states. Its page has every claim with the paper's value, Wend's, the 95 % interval and
the verdict, and the figures.

| study | claims | met | not met | contradicted | not run | would fail without a tolerance of ours |
| --- | --: | --: | --: | --: | --: | --: |
"""

AFTER = """
*Not met* includes claims that no reading of the paper gives (in brackets). *Contradicted*: the paper states an order,
and the whole interval shows the opposite. A claim is *not run* if its runs need `--full`. The last column counts claims
that are met only within a tolerance that the paper does not state; each page lists these tolerances, with reasons.

## Every statement

| statement | the paper | verdict |
| --- | --- | --- |
"""


def page(reports: dict[str, dict[str, Any]]) -> str:
    rows = [_row(name, reports.get(name)) for name in STUDIES]
    every = {name: papers_claims(report) for name, report in reports.items()}
    total = [claim for claims in every.values() for claim in claims]
    rows.append(_cells("all", total))
    return PAGE + "\n".join(rows) + "\n" + AFTER + "\n".join(_statements(every)) + "\n"


def _row(name: str, report: dict[str, Any] | None) -> str:
    if report is None:
        return f"| {name} | no report yet | | | | | |"
    return _cells(f"[{name}]({name}.md)", papers_claims(report))


def _cells(name: str, claims: list[dict[str, Any]]) -> str:
    found = counts(claims)
    doubtful = f" ({found['doubtful']})" if found["doubtful"] else ""
    fails = sum(claim["verdict"] == "met" and claim["without"] not in (None, "met") for claim in claims)
    return (
        f"| {name} | {len(claims)} | {found['met']} | {found['not met'] + found['doubtful']}{doubtful} "
        f"| {found['contradicted']} | {found['not run']} | {fails} |"
    )


def _statements(every: dict[str, list[dict[str, Any]]]) -> list[str]:
    rows = []
    for fact in load_paper_claims().values():
        claims = [claim for claim in every.get(fact.paper, []) if claim["fact"] == fact.id]
        found = [
            f"[{claim['verdict']}]({fact.paper}.md#{anchor(claim['id'])}){_which(claim, fact.id)}" for claim in claims
        ]
        verdict = (
            "; ".join(found)
            or f"not run{': ' + load_unjudged_claims()[fact.id] if fact.id in load_unjudged_claims() else ''}"
        )
        rows.append(f"| `{fact.id}`: {fact.words} | {statement(fact)} | {verdict} |")
    return rows


def _which(claim: dict[str, Any], fact: str) -> str:
    """Which of several claims that judge one statement."""
    rest = claim["id"].removeprefix(fact).strip(".")
    unsure = ", unsure" if claim["sure"] is False else ""
    return f"{unsure} ({rest})" if rest else unsure
