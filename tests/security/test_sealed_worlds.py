"""Peers in the simulator on sealed links, with an attacker on them or beside them.

`test_weakened_sessions.py` shows that these worlds would notice a weakness.
"""

import pytest

from tests.security.sealed_worlds import nothing_but_loss_and_delay, outsiders_change_nothing


@pytest.mark.parametrize("seed", range(4))
def test_off_the_path_an_attacker_changes_no_delivery(seed: int) -> None:
    engine = outsiders_change_nothing(seed)
    assert len(engine.trace.deliveries)
    refused = engine.refusals()
    assert min(refused[why] for why in ("untrusted", "not-sealed", "other-certificate")) > 0


@pytest.mark.parametrize("seed", range(4))
def test_on_the_path_an_attacker_only_drops_and_delays_events(seed: int) -> None:
    engine = nothing_but_loss_and_delay(seed)
    assert len(engine.trace.deliveries) or seed % 2, "in even worlds peers keep events"
    refused = engine.refusals()
    assert refused["replayed"] > 0 and refused["forged"] > 0  # he tried
