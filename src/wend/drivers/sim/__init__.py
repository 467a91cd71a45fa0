"""Peers under virtual time: the same `Peer` that runs live, with faults, an oracle and checks from the trace."""

from wend.drivers.sim.run import STRATEGIES, Outcome, can_simulate, simulate

__all__ = ["STRATEGIES", "Outcome", "can_simulate", "simulate"]
