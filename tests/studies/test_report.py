"""A report from invented runs is complete, and its numbers are those of the runs."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.spark import invented, needs_java, poisoned
from wend.model.errors import ConfigError
from wend.pictures import palette
from wend.studies.claims import ClaimResult
from wend.studies.dcrd.study import DCRD
from wend.studies.figures import INK
from wend.studies.study_report import VERDICTS, count_verdicts, write_report
from wend.studies.study_run import StudyResults, run_study

pytestmark = [needs_java, pytest.mark.spark]

STRATEGIES = frozenset({"dcrd", "oracle", "d-tree"})
FIGURES = ["2", "7", "8"]


def finish(spark: Any, out: Path, **options: Any) -> StudyResults:
    chosen: dict[str, Any] = {"run": invented, "only": FIGURES, "available": STRATEGIES, **options}
    return run_study(spark, DCRD, DCRD.find_size("smoke"), out, quiet=True, **chosen)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def finished(spark: Any, out: Path) -> StudyResults:
    done = finish(spark, out)
    write_report(done, out)
    return done


def test_every_figure_is_a_picture_in_two_formats(finished: StudyResults, out: Path) -> None:
    for name in FIGURES:
        svg = (out / "figures" / f"figure-{name}.svg").read_text()
        assert "<svg" in svg and palette.COLOURS[palette.STRATEGIES["dcrd"]].light in svg
        assert (out / "figures" / f"figure-{name}.png").read_bytes().startswith(b"\x89PNG")


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        links = [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.fetched += [link for link in links if not link.startswith("#")]


def test_the_page_needs_nothing_but_itself(finished: StudyResults, out: Path) -> None:
    page = Page((out / "report.html").read_text())
    assert page.fetched == []
    assert page.tags.count("script") == 1, "its own, which sorts claims"
    assert (out / "report.html").read_text().count('role="img"') == 4 + 2 + 3


def test_the_page_follows_the_readers_light(finished: StudyResults, out: Path) -> None:
    text = (out / "report.html").read_text()
    assert "prefers-color-scheme: dark" in text
    assert INK not in text.split("</style>")[1] and "currentColor" in text


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_a_smoke_report_says_so_and_where_it_comes_from(finished: StudyResults, out: Path, name: str) -> None:
    text = (out / name).read_text()
    assert "smoke run" in text.lower()
    assert finished.code in text
    assert "seeds 1–2" in text and "20 s" in text
    assert "dcrd.mesh.qos" in text and "adaptive" in text  # adaptive is left out


def test_numbers_in_the_report_are_those_of_the_runs(finished: StudyResults, out: Path) -> None:
    said = json.loads((out / "report.json").read_text())
    (qos,) = [claim for claim in said["claims"] if claim["id"] == "dcrd.mesh.qos"]
    # invented: on time is 1 - pf + seed / 1000, over seeds 1 and 2
    assert qos["parts"][0]["ours"] == pytest.approx(0.9 + 0.0015)
    assert qos["verdict"] == "not met"
    (gap,) = [claim for claim in said["claims"] if claim["id"] == "dcrd.mesh.qos.oracle"]
    assert gap["parts"][0]["ours"] == pytest.approx(0.95 + 0.0015)
    assert said["left_out"] == ["adaptive", "multipath", "r-tree"]
    assert "90.15 ± 0.64 %" in (out / "report.html").read_text()


def test_verdicts_that_more_seeds_may_turn_are_marked(finished: StudyResults, tmp_path: Path) -> None:
    def turned(result: ClaimResult) -> ClaimResult:
        if result.claim.id != "dcrd.mesh.qos":
            return result
        assert (result.verdict, result.is_sure) == ("not met", True)
        return replace(result, parts=tuple(replace(part, could=frozenset((True, False))) for part in result.parts))

    bare = replace(finished.study, figures=())
    write_report(replace(finished, study=bare, claims=[turned(result) for result in finished.claims]), tmp_path)
    said = json.loads((tmp_path / "report.json").read_text())
    assert [claim["id"] for claim in said["claims"] if claim["sure"] is False] == ["dcrd.mesh.qos"]
    assert said["unsure"] == {verdict: int(verdict == "not met") for verdict in VERDICTS}
    assert said["verdicts"] == count_verdicts(finished.claims)
    assert (tmp_path / "report.md").read_text().count("not met (unsure)") == 1
    assert (tmp_path / "report.html").read_text().count("not met, unsure</span>") == 1


def test_claims_of_other_figures_are_not_judged(finished: StudyResults) -> None:
    assert {result.claim.figure for result in finished.claims} == set(FIGURES)


def test_the_second_time_nothing_runs(spark: Any, finished: StudyResults, out: Path) -> None:
    again = finish(spark, out)
    assert (again.runs, again.ran) == (finished.runs, 0)
    assert again.claims == finished.claims


def test_failed_runs_are_told(spark: Any, tmp_path: Path) -> None:
    done = finish(spark, tmp_path, run=poisoned, only=["7"], strategies=["dcrd"])
    write_report(done, tmp_path)
    assert len(done.failures) == 4
    for name in ("report.html", "report.md"):
        assert "4 runs failed" in (tmp_path / name).read_text()
    assert "seed 2 is even" in (tmp_path / "report.md").read_text()


def test_a_strategy_that_does_not_exist_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no strategy 'adaptive'; it has d-tree, dcrd, oracle"):
        finish(spark, tmp_path, strategies=["adaptive"])
