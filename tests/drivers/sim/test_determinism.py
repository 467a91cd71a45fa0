"""The seed decides everything: not the process, not the order of a set."""

import os
import subprocess
import sys

import pytest

from wend.drivers.scenarios import Scenario, make_scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.run import STRATEGIES
from wend.strategies import registry
from wend.strategies.registry import INTEREST

RUN = """
import sys
from tests.drivers.sim.test_determinism import troubled
from tests.drivers.sim.test_planned import random_run
from wend.drivers.sim import simulate
for strategy in sys.argv[1].split(","):
    summary = simulate(troubled(strategy)).summary
    print(strategy, summary.trace_sha256, summary.data_packets, sorted(summary.control.items()))
print("plans", random_run(7).summary.trace_sha256)
print("underlay", simulate(troubled("adaptive").with_(underlay="power-law", outages=None, pf=0.1)).summary.trace_sha256)
"""


FORGETFUL = {name for name, made in registry.STRATEGIES.items() if not INTEREST[made.interest_for(True)].durable}
"""Strategies that cannot store events."""


def troubled(strategy: str) -> Scenario:
    fields = {
        "strategy": strategy, "seed": 5, "peers": 10, "degree": 4, "topics": 4, "duration": "8s", "pl": 0.02,
        "persistence": strategy not in FORGETFUL, "trace_level": "hops", "estimator": "measured", "monitoring": "2s",
        "transmissions": 2,
        "outages": {"up": {"kind": "exponential", "mean_s": 3.0}, "down": {"kind": "uniform", "high_s": 2.0}},
    }  # fmt: skip
    if strategy != "oracle":
        fields["peer_outages"] = {
            "up": {"kind": "exponential", "mean_s": 6.0}, "down": {"kind": "exponential", "mean_s": 1.0},
        }  # fmt: skip
    return make_scenario(fields)


def in_another_process(hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", RUN, ",".join(STRATEGIES)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_two_processes_with_different_hash_seeds_run_the_same_run(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.chdir(pytestconfig.rootpath)
    one, two = in_another_process("1"), in_another_process("4242")
    assert one == two
    hashes = dict(line.split()[:2] for line in one.splitlines())
    assert set(hashes) == {*STRATEGIES, "plans", "underlay"}
    assert hashes.pop("planned") == hashes["d-tree"]  # without a plan everything goes the shortest way
    assert len(set(hashes.values())) == len(hashes)


def test_another_seed_is_another_run() -> None:
    hashes = {simulate(troubled("dcrd").with_(seed=seed)).summary.trace_sha256 for seed in range(4)}
    assert len(hashes) == 4


def test_a_longer_trace_level_changes_no_event() -> None:
    hops, plain = (simulate(troubled("dcrd").with_(trace_level=level)) for level in ("hops", "deliveries"))
    assert list(hops.trace.deliveries.rows()) == list(plain.trace.deliveries.rows())
    assert hops.summary.data_packets == plain.summary.data_packets == len(hops.trace.hops)
    assert len(plain.trace.hops) == 0
