"""Peers in the simulator on sealed links, with an attacker on them or beside them. And the tests would notice."""

from typing import Any

import pytest

from tests.security.attacker import Violation
from tests.security.doubles import Gullible
from tests.security.sealed_worlds import nothing_but_loss_and_delay, outsiders_change_nothing
from wend.security import transport
from wend.security.replay import ReplayWindow


@pytest.mark.parametrize("seed", range(4))
def test_off_the_path_an_attacker_changes_no_delivery(seed: int) -> None:
    engine = outsiders_change_nothing(seed)
    assert len(engine.trace.deliveries)
    assert min(engine.refused[why] for why in ("untrusted", "not sealed", "a certificate of somebody else")) > 0


@pytest.mark.parametrize("seed", range(4))
def test_on_the_path_an_attacker_only_drops_and_delays_events(seed: int) -> None:
    engine = nothing_but_loss_and_delay(seed)
    assert len(engine.trace.deliveries) or seed % 2, "in even worlds peers keep events"
    assert engine.refused["replayed"] > 0 and engine.refused["forged"] > 0  # he tried


def test_a_session_without_a_replay_window_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoWindow(ReplayWindow):
        def is_new(self, number: int) -> bool:
            return True

        def add(self, number: int) -> bool:
            self.highest = max(self.highest, number)
            return True

    monkeypatch.setattr(transport, "ReplayWindow", NoWindow)
    with pytest.raises(Violation, match="got it before"):
        nothing_but_loss_and_delay(0)


def test_a_session_that_uses_a_nonce_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = transport.TransportKeys.seal

    def again(self: Any, kind: int, body: bytes) -> bytes:
        self.sent = self.sent // 2
        return seal(self, kind, body)

    monkeypatch.setattr(transport.TransportKeys, "seal", again)
    with pytest.raises(Violation, match="nonce"):
        outsiders_change_nothing(0)


def test_a_session_that_does_not_check_certificates_is_found_out() -> None:
    with pytest.raises(Violation, match="evil"):
        outsiders_change_nothing(1, verifier=Gullible)
