"""The pages of the studies follow from their reports, and the reports from the claims."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from wend.studies import STUDIES
from wend.studies.paper_claims import load_paper_claims

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "studies"
REPORTS: dict[str, dict[str, Any]] = {
    path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(PAGES.glob("*/report.json"))
}


def test_the_pages_are_those_of_the_reports() -> None:
    call = [sys.executable, "scripts/studies.py", "--check"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_overview_has_every_study_and_every_statement() -> None:
    text = (PAGES / "README.md").read_text("utf-8")
    assert all(f"`{statement}`" in text for statement in load_paper_claims())
    for name in STUDIES:
        assert f"| [{name}]({name}.md) |" in text or f"| {name} | no report yet |" in text


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_counts_what_its_report_says(name: str) -> None:
    report = REPORTS[name]
    found = Counter(claim["verdict"] for claim in report["claims"] if ".own." not in claim["id"])
    page = (PAGES / f"{name}.md").read_text("utf-8")
    assert f"**{found['met']} met, {found['not met'] + found['doubtful']} not met" in page
    assert f"{found['contradicted']} contradicted, {found['not run']} not run**" in page
    for claim in report["claims"]:
        assert f"`{claim['id']}`" in page
    assert report["code"] in page and f"`{report['command']}`" in page


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_says_where_it_comes_from_and_nothing_of_the_machine(name: str) -> None:
    text = (PAGES / name / "report.json").read_text("utf-8")
    report = REPORTS[name]
    assert report["study"] == name and report["size"] in ("default", "full") and not report["left_out"]
    assert report["seeds"] and report["cores"] and report["versions"] and report["costs"]
    assert not re.search(r"/(home|work|tmp|root|usr)/", text)


@pytest.mark.parametrize("name", REPORTS)
def test_every_picture_of_a_page_is_there_and_small(name: str) -> None:
    shown = set(re.findall(r"\((\w+/figure-[^)]+\.svg)\)", (PAGES / f"{name}.md").read_text("utf-8")))
    assert shown == {f"{name}/{path.name}" for path in (PAGES / name).glob("*.svg")}
    assert all((PAGES / each).stat().st_size < 100_000 for each in shown)


def test_a_claim_that_is_met_within_our_own_tolerance_is_listed() -> None:
    for name, report in REPORTS.items():
        page = (PAGES / f"{name}.md").read_text("utf-8")
        for claim in report["claims"]:
            if claim["without"] is not None:
                assert claim["reason"] and claim["reason"] in page
