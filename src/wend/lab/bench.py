"""The matrix of cells: which there are, which are done, and doing the rest.

A cell is written when it is finished, under a name made from its settings, so a matrix that takes hours can be
interrupted at any time and goes on where it stopped. Systems take turns within each world: they meet the very
same failures, soon after each other, on the same machine.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Protocol

import msgspec

from wend.lab.cell import Cell, Settings
from wend.lab.systems.table import SYSTEMS
from wend.lab.window import measure
from wend.model.errors import ConfigError, LabError
from wend.model.files import written

WINDOWS = 4
"""A window is run again at most three times."""
QUICK_S = 40.0
PFS = (0.0, 0.02, 0.06, 0.1)


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    systems: tuple[str, ...] = tuple(SYSTEMS)
    topologies: tuple[int, ...] = (1, 2, 3)
    failures: tuple[int, ...] = (1, 2)
    pfs: tuple[float, ...] = PFS
    rate_hz: float = 1.0
    size_bytes: int = 64
    duration_s: float = 60.0
    peers: int = 20
    degree: int = 5

    def cells(self) -> list[Settings]:
        """By world, and within it by system."""
        return [
            Settings(
                system=system,
                topology_seed=topology,
                failure_seed=100 * topology + failure,
                pf=pf,
                rate_hz=self.rate_hz,
                size_bytes=self.size_bytes,
                duration_s=self.duration_s,
                peers=self.peers,
                degree=self.degree,
            )
            for topology, failure, pf in product(self.topologies, self.failures, self.pfs)
            for system in self.systems
        ]


def quick(matrix: Matrix) -> Matrix:
    """One world, and windows that let all systems pass in under 25 minutes."""
    return msgspec.structs.replace(
        matrix, topologies=matrix.topologies[:1], failures=matrix.failures[:1], duration_s=QUICK_S
    )


def chosen_systems(text: str | None) -> tuple[str, ...]:
    if text is None:
        return tuple(SYSTEMS)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in SYSTEMS:
            raise ConfigError(f"unknown system {name!r}: choose from {', '.join(SYSTEMS)}")
    if not names:
        raise ConfigError("name at least one system")
    return names


def absent_systems(names: Iterable[str]) -> dict[str, str]:
    """What cannot run here, with the reason."""
    reasons = {name: SYSTEMS[name]().missing() for name in names}
    return {name: reason for name, reason in reasons.items() if reason is not None}


class Store:
    """Finished cells, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cells"

    def path(self, settings: Settings) -> Path:
        return self._folder / f"{settings.key()}.json"

    def has(self, settings: Settings) -> bool:
        return self.path(settings).exists()

    def save(self, cell: Cell) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with written(self.path(cell.settings), lasting=True) as draft:
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(cell), indent=1))

    def load(self) -> list[Cell]:
        """Those of this method; a cell's name tells which method it has."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                cell = msgspec.json.decode(path.read_bytes(), type=Cell)
            except (msgspec.DecodeError, ConfigError) as error:
                raise ConfigError(f"{path} is not a cell of this version: {error}") from None
            if path.stem == cell.settings.key():
                found.append(cell)
        return found


class Watcher(Protocol):
    """Who is told how far it is."""

    def begins(self, settings: Settings) -> None: ...

    def says(self, text: str) -> None: ...

    def ends(self, cell: Cell) -> None: ...

    def fails(self, settings: Settings, why: str) -> None: ...


async def run(todo: Sequence[Settings], store: Store, watcher: Watcher, *, name: str = "bench") -> int:
    """Measure what is not there yet; how many cells could not be measured."""
    failed = 0
    for settings in todo:
        if store.has(settings):
            continue
        watcher.begins(settings)
        try:
            cell = await measure(settings, windows=WINDOWS, tell=watcher.says, name=name)
        except LabError as error:
            failed += 1
            watcher.fails(settings, str(error))
        else:
            store.save(cell)
            watcher.ends(cell)
    return failed
