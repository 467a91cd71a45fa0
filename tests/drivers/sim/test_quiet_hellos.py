"""Hellos that change nothing stay out of the agenda, and the run is the one in which every hello is an entry of it."""

from collections import Counter

import pytest

from tests.cores import pure_only
from tests.scenarios import random_scenario, roaming_scenario
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import engine, simulate
from wend.drivers.sim.network import Network, QuietHellos
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.messages import Message


class EveryHelloInTheAgenda(Network):
    def send_each(self, now: Nanos, sender: PeerId, receivers: tuple[PeerId, ...], message: Message) -> None:
        for receiver in receivers:
            self.send(now, sender, receiver, message)


@pure_only
def test_a_run_is_the_same_with_every_hello_in_the_agenda(monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = [random_scenario(seed, ("adaptive",)) for seed in range(12)]
    scenarios += [roaming_scenario(seed, ("adaptive",), ("random", "chain")) for seed in range(4)]
    seen: Counter[str] = Counter()
    release = QuietHellos.schedule_hellos

    def counted(self: QuietHellos, peer: PeerId, everything: bool = True) -> None:
        before = len(self.by_peer[peer])
        release(self, peer, everything)
        seen["of a crash" if everything else "of news"] += before - len(self.by_peer[peer])

    monkeypatch.setattr(QuietHellos, "schedule_hellos", counted)
    quiet = [_play(scenario) for scenario in scenarios]
    assert seen["of a crash"] and seen["of news"], "hellos have to come back into the agenda for both reasons"
    monkeypatch.setattr(engine, "Network", EveryHelloInTheAgenda)
    seen.clear()
    assert [_play(scenario) for scenario in scenarios] == quiet
    assert not seen.total(), "with this network no hello stays out of it"


def _play(scenario: Scenario) -> tuple[str, dict[str, int]]:
    summary = simulate(scenario).summary
    return summary.trace_sha256, dict(summary.control)
