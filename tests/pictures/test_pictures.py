"""Every picture: no label covers another, nothing leaves the canvas, and stored pictures show their stored data."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.pictures.extents import Picture
from tests.plans import plan_of
from wend.model.plan import Plan
from wend.pictures.charts import RankedRow, draw_ranked_dots
from wend.pictures.palette import COLOURS
from wend.planning import plan_drawing
from wend.topology import underlay_drawing as topology_drawing
from wend.topology.catalog import make
from wend.topology.overlays import choose_landmarks, landmark, random_regular
from wend.topology.placement import attach_peers

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
sys.path.insert(0, str(ROOT / "scripts"))
from line_chart import ChartLine, line_chart  # noqa: E402

_spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts" / "pictures.py")
assert _spec is not None and _spec.loader is not None
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


@pytest.mark.parametrize("path", script.pictures(), ids=lambda path: path.name)
def test_stored_pictures_are_drawn_from_the_stored_data(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == script.pictures()[path], "run python scripts/pictures.py"


@pytest.mark.parametrize("package", ["pictures", "planning", "topology", "lab"])
def test_only_studies_need_a_drawing_library(package: str) -> None:
    for path in (ROOT / "src" / "wend" / package).rglob("*.py"):
        assert not re.search(r"^\s*(import|from) matplotlib", path.read_text(), re.MULTILINE), path.name


@pytest.mark.parametrize("path", sorted(FIGURES.glob("*.svg")), ids=lambda path: path.stem)
def test_no_label_of_a_stored_picture_overlaps_another(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert Picture(source).problems() == []
    known = {colour for both in COLOURS.values() for colour in both}
    assert set(re.findall(r"#[0-9a-f]{3,6}\b", source)) <= known
    assert "prefers-color-scheme: dark" in source


def test_every_stored_picture_is_on_a_page() -> None:
    pages = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert [
        path.name for path in FIGURES.iterdir() if f"figures/{path.name}" not in pages and path.suffix != ".json"
    ] == []


def test_the_readme_picture_names_its_four_lines_and_nothing_else() -> None:
    picture = Picture((FIGURES / "on-time.svg").read_text())
    words = [words for words, _ in picture.labels]
    for name, label in script.LABELS.items():
        assert sum(one.startswith(label) for one in words) == 1, name
    assert not any(re.search(r"\b[0-9a-f]{7,}\b", one) for one in words), "no code hash"


def test_close_lines_have_labels_apart() -> None:
    lines = [ChartLine(f"line {i}", "blue", ((0, 50), (1, 50 + i / 100)), strong=i == 1) for i in range(5)]
    drawn = line_chart("title", "subtitle", "x", lines, [(0, "0"), (1, "1")], [(0, "0"), (100, "100")])
    picture = Picture(drawn)
    assert picture.problems() == []
    assert sum(words.startswith("line") for words, _ in picture.labels) == 5


def test_a_logarithmic_chart_has_equal_steps_for_equal_factors() -> None:
    one = ChartLine("one", "blue", ((1, 1), (10, 10), (100, 100)))
    ticks = [(1, "1"), (100, "100")]
    drawn = Picture(line_chart("title", "subtitle", "x", [one], ticks, ticks, log=True))
    first, second, third = (box for name, box in drawn.shapes if name.startswith("circle"))
    assert second.left - first.left == pytest.approx(third.left - second.left, abs=0.2)
    assert first.top - second.top == pytest.approx(second.top - third.top, abs=0.2)


@pytest.mark.parametrize("values", [((0.99, 0.97), (0.5, None)), ((0.99,), (0.985,)), ((0.0, 0.0), (1.0, 1.0))])
def test_ranked_dots_stay_apart(values: tuple[tuple[float | None, ...], ...]) -> None:
    rows = [RankedRow(f"a-system-{i}", "green", one, "1.25", strong=i == 0) for i, one in enumerate(values)]
    drawn = draw_ranked_dots(
        "title", "subtitle", ["Pf 0.06", "Pf 0.1"][: len(values[0])], "packets\nper delivery", rows
    )
    picture = Picture(drawn)
    assert picture.problems() == []
    dots = [box for name, box in picture.shapes if name.startswith("circle")]
    assert len(dots) == sum(value is not None for one in values for value in one) + len(values[0])


# ---------------------------------------------------------------- plans


def full_plan(peers: int, seed: int = 1, names: str = "town") -> Plan:
    """A plan with loads of every step, in places that are close together here and there."""
    rng = np.random.default_rng(seed)
    links = {(i, int(rng.integers(i))) for i in range(1, peers)} | {
        (max(a, b), min(a, b)) for a, b in rng.integers(peers, size=(peers, 2)).tolist() if a != b
    }
    plan = plan_of(peers, links)
    plan.peers["name"] = [f"{names} {i}" for i in range(peers)]
    for axis in "xy":
        plan.peers[axis] = rng.normal(size=peers)
    for state in ("before", "after"):
        plan.arcs[f"{state}_msgs"] = rng.choice([0.0, 10, 35, 60, 90, 120], len(plan.arcs["a"]))
    plan.arcs["capacity_msgs"] = np.full(len(plan.arcs["a"]), 100.0)
    return Plan(msgspec.structs.replace(plan.head, goal="balance"), plan.tables)


@pytest.mark.parametrize(("peers", "names"), [(4, "town"), (50, "town"), (50, "a town with a long name"), (150, "t")])
def test_no_label_of_a_plan_overlaps_another(peers: int, names: str) -> None:
    plan = full_plan(peers, names=names)
    picture = Picture(plan_drawing.draw_plan(plan))
    assert picture.problems() == []
    for state in ("before", "after"):
        named = plan_drawing.Utilisation(plan, state).named_peers(5)
        for peer in named:
            assert plan.peers["name"][peer] in [words for words, _ in picture.labels], "the text names it"


@pytest.mark.parametrize(("across", "above"), [(1.0, False), (3.0, True)])
def test_wide_maps_are_one_above_the_other(across: float, above: bool) -> None:
    plan = full_plan(12)
    plan.peers["x"] = across * (plan.peers["x"] - plan.peers["x"].min()) / np.ptp(plan.peers["x"])
    plan.peers["y"] = (plan.peers["y"] - plan.peers["y"].min()) / np.ptp(plan.peers["y"])
    picture = Picture(plan_drawing.draw_plan(plan))
    assert picture.problems() == []
    before, after = (
        next(box for words, box in picture.labels if words.startswith(title)) for title in ("single", "as planned")
    )
    assert (after.top > before.bottom) is above
    assert (after.left > before.right) is not above


def test_the_directions_of_a_link_are_drawn_apart_where_they_differ() -> None:
    plan = plan_of(3, [(0, 1), (1, 2)])
    plan.arcs["capacity_msgs"] = np.full(4, 100.0)
    arcs = list(zip(plan.arcs["a"].tolist(), plan.arcs["b"].tolist(), strict=True))
    loads = {(0, 1): 120.0, (1, 0): 10.0, (1, 2): 40.0, (2, 1): 45.0}
    plan.arcs["after_msgs"] = np.array([loads[arc] for arc in arcs])
    plan.peers["x"], plan.peers["y"] = np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 0.0])
    after = plan_drawing.draw_plan(plan).split("as planned")[1].split("fullest</text>")[0]
    lines = re.findall(r'<line x1="([\d.]+)" y1="([\d.]+)" x2="[\d.]+" y2="[\d.]+" class="stroke-load-(\d)"', after)
    assert sorted(step for *_, step in lines) == ["1", "2", "5"], "0 - 1 twice, 1 - 2 once"
    below, above = (next(float(y) for _, y, step in lines if step == load) for load in "51")
    assert below > above, "traffic to the right keeps below"
    assert after.count("<polygon") == 2


# ---------------------------------------------------------------- topologies


@pytest.mark.parametrize("name", ["topohub:topozoo/Abilene", "topohub:sndlib/germany50", "power-law", "brite"])
def test_no_label_of_a_topology_overlaps_another(name: str) -> None:
    under = make(name, 1)
    placement = attach_peers(under, min(30, len(under.access()) // 2), 1)
    roots = choose_landmarks(placement, 2, 1)
    overlay = landmark(placement, roots)
    source = topology_drawing.draw(placement, overlay, f"{name}, seed 1", roots)
    picture = Picture(source)
    assert picture.problems() == []
    (fails,) = re.findall(r"If router (.+) fails", source)[:1]
    assert fails in [words for words, _ in picture.labels], "the text names it"
    assert source.count('class="landmark') == len(roots) + 1, "and one in the legend"


def test_a_picture_has_the_aspect_ratio_of_its_map() -> None:
    under = make("topohub:topozoo/Abilene", 1)
    placement = attach_peers(under, 5, 1)
    wide = Picture(topology_drawing.draw(placement, random_regular(placement, 2, 1), "wide")).canvas
    turned = msgspec.structs.replace(under, position=under.position[:, ::-1].copy())
    tall = Picture(topology_drawing.draw(type(placement)(turned, placement.homes), placement.overlay(()), "t")).canvas
    assert wide.right / wide.bottom > 1.5
    assert tall.right / tall.bottom < 1.0


def test_landmarks_are_stars_only_where_there_are_some() -> None:
    under = make("topohub:topozoo/Abilene", 1)
    placement = attach_peers(under, 5, 1)
    drawn: Any = topology_drawing.draw(placement, random_regular(placement, 2, 1), "random")
    assert "landmark" not in drawn
