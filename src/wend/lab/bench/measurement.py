"""Measures one window: one system with one workload, topology and failure schedule, on a lab of its own.

Beside the system runs a canary, which sends the same kind of publications by plain UDP along the delay tree. On an
idle machine a UDP packet is either lost or on time. If the canary's packets are late, the machine was too busy, and
the window says nothing about the system.
"""

import asyncio
import contextlib
import os
import platform
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from wend.drivers.workload import GOLDEN, Topic
from wend.drivers.world import World
from wend.lab.bench.cell import Cell, CellSettings, Traffic
from wend.lab.bench.delivery_log import (
    MIN_BYTES,
    WARMUP,
    DeliveryLog,
    LateDelivery,
    Stamp,
    compute_best_metrics,
    make_payload,
)
from wend.lab.emulator_control import outages
from wend.lab.lab import Lab
from wend.lab.process_priority import high_priority
from wend.lab.systems.system import CountsData, RunContext, System, machine_cpu_s
from wend.lab.systems.system_table import SYSTEMS
from wend.lab.systems.udp import CANARY_PORT, Udp
from wend.model.errors import ConfigError, LabError
from wend.model.units import MS, SECOND, Nanos, seconds
from wend.topology import faults

GAP = 0.003
"""The bench discards a window if the canary's delivery ratio exceeds its on-time ratio by more than this."""
CANARY_PERIOD_NS: Nanos = SECOND
CONVERGE_S = 40.0
SETTLE_S = 3.0
"""From convergence to the first failure, so that a system can finish its start."""
_ROUND_S = 0.5
_SHOWN_LATE = 400

Tell = Callable[[str], None]


def describe_machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"


async def measure_cell(
    settings: CellSettings, *, windows: int, tell: Tell, name: str = "bench", raise_priority: bool = True
) -> Cell:
    """Measure windows until the canary's packets are on time in one of them, at most `windows`."""
    discards: list[float] = []
    while True:
        with high_priority() if raise_priority else contextlib.nullcontext():
            cell = await _measure_window(settings, name, tell)
        gap = cell.canary.delivery_ratio - cell.canary.on_time_ratio
        if gap <= GAP or len(discards) + 1 >= windows:
            return msgspec.structs.replace(cell, discards=discards, kept_anyway=gap > GAP)
        discards.append(gap)
        tell(f"discarded, the canary was late by {100 * gap:.1f} points; measuring again")


async def _measure_window(settings: CellSettings, name: str, tell: Tell) -> Cell:
    world = settings.world()
    system = SYSTEMS[settings.system]()
    if (absent := system.missing()) is not None:
        raise ConfigError(f"{settings.system}: {absent}")
    tell("building the network")
    lab = Lab.up(world.overlay, name=name, routes=system.routes, seed=settings.failure_seed)
    try:
        with tempfile.TemporaryDirectory(prefix="wend-bench-") as folder:
            return await _WindowRun(settings, world, system, lab, Path(folder), tell).run()
    finally:
        lab.close()


class _WindowRun:
    """The run of one window, from the start of all processes to the cell."""

    def __init__(
        self, settings: CellSettings, world: World, system: System, lab: Lab, folder: Path, tell: Tell
    ) -> None:
        self.settings = settings
        self.world = world
        self.system = system
        self.lab = lab
        self.tell = tell
        self.log = DeliveryLog(world)
        self.canary_log = DeliveryLog(world)
        self.canary = Udp("tree", CANARY_PORT)
        self.context = RunContext(lab, world, folder, self.log.record_delivery)
        self.canary_context = RunContext(lab, world, folder, self.canary_log.record_delivery)
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> Cell:
        async with self._running_systems():
            began = time.monotonic()
            await self._converge()
            converged_s = time.monotonic() - began
            self.tell("settling")
            await asyncio.sleep(SETTLE_S)
            return await self._measure(converged_s)

    @contextlib.asynccontextmanager
    async def _running_systems(self) -> AsyncIterator[None]:
        """Start the canary and the system. Stop both at the end, even if one of them did not start."""
        try:
            self.tell("starting")
            await self.canary.start(self.canary_context)
            await self.system.start(self.context)
            yield
        finally:
            for task in self._under_way:
                task.cancel()
            try:
                await self.system.stop()
            finally:
                await self.canary.stop()

    async def _converge(self) -> None:
        """Publish rounds of events until one round has reached every subscriber."""
        self.tell("waiting until an event reaches every subscriber")
        give_up = time.monotonic() + CONVERGE_S
        number = WARMUP
        while time.monotonic() < give_up:
            for topic in range(len(self.world.topics)):
                stamp = Stamp(topic, number, time.monotonic_ns())
                self._start_task(self.system.publish(topic, make_payload(stamp, self.settings.size_bytes)))
                self._start_task(self.canary.publish(topic, make_payload(stamp, MIN_BYTES)))
            await asyncio.sleep(_ROUND_S)
            for past in range(max(WARMUP, number - 4), number + 1):
                if all(self._has_reached_all(log, past) for log in (self.log, self.canary_log)):
                    return
            number += 1
        unreached = sum(
            len(set(t.subscribers) - self.log.subscribers_reached(i, number - 2))
            for i, t in enumerate(self.world.topics)
        )
        raise LabError(
            f"{self.system.name} did not reach {unreached} subscribers in {CONVERGE_S:g} s, with no link down"
        )

    def _has_reached_all(self, log: DeliveryLog, sequence: int) -> bool:
        return all(log.subscribers_reached(i, sequence) == set(t.subscribers) for i, t in enumerate(self.world.topics))

    async def _measure(self, converged_s: float) -> Cell:
        world = self.world
        origin = time.monotonic_ns() + 200 * MS
        self.lab.schedule(list(world.faults.outages()), origin)
        await _sleep_until(origin + world.begin_ns - 100 * MS)
        self.lab.reset_counters()
        before = await self._count_data_packets()
        cpu, others = self.system.processes.cpu_s(), self._other_cpu_s()
        tasks = [
            asyncio.create_task(self._publish(i, topic, self.system, self.log, self.settings.size_bytes, origin))
            for i, topic in enumerate(world.topics)
        ]
        tasks += [
            asyncio.create_task(
                self._publish(i, make_canary_topic(topic), self.canary, self.canary_log, MIN_BYTES, origin)
            )
            for i, topic in enumerate(world.topics)
        ]
        self.tell(f"measuring for {self.settings.duration_s:g} s")
        await asyncio.gather(*tasks)
        await _sleep_until(origin + world.stop_ns)
        cpu, others = self.system.processes.cpu_s() - cpu, self._other_cpu_s() - others
        at_stop = await self._count_packets(before)
        self.tell("waiting for events in flight")
        await _sleep_until(origin + world.end_ns)
        at_end = await self._count_packets(before)
        exited = self.system.processes.exited()
        failed = outages(self.lab.failures(), origin, origin + world.end_ns)
        self.lab.clear_schedule()
        return self._make_cell(
            origin,
            failed,
            traffic=Traffic(data=at_end.data, control=at_stop.packets - at_stop.data, bytes=at_end.bytes),
            cpu_share=cpu / self.settings.duration_s,
            others_share=others / self.settings.duration_s,
            converged_s=converged_s,
            exited=exited,
        )

    async def _count_data_packets(self) -> int | None:
        """Data packets that the system has counted so far; None if the lab counts them, or a process has ended."""
        if not isinstance(self.system, CountsData) or self.system.processes.exited():
            return None
        return await self.system.data_packets()

    async def _count_packets(self, before: int | None) -> "PacketCount":
        """Count packets since the reset of the lab's counters. `before`: the system's count of data packets then."""
        packets, now = count_packets(self.lab), await self._count_data_packets()
        return packets if before is None or now is None else msgspec.structs.replace(packets, data=now - before)

    def _other_cpu_s(self) -> float:
        """CPU time of the machine without the system, the canary, the emulator and the bench."""
        mine = self.system.processes.cpu_s() + self.canary.processes.cpu_s() + time.process_time()
        return machine_cpu_s() - mine - self.lab.status().cpu_ns / SECOND

    async def _publish(
        self, number: int, topic: Topic, system: System, log: DeliveryLog, size: int, origin: Nanos
    ) -> None:
        """Publish at the planned times. It does not wait for earlier publications."""
        begin, stop = origin + self.world.begin_ns, origin + self.world.stop_ns
        for sequence, due in enumerate(topic.publication_times(begin, stop)):
            await _sleep_until(due)
            stamp = Stamp(number, sequence, time.monotonic_ns())
            log.record_publication(stamp)
            self._start_task(system.publish(number, make_payload(stamp, size)))

    def _start_task(self, publishing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(publishing)
        self._under_way.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the event counts as not delivered

    def _make_cell(self, origin: Nanos, failed: list[tuple[int, Nanos, Nanos]], **measured: Any) -> Cell:
        s, world = self.settings, self.world
        cutoff = seconds(s.cutoff_s)
        world.faults = faults.Intervals(len(world.overlay.links), failed)
        published = {key: time - origin for key, time in self.log.published.items()}
        best, packets = compute_best_metrics(world, published, cutoff)
        return Cell(
            settings=s,
            metrics=self.log.compute_metrics(cutoff),
            oracle=best,
            oracle_packets=packets,
            canary=self.canary_log.compute_metrics(cutoff),
            discards=[],
            kept_anyway=False,
            version=self.system.version(),
            machine=describe_machine(),
            outages=failed,
            late=_shift_to_world_time(self.log.late_deliveries(cutoff), origin),
            canary_late=_shift_to_world_time(self.canary_log.late_deliveries(cutoff), origin),
            **measured,
        )


def _shift_to_world_time(late: list[LateDelivery], origin: Nanos) -> list[LateDelivery]:
    """The first late deliveries, in times of the world."""
    return [msgspec.structs.replace(one, published_ns=one.published_ns - origin) for one in late[:_SHOWN_LATE]]


def make_canary_topic(topic: Topic) -> Topic:
    """The topic at the canary's rate, whatever the rate of the measured system."""
    period = CANARY_PERIOD_NS
    return msgspec.structs.replace(
        topic, phase_ns=topic.phase_ns % period, period_ns=period, step_ns=round(GOLDEN * period)
    )


async def _sleep_until(moment_ns: Nanos) -> None:
    while (wait := moment_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep(wait / SECOND)


class PacketCount(msgspec.Struct, frozen=True):
    """Packets and bytes that a system put on links."""

    packets: int
    bytes: int
    data: int


def count_packets(lab: Lab) -> PacketCount:
    """Packets since the last reset, without the canary's."""
    rows = [row for row in lab.counters() if row.port != CANARY_PORT]
    return PacketCount(sum(r.packets for r in rows), sum(r.bytes for r in rows), sum(r.data for r in rows))
