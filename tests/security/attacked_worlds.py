"""Play many worlds with an attacker, say how far it is, and print what was refused, as `worlds.py` does."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from tests.security.attacker import Violation

PROGRESS_S = 10


class Played(Protocol):
    """A world after it was played."""

    def totals(self) -> Counter[str]:
        """What happened in it."""
        ...

    def refusals(self) -> Counter[str]:
        """The datagrams that its peers refused, by reason."""
        ...


def play(seeds: range, checks: Sequence[Callable[[int], Played]]) -> int:
    """How many of these worlds fail one of the checks."""
    bad: set[int] = set()
    totals: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    began = told = time.monotonic()
    for number, seed in enumerate(seeds, start=1):
        for check in checks:
            try:
                world = check(seed)
            except Violation as violation:
                bad.add(seed)
                print(f"seed {seed}, {check.__name__}: {violation}", flush=True)
            else:
                totals += world.totals()
                refused += world.refusals()
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            print(f"{number} of {len(seeds)} worlds, {len(bad)} wrong", file=sys.stderr, flush=True)
    print(f"{', '.join(f'{count} {what}' for what, count in totals.items())}")
    print(f"refused-{', '.join(f'{count} {why}' for why, count in refused.most_common())}")
    print(f"{len(seeds) - len(bad)} of {len(seeds)} worlds are as they should be, {time.monotonic() - began:.0f} s")
    return len(bad)
