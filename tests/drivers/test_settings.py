"""A setting is declared once; files, scenarios, flags, columns of sweeps and the reference page follow from that."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raises
from wend.console.sim_command import register
from wend.drivers.live.config import PeerFile
from wend.drivers.scenarios import SIMULATED, Scenario, make_scenario
from wend.drivers.settings import CHOSEN, built_in_groups, known_settings, peer_settings
from wend.model.settings import Setting, Settings, declared_settings, flag_name, setting
from wend.model.units import MS, SECOND, Nanos
from wend.pipeline.scenario_rows import COLUMNS
from wend.strategies.registry import PLUGINS, setting_groups

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "settings.md"
BUILT_IN = {each.name: each for group in built_in_groups() for each in declared_settings(group)}
EVERY = [
    *declared_settings(Scenario),
    *(each for each in declared_settings(PeerFile) if each.owner is PeerFile),
    *BUILT_IN.values(),
]


# ---------------------------------------------------------------- declared once


def test_no_setting_is_declared_twice() -> None:
    groups = [*setting_groups(), Scenario, PeerFile]
    declared = {(each.name, each.owner) for group in groups for each in declared_settings(group)}
    names = Counter(name for name, _ in declared)
    assert [name for name, count in names.items() if count > 1] == []
    fields = Counter(field for _, field in {(each.owner, each.field) for each in EVERY})
    assert [field for field, count in fields.items() if count > 1] == []


def test_every_setting_says_what_it_is_for() -> None:
    for each in EVERY:
        assert each.about.endswith(".") and each.about[0].isupper() and each.title, each.name


def test_a_field_without_a_declaration_is_refused() -> None:
    class Careless(Settings):
        gain: float = 1.0

    with pytest.raises(TypeError, match=r"Careless.gain has no setting\(\.\.\.\)"):
        declared_settings(Careless)


# ---------------------------------------------------------------- and then everywhere


def flags() -> dict[str, Any]:
    """The options of `wend sim`, by name."""
    app = typer.Typer()
    register(app)
    command: Any = typer.main.get_command(app)
    return {option.name: option for option in command.get_params(command.make_context("sim", []))}


def test_every_setting_of_peers_is_a_flag_with_its_sentence() -> None:
    there = flags()
    for each in (*BUILT_IN.values(), *declared_settings(Scenario)):
        if each.kind != "table":
            assert each.flag in there[each.name].opts, each.name
            assert there[each.name].help.startswith(each.about)
            assert there[each.name].rich_help_panel == each.heading
            default = {**Scenario().own_values(), **Scenario().settings}[each.name]
            shown = each.value_text(default) if each.kind != "bool" else each.flag.removeprefix("--")
            assert shown in there[each.name].help


def test_everyday_settings_come_first_in_the_help() -> None:
    every = {each.name: each for each in (*BUILT_IN.values(), *declared_settings(Scenario))}
    tiers = [every[name].tier for name in flags() if name in every]
    assert tiers == sorted(tiers) and {*tiers} == {"everyday", "tuning"}


def test_every_setting_of_peers_is_known_to_files_and_scenarios() -> None:
    for name, each in BUILT_IN.items():
        value = each.write(each.default)
        assert PeerFile(id=1, **{name: value}).flat_settings() == {name: value}
        assert PeerFile(id=1, **{name: value}).settings == {name: each.default}
        assert Scenario(**{name: value}).settings[name] == each.default
        assert Scenario().with_(**{name: value}).flat()[name] == value


def test_every_setting_of_a_scenario_is_a_column() -> None:
    assert {each.name for each in COLUMNS.values()} == {*BUILT_IN, *(each.name for each in declared_settings(Scenario))}
    assert {"detection_ms", "monitoring_s", "transmissions", "duration_s", "rate_hz", "queue_msgs"} <= COLUMNS.keys()


def test_the_reference_page_has_every_setting() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| .*? \| .*? \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    assert {each.name: each.about for each in EVERY} == rows


def test_simulated_defaults_are_settings_that_differ() -> None:
    for name, value in SIMULATED.items():
        assert value != BUILT_IN[name].default


# ---------------------------------------------------------------- reading and writing


def values(each: Setting) -> st.SearchStrategy[Any]:
    """Values of a setting as code sees them."""
    one: st.SearchStrategy[Any]
    low, high = each.low if each.low is not None else each.above, each.high if each.high is not None else each.below
    match each.kind:
        case "bool":
            one = st.booleans()
        case "choice":
            one = st.sampled_from(each.choices)
        case "text":
            one = st.text()
        case "duration":
            per = {"ms": MS, "s": SECOND, "min": 60 * SECOND}[each.unit]
            one = st.integers(round((low or 0) * per), round((high if high is not None else 1e5) * per))
        case "int":
            one = st.integers(None if low is None else int(low), None if high is None else int(high))
        case "float":
            one = st.floats(low, high, allow_nan=False, allow_infinity=False)
        case "table":
            return st.just(each.default if not each.is_required else None)
    if each.pair:
        return st.tuples(one, one).map(lambda pair: tuple(sorted(pair)))
    return st.none() | one if each.optional else one


@pytest.mark.parametrize(
    "each", [each for each in EVERY if each.kind != "table" and each.check is None], ids=lambda each: each.name
)
@given(data=st.data())
def test_what_is_written_is_read_back(each: Setting, data: st.DataObject) -> None:
    value = data.draw(values(each))
    outside = (each.above is not None and value == each.above) or (each.below is not None and value == each.below)
    if outside:
        with raises("invalid-setting", match=each.name):
            each.read(each.write(value))
    else:
        assert each.read(each.write(value)) == value


@given(st.floats(0.001, 1e6).map(lambda s: round(s, 3)))
def test_what_stands_in_a_column_is_the_setting(seconds: float) -> None:
    for name, each in {"duration": COLUMNS["duration_s"], "detection": COLUMNS["detection_ms"]}.items():
        value = round(seconds * SECOND)
        assert each.name == name
        assert each.from_unit(each.in_unit(value)) == value


def test_ways_to_write_a_value_make_no_difference() -> None:
    one = Scenario(duration="60s", detection="160ms", delay=["10ms", "50ms"], pf=0, peers=20)
    assert one == Scenario(duration="1min", detection="0.16s", delay=("0.01s", "0.05s"), pf=0.0, peers=20)
    assert make_scenario({**one.flat(), "peers": 20.0}) == one


# ---------------------------------------------------------------- of plug-ins from outside the tree


class GainSettings(Settings):
    """Settings of a plug-in from outside the tree."""

    title = "Gain"

    gain: Annotated[float, setting("How much it gains.", low=0)] = 1.0
    pause_ns: Annotated[Nanos, setting("How long it pauses.", unit="s")] = SECOND


@pytest.fixture
def outsider() -> Iterator[str]:
    name = "outside.module:Gaining"
    kind = type("Gaining", (PLUGINS["routing"]["d-tree"],), {"settings": GainSettings})
    PLUGINS["routing"][name] = kind
    yield name
    del PLUGINS["routing"][name]


def test_a_plug_in_from_outside_brings_its_settings(outsider: str) -> None:
    scenario = Scenario(strategy=outsider, gain=2, pause="90s")
    assert (scenario.of(GainSettings).gain, scenario.of(GainSettings).pause_ns) == (2.0, 90 * SECOND)
    assert {name: scenario.flat()[name] for name in ("gain", "pause")} == {"gain": 2.0, "pause": "90s"}
    assert make_scenario(scenario.flat()) == scenario
    assert Scenario(strategy=outsider).flat()["gain"] == 1.0, "all defaults decide a run"
    assert PeerFile(id=1, strategy=outsider, gain=3).peer_config(1).of(GainSettings).gain == 3.0
    with raises("invalid-setting", match="gain must be at least 0, got -1"):
        Scenario(strategy=outsider, gain=-1)
    assert {"gain", "pause"} <= known_settings().keys()
    assert not {"gain", "pause"} & peer_settings(dict.fromkeys(CHOSEN)).keys()


def test_its_settings_change_nothing_of_a_scenario_without_it(outsider: str) -> None:
    both = Scenario(strategy=outsider, gain=2)
    plain = both.with_(strategy="dcrd")
    assert plain.flat() == Scenario(strategy="dcrd").flat()
    assert plain.with_(strategy=outsider).of(GainSettings).gain == 2.0


def test_nor_are_they_known_without_it() -> None:
    with raises("invalid-setting", match="there is no setting 'gain'"):
        Scenario(gain=2)


def test_it_may_not_take_a_name_of_the_driver_s() -> None:
    class Rates(Settings):
        rate: Annotated[float, setting("Taken.")] = 1.0

    kind = type("Rated", (PLUGINS["routing"]["d-tree"],), {"settings": Rates})
    PLUGINS["routing"]["outside:Rated"] = kind
    try:
        with raises("invalid-setting", match="a plug-in declares the setting 'rate', which exists already"):
            Scenario(strategy="outside:Rated")
    finally:
        del PLUGINS["routing"]["outside:Rated"]


def test_flags_are_named_after_settings() -> None:
    assert flag_name("retry_limit") == "--retry-limit"
