"""The page of one study: what the paper did, its claims with their verdicts, and where Wend differs."""

import tomllib
from pathlib import Path
from typing import Any

from wend.studies.paper_claims import PaperClaim, load_paper_claims

Report = dict[str, Any]
HEAD = "<!-- Written by scripts/studies.py from {study}/report.json and {study}/about.toml. -->"
ORDER = ("not met", "contradicted", "doubtful", "met", "not run")
SIGNS = {"=": "", ">=": "≥ ", "<=": "≤ ", ">": "> ", "<": "< ", "factor": ""}


def page(report: Report, folder: Path) -> str:
    about = tomllib.loads((folder / "about.toml").read_text("utf-8"))
    papers = [claim for claim in report["claims"] if not _is_own(claim)]
    own = [claim for claim in report["claims"] if _is_own(claim)]
    parts = [
        f"# {report['study']}: {report['title']}",
        HEAD.format(study=report["study"]),
        f"{report['paper']}. [All studies](README.md)",
        _summary(papers),
        "## What the paper did",
        about["method"].strip(),
        "## Claims",
        _about_claims(),
        _claims(papers),
        *_tolerances(papers),
        *_notes(papers),
        "## What Wend's own strategies reach",
        about["own"].strip(),
        *([_claims(own)] if own else []),
        *_comparison(report["comparison"]),
        "## Where Wend differs, and why",
        about["differs"].strip(),
        "\n".join(f"- {remark}" for remark in report["remarks"]),
        *_tables(report["tables"]),
        *_figures(report),
        "## The run",
        _run(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def counts(claims: list[dict[str, Any]]) -> dict[str, int]:
    return {verdict: sum(claim["verdict"] == verdict for claim in claims) for verdict in ORDER}


def papers_claims(report: Report) -> list[dict[str, Any]]:
    """The claims of a report that are the paper's."""
    return [claim for claim in report["claims"] if not _is_own(claim)]


def statement(fact: PaperClaim) -> str:
    """What a paper states: a number with its tolerance, or an order."""
    if isinstance(fact.value, str):
        return fact.value
    numbers = ", ".join(f"{number:g}" for number in fact.numbers)
    tolerance = f" ± {fact.tol:g}" if fact.tol else ""
    return f"{'about ' if fact.rel == '~' else SIGNS.get(fact.rel, '')}{numbers}{tolerance}"


def anchor(claim: str) -> str:
    """The anchor of a claim on its page."""
    return claim.replace(".", "-")


def _is_own(claim: dict[str, Any]) -> bool:
    return ".own." in claim["id"]


def _summary(papers: list[dict[str, Any]]) -> str:
    found = counts(papers)
    unsure = sum(claim["sure"] is False for claim in papers)
    words = [f"{found['met']} met", f"{found['not met'] + found['doubtful']} not met"]
    words[1] += f" ({found['doubtful']} of them under no reading of the paper)" if found["doubtful"] else ""
    words += [f"{found['contradicted']} contradicted", f"{found['not run']} not run"]
    also = f" {unsure} are unsure: more seeds may change their verdict." if unsure else ""
    return f"Of {len(papers)} claims: **{', '.join(words)}**.{also}"


def _about_claims() -> str:
    return (
        "*Stated* is what the paper says. A row has Wend's mean over seeds and its 95 % interval. A doubtful claim is "
        "not met, and no reading of the paper gives it. "
        "[How verdicts are made](../how-to/sweep-and-studies.md#read-the-verdicts)."
    )


def _claims(claims: list[dict[str, Any]]) -> str:
    rows = ["| claim | stated | compared with | Wend | 95 % interval | |", "| --- | --- | --: | --: | --- | --- |"]
    for claim in sorted(claims, key=lambda one: ORDER.index(one["verdict"])):
        rows += _rows(claim)
    return "\n".join(rows)


def _rows(claim: dict[str, Any]) -> list[str]:
    fact = load_paper_claims().get(claim["fact"] or "")
    stated = f"{_cell(fact.words)}: {_cell(statement(fact))}" if fact else ""
    count = f" ({claim['count']})" if claim["count"] else ""
    unsure = ", unsure" if claim["sure"] is False else ""
    what = f'<a id="{anchor(claim["id"])}"></a>**{_cell(claim["what"])}**{count}; {_cell(claim["setting"])}'
    what += f" (`{claim['id']}`)"
    if len(claim["parts"]) == 1:
        (part,) = claim["parts"]
        return [f"| {what} | {stated} | {_numbers(part, claim)} | **{claim['verdict']}**{unsure} |"]
    rows = [f"| {what} | {stated} | | | | **{claim['verdict']}**{unsure} |"]
    for part in claim["parts"]:
        info = " (for information)" if part["info"] else ""
        mark = {True: "✓", False: "✗", None: "not run"}[part["within"]]
        rows.append(f"| – {_cell(part['label'])}{info} | | {_numbers(part, claim)} | {'' if part['info'] else mark} |")
    return rows


def _numbers(part: dict[str, Any], claim: dict[str, Any]) -> str:
    """The cells of a part: the paper's number, ours, and the interval."""
    unit = "" if claim["plain"] else " %"
    scale = 1.0 if claim["plain"] else 100.0
    rel, tol = claim["rel"], claim["tol"]
    beyond = f" ± {scale * tol:.5g}" if tol and rel != "factor" else ""
    factor = f", factor {tol:g}" if rel == "factor" else ""
    paper = f"{SIGNS[rel]}{scale * part['paper']:.5g}{beyond}{unit}{factor}"
    failed = f" ({part['failed']} failed or unsolved)" if part["failed"] else ""
    ours = "–" if part["ours"] is None else f"{_digits(scale * part['ours'])}{unit}"
    ends = part["interval"]
    interval = "" if ends is None else f"{_digits(scale * ends[0])} to {_digits(scale * ends[1])}{unit}"
    if ends is None and part["ours"] is not None:
        interval = "one seed"
    return f"{paper} | {ours}{failed} | {interval}"


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _tolerances(claims: list[dict[str, Any]]) -> list[str]:
    added = [claim for claim in claims if claim["without"] is not None]
    if not added:
        return []
    fails = [claim for claim in added if claim["verdict"] == "met" != claim["without"]]
    rows = ["| claim | why | with it | without it |", "| --- | --- | --- | --- |"]
    rows += [
        f"| [`{claim['id']}`](#{anchor(claim['id'])}) | {_cell(claim['reason'])} | {claim['verdict']} "
        f"| {claim['without']} |"
        for claim in added
    ]
    sentence = f"{len(fails)} of these {len(added)} claims would not be met without it." if fails else ""
    return ["### Tolerances that the paper does not state", sentence, "\n".join(rows)]


def _notes(claims: list[dict[str, Any]]) -> list[str]:
    notes = [f"- [`{claim['id']}`](#{anchor(claim['id'])}): {claim['note']}" for claim in claims if claim["note"]]
    return ["### Notes", "\n".join(notes)] if notes else []


def _comparison(comparison: Report) -> list[str]:
    if not comparison:
        return []
    rows = [f"| setting | {' | '.join(comparison['columns'])} |", f"| --- |{' --: |' * len(comparison['columns'])}"]
    for row in comparison["rows"]:
        cells = [f"{cell['value']} ({cell['cost']})" if cell["cost"] else cell["value"] for cell in row["cells"]]
        rows.append(f"| {row['label']} | {' | '.join(cells)} |")
    return [f"### {comparison['title']}", comparison["text"], "\n".join(rows)]


def _tables(tables: list[Report]) -> list[str]:
    parts = ["## Tables"] if tables else []
    for table in tables:
        columns = table["columns"]
        rows = [f"| | {' | '.join(columns)} |", f"| --- |{' --: |' * len(columns)}"]
        for row in table["rows"]:
            cells = [f"{cell['ours']} ({cell['paper']})" if cell["paper"] else cell["ours"] for cell in row["cells"]]
            rows.append(f"| {_cell(row['label'])} | {' | '.join(cells)} |")
        brackets = " In brackets: the paper." if table["stated"] else ""
        parts += [f"### {table['name']}: {table['title']}", f"{table['text']}{brackets}", "\n".join(rows)]
    return parts


def _figures(report: Report) -> list[str]:
    if not report["figures"]:
        return ["## Figures", f"This run was for the claims alone. `wend study {report['study']}` draws the figures."]
    parts = ["## Figures"]
    for figure in report["figures"]:
        stars = " Stars: stated in the paper's text." if figure["stars"] else ""
        title = f"Figure {figure['name']}: {figure['title']}"
        parts += [
            f"### {title}",
            f"![{title}]({report['study']}/figure-{figure['name']}.svg)",
            f"{figure['caption']}{stars}",
        ]
    return parts


def _run(report: Report) -> str:
    size = f"{report['duration_s']:g} simulated seconds each, " if report["duration_s"] else ""
    costs = ", ".join(f"{name} {duration(seconds)}" for name, seconds in report["costs"].items())
    failed = ", ".join(f"{each['strategy']} (seed {each['seed']})" for each in report["failures"])
    lines = [
        f"`{report['command']}` on {report['cores']} cores: {report['runs']} runs, {size}seeds 1–{report['seeds']} "
        f"(some kinds of runs have others). {report['versions']}.",
        f"Code `{report['code']}`: a hash of the sources that decide these runs. `wend study {report['study']}` prints "
        "that of the present sources; if it differs, a new run may give other numbers.",
        f"All runs together took {duration(report['simulated_wall_s'])} of one core: {costs}. {report['machine_note']}",
        f"{len(report['failures'])} runs failed: {failed}." if failed else "No run failed.",
    ]
    return "\n\n".join(line.strip() for line in lines)


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
