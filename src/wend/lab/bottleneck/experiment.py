"""One bottleneck between live peers: how well they use it, how long they fill its queue, and how they share it.

Two hosts are linked by 1 Mbit/s with a queue of 32 kB and a delay of 10 ms. A peer runs on each. A client on one host
publishes; clients on the other subscribe with deadlines of 100, 250 and 1000 ms, in turn. Both hosts capture packets.

| experiment | offered | measured |
| --- | --- | --- |
| alone | 2 x what fits | goodput, queueing delay of the link, on time against the best possible |
| loss | 2 x, with random loss | on time, against the same without loss |
| tcp | 2 x, beside a kernel TCP flow (cubic) | the share of the bytes that arrive |
| two | 2 x by each of two pairs of peers | Jain's index of their deliveries |
| outage | 1 x, with an outage of 3 s | packets into the outage, and bytes after it |

What fits: the capacity divided by the bytes of the packet of one event, with all headers. The best possible share on
time is what fits divided by what is offered. Goodput counts each delivered event with the bytes of its packet.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec
import numpy as np

from wend.drivers.live.client.client import Client
from wend.lab.bottleneck.packet_capture import CapturedPacket, PacketCapture, find_peak_bytes, match_packets
from wend.lab.bottleneck.peer_traffic import DEADLINES_NS, PORT, TCP_PORT, EventFlow, run_linked_peers, start_tcp_flow
from wend.lab.emulator_control import MARKER
from wend.lab.lab import Lab
from wend.lab.process_priority import high_priority
from wend.model.choices import DEFAULT_STRATEGY
from wend.model.units import MS, SECOND, Nanos
from wend.topology.graph import Overlay, OverlayLink

Experiment = Literal["alone", "loss-1%", "loss-3%", "tcp", "two", "outage"]
EXPERIMENTS: tuple[Experiment, ...] = ("alone", "loss-1%", "loss-3%", "tcp", "two", "outage")
LOSS: dict[str, float] = {"loss-1%": 0.01, "loss-3%": 0.03}

RATE_BPS = 1_000_000
QUEUE_BYTES = 32_768
DELAY_NS: Nanos = 10 * MS
WARM_UP_S = 4.0
OUTAGE_NS: Nanos = 3 * SECOND
PROBE_NS: Nanos = 80 * MS
"""How often a peer sends something over a link that is down: half of the default detection time."""
KNOWN_NS: Nanos = 200 * MS
"""After this time a peer knows of an outage: the default detection time and the delay of the link."""
SPAN_NS: Nanos = 100 * MS
AFTER_NS: Nanos = 4 * SECOND
"""How long after an outage the bytes in each span are counted."""
SAMPLE_HZ, SAMPLE_S = 10.0, 1.0
"""Events that are sent alone, to find the size of their packets."""
LAB = "bottleneck"


class BottleneckSetup(msgspec.Struct, frozen=True):
    """The settings that all experiments share."""

    strategy: str = DEFAULT_STRATEGY
    settings: tuple[tuple[str, str], ...] = ()
    """Further lines of the peers' files: names and values as TOML has them."""
    seconds: float = 15.0
    """The time that is measured, after the warm-up."""
    seed: int = 1


class BottleneckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metrics of one experiment. Shares are of the capacity unless the name says otherwise."""

    experiment: Experiment
    packet_bytes: int
    """The packet of one event, with all headers."""
    offered: float
    """Relative to what fits."""
    goodput: float
    on_time: float
    """The share of the offered events."""
    of_best: float
    """`on_time` relative to the best possible share."""
    by_deadline: dict[str, float]
    """The share on time of the events with each deadline."""
    late: float
    """The share of the offered events that arrived late."""
    queueing_p50_ms: float
    queueing_p95_ms: float
    link_downs: int
    tcp_share: float | None = None
    """The share that Wend gets beside TCP, of the bytes that arrive from both."""
    jain: float | None = None
    outage_packets: int | None = None
    """Packets that left into the outage after the peer knew of it."""
    outage_packets_per_probe: float | None = None
    outage_bytes: int | None = None
    """All bytes that left into the outage."""
    after_outage: float | None = None
    """The most bytes in any 100 ms after the outage, relative to the capacity."""


class _Observation(msgspec.Struct, frozen=True):
    """The packets and events of an experiment."""

    flows: list[EventFlow]
    offered: float
    sender: list[CapturedPacket]
    receiver: list[CapturedPacket]
    begin_ns: Nanos
    end_ns: Nanos
    outage_ns: tuple[Nanos, Nanos] | None
    packet_bytes: int
    link_downs: int

    def packets_while_measuring(self, packets: Sequence[CapturedPacket], sent: bool) -> list[CapturedPacket]:
        """The packets of the measured time."""
        return [p for p in packets if p.sent == sent and self.begin_ns <= p.time_ns < self.end_ns]


def run_experiment(experiment: Experiment, setup: BottleneckSetup) -> BottleneckResult:
    """Set the bottleneck up, run one experiment, and remove it."""
    overlay = Overlay(2, [OverlayLink(0, 1, DELAY_NS)])
    loss = LOSS.get(experiment, 0.0)
    lab = Lab.up(overlay, name=LAB, seed=setup.seed, loss=loss, rate_bps=RATE_BPS, queue_bytes=QUEUE_BYTES)
    with lab, TemporaryDirectory() as folder, high_priority():
        return _make_result(experiment, asyncio.run(_observe(experiment, setup, lab, Path(folder))))


async def _observe(experiment: Experiment, setup: BottleneckSetup, lab: Lab, folder: Path) -> _Observation:
    flows = [EventFlow(number) for number in range(2 if experiment == "two" else 1)]
    offered = 1.0 if experiment == "outage" else 2.0
    async with AsyncExitStack() as stack:
        pairs = [
            await stack.enter_async_context(run_linked_peers(lab, folder, flow, setup.strategy, setup.settings))
            for flow in flows
        ]
        publishers, observers = [one for one, _ in pairs], [one for _, one in pairs]
        size = await _measure_packet_bytes(lab, flows[0], publishers[0])
        before = await _count_link_downs(observers)
        with PacketCapture(lab, 0) as sender, PacketCapture(lab, 1) as receiver:
            if experiment == "tcp":
                stack.callback(start_tcp_flow(lab))
            began = time.monotonic_ns()
            begin, end = (began + int(s * SECOND) for s in (WARM_UP_S, WARM_UP_S + setup.seconds))
            outage = _schedule_outage(lab, began, (begin + end) // 2) if experiment == "outage" else None
            rate, seconds = offered * RATE_BPS / (8 * size), WARM_UP_S + setup.seconds
            await asyncio.gather(*(f.publish(c, rate, seconds) for f, c in zip(flows, publishers, strict=True)))
            await asyncio.sleep(1.5 * max(DEADLINES_NS) / SECOND)
        downs = await _count_link_downs(observers) - before
    return _Observation(flows, offered, sender.packets, receiver.packets, begin, end, outage, size, downs)


def _schedule_outage(lab: Lab, began: Nanos, middle: Nanos) -> tuple[Nanos, Nanos]:
    start, until = middle - OUTAGE_NS // 2, middle + OUTAGE_NS // 2
    lab.schedule([(0, start - began, until - began)], began)
    return start, until


async def _measure_packet_bytes(lab: Lab, flow: EventFlow, client: Client) -> int:
    """The bytes of the packet of one event: the median of a few that are sent alone."""
    with PacketCapture(lab, 0) as capture:
        await flow.publish(client, SAMPLE_HZ, SAMPLE_S)
        await asyncio.sleep(2 * SAMPLE_S / 10)
    flow.sent.clear()
    flow.came.clear()
    return int(np.median([p.size for p in capture.packets if p.sent and MARKER in p.content]))


async def _count_link_downs(clients: Sequence[Client]) -> int:
    return sum([(await client.status()).notices.get("link-down", 0) for client in clients])


def _make_result(experiment: Experiment, observed: _Observation) -> BottleneckResult:
    begin, end, size = observed.begin_ns, observed.end_ns, observed.packet_bytes
    counts = np.array([flow.count_by_deadline(begin, end) for flow in observed.flows]).sum(axis=0)
    good, late, due = counts.T
    on_time = float(good.sum() / max(1, due.sum()))
    delivered = [flow.count_delivered(begin, end) for flow in observed.flows]
    best = 1 / (observed.offered * len(observed.flows))
    if observed.outage_ns is not None:
        best *= 1 - (observed.outage_ns[1] - observed.outage_ns[0]) / (end - begin)
    queueing = _queueing_delays_ms(observed)
    result = BottleneckResult(
        experiment=experiment,
        packet_bytes=size,
        offered=observed.offered * len(observed.flows),
        goodput=sum(delivered) * size * 8 * SECOND / (end - begin) / RATE_BPS,
        on_time=on_time,
        of_best=on_time / best,
        by_deadline={f"{d // MS}ms": float(g / max(1, n)) for d, g, n in zip(DEADLINES_NS, good, due, strict=True)},
        late=float(late.sum() / max(1, due.sum())),
        queueing_p50_ms=float(np.percentile(queueing, 50)),
        queueing_p95_ms=float(np.percentile(queueing, 95)),
        link_downs=observed.link_downs,
    )
    if experiment == "tcp":
        return msgspec.structs.replace(result, tcp_share=_wend_share(observed))
    if experiment == "two":
        jain = sum(delivered) ** 2 / (2 * sum(each**2 for each in delivered))
        return msgspec.structs.replace(result, jain=jain)
    return (
        result
        if observed.outage_ns is None
        else msgspec.structs.replace(result, **_outage_metrics(observed, *observed.outage_ns))
    )


def _queueing_delays_ms(observed: _Observation) -> list[float]:
    """How long packets of peers waited in the queue of the link."""
    delays = match_packets(
        [p for p in observed.sender if not p.has_port(TCP_PORT)],
        [p for p in observed.receiver if not p.has_port(TCP_PORT)],
    )
    idle = [(left, took - DELAY_NS - size * 8 * SECOND // RATE_BPS) for left, took, size in delays]
    return [max(0, waited) / MS for left, waited in idle if observed.begin_ns <= left < observed.end_ns] or [0.0]


def _wend_share(observed: _Observation) -> float:
    """The share of Wend's packets, of the bytes that arrive."""
    came = observed.packets_while_measuring(observed.receiver, sent=False)
    ours = sum(p.size for p in came if p.has_port(PORT))
    theirs = sum(p.size for p in came if p.has_port(TCP_PORT))
    return ours / max(1, ours + theirs)


def _outage_metrics(observed: _Observation, start: Nanos, until: Nanos) -> dict[str, float]:
    sent = [p for p in observed.sender if p.sent]
    into = [p for p in sent if start <= p.time_ns < until]
    after_detection = [p for p in into if p.time_ns >= start + KNOWN_NS]
    after = [p for p in sent if until <= p.time_ns < until + AFTER_NS]
    return {
        "outage_packets": len(after_detection),
        "outage_packets_per_probe": len(after_detection) * PROBE_NS / (until - start - KNOWN_NS),
        "outage_bytes": sum(p.size for p in into),
        "after_outage": find_peak_bytes(after, SPAN_NS) * 8 * SECOND / SPAN_NS / RATE_BPS,
    }
