"""A member that says anything its message types allow makes no honest peer raise. `hostile_members.py` plays more."""

import pytest

from tests.protocol.hostile_members import HostileOverlay, can_store
from wend.strategies.registry import STRATEGIES

PLAYED = [(name, stores) for name in STRATEGIES for stores in ((False, True) if can_store(name) else (False,))]


@pytest.mark.parametrize(("strategy", "persistence"), PLAYED)
def test_no_hostile_member_makes_a_peer_raise(strategy: str, persistence: bool) -> None:
    overlay = HostileOverlay(strategy, seed=7, persistence=persistence)
    overlay.play(400)
    assert overlay.told >= 400


def test_the_overlay_notices_a_peer_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = HostileOverlay("d-tree", seed=7, persistence=False)

    def failing(now: int, event: object) -> list[object]:
        raise KeyError("a fault of this test")

    monkeypatch.setitem(overlay.peers, 2, type("Broken", (), {"handle": staticmethod(failing)})())  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="peer 2 raised KeyError"):
        overlay.play(400)
