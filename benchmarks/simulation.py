"""How fast the simulator carries packets, beside the way SimPy users write it: peers as processes, `ack | timeout`.

Both play the same network (20 peers, degree 8, delays 10-50 ms, 1-second outages), the same publishers, the same
acknowledged hops and dcrd's Algorithm 2 for the same simulated time. Wend runs the real `Peer`: lists by messages,
numbered transmissions, duplicate windows, ranked copies, ages, traces, loss. The SimPy model is what one would write
for a paper: each peer a process that reads its inbox, each transmission one that waits for `ack | timeout`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import simpy

from benchmarks.rows import Row
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.world import World, build_world
from wend.model.version import core_build

DCRD = Scenario(strategy="dcrd", topology="regular", degree=8, pf=0.06, duration="600s")
ADAPTIVE = DCRD.with_(strategy="adaptive", duration="120s")
"""Beside the same SimPy model, which sends no hellos and knows no outage before it runs into it."""
ROUNDS = 5
COMPILED = Path(__file__).parents[1] / "build" / "compiled"


class SimpyModel:
    """Peers with inboxes; links that delay or lose; ACKs that travel back like any packet; Algorithm 2 at each peer."""

    def __init__(self, world: World) -> None:
        self.env = simpy.Environment(initial_time=world.begin_ns)
        self.world = world
        self.transmissions = 0
        self.delivered: list[tuple[int, int, int, bool]] = []
        self._lists = _sending_lists(world)
        self._inboxes = [simpy.Store(self.env) for _ in range(world.overlay.peers)]
        self._seen: list[set[tuple[int, int]]] = [set() for _ in range(world.overlay.peers)]

    def run(self) -> None:
        for peer in range(self.world.overlay.peers):
            self.env.process(self._peer(peer))
        for topic in self.world.topics:
            self.env.process(self._publish(topic))
        self.env.run(until=self.world.end_ns)

    def _publish(self, topic: Any) -> Iterator[Any]:
        yield self.env.timeout(topic.phase_ns)
        while self.env.now < self.world.stop_ns:
            event = (topic.publisher, self.env.now)
            self.env.process(self._carry(topic.publisher, event, topic.subscribers, ()))
            yield self.env.timeout(topic.period_ns)

    def _peer(self, here: int) -> Iterator[Any]:
        while True:
            sender, ack, packet = yield self._inboxes[here].get()
            if packet is None:
                if not ack.triggered:
                    ack.succeed()
                continue
            self.env.process(self._link(here, sender, ack, None))
            event, dests, path = packet
            if here in dests:
                self._deliver(here, event)
                dests = tuple(d for d in dests if d != here)
            if dests:
                self.env.process(self._carry(here, event, dests, path))

    def _deliver(self, here: int, event: tuple[int, int]) -> None:
        if event not in self._seen[here]:
            self._seen[here].add(event)
            delay = self.env.now - event[1]
            self.delivered.append((event[0], here, delay, delay <= self.world.deadline_ns(event[0], here)))

    def _carry(self, here: int, event: tuple[int, int], dests: tuple[int, ...], path: tuple[int, ...]) -> Iterator[Any]:
        """One process per next hop."""
        groups: dict[int, list[int]] = {}
        for dest in dests:
            hop = next((n for n in self._lists[here][dest] if n not in path), None)
            if hop is None:
                hop = path[(path.index(here) if here in path else len(path)) - 1] if path else None
            if hop is not None:
                groups.setdefault(hop, []).append(dest)
        for hop, group in groups.items():
            self.env.process(self._send(here, hop, event, tuple(group), path))
        return
        yield

    def _send(
        self, here: int, hop: int, event: tuple[int, int], dests: tuple[int, ...], path: tuple[int, ...]
    ) -> Iterator[Any]:
        tried = {hop}
        while True:
            self.transmissions += 1
            ack = self.env.event()
            self.env.process(self._link(here, hop, ack, (event, dests, (*path, here))))
            round_trip = 2 * self.world.overlay.links[self.world.overlay.link(here, hop)].delay_ns
            answered = yield ack | self.env.timeout(round_trip + 1)
            if ack in answered:
                return
            left = [n for n in self._lists[here][dests[0]] if n not in path and n not in tried]
            if not left:
                return
            hop = left[0]
            tried.add(hop)

    def _link(self, here: int, there: int, ack: simpy.Event, packet: Any) -> Iterator[Any]:
        link = self.world.overlay.link(here, there)
        if self.world.faults.is_up(link, self.env.now):
            yield self.env.timeout(self.world.overlay.links[link].delay_ns)
            self._inboxes[there].put((here, ack, packet))


def _sending_lists(world: World) -> list[list[tuple[int, ...]]]:
    """All neighbours towards every peer, best first."""
    overlay, shortest = world.overlay, world.shortest_ns

    def cost(here: int, there: int, dest: int) -> int:
        return overlay.links[overlay.link(here, there)].delay_ns + shortest[there][dest]

    return [
        [tuple(sorted(overlay.neighbours(a), key=lambda n: cost(a, n, b))) for b in range(overlay.peers)]
        for a in range(overlay.peers)
    ]


class SteadyRate:
    """Transmissions per CPU second, without the fixed cost of a run."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._short = scenario.with_(duration="5s")
        _cpu_time(self._short)  # imports and caches
        self.rates: list[float] = []

    def measure(self) -> None:
        fixed, before = min(_cpu_time(self._short) for _ in range(3))
        cpu, transmissions = _cpu_time(self._scenario)
        self.rates.append((transmissions - before) / (cpu - fixed))


def _cpu_time(scenario: Scenario) -> tuple[float, int]:
    began = time.thread_time()
    summary = simulate(scenario).summary
    return time.thread_time() - began, summary.data_packets


def simpy_rate() -> float:
    model = SimpyModel(build_world(DCRD))
    began = time.thread_time()
    model.run()
    return model.transmissions / (time.thread_time() - began)


def measure() -> dict[str, float]:
    """Medians of rates that were measured in turn."""
    dcrd, adaptive, simpy_rates = SteadyRate(DCRD), SteadyRate(ADAPTIVE), []
    for _ in range(ROUNDS):
        dcrd.measure()
        adaptive.measure()
        simpy_rates.append(simpy_rate())
    return {"dcrd": median(dcrd.rates), "adaptive": median(adaptive.rates), "simpy": median(simpy_rates)}


def _measure_compiled() -> dict[str, float] | None:
    """Measure the compiled core, in another process; None if that core is not built."""
    if not (COMPILED / "stamp").is_file():
        return None
    environment = {**os.environ, "PYTHONPATH": f"{COMPILED}{os.pathsep}{COMPILED.parents[1]}"}
    command = [sys.executable, "-m", "benchmarks.simulation"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rows() -> list[Row]:
    found = []
    for name, rates in (
        (core_build(), measure()),
        ("compiled", _measure_compiled() if core_build() == "pure" else None),
    ):
        for strategy in ("dcrd", "adaptive") if rates else ():
            what = f"transmissions/s of {strategy}, {name} core (SimPy, ack | timeout)"
            found.append(Row(f"simulation.{strategy}_{name}_per_s", what, rates[strategy], rates["simpy"]))
    return found


if __name__ == "__main__":
    print(json.dumps(measure()))
