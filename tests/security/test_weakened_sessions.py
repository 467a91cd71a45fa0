"""The worlds with an attacker notice a session that is weaker than it should be, as sessions alone and under peers."""

from types import ModuleType
from typing import Any

import pytest

from tests.security import sealed_worlds, worlds
from tests.security.attacker import Violation
from tests.security.doubles import Gullible
from wend.security import transport
from wend.security.replay import ReplayWindow

both = pytest.mark.parametrize("played", [worlds, sealed_worlds], ids=["sessions", "peers"])


@both
def test_a_session_without_a_replay_window_is_found_out(monkeypatch: pytest.MonkeyPatch, played: ModuleType) -> None:
    class NoWindow(ReplayWindow):
        def is_new(self, number: int) -> bool:
            return True

        def add(self, number: int) -> bool:
            self.highest = max(self.highest, number)
            return True

    monkeypatch.setattr(transport, "ReplayWindow", NoWindow)
    with pytest.raises(Violation, match=r"twice|got it before"):
        played.nothing_but_loss_and_delay(0)


@both
def test_a_session_that_uses_a_nonce_again_is_found_out(monkeypatch: pytest.MonkeyPatch, played: ModuleType) -> None:
    seal = transport.TransportKeys.seal

    def again(self: Any, kind: int, body: bytes) -> bytes:
        self.sent = self.sent // 2
        return seal(self, kind, body)

    monkeypatch.setattr(transport.TransportKeys, "seal", again)
    with pytest.raises(Violation, match="nonce"):
        played.outsiders_change_nothing(0)


@both
def test_a_session_that_does_not_check_certificates_is_found_out(played: ModuleType) -> None:
    with pytest.raises(Violation, match="evil"):
        played.outsiders_change_nothing(1, verifier=Gullible)
