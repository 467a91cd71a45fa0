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

MAX_FILES = 16
ROW = re.compile(r"^\| \d+ \| \[`([^`]+)`\]\([^)]*\) \| (.*) \|$")


def listed() -> dict[str, list[str]]:
    """What the page says: the functions, by file."""
    text = walk.PAGE.read_text(encoding="utf-8").partition(walk.BEGIN)[2].partition(walk.END)[0]
    rows = [row for line in text.splitlines() if (row := ROW.match(line))]
    return {row[1]: re.findall(r"`([\w.]+)`", row[2]) for row in rows}


@pure_only
def test_an_event_passes_few_files() -> None:
    visits = asyncio.run(walk.walk())
    assert len(visits) <= MAX_FILES
    assert visits.keys() == listed().keys(), "run scripts/walk.py --write"
    assert next(iter(visits)) == "drivers/live/client/client.py"


def test_the_page_names_functions_that_exist() -> None:
    page = listed()
    assert page
    for file, functions in page.items():
        assert functions
        assert set(functions) <= _functions(file), f"{file}: run scripts/walk.py --write"


def _functions(file: str) -> set[str]:
    tree = ast.parse((walk.SOURCE / file).read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in tree.body:
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(prefix + each.name)
    return names
