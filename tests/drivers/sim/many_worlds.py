"""Play many random worlds of one kind, and print a table by strategy, as `durable_worlds.py` does."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from wend.drivers.sim.engine import Engine

E = TypeVar("E", bound=Engine)


class WorldTable:
    """What happened in worlds of one kind, by strategy."""

    def __init__(self, strategies: Iterable[str], columns: tuple[str, ...], summed: bool = True) -> None:
        """`summed`: whether all columns may be summed over strategies."""
        self.by_strategy: dict[str, Counter[str]] = {name: Counter() for name in strategies}
        self._columns = ("worlds", *columns)
        self._summed = summed

    def __str__(self) -> str:
        rows = list(self.by_strategy.items())
        if self._summed:
            rows.append(("all", sum(self.by_strategy.values(), Counter())))
        cells = [("strategy", *self._columns)]
        cells += [(name, *(str(found[column]) for column in self._columns)) for name, found in rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def play(
    seeds: range,
    table: WorldTable,
    world_of: Callable[[int], E],
    wrong_in: Callable[[E], list[str]],
    count: Callable[[E, Counter[str]], None],
) -> int:
    """How many of these worlds are not as they should be. `count` adds what happened in one."""
    bad, began = 0, time.perf_counter()
    for seed in seeds:
        engine = world_of(seed)
        strategy = engine.scenario.strategy
        try:
            wrong = wrong_in(engine)
        except Exception as error:
            wrong = [repr(error)]
        found = table.by_strategy[strategy]
        found["worlds"] += 1
        count(engine, found)
        if wrong:
            bad += 1
            print(f"seed {seed} ({strategy}): {len(wrong)}: {'; '.join(wrong[:3])}", flush=True)
    print(table)
    print(f"{len(seeds) - bad} of {len(seeds)} worlds are as they should be, {time.perf_counter() - began:.0f} s")
    return bad
