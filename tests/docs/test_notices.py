"""The page on notices has every word that peers and drivers count under, with its sentence, as the code has it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from wend.protocol import notices
from wend.protocol.notices import DROPS, NOTICES, What, Why, Wrong

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "notices.md").read_text()
SOURCE = ROOT / "src" / "wend"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_notice_has_its_row() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+) \| (.+) \|$", section("Notices"), re.MULTILINE)
    assert [(name, sentence) for name, sentence, _ in rows] == list(NOTICES.items())


def test_every_reason_has_its_row() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", section("Why an event is dropped"), re.MULTILINE)
    assert rows == list(DROPS.items())
    assert tuple(re.findall(r"^- `(.+)`$", section("What a neighbour did wrong"), re.MULTILINE)) == get_args(Wrong)


def test_what_drivers_count_has_its_row() -> None:
    rows = re.findall(r"^\| `(\w+\..+?)` \| .+ \|$", section("What drivers count"), re.MULTILINE)
    trees = [ast.parse(path.read_text()) for path in sorted((SOURCE / "drivers").rglob("*.py"))]
    assert set(rows) == {found for tree in trees for found in counted(tree)}
    assert len(rows) == len(set(rows))


def counted(tree: ast.AST) -> Iterator[str]:
    """`counters.refused["stale"] += 1` -> refused.stale"""
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(
                target=ast.Subscript(
                    value=ast.Attribute(attr="notices" | "refused" | "failed" as kind),
                    slice=ast.Constant(value=str(what)),
                )
            ):
                yield f"{kind}.{what}"


@pytest.mark.parametrize(("words", "sentences"), [(What, NOTICES), (Why, DROPS)])
def test_each_word_has_one_sentence(words: object, sentences: dict[str, str]) -> None:
    assert tuple(sentences) == get_args(words)
    assert [s for s in sentences.values() if not re.fullmatch(r"[A-Z][^.]*\.", s)] == []
    assert len(set(sentences.values())) == len(sentences)


def test_notices_are_spelt_alike() -> None:
    assert [name for name in NOTICES if not re.fullmatch(r"[a-z]+(-[a-z]+)*", name)] == []


def test_nothing_is_declared_that_no_peer_says() -> None:
    named = {value: name for name, value in vars(notices).items() if name.isupper() and isinstance(value, str)}
    said: set[object] = set()
    used: set[str] = set()
    for path in sorted((SOURCE / "protocol").rglob("*.py")):
        if path.name != "notices.py":
            nodes = list(ast.walk(ast.parse(path.read_text())))
            said |= {node.value for node in nodes if isinstance(node, ast.Constant)}
            used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    words = (*get_args(What), *get_args(Why), *get_args(Wrong))
    assert [word for word in words if word not in said and named.get(word) not in used] == []
