"""The walk of one event: through few files, and as the architecture page lists it."""

import ast
import asyncio
import importlib.util
import re
from pathlib import Path

from tests.cores import pure_only

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("walk", ROOT / "scripts" / "walk.py")
assert _spec is not None and _spec.loader is not None
walk = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(walk)

ROW = re.compile(r"^\| \d+ \| \[`([^`]+)`\]")
FUNCTION = re.compile(r"`([\w.]+)` (\d+)")


def listed() -> dict[str, dict[str, int]]:
    """What the page says: by file, the functions with their lines."""
    text = walk.PAGE.read_text(encoding="utf-8").partition(walk.BEGIN)[2].partition(walk.END)[0]
    rows = [line for line in text.splitlines() if ROW.match(line)]
    return {ROW.match(row)[1]: {name: int(line) for name, line in FUNCTION.findall(row)} for row in rows}  # type: ignore[index]


@pure_only
def test_an_event_passes_sixteen_files_at_most() -> None:
    visits = asyncio.run(walk.walk())
    assert len(visits) <= 16
    assert visits.keys() == listed().keys(), "run scripts/walk.py --write"
    assert next(iter(visits)) == "drivers/live/client/client.py"


def test_the_page_names_the_lines() -> None:
    page = listed()
    assert page
    for file, functions in page.items():
        assert functions
        assert functions.items() <= _functions(file).items(), f"{file}: run scripts/walk.py --write"


def _functions(file: str) -> dict[str, int]:
    found: dict[str, int] = {}
    tree = ast.parse((walk.SOURCE / file).read_text(encoding="utf-8"))
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in inner:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([each.lineno, *(decorator.lineno for decorator in each.decorator_list)])
                found[prefix + each.name] = first
    return found
