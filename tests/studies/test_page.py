"""The report page and its figures from invented values: readable, in order, and honest about what is possible."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.pictures.extents import Picture
from tests.studies.inventions import invented_study
from wend.pictures.palette import COLOURS, MARKERS, SERIES
from wend.studies import find_study
from wend.studies.claims import Estimate
from wend.studies.dcrd.study import DCRD
from wend.studies.study_model import Series
from wend.studies.study_report import RANKS, write_report

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from matplotlib.figure import Figure as Canvas

from wend.studies.figures import Drawing, colour_name, legend_mark, value_bounds


class Structure(HTMLParser):
    """The elements of a page, each with the elements around it. It fails on a page that is not well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str]]] = []
        self.found: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        around = [f"{name}.{css}" for name, of in self.open for css in (of.get("class", "").split() or [""])]
        self.found.append((tag, attributes, around))
        if tag not in ("meta", "br", "link"):
            self.open.append((tag, attributes))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}, []))

    def handle_endtag(self, tag: str) -> None:
        name, _ = self.open.pop()
        assert name == tag

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes, _ in self.found if name == tag]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(invented_study(DCRD, "smoke", ("7",)), folder)
    return folder


@pytest.fixture(scope="module")
def page(out: Path) -> str:
    return (out / "report.html").read_text()


def test_no_label_of_the_figures_on_the_page_overlaps_another(page: str) -> None:
    drawn = re.findall(r"<svg[^>]*role=\"img\".*?</svg>", page, re.DOTALL)
    assert len(drawn) == 2
    for source in drawn:
        picture = Picture(source)
        assert picture.problems() == []
        assert "delay / deadline" in [words for words, _ in picture.labels], "text is text"


def test_no_label_of_a_saved_figure_overlaps_another(out: Path) -> None:
    (saved,) = (out / "figures").glob("*.svg")
    picture = Picture(saved.read_text())
    assert picture.problems() == []
    words = [words for words, _ in picture.labels]
    assert "stated in the paper's text" in words and any(one.startswith("Figure 7") for one in words)


@pytest.mark.parametrize(
    ("study", "name", "panel"), [("dcrd", "5", 3), ("campr", "4.17", 0), ("campr", "4.5-4.7", 1), ("quist", "7.8", 1)]
)
def test_no_label_of_a_panel_overlaps_another(study: str, name: str, panel: int) -> None:
    finished = invented_study(find_study(study), "default", (name,))
    (figure,) = finished.study.figures
    drawn = Drawing(finished.size, finished.estimates, {}, "").draw_inline(figure, figure.panels[panel])
    assert Picture(drawn).problems() == []


def test_labels_that_matplotlib_draws_on_others_are_found() -> None:
    from io import BytesIO

    import matplotlib as mpl
    from matplotlib.figure import Figure

    data = BytesIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        canvas = Figure(figsize=(3, 2))
        for place, words in ((0.5, "first"), (0.52, "second"), (0.97, "beyond")):
            canvas.text(place, place, words)
        canvas.savefig(data, format="svg")
    found = " ".join(Picture(data.getvalue().decode()).problems())
    assert "'first' overlaps 'second'" in found and "'beyond' leaves the canvas" in found


def test_failed_claims_come_first_and_every_claim_can_be_sorted(page: str) -> None:
    structure = Structure(page)
    claims = [of for of in structure.all("tbody") if "data-verdict" in of]
    ranks = [int(of["data-verdict"]) for of in claims]
    assert len(claims) > 1 and ranks == sorted(ranks)
    keys = {of["data-key"] for of in structure.all("th") if "data-key" in of}
    assert keys == {"verdict", "claim", "place"}
    assert all({f"data-{key}" for key in keys} <= of.keys() for of in claims)
    assert min(RANKS, key=RANKS.__getitem__) == "not met"


def test_the_page_fits_a_phone(page: str) -> None:
    structure = Structure(page)
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in structure.all("meta")
    assert "@media (max-width:" in page
    for tag, _, around in structure.found:
        if tag == "table":
            assert "div.scroll" in around, "a wide table scrolls by itself"
    for of in structure.all("svg"):
        assert float(of.get("width", "0")) <= 40, "figures have the width of their card"


def test_a_smoke_run_says_so_above_everything_and_in_every_panel(page: str, tmp_path: Path) -> None:
    assert page.index('class="smoke"') < page.index("<main>")
    assert page.count("smoke run, not a result") == 2
    write_report(invented_study(DCRD, "default", ("7",)), tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert 'class="smoke"' not in text and "smoke run, not a result" not in text


def test_the_page_has_all_colours_of_both_papers(page: str) -> None:
    assert not any(colour.light in page.split("</style>")[1] for colour in SERIES.values())
    for name in re.findall(r"var\(--([\w-]+)\)", page):
        assert name == "font" or name in COLOURS
    light, dark = re.findall(r":root \{ .*?\}", page)
    for name, colour in COLOURS.items():
        assert f"--{name}: {colour.light};" in light and f"--{name}: {colour.dark};" in dark


def test_legends_have_the_markers_of_the_lines() -> None:
    shapes = {legend_mark(Series(label=name, fields={"strategy": ""}, colour=name)) for name in MARKERS}
    assert len(shapes) == len(MARKERS)
    plain, variant = (Series(label="x", fields={"strategy": "dcrd"}, variant=variant) for variant in (False, True))
    assert "circle" in legend_mark(plain) and MARKERS[colour_name(plain)] == "o"
    assert "stroke-dasharray" in legend_mark(variant) and "stroke-dasharray" not in legend_mark(plain)


def test_intervals_end_where_shares_do() -> None:
    full_mesh = DCRD.figures[0]
    size, panel = DCRD.find_size("default"), full_mesh.panels[0]
    points = [point for _, line in full_mesh.points_by_series(panel, size) for point in line]
    known = {(size.setting_key(point.fields), point.metric or ""): Estimate(0.99, 0.03, 5) for point in points}
    axes = Canvas().subplots()
    Drawing(size, known, {}, "").draw_panel(axes, full_mesh, panel)
    highest = max(float(area.get_paths()[0].vertices[:, 1].max()) for area in axes.collections)
    assert highest == 100.0
    assert value_bounds(panel) == (0.0, 1.0)
    assert value_bounds(full_mesh.panels[2])[1] > 1.0


@pytest.mark.parametrize(("study", "name", "lowest"), [("esposito", "10", 0.0), ("quist", "7.12", -1.0)])
def test_intervals_of_deviations_end_at_zero_and_those_of_gains_do_not(study: str, name: str, lowest: float) -> None:
    found = find_study(study)
    size, figure = found.find_size("default"), next(each for each in found.figures if each.name == name)
    for panel in (each for each in figure.panels if not each.percent):
        points = [point for _, line in figure.points_by_series(panel, size) for point in line]
        known = {(size.setting_key(point.fields), point.metric or ""): Estimate(2.0, 3.0, 5) for point in points}
        axes = Canvas().subplots()
        Drawing(size, known, {}, "").draw_panel(axes, figure, panel)
        drawn = [float(area.get_paths()[0].vertices[:, 1].min()) for area in axes.collections]
        assert drawn and set(drawn) == {lowest}, panel.title


def test_a_single_panel_fills_the_picture(tmp_path: Path) -> None:
    finished = invented_study(find_study("dmm"), "default", ("8", "20"))
    drawing = Drawing(finished.size, finished.estimates, {}, "")
    for figure in finished.study.figures:
        drawing.save(figure, tmp_path)
    wide = [_widest_axes(tmp_path / f"figure-{name}.svg") for name in ("8", "20")]
    assert wide[0] > 0.8 and 0.3 < wide[1] < 0.5


def _widest_axes(picture: Path) -> float:
    """The width of the background of the widest axes, as a share of the picture."""
    text = picture.read_text(encoding="utf-8")
    all_of_it = float(re.findall(r'viewBox="0 0 ([0-9.]+)', text)[0])
    edges = re.findall(r'id="patch_[0-9]+">\s*<path d="M ([0-9.]+) [0-9.]+ \s*L ([0-9.]+)', text)
    widths = [abs(float(right) - float(left)) / all_of_it for left, right in edges]
    return max(width for width in widths if width < 0.999)


def test_intervals_of_claims_are_possible_whatever_figures_are_selected(tmp_path: Path) -> None:
    finished = invented_study(DCRD, "smoke", ("7",))
    close = [
        replace(result, parts=tuple(replace(part, ours=Estimate(0.99, 0.03, 5)) for part in result.parts))
        for result in finished.claims
    ]
    bare = replace(finished, claims=close, study=replace(finished.study, figures=()))
    write_report(bare, tmp_path)
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text()
        assert "99.00 (96.00 to 100.00) %" in text and "± 3.00" not in text
    said = json.loads((tmp_path / "report.json").read_text())
    assert {tuple(part["interval"]) for claim in said["claims"] for part in claim["parts"]} == {(0.96, 1.0)}
