"""The compiled core: the same source, told apart from the pure one wherever results are stored."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wend.model.errors import ConfigError
from wend.pipeline import code_hash, work

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import compiled  # noqa: E402 - a script, not a package


@pytest.fixture
def fresh() -> Iterator[None]:
    code_hash.code_hash.cache_clear()
    yield
    code_hash.code_hash.cache_clear()


def made(source: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def classes(source: str) -> dict[str, str]:
    """The classes of a module, without the mark that mypyc reads."""
    found = made(source)
    for node in found.values():
        node.decorator_list = [one for one in node.decorator_list if "mypyc_attr" not in ast.unparse(one)]
    return {name: ast.dump(node) for name, node in found.items()}


@pytest.mark.parametrize("module", compiled.core())
def test_a_module_and_its_declarations_are_the_source(module: str) -> None:
    source = (compiled.SOURCE / module).read_text(encoding="utf-8")
    text, declared = compiled.prepared(source, module)
    kept, moved = classes(text), classes(declared)
    assert kept | moved == classes(source)
    assert not kept.keys() & moved.keys()
    keywords = {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.keywords}
    assert moved.keys() == keywords
    functions = {ast.dump(node) for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert {ast.dump(node) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)} == functions


@pytest.mark.parametrize("module", compiled.core())
def test_all_lines_but_those_of_declarations_stay_where_they_are(module: str) -> None:
    source = (compiled.SOURCE / module).read_text(encoding="utf-8")
    before = {name: (node.lineno, node.end_lineno) for name, node in made(source).items() if not node.keywords}
    text, _ = compiled.prepared(source, module)
    assert {name: (node.lineno, node.end_lineno) for name, node in made(text).items()} == before


def test_every_pattern_of_the_core_finds_modules() -> None:
    for pattern in compiled.CORE:
        assert list(compiled.SOURCE.glob(pattern)), pattern


def test_a_sweep_says_which_core_it_used(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_hash, "core", lambda: "pure")
    pure = code_hash.code_hash()
    code_hash.code_hash.cache_clear()
    monkeypatch.setattr(code_hash, "core", lambda: "compiled")
    assert code_hash.code_hash() == f"{pure}-compiled"


@pytest.mark.parametrize(("here", "there"), [("pure", "compiled"), ("compiled", "pure")])
def test_a_sweep_mixes_no_cores(fresh: None, monkeypatch: pytest.MonkeyPatch, here: str, there: str) -> None:
    monkeypatch.setattr(code_hash, "core", lambda: there)
    driver = code_hash.code_hash()
    code_hash.code_hash.cache_clear()
    monkeypatch.setattr(code_hash, "core", lambda: here)
    monkeypatch.setattr(work, "core", lambda: here)
    with pytest.raises(ConfigError, match=f"this worker runs Wend's {here} core, the driver the other one"):
        work.check_code(code_hash.PARTS, driver)
