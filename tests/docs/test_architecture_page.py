"""The page on architecture: its tables name the packages, imports, plug-ins and files that there are."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from wend.protocol.link.link import NeighbourState
from wend.strategies.registry import PLUGINS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wend"
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"# {title}\n")[1].split("\n## ")[0].split("\n### ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_packages_import_what_the_table_says() -> None:
    told = {
        name.strip("`"): set(re.findall(r"\b[a-z]+\b(?!\.py)", imports))
        for name, _, imports in rows(section("Packages"))
    }
    imported: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        package = path.relative_to(SOURCE).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("wend."):
                imported[package].add(node.module.split(".")[1])
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert told.keys() == packages
    assert {name: found & packages for name, found in told.items()} == {
        name: (imported[name] & packages) - {name} for name in packages
    }


def test_layers_name_every_plug_in() -> None:
    told = {layer: set(re.findall(r"`([a-z-]+)`", what)) for layer, _, what in rows(section("Inside a peer"))}
    for kind, table in PLUGINS.items():
        assert told[kind] == {name for name in table if ":" not in name}
    for layer in told.keys() - PLUGINS.keys():
        assert (SOURCE / "protocol" / layer).is_dir()


def test_every_folder_of_strategies_has_its_row() -> None:
    folders = [name for names, _ in rows(section("Strategies")) for name in re.findall(r"`(\w+)`", names)]
    assert sorted(folders) == sorted(path.parent.name for path in (SOURCE / "strategies").glob("*/__init__.py"))


def test_the_states_of_links_are_those_of_the_automaton() -> None:
    page = (ROOT / "docs" / "reference" / "status.md").read_text()
    table = page.split("| state | meaning |\n")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE) == [state.value for state in NeighbourState]


def test_files_exist() -> None:
    live = SOURCE / "drivers" / "live"
    folders = [live]
    for part, where, _ in rows(section("Around a live peer")):
        names = re.findall(r"`([\w./]+)`", where)
        if part.startswith("**"):  # the rows below are of its folder
            folders.append(live / names[0])
            names = names[1:]
        for name in names:
            assert (folders[-1] / name).exists() or (part.startswith("**") and (live / name).exists()), name
    assert set(folders[1:]) == {path.parent for path in live.glob("*/__init__.py")}
    for name in re.findall(r"`((?:protocol|strategies|pipeline|security|drivers|model|link)/[\w./]+)`", PAGE):
        assert (SOURCE / name).exists() or (SOURCE / "protocol" / name).exists(), name


def test_the_walk_has_its_place() -> None:
    assert PAGE.count("<!-- walk:begin -->\n") == PAGE.count("<!-- walk:end -->\n") == 1
