"""The matrix of cells: it lists them, stores the finished ones and measures the rest.

A cell is one measured run. The bench writes it when it is finished, under a name made from its settings. So a user
can interrupt a matrix that takes hours, and the next call goes on from there. Within a world the bench measures the
systems one after the other: they meet the same failures, at about the same time, on the same machine.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Protocol

import msgspec

from wend.lab.bench.cell import Cell, CellSettings
from wend.lab.bench.measurement import measure_cell
from wend.lab.systems.system_table import SYSTEMS
from wend.model.errors import ConfigError, LabError
from wend.model.files import write_atomically

WINDOWS = 4
"""The bench runs a window at most this often."""
QUICK_S = 40.0
PFS = (0.0, 0.02, 0.06, 0.1)


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The cells to measure: systems x topologies x failure schedules x failure probabilities."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    topologies: tuple[int, ...] = (1, 2, 3)
    failures: tuple[int, ...] = (1, 2)
    pfs: tuple[float, ...] = PFS
    rate_hz: float = 1.0
    size_bytes: int = 64
    duration_s: float = 60.0
    peers: int = 20
    degree: int = 5

    def cells(self) -> list[CellSettings]:
        """All cells, ordered by world and then by system."""
        return [
            CellSettings(
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


def shorten_matrix(matrix: Matrix) -> Matrix:
    """One world with short windows: all systems take less than 25 minutes."""
    return msgspec.structs.replace(
        matrix, topologies=matrix.topologies[:1], failures=matrix.failures[:1], duration_s=QUICK_S
    )


def parse_systems(text: str | None) -> tuple[str, ...]:
    if text is None:
        return tuple(SYSTEMS)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in SYSTEMS:
            raise ConfigError(f"unknown system {name!r}: choose from {', '.join(SYSTEMS)}")
    if not names:
        raise ConfigError("name at least one system")
    return names


def find_absent_systems(names: Iterable[str]) -> dict[str, str]:
    """The systems that cannot run here, with the reason."""
    reasons = {name: SYSTEMS[name]().missing() for name in names}
    return {name: reason for name, reason in reasons.items() if reason is not None}


class CellStore:
    """A folder of finished cells, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cells"

    def cell_path(self, settings: CellSettings) -> Path:
        return self._folder / f"{settings.key()}.json"

    def has_cell(self, settings: CellSettings) -> bool:
        return self.cell_path(settings).exists()

    def save_cell(self, cell: Cell) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with write_atomically(self.cell_path(cell.settings), lasting=True) as draft:
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(cell), indent=1))

    def load_cells(self) -> list[Cell]:
        """All cells of this method. A cell's name depends on its method, so others are skipped."""
        cells = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                cell = msgspec.json.decode(path.read_bytes(), type=Cell)
            except (msgspec.DecodeError, ConfigError) as error:
                raise ConfigError(
                    f"{path} is not a cell of this version: {error}; remove it to measure it again"
                ) from None
            if path.stem == cell.settings.key():
                cells.append(cell)
        return cells


class BenchObserver(Protocol):
    """Receives the progress of `run`."""

    def on_begin(self, settings: CellSettings) -> None: ...

    def on_progress(self, text: str) -> None: ...

    def on_end(self, cell: Cell) -> None: ...

    def on_failure(self, settings: CellSettings, why: str) -> None: ...


async def measure_missing(
    todo: Sequence[CellSettings], store: CellStore, observer: BenchObserver, *, name: str = "bench"
) -> int:
    """Measure the cells that are not stored yet. Returns how many could not be measured."""
    failed = 0
    for settings in todo:
        if store.has_cell(settings):
            continue
        observer.on_begin(settings)
        try:
            cell = await measure_cell(settings, windows=WINDOWS, tell=observer.on_progress, name=name)
        except LabError as error:
            failed += 1
            observer.on_failure(settings, str(error))
        else:
            store.save_cell(cell)
            observer.on_end(cell)
    return failed
