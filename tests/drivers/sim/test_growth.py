"""A peer that runs for long holds no more than one that ran for a while."""

import pytest

from wend.drivers.sim.engine import Engine
from wend.drivers.world import build
from wend.model.scenario import Scenario
from wend.protocol.routing import ROUTING


def held(strategy: str, duration_s: float, persistency: bool) -> dict[str, int]:
    scenario = Scenario(
        strategy=strategy, peers=6, degree=3, topics=3, pf=0.2, pl=0.02, m=2, duration_s=duration_s, drain_s=30.0,
        heal_s=duration_s, persistency=persistency, rate_hz=5.0,
    )  # fmt: skip
    engine = Engine(build(scenario))
    engine.run()
    found: dict[str, int] = {}
    for peer in engine.peers:
        assert peer is not None
        for name, value in vars(peer).items():
            if isinstance(value, dict | list | set):
                found[name] = max(found.get(name, 0), len(value))
        if peer.keep is not None:
            found["duties"] = max(found.get("duties", 0), len(peer.keep._duties), len(peer.keep))
    return found


@pytest.mark.parametrize("persistency", [False, True])
@pytest.mark.parametrize("strategy", sorted(ROUTING))
def test_once_calm_a_peer_holds_as_little_after_long_as_after_short(strategy: str, persistency: bool) -> None:
    short, long = (held(strategy, d, persistency) for d in (10.0, 60.0))
    assert set(short) == set(long)
    assert {name: count for name, count in long.items() if count > short[name] + 3} == {}
