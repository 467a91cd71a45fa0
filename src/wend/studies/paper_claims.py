"""The numbers that the five papers state in their texts (`papers.toml`), which the claims of the studies judge."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec


class PaperClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of a paper: a number of a metric in a setting, or an order."""

    id: str
    metric: str
    setting: str
    value: float | str | tuple[float, ...]
    rel: Literal["=", ">=", "<=", "order", "~"]
    tol: float = 0.0
    """0 if the paper's numbers leave no room."""
    strategy: str = ""
    count: str = ""
    doubt: bool = False
    """No reading of the paper gives this number."""

    @property
    def paper(self) -> str:
        return self.id.partition(".")[0]

    @property
    def words(self) -> str:
        """The metric, the strategy and the setting, as the paper names them."""
        return "; ".join(each for each in (self.metric, self.strategy, self.setting) if each)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The paper's numbers; none if it states an order."""
        if isinstance(self.value, str):
            return ()
        return self.value if isinstance(self.value, tuple) else (self.value,)


@cache
def load_paper_claims() -> dict[str, PaperClaim]:
    """All statements, by id."""
    claims = msgspec.convert(_read_content()["claim"], list[PaperClaim])
    return {claim.id: claim for claim in claims}


@cache
def load_unjudged_claims() -> dict[str, str]:
    """The statements that no claim judges, each with the reason."""
    return {entry["id"]: entry["reason"] for entry in _read_content().get("not_judged", [])}


def _read_content() -> dict[str, Any]:
    return tomllib.loads(files("wend.studies").joinpath("papers.toml").read_text(encoding="utf-8"))
