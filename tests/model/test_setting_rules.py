"""Rules between settings are declared beside one of them, and one check serves all."""

from typing import Annotated, Any

import pytest

from wend.model.errors import ConfigError
from wend.model.settings import OnlyFor, Rule, Settings, check_rules, declared_settings, setting, unused_settings


class Engine(Settings):
    """Settings with a rule of each kind."""

    fuel: Annotated[str, setting("What it burns.")] = "coal"
    boiler: Annotated[str | None, setting("Where it boils.")] = None
    whistle: Annotated[
        bool, setting("Whether it whistles.", requires=Rule(("boiler",), "needs steam: name a boiler"))
    ] = False
    shovel: Annotated[int, setting("How much at once.", only_for=OnlyFor("fuel", ("coal", "wood")))] = 3
    valves: Annotated[int, setting("How many.", only_with=Rule(("boiler",), "there is no boiler"))] = 2
    battery: Annotated[int, setting("How large.", excludes=Rule(("boiler", "whistle"), "a battery makes no steam"))] = 0
    speed: Annotated[int, setting("How fast.", replaced_by=Rule(("battery",), "the battery decides"))] = 1


def values(**changed: Any) -> dict[str, Any]:
    return {**{each.name: each.default for each in declared_settings(Engine)}, **changed}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"whistle": True}, "whistle needs steam: name a boiler"),
        ({"battery": 3, "boiler": "front"}, "a battery makes no steam: leave out boiler"),
        ({"battery": 3, "boiler": "front", "whistle": True}, "a battery makes no steam: leave out boiler and whistle"),
    ],
)
def test_a_setting_that_does_not_go_with_others_is_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_rules(declared_settings(Engine), values(**changed))
    assert str(error.value) == sentence


def test_defaults_break_no_rule() -> None:
    check_rules(declared_settings(Engine), values())
    check_rules(declared_settings(Engine), values(boiler="front", whistle=True))


@pytest.mark.parametrize(
    ("changed", "unused"),
    [
        ({"boiler": "front"}, {}),
        ({}, {"valves": "there is no boiler"}),
        ({"boiler": "front", "fuel": "oil"}, {"shovel": "it is for coal or wood, not for oil"}),
        ({"boiler": "front", "battery": 3}, {"speed": "the battery decides"}),
    ],
)
def test_a_setting_without_effect_is_named_with_the_reason(changed: dict[str, Any], unused: dict[str, str]) -> None:
    assert unused_settings(declared_settings(Engine), values(**changed)) == unused
