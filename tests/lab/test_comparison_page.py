"""The comparison page and its figures, from synthetic cells."""

import math
from pathlib import Path

import msgspec
import pytest

from tests.lab.test_bench_cells import a_cell
from tests.pictures.extents import Picture
from wend.lab.bench.cell import Cell, CellSettings
from wend.lab.bench.comparison_page import (
    HEAD,
    choose_pfs,
    draw_picture,
    format_row,
    list_setups,
    render_page,
    summarize_cells,
    write_page,
)
from wend.model.errors import ConfigError

SETUP = (1.0, 64)


def some_cells(pfs: tuple[float, ...] = (0.0, 0.06)) -> list[Cell]:
    found = []
    for seed in (1, 2):
        for pf in pfs:
            for system, on_time, data in (("wend", 95 + seed, 170), ("udp-tree", 88, 120), ("nats-ospf", 93, 220)):
                settings = CellSettings(system=system, topology_seed=seed, failure_seed=100 * seed + 1, pf=pf)
                found.append(a_cell(settings, on_time=on_time, data=data))
    return found


def test_rows_add_up_worlds_and_compare_with_the_tree_of_the_same_world() -> None:
    found = summarize_cells(some_cells(), SETUP)
    assert [(r.pf, r.system) for r in found[:4]] == [(0.0, s) for s in ("oracle", "wend", "nats-ospf", "udp-tree")]
    wend = found[1]
    assert (wend.worlds, wend.expected, wend.on_time, wend.delivery) == (2, 200, 0.965, 0.95)
    assert (wend.data, wend.relative, wend.control, wend.control_hz) == (1.7, 170 / 120, 6.0, 10.0)
    assert wend.spread == pytest.approx(0.01 / math.sqrt(2))
    assert len(format_row(wend)) == len(HEAD)


def test_without_a_tree_nothing_is_compared_with_it() -> None:
    alone = [cell for cell in some_cells() if cell.settings.system == "wend"]
    assert [row.relative for row in summarize_cells(alone, SETUP)] == [None] * 4
    assert list_setups(alone) == [SETUP]


def test_the_page_has_tables_figures_method_and_machine() -> None:
    text = render_page(some_cells(), {SETUP: "figures/x.svg"})
    assert "| 0.06 | **wend** | 2 | 0.9650 | 0.0071 | 0.9500 |" in text
    assert "![The share of deliveries in time, by system, the best on top](figures/x.svg)" in text
    assert "## 1 event per second and topic, 64 bytes each" in text
    for part in ("## Method", "## Machine", "2 cores", "discarded 0 of 12 windows", "`nats-ospf`: NATS cluster"):
        assert part in text
    with pytest.raises(ConfigError, match="no finished cells"):
        render_page([], {})


def test_the_page_names_every_version_and_rows_with_several() -> None:
    cells = some_cells()
    assert "several versions" not in render_page(cells, {})
    place = next(i for i, c in enumerate(cells) if (c.settings.system, c.settings.pf) == ("wend", 0.06))
    older = msgspec.structs.replace(cells[place], version="0.0.1 of old")
    text = render_page([*cells[:place], older, *cells[place + 1 :]], {})
    both = f"0.0.1 of old, {cells[place].version}"
    assert f"({both})" in text
    assert f"several versions: `wend` at Pf 0.06, 1 per second, 64 bytes: {both}." in text
    assert {row.versions for row in summarize_cells(cells, SETUP) if row.system == "wend"} == {(cells[place].version,)}


@pytest.mark.parametrize("pfs", [(0.06,), (0.0, 0.06)])
def test_page_and_figures_are_written_together(tmp_path: Path, pfs: tuple[float, ...]) -> None:
    written = write_page(some_cells(pfs), tmp_path / "comparison.md")
    names = [path.relative_to(tmp_path).as_posix() for path in written]
    assert names == ["comparison.md", "figures/comparison-1hz-64b.svg"]
    drawn = Picture(written[1].read_text())
    assert drawn.problems() == []
    words = [words for words, _ in drawn.labels]
    ranked = [name for name in words if name in ("oracle", "wend", "nats-ospf", "udp-tree")]
    assert ranked == ["oracle", "wend", "nats-ospf", "udp-tree"], "the best on top, each labelled once"
    assert [f"Pf {pf:g}" for pf in pfs] == [name for name in words if name.startswith("Pf ")]
    assert "](figures/comparison-1hz-64b.svg)" in written[0].read_text()


def test_the_picture_shows_the_two_failure_probabilities_of_the_comparison_or_the_highest_two() -> None:
    assert choose_pfs({0.0, 0.02, 0.06, 0.1, 0.2}) == (0.06, 0.1)
    assert choose_pfs({0.0, 0.02, 0.06}) == (0.02, 0.06)
    assert choose_pfs({0.1}) == (0.1,)


def test_the_picture_can_be_drawn_again_from_the_rounded_table() -> None:
    found = summarize_cells(some_cells((0.06, 0.1)), SETUP)
    exact = [msgspec.structs.replace(row, on_time=row.on_time - 0.00004) for row in found]
    assert draw_picture(exact) == draw_picture(found)


def test_figures_may_have_a_folder_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "explanation").mkdir()
    written = write_page(some_cells(), tmp_path / "explanation" / "comparison.md", tmp_path / "figures")
    assert {path.parent.name for path in written[1:]} == {"figures"}
    assert "](../figures/comparison-1hz-64b.svg)" in written[0].read_text()
