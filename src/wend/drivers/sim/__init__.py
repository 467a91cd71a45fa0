"""Peers under virtual time: the same `Peer` that runs live, with faults, an oracle and checks from the trace."""

from wend.drivers.sim.run import STRATEGIES, Outcome, known, simulate

__all__ = ["STRATEGIES", "Outcome", "known", "simulate"]
