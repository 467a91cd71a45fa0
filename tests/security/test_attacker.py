"""What an attacker can do to sessions: drop and delay on the path, nothing off it.

`test_weakened_sessions.py` shows that these worlds would notice a weakness.
"""

import pytest

from tests.security.worlds import nothing_but_loss_and_delay, outsiders_change_nothing


@pytest.mark.parametrize("seed", range(8))
def test_on_the_path_an_attacker_can_only_drop_and_delay(seed: int) -> None:
    world = nothing_but_loss_and_delay(seed)
    refused = world.refusals()
    assert world.delivered
    assert refused["replayed"] > 0 and refused["forged"] > 0  # he tried


@pytest.mark.parametrize("seed", range(8))
def test_off_the_path_an_attacker_changes_nothing(seed: int) -> None:
    assert outsiders_change_nothing(seed).delivered
