"""Write the pages of the studies from their reports.

python scripts/studies.py                          # write docs/studies/*.md from docs/studies/*/report.json
python scripts/studies.py --check                  # write nothing; exit with 1 if a page is out of date
python scripts/studies.py out/studies/dcrd-default # first take the report and the figures of a finished study

`--note TEXT` with a folder says what else a reader should know of the run.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from study_pages import overview, study_page

from wend.studies.claims import load_claims

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "studies"


def main(words: list[str]) -> int:
    check = words == ["--check"]
    if words and not check:
        note = words[words.index("--note") + 1] if "--note" in words else ""
        take(Path(words[0]), note)
    stale = 0
    for name, text in pages().items():
        path = PAGES / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"docs/studies/{name} is out of date: run python scripts/studies.py", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and stale > 0)


def pages() -> dict[str, str]:
    """The text of each page, by name."""
    reports = {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(PAGES.glob("*/report.json"))}
    made = {f"{name}.md": study_page.page(report, PAGES / name) for name, report in reports.items()}
    return {**made, "README.md": overview.page(reports)}


def take(folder: Path, note: str) -> None:
    """Copy the report of a finished study, and the figures that its claims name."""
    report = json.loads((folder / "report.json").read_text("utf-8"))
    judged = {claim["id"] for claim in report["claims"]}
    missing = [claim.id for claim in load_claims(report["study"]) if not claim.is_own and claim.id not in judged]
    if report["size"] == "smoke" or report["left_out"] or missing:
        raise SystemExit(f"{folder} has a part of a study; a page needs all claims of the paper: {', '.join(missing)}")
    place = PAGES / report["study"]
    place.mkdir(parents=True, exist_ok=True)
    shown = {claim["figure"] for claim in report["claims"]}
    report["figures"] = [figure for figure in report["figures"] if figure["name"] in shown]
    report["failures"] = [{"strategy": each["strategy"], "seed": each["seed"]} for each in report["failures"]]
    report["machine_note"] = note
    (place / "report.json").write_text(json.dumps(_rounded(report), indent=1, ensure_ascii=False) + "\n", "utf-8")
    for picture in place.glob("figure-*.svg"):
        picture.unlink()
    for figure in report["figures"]:
        name = f"figure-{figure['name']}.svg"
        (place / name).write_text(slim((folder / "figures" / name).read_text("utf-8")), "utf-8")


def slim(svg: str) -> str:
    """The same picture in less space: a tenth of a point is exact enough, and nobody needs names of groups."""
    svg = re.sub(
        r"<\?xml.*?\?>\s*|<!DOCTYPE.*?>\s*|<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL
    )
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", svg)
    svg = re.sub(r"(\d\.\d)\d+", r"\1", svg)
    svg = re.sub(r"([0-9z]) ?\n(?=[Lz\"C])", r"\1", svg)
    return re.sub(r"\n\s*", "\n", svg)


def _rounded(value: Any) -> Any:
    """The same with six digits of each number."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
