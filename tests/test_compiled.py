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


def plain(source: str) -> str:
    """The tree of a module, as if no annotation of a class attribute were quoted."""
    tree = ast.parse(source)
    for made in ast.walk(tree):
        if isinstance(made, ast.ClassDef):
            for node in made.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Constant):
                    node.annotation = ast.parse(str(node.annotation.value), mode="eval").body
    return ast.dump(tree)


@pytest.mark.parametrize("module", compiled.core())
def test_quoting_annotations_changes_nothing_else(module: str) -> None:
    source = (compiled.SOURCE / module).read_text(encoding="utf-8")
    quoted = compiled.quoted(source)
    assert plain(quoted) == plain(source)
    for made in ast.walk(ast.parse(quoted)):
        if isinstance(made, ast.ClassDef):
            annotations = [node.annotation for node in made.body if isinstance(node, ast.AnnAssign)]
            assert all(isinstance(annotation, ast.Constant) for annotation in annotations)


def test_an_annotation_over_several_lines_becomes_one_text() -> None:
    source = "class A:\n    b: dict[\n        str, int\n    ] = {}  # é\n    c: int = 1\n"
    assert compiled.quoted(source) == "class A:\n    b: 'dict[str, int]' = {}  # é\n    c: 'int' = 1\n"


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
