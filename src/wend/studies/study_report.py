"""The report of a study: its runs, its results, and a comparison with the numbers of the paper.

`report.html` is one self-contained file, with the figures inside; it follows the light or dark mode of the screen.
`report.md` is the same for a repository. `figures/` has every figure as SVG and PNG. `report.json` has the claims for
programs.
"""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, select_autoescape

from wend import __version__
from wend.model.errors import ConfigError
from wend.pictures.style import FONT, page_colours
from wend.studies.claims import ANY, SHARE, Bounds, ClaimResult, Estimate, JudgedValue
from wend.studies.figures import Drawing, legend_mark, shown_series, stated_values, value_bounds
from wend.studies.study_model import ComparisonTable, Fields, Figure, MetricRow, MetricTable, Panel, Point, Study
from wend.studies.study_run import StudyResults

PAGES = ("report.html", "report.md", "report.json")
VERDICTS = ("met", "not met", "contradicted", "doubtful", "not run")
RANKS = {verdict: rank for rank, verdict in enumerate(("not met", "contradicted", "doubtful", "met", "not run"))}
"""The order of claims in the report: failures first."""
VERSIONS = f"Wend {__version__}, Python {platform.python_version()}, Spark {version('pyspark')}"
_TEMPLATES = Environment(
    loader=PackageLoader("wend.studies"),
    autoescape=select_autoescape(enabled_extensions=("html.j2",), default=False),
    trim_blocks=True,
    lstrip_blocks=True,
)


def write_report(results: StudyResults, out: Path) -> Path:
    """Write the report into `out`; return the path of the HTML page."""
    folder = out / "figures"
    html, markdown, for_programs = (out / name for name in PAGES)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        view = _make_view(results, folder)
        for page in (html, markdown):
            page.write_text(_TEMPLATES.get_template(f"{page.name}.j2").render(view), encoding="utf-8")
        for_programs.write_bytes(msgspec.json.format(msgspec.json.encode(make_report_json(results)), indent=2))
    except OSError as error:
        raise ConfigError(f"cannot write the report to {out}: {error.strerror or error}", code="unwritable") from None
    return html


def make_report_json(results: StudyResults) -> dict[str, Any]:
    """The results of a study as one JSON object."""
    drawing = _make_drawing(results)
    return {
        "study": results.study.name,
        "title": results.study.title,
        "paper": results.study.paper,
        "command": results.command,
        "cores": os.cpu_count(),
        "versions": VERSIONS,
        "size": results.size.name,
        "duration_s": results.size.duration_s,
        "seeds": results.size.seeds,
        "code": results.code,
        "runs": results.runs,
        "ran": results.ran,
        "failures": results.failures,
        "left_out": results.left_out,
        "elapsed_s": results.elapsed_s,
        "simulated_wall_s": results.simulated_wall_s,
        "costs": results.costs,
        "verdicts": count_verdicts(results.claims),
        "unsure": count_verdicts([result for result in results.claims if result.is_sure is False]),
        "claims": [_make_claim_json(result, results.study.shares()) for result in results.claims],
        "tables": [_make_table_view(table, results) for table in results.study.tables],
        "comparison": _make_comparison_json(results),
        "remarks": list(results.study.remarks),
        "figures": [
            {"name": each.name, "title": each.title, "caption": each.caption, "stars": drawing.has_stars(each)}
            for each in results.study.figures_at(results.size)
        ],
    }


def _make_comparison_json(results: StudyResults) -> dict[str, Any]:
    """The comparison without the pictures of its columns."""
    view = _make_comparison_view(results.study.comparison, results)
    columns = [column["label"] for column in view.get("columns", [])]
    return {**view, "columns": columns} if view["rows"] else {}


def _make_drawing(results: StudyResults) -> Drawing:
    size = results.size
    each = f", {size.duration_s:g} s each" if size.duration_s else ""
    where = f"Seeds 1–{size.seeds}{each}, code {results.code}."
    smoke = "SMOKE RUN, not a result. " if size.thin else ""
    stated = stated_values([result.claim for result in results.claims], size)
    return Drawing(size, results.estimates, stated, smoke + where)


def count_verdicts(results: list[ClaimResult]) -> dict[str, int]:
    return {verdict: sum(result.verdict == verdict for result in results) for verdict in VERDICTS}


def _make_claim_json(result: ClaimResult, shares: frozenset[str]) -> dict[str, Any]:
    claim = result.claim
    return {
        "id": claim.id,
        "fact": claim.fact.id if claim.fact else None,
        "what": claim.what,
        "setting": claim.setting,
        "figure": claim.figure,
        "count": claim.count,
        "note": claim.note,
        "verdict": result.verdict,
        "sure": result.is_sure,
        "rel": claim.rel,
        "tol": claim.tol,
        "reason": claim.reason,
        "without": result.without,
        "doubt": claim.doubt,
        "plain": claim.plain,
        "parts": [
            {
                "label": judged.part.label,
                "paper": judged.part.value,
                "ours": judged.ours.mean if judged.ours else None,
                "half": judged.ours.half if judged.ours else None,
                "interval": judged.ours.interval(judged.part.bounds(shares)) if judged.ours else None,
                "seeds": judged.ours.seeds if judged.ours else 0,
                "failed": judged.failed,
                "within": judged.within,
                "sure": judged.is_sure,
                "info": judged.part.info,
            }
            for judged in result.parts
        ],
    }


def _make_view(results: StudyResults, folder: Path) -> dict[str, Any]:
    """The values for the templates. Templates decide the layout; all numbers are computed here."""
    size = results.size
    drawing = _make_drawing(results)
    figures = results.study.figures_at(size)
    for figure in figures:
        drawing.save(figure, folder)
    ranked = sorted(results.claims, key=lambda result: RANKS[result.verdict])
    return {
        "study": results.study,
        "results": results,
        "size": size,
        "smoke": size.thin,
        "verdicts": count_verdicts(results.claims),
        "unsure": count_verdicts([result for result in results.claims if result.is_sure is False]),
        "gated": sum(result.verdict in ("met", "not met", "contradicted") for result in results.claims),
        "claims": [_make_claim_view(result, results.study) for result in ranked],
        "tolerances": [_make_claim_view(result, results.study) for result in ranked if result.without is not None],
        "tables": [_make_table_view(table, results) for table in results.study.tables],
        "comparison": _make_comparison_view(results.study.comparison, results),
        "figures": [_make_figure_view(figure, drawing, results) for figure in figures],
        "light": page_colours(dark=False),
        "dark": page_colours(dark=True),
        "font": FONT,
        "versions": VERSIONS,
        "elapsed": _duration_text(results.elapsed_s),
        "simulated_wall": _duration_text(results.simulated_wall_s),
    }


def _make_claim_view(result: ClaimResult, study: Study) -> dict[str, Any]:
    claim = result.claim
    of_table = claim.figure in {table.name for table in study.tables}
    return {
        "id": claim.id,
        "what": claim.what + (f" ({claim.count})" if claim.count else ""),
        "setting": claim.setting,
        "place": claim.figure if of_table else f"Figure {claim.figure}",
        "anchor": make_section_id(claim.figure if of_table else f"figure {claim.figure}"),
        "verdict": result.verdict,
        "rank": RANKS[result.verdict],
        "sure": result.is_sure,
        "note": claim.note,
        "reason": claim.reason,
        "without": result.without,
        "parts": [_make_part_view(judged, result, study.shares()) for judged in result.parts],
    }


def _make_part_view(judged: JudgedValue, result: ClaimResult, shares: frozenset[str]) -> dict[str, Any]:
    claim, part = result.claim, judged.part
    percent = not claim.plain
    sign = {"=": "", ">=": "≥ ", "<=": "≤ ", ">": "> ", "<": "< ", "factor": ""}[claim.rel]
    tolerance = f" ± {_paper_number_text(claim.tol, percent)}" if claim.tol and claim.rel != "factor" else ""
    factor = f", within a factor of {claim.tol:g}" if claim.rel == "factor" else ""
    return {
        "label": part.label,
        "paper": f"{sign}{_paper_number_text(part.value, percent)}{tolerance}{' %' if percent else ''}{factor}",
        "ours": _estimate_text(judged.ours, percent, part.bounds(shares)),
        "failed": judged.failed,
        "within": judged.within,
        "sure": judged.is_sure,
        "info": part.info,
    }


def make_section_id(name: str) -> str:
    """The id of a section, for links within the page."""
    return name.lower().replace(" ", "-")


def _make_table_view(table: MetricTable, results: StudyResults) -> dict[str, Any]:
    shares = results.study.shares()

    def cell(row: MetricRow, label: str, fields: Fields) -> dict[str, str]:
        estimate = results.estimates.get((results.size.setting_key(fields), row.metric))
        paper = row.paper.get(label)
        return {
            "ours": _estimate_text(estimate, row.percent, SHARE if row.metric in shares else ANY, digits=row.digits),
            "paper": "" if paper is None else _paper_number_text(paper, row.percent) + (" %" if row.percent else ""),
        }

    columns, rows = [label for label, _ in table.columns], [row.label for row in table.rows]
    cells = [[cell(row, label, fields) for label, fields in table.columns] for row in table.rows]
    if table.settings_are_rows:
        columns, rows, cells = rows, columns, [list(each) for each in zip(*cells, strict=True)]
    return {
        "name": table.name,
        "anchor": make_section_id(table.name),
        "title": table.title,
        "text": table.text,
        "columns": columns,
        "stated": any(row.paper for row in table.rows),
        "rows": [{"label": label, "cells": each} for label, each in zip(rows, cells, strict=True)],
    }


def _make_comparison_view(comparison: ComparisonTable | None, results: StudyResults) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    if comparison is None:
        return {"rows": rows}
    for label, at in comparison.rows:
        fields = {series.label: {**at, **series.fields} for series in comparison.series}
        settings = {name: results.size.setting_key(each) for name, each in fields.items()}
        base = results.estimates.get((settings[comparison.reference], comparison.price))
        cells = []
        for setting in settings.values():
            estimate = results.estimates.get((setting, comparison.metric))
            price = results.estimates.get((setting, comparison.price))
            cost = f"{price.mean / base.mean:.2f}" if price and base and base.mean else None
            half = _interval_text(estimate, True, SHARE).strip("()") if estimate else ""
            value = _number_text(estimate.mean, True) if estimate else "–"
            cells.append({"value": value, "half": half, "cost": cost, "known": estimate is not None})
        if any(cell["known"] for cell in cells):
            rows.append({"label": label, "cells": cells})
    columns = [{"label": series.label, "mark": legend_mark(series)} for series in comparison.series]
    return {"title": comparison.title, "text": comparison.text, "columns": columns, "rows": rows}


def _make_figure_view(figure: Figure, drawing: Drawing, results: StudyResults) -> dict[str, Any]:
    legend = [{"label": series.label, "mark": legend_mark(series)} for series in shown_series(figure)]
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "legend": legend,
        "stars": drawing.has_stars(figure),
        "panels": [
            {
                "title": panel.title,
                "svg": drawing.draw_inline(figure, panel),
                "table": _make_panel_view(figure, panel, results),
            }
            for panel in figure.panels
        ],
    }


def _make_panel_view(figure: Figure, panel: Panel, results: StudyResults) -> dict[str, Any]:
    def cell(point: Point) -> str:
        estimate = results.estimates.get((results.size.setting_key(point.fields), point.metric or ""))
        return _estimate_text(estimate, panel.percent, value_bounds(panel), unit=False)

    lines = list(figure.points_by_series(panel, results.size))
    xs = [f"{point.x:g}" for point in lines[0][1] if point.metric is not None] if lines else []
    return {
        "xs": xs,
        "rows": [
            {"label": series.label, "cells": [cell(point) for point in points if point.metric]}
            for series, points in lines
        ],
    }


def _estimate_text(
    estimate: Estimate | None, percent: bool, bounds: Bounds = ANY, *, unit: bool = True, digits: int = 2
) -> str:
    if estimate is None:
        return "–"
    spread = _interval_text(estimate, percent, bounds, digits)
    number = f"{_number_text(estimate.mean, percent, digits)} {spread}".strip()
    return f"{number} %" if percent and unit else number


def _interval_text(estimate: Estimate, percent: bool, bounds: Bounds, digits: int = 2) -> str:
    """The 95 % interval: ± half its width, or its ends if it would reach beyond what is possible."""
    ends = estimate.interval(bounds)
    if ends is None or estimate.half is None:
        return ""
    low, high = (_number_text(end, percent, digits) for end in ends)
    if bounds[0] <= estimate.mean - estimate.half and estimate.mean + estimate.half <= bounds[1]:
        return f"± {_number_text(estimate.half, percent, digits)}"
    return f"({low} to {high})"


def _number_text(value: float, percent: bool, digits: int = 2) -> str:
    """Format a number: shares in percent, others as they are."""
    return f"{100 * value if percent else value:.{digits}f}"


def _paper_number_text(value: float, percent: bool) -> str:
    """Format a number of the paper, with the paper's digits."""
    return f"{100 * value if percent else value:.5g}"


def _duration_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
