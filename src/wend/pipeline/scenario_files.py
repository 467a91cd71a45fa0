"""The scenarios of a sweep, from a file that a person writes.

A TOML file has a `[base]` scenario and a `[sweep]` table with a list per setting; the sweep runs all combinations.
A JSONL file has one scenario per line, for scenarios that are no product of lists. If one scenario of the file names a
plug-in, all may state the plug-in's settings; these change nothing if the peers host another plug-in.
"""

import itertools
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from wend.drivers.scenarios import Scenario, make_scenario
from wend.drivers.settings import load_chosen
from wend.drivers.world import make_overlay
from wend.model.errors import ConfigError
from wend.model.scenario import DRAWN


def load_scenarios(path: Path) -> list[Scenario]:
    """Read every scenario of the file, in order. An error names the place in the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file") from None
    parsers = {".toml": _from_toml, ".jsonl": _from_lines}
    if path.suffix not in parsers:
        raise ConfigError(f"{path} is neither a .toml nor a .jsonl file")
    scenarios = parsers[path.suffix](text, path)
    if not scenarios:
        raise ConfigError(f"{path} has no scenario")
    return scenarios


def _from_toml(text: str, path: Path) -> list[Scenario]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None
    unknown = sorted(set(content) - {"base", "sweep"})
    if unknown:
        raise ConfigError(f"{path} has {unknown[0]!r}, but only the tables base and sweep are known")
    if not any(content.values()):
        raise ConfigError(f"{path} has no scenario: it needs a [base] or a [sweep] with at least one field")
    base, lists = content.get("base", {}), content.get("sweep", {})
    for name, table in (("base", base), ("sweep", lists)):
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {name} must be a table")
    for field, values in lists.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{path}: sweep.{field} must be a list of at least one value")
    combinations = [dict(zip(lists, each, strict=True)) for each in itertools.product(*lists.values())]
    return _scenarios([({**base, **each}, str(path)) for each in combinations])


def _from_lines(text: str, path: Path) -> list[Scenario]:
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                fields = msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError as error:
                raise ConfigError(f"{path}, line {number} is not a JSON object: {error}") from None
            entries.append((fields, f"{path}, line {number}"))
    return _scenarios(entries)


def _scenarios(entries: list[tuple[dict[str, Any], str]]) -> list[Scenario]:
    """The scenarios of these fields, each with its place in the file."""
    for fields, where in entries:
        with _at(where):
            load_chosen(fields)
    scenarios = []
    maps: set[str] = set()
    for fields, where in entries:
        with _at(where):
            scenarios.append(make_scenario(fields))
            _check_map(scenarios[-1], maps)
    return scenarios


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Add the place in the file to an error."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_map(s: Scenario, maps: set[str]) -> None:
    """Read the map of a scenario, to find mistakes before a sweep starts; each map once."""
    if s.topology not in DRAWN and s.topology not in maps:
        make_overlay(s)
        maps.add(s.topology)
