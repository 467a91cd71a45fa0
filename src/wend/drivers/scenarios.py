"""Scenarios: everything that decides a run. Two runs of one scenario are the same run.

A scenario comes from a TOML file, from flags, or from a row of a sweep. It holds the settings of the world
(`model/scenario.py`) and, by name, those of its peers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from wend.drivers.settings import ByName, Configuration
from wend.model.errors import ConfigError
from wend.model.scenario import DRAWN, TOPICS, WorldSettings, read_toml
from wend.model.settings import Setting, SettingValue

if TYPE_CHECKING:
    from typing import Unpack

    from wend.drivers.scenario_fields import ScenarioFields

SIMULATED: dict[str, SettingValue] = {
    "estimator": "nominal",  # as in the dcrd paper, section IV-A
    "monitoring": "300s",
    "margin": "0ms",  # a simulated host has no jitter
    "trace_paths": True,  # it costs nothing; only an underlay has paths
}
"""Defaults of simulated peers that differ from those of live ones."""


class Scenario(Configuration, WorldSettings, metaclass=ByName, kw_only=True):
    """One run, made from names as people write them: `Scenario(peers=30, duration="60s", redundancy="free")`."""

    undeclared: ClassVar[frozenset[str]] = frozenset({"settings"})

    settings: dict[str, SettingValue]
    """The peers' settings, by name, with all defaults."""

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[ScenarioFields]) -> None: ...

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> "Scenario":
        if isinstance(fields.get("interest"), list | tuple):
            raise ConfigError("interest names a plug-in: the range of shares is called popularity")
        return super().read(_with_topics(fields))

    @classmethod
    def defaults(cls, known: Mapping[str, Setting]) -> dict[str, SettingValue]:
        return {name: SIMULATED.get(name, each.write(each.default)) for name, each in known.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return make_scenario, (self.flat(),)


def _with_topics(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Each topic has a publisher of its own, so a small overlay that says nothing of topics has fewer of them."""
    peers, drawn = fields.get("peers"), fields.get("topology", "regular") in DRAWN
    if drawn and "topics" not in fields and isinstance(peers, int) and 1 < peers < TOPICS:
        return {**fields, "topics": peers}
    return fields


def make_scenario(fields: Mapping[str, Any]) -> Scenario:
    """A scenario from plain values. Raises ConfigError with a sentence that says which one is wrong and why."""
    return Scenario.read(fields)


def load_scenario(path: Path, **overrides: Any) -> Scenario:
    """A scenario from a TOML file; values in `overrides` (flags) win over the file."""
    fields = read_toml(path)
    try:
        return make_scenario({**fields, **overrides})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
