"""The picture of a comparison: the systems in a column, the best on top, with their on-time ratios as dots.

The picture shows two failure probabilities, 0.06 and 0.1 if both were measured. The rows are ranked by the first one.
Each family of systems has one colour; the last column has data packets per delivery.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from wend.lab.bench.comparison_page import SystemSummary
from wend.pictures.charts import RankedRow, ranked_dots
from wend.pictures.palette import FAMILIES

_PREFERRED = (0.06, 0.1)


def draw(rows: Sequence[SystemSummary], path: Path) -> Path:
    """Write the picture as SVG."""
    path.write_text(picture(rows), encoding="utf-8")
    return path


def picture(rows: Sequence[SystemSummary]) -> str:
    """The picture of a table. It shows ratios as the table does, so that it can be drawn again from a page."""
    rows = [msgspec.structs.replace(row, on_time=round(row.on_time, 4)) for row in rows]
    pfs = shown_pfs({row.pf for row in rows})
    summaries = {(row.system, row.pf): row for row in rows if row.pf in pfs}
    systems = {system for system, _ in summaries}

    def rank(system: str) -> tuple[float, ...]:
        mine = [summaries.get((system, pf)) for pf in pfs]
        return (*(2.0 if one is None else 1.0 - one.on_time for one in mine),)

    ranked = [
        RankedRow(
            label=system,
            colour=FAMILIES.get(system.partition("-")[0], "grey"),
            values=tuple(None if (one := summaries.get((system, pf))) is None else one.on_time for pf in pfs),
            note=next(f"{summaries[system, pf].data:.2f}" for pf in pfs if (system, pf) in summaries),
            strong=system.startswith("wend"),
        )
        for system in sorted(systems, key=lambda system: (rank(system), system))
    ]
    down = " and ".join(f"{100 * pf:g} %" for pf in pfs)
    subtitle = f"Share of deliveries in time while {down} of the links are down. The best system is on top."
    note = f"packets per\ndelivery, Pf {pfs[0]:g}"
    return ranked_dots("On time, by system", subtitle, [f"Pf {pf:g}" for pf in pfs], note, ranked)


def shown_pfs(measured: set[float]) -> tuple[float, ...]:
    """The failure probabilities of the picture: the preferred two, or else the highest two, the lower first."""
    preferred = [pf for pf in _PREFERRED if pf in measured]
    return tuple(preferred if len(preferred) == 2 else sorted(measured)[-2:])
