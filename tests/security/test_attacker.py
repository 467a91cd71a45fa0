"""What an attacker can do to sessions: drop and delay on the path, nothing off it.

`test_weakened_sessions.py` shows that these worlds would notice a weakness.
"""

import pytest

from tests.security.worlds import nothing_but_loss_and_delay, outsiders_change_nothing


@pytest.mark.parametrize("seed", range(8))
def test_on_the_path_an_attacker_can_only_drop_and_delay(seed: int) -> None:
    world = nothing_but_loss_and_delay(seed)
    refused = sum((host.layer.refused for host in world.hosts.values()), start=type(world.delivered)())
    assert world.delivered
    for reason in ("replayed", "forged"):
        assert refused[reason] > 0  # he tried


@pytest.mark.parametrize("seed", range(8))
def test_off_the_path_an_attacker_changes_nothing(seed: int) -> None:
    assert outsiders_change_nothing(seed).delivered
