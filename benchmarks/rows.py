"""One benchmark result: Wend's value, the reference's in the same run, and their ratio."""

from typing import NamedTuple


class Row(NamedTuple):
    """One line of the benchmark table."""

    name: str
    """The key in JSON: `package.metric_unit`."""
    what: str
    """The title in the table, with the reference in brackets."""
    ours: float
    peer: float | None = None
    less_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        if not self.peer or not self.ours:
            return None
        return self.peer / self.ours if self.less_is_better else self.ours / self.peer

    def values(self) -> dict[str, float | None]:
        return {"ours": self.ours, "peer": self.peer, "ratio": self.ratio}

    def shown(self) -> tuple[str, str, str, str]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} x" if self.ratio < 10 else f"{self.ratio:,.0f} x"
        return self.what, _number(self.ours), "" if self.peer is None else _number(self.peer), ratio


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
