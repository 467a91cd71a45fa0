"""The words of the code: one word per thing, one thing per word, and the field's words where the field has one."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest
import typer

from wend.console.app import app
from wend.model.settings import settings_of
from wend.protocol.notices import DropCode, NoticeName
from wend.strategies.registry import setting_groups

SOURCE = Path(__file__).resolve().parent.parent / "src" / "wend"

PRIVATE_WORDS = {
    "carrier", "custody", "keep", "kept", "duty", "done", "newcomer", "newcomers", "returning", "watch", "liveness",
    "troubled", "fell", "deaf", "weather", "neighbourhood", "bond", "bonds", "part", "parts", "sheet", "sheets",
    "whole", "letter", "letters", "word", "words", "step", "steps", "way", "ways", "ground", "beneath", "life", "lives",
    "reborn",
    "grove", "bough", "boughs", "door", "outbox", "turns", "mark", "marks", "taken", "standing", "figure", "figures",
    "room", "rooms", "untold", "unheard",
}  # fmt: skip
"""Words that need a glossary: the field has better ones."""

MEANT = {
    "KeepAlive": "a keep-alive is one",
    "Figure": "a picture",
    "figures": "pictures",
    "--figures": "pictures",
    "--watch": "to watch what a plan does",
    "watch": "to watch what a plan was made for",
    "watch_command": "to watch what a plan was made for",
}
"""Names in which a word of that list is the field's own, and why."""


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for part in (*path.relative_to(SOURCE).parent.parts, path.stem):
            yield str(path.relative_to(SOURCE)), part


def classes() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield str(path.relative_to(SOURCE)), node.name


def flags(command: click.Command, path: str = "wend") -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(typer.Context(command)):
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--"):
                yield path, option
    for name, inner in getattr(command, "commands", {}).items():
        yield path, name
        yield from flags(inner, f"{path} {name}")


def words(name: str) -> set[str]:
    """`NeighbourState`, `link-down`, `--store-path` and `send_queue` as words."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+", name)}


def named() -> Iterator[tuple[str, str]]:
    yield from modules()
    yield from classes()
    yield from flags(typer.main.get_command(app))
    yield from (("notice", name) for name in get_args(NoticeName))
    yield from (("drop reason", name) for name in get_args(DropCode))
    yield from (("setting", one.name) for group in setting_groups() for one in settings_of(group))


def test_a_public_class_name_stands_once() -> None:
    places = defaultdict(list)
    for path, name in classes():
        if not name.startswith("_"):
            places[name].append(path)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_name_needs_a_glossary() -> None:
    found = {f"{where}: {name}" for where, name in named() if name not in MEANT and words(name) & PRIVATE_WORDS}
    assert sorted(found) == []


@pytest.mark.parametrize("name", ["Custody", "link_door", "wanted-unheard", "--keep", "OverlayWord", "parts"])
def test_the_search_finds_what_it_looks_for(name: str) -> None:
    assert words(name) & PRIVATE_WORDS


def test_every_exception_is_needed() -> None:
    names = {name for _, name in named()}
    assert sorted(MEANT.keys() - names) == []
