"""The page of all settings, and the typed keywords of a scenario: both follow from the declarations."""

from collections.abc import Iterable, Iterator
from types import GenericAlias

from wend.drivers.live.config import PeerFile
from wend.drivers.scenarios import SIMULATED, Scenario
from wend.drivers.settings import peer_settings, plugin_names
from wend.model.choices import PluginChoices
from wend.model.error_text import join_with_or
from wend.model.settings import Setting, Tier, declared_settings

PAGE = """\
# Settings

<!-- Written by scripts/reference.py. -->

Every setting has one name: in a peer's file ([run peers](../how-to/run-peers.md)), in a scenario
([simulate](../how-to/simulate.md)), as a flag of `wend sim` (`retry_limit` is `--retry-limit`), and as a
column of a sweep. `--help` shows the same sentences.

- A duration has a unit: `160ms`, `5s`, `10min`, `2h`. In the table of a sweep it is a number, and the unit ends the
  name of the column: `detection_ms`. Likewise the columns of `rate` and `queue` are `rate_hz` and `queue_msgs`.
- A range is a list of two values, the lower one first: `delay = ["10ms", "50ms"]`; as a flag, `--delay 10ms 50ms`.
- A setting with the default true or false is a pair of flags: `--persistence`, `--no-persistence`.
"""

EVERYDAY = """
## Everyday settings

Most people need no others. `MODULE:CLASS` names a plug-in of your own ([write a plug-in](../how-to/write-a-plugin.md));
its settings are then known, too.
"""

TUNING = """
## Tuning

The defaults of these settings suit most overlays; studies vary them.
"""

PLACES = {
    "peers": "In a peer's file and in a scenario",
    "live": "In a peer's file only: the process that runs one peer",
    "world": "In a scenario only: the world around the peers",
}


def page() -> str:
    """The reference page."""
    return "".join([PAGE, EVERYDAY, *_places("everyday"), *_plugins(), TUNING, *_places("tuning")])


def _places(tier: Tier) -> Iterator[str]:
    """The settings of a tier, by the place where people state them, each in a table."""
    by_place = {
        "peers": (*declared_settings(PluginChoices), *peer_settings().values()),
        "live": [each for each in declared_settings(PeerFile) if each.owner is PeerFile],
        "world": [each for each in declared_settings(Scenario) if each.owner is Scenario],
    }
    for place, settings in by_place.items():
        mine = [each for each in settings if each.tier == tier]
        titles = dict.fromkeys(each.title for each in mine)
        yield f"\n### {PLACES[place]}\n"
        if tier == "everyday":
            yield _table("setting", mine)
        else:
            yield from (_table(title, [each for each in mine if each.title == title]) for title in titles)


def _table(title: str, settings: Iterable[Setting]) -> str:
    rows = "".join(f"| `{each.name}` | {_default(each)} | {_values(each)} | {each.about} |\n" for each in settings)
    return f"\n| {title} | default | values | |\n| --- | --- | --- | --- |\n{rows}"


def _default(each: Setting) -> str:
    if each.is_required:
        return "required"
    shown = _code(each.value_text(each.default))
    simulated = SIMULATED.get(each.name)
    if simulated is not None:
        return f"{shown or 'none'}; in a scenario {_code(each.value_text(simulated))}"
    return shown or "none"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _values(each: Setting) -> str:
    """The values that it takes, as far as the default does not say so."""
    kinds = {
        "bool": "", "int": "integer", "float": "", "text": "text", "duration": "", "table": "table",
        "choice": join_with_or([f"`{choice}`" for choice in each.choices] or [""]),
    }  # fmt: skip
    kind = kinds[each.kind] if not str(each.type).startswith("tuple[") or each.pair else "list"
    if each.kind == "bool" and each.default is None:
        kind = "true or false"
    unit = f" {each.unit}" if each.kind == "duration" else ""
    low, high = ("" if bound is None or abs(bound) >= 1e8 else f"{bound:g}{unit}" for bound in (each.low, each.high))
    above, below = ("" if bound is None else f"{bound:g}{unit}" for bound in (each.above, each.below))
    if low and high:
        bounds = [f"{low} to {high}"]
    else:
        signs = (("≥", low), (">", above), ("≤", high), ("<", below))
        bounds = [f"{sign} {bound}" for sign, bound in signs if bound]
    return " ".join([kind, ", ".join(bounds)]).strip()


def _plugins() -> Iterator[str]:
    yield "\n### Plug-ins that come with Wend\n\n| setting | plug-ins |\n| --- | --- |\n"
    for kind, names in plugin_names().items():
        shown = ", ".join(f"`{name}` ({remark})" if remark else f"`{name}`" for name, remark in names.items())
        yield f"| `{kind}` | {shown} |\n"


# ---------------------------------------------------------------- keywords with types

MODULE = '''\
"""The keywords of `Scenario`, with their types, for type checkers. Written by scripts/reference.py."""

from typing import Literal, TypedDict

from wend.model.fault_settings import Congestion, DelaySpikes, Outages, Partitions
from wend.model.scenario import BackgroundFlows, Content


class ScenarioFields(TypedDict, total=False):
    """All settings of a scenario that come with Wend."""

'''


def typed_fields() -> str:
    """The source of `drivers/scenario_fields.py`."""
    every = (*declared_settings(Scenario), *peer_settings().values())
    return MODULE + "".join(f"    {each.name}: {_hint(each)}\n" for each in every)


def _hint(each: Setting) -> str:
    if each.kind == "choice":
        hint = f"Literal[{', '.join(repr(choice) for choice in each.choices)}]".replace("'", '"')
    elif each.kind == "duration":
        hint = "str"
    elif each.kind == "table":
        hint = str(each.type) if isinstance(each.type, GenericAlias) else each.type.__name__
    else:
        hint = {"bool": "bool", "int": "int", "float": "float", "text": "str"}[each.kind]
    if each.pair:
        hint = f"tuple[{hint}, {hint}] | list[{hint}]"
    return f"{hint} | None" if each.optional else hint
