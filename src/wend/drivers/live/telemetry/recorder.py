"""The recorder: an observer that writes down what happens at a live peer, as rows of the tables of telemetry.

It looks at links and counters once a period, and records single events only if they are sampled. In the event loop it
only adds integers to arrays; a thread writes them (`segments.py`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from wend.drivers.live.clock import Clock, monotonic
from wend.drivers.live.counters import Counters
from wend.drivers.live.observer import Observer
from wend.drivers.live.telemetry.row_batch import RowBatch, float_bits
from wend.drivers.live.telemetry.segments import SegmentFolder, SegmentWriter
from wend.model.events import PeerId, Qos
from wend.model.publication import Publication
from wend.model.telemetry import TABLES, is_sampled, sample_bound
from wend.model.units import SECOND, Nanos
from wend.protocol.link.link import Link
from wend.protocol.messages import TX_MASK, TX_SHIFT, Data
from wend.protocol.peer import Peer
from wend.protocol.ports import (
    Advertised,
    Deliver,
    Input,
    LocalSubscription,
    Receipt,
    Started,
    Subscribed,
    Unsubscribed,
)

log = logging.getLogger("wend.telemetry")

NONE = -1
"""In a column of integers: no value."""
QUEUED_SEGMENTS = 4
"""The most full segments that wait for the disk."""
BYTES_PER_NS_TO_BPS = 8 * SECOND
MIB = 1024 * 1024
_NOTHING = Publication({})


class TelemetryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The telemetry settings of a peer's file."""

    folder: Path
    sample: float = 0.01
    """The share of events that peers record."""
    period_ns: Nanos = SECOND
    """How often the peer records its links and counters."""
    most_bytes: int = 1024 * MIB
    """The most disk space of closed segments. Beyond it, the peer removes the oldest ones."""
    segment_bytes: int = 8 * MIB
    """The memory of rows at which a segment is closed."""
    segment_age_ns: Nanos = 60 * SECOND
    """The age at which a segment with rows is closed."""


class TelemetryRecorder(Observer):
    """Records one incarnation of a peer. Let it observe the peer, and `begin` it once the peer has started."""

    def __init__(
        self,
        peer: Peer,
        counters: Counters,
        options: TelemetryOptions,
        *,
        clock: Clock = monotonic,
        offset_ns: Nanos | None = None,
        about: Mapping[str, Any] | None = None,
        writer: Callable[[SegmentFolder, int], SegmentWriter] = SegmentWriter.start_for,
    ) -> None:
        """`peer`: the state machine. `offset_ns`: Unix time minus that of the clock, if peers of one process share it.
        `about`: more content of the manifests. Raises `ConfigError` if the folder cannot be used, and `MissingExtra`
        if PyArrow is missing."""
        self._peer = peer
        self._links = peer.links
        self._counters = counters
        self._clock = clock
        self._offset_ns = time.time_ns() - clock() if offset_ns is None else offset_ns
        self._options = options
        self._sample_bound = sample_bound(options.sample)
        self._all = options.sample >= 1
        content = {
            "begun_ns": clock() + self._offset_ns,
            "sample": options.sample,
            "period_ns": options.period_ns,
            "strategy": peer.config.strategy,
            **(about or {}),
        }
        self.folder = SegmentFolder(
            options.folder, peer.config.peer, peer.config.incarnation, options.most_bytes, content
        )
        most_bytes = QUEUED_SEGMENTS * options.segment_bytes
        self.writer = writer(self.folder, most_bytes)
        now = clock()
        self._batches = {table: RowBatch(table, now) for table in TABLES}
        self._published = _NOTHING
        self._link_counts: dict[PeerId, tuple[int, int, int]] = {}
        self._outages: dict[PeerId, tuple[Nanos, Nanos]] = {}
        """By neighbour whose link is down: when it was last heard, and the silence that the detector allowed."""
        self._counted: dict[str, dict[str, int]] = {}
        self._totals = (0, 0, 0, 0)
        self._reported = (0, 0)
        self._ticked_ns = now
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if self.folder.left_over:
            self._counters.failed["telemetry-left-over"] += self.folder.left_over

    # ---------------------------------------------------------------- from begin to end

    def begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ticked_ns = self._clock()
        self._timer = self._loop.call_later(self._options.period_ns / SECOND, self._tick)

    def stop(self) -> None:
        """Record nothing more, and write nothing more of what was recorded, as after a crash."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Close the last segments. `writer.join` waits until they are written."""
        if self._loop is not None:
            self.stop()
            self.take_sample()
        self._close_batches(all_=True)
        self.writer.end()

    # ---------------------------------------------------------------- what the peer tells

    def on_input(self, event: Input) -> None:
        match event:
            case Publication():
                self._published = event
            case Subscribed():
                self._add_subscription(event.subscription)
            case Unsubscribed():
                self._add_interest("subscription", "end", event.number)
            case Advertised():
                self._add_interest("advertisement", "begin", NONE, event.filter)
            case Started():
                self._on_started(event)

    def on_published(self, receipt: Receipt) -> None:
        if not (self._all or is_sampled(receipt.id, self._sample_bound)):
            return
        event, self._published = self._published, _NOTHING
        topic = event.attributes.get("topic", "")
        batch = self._batches["publications"]
        knows_all = self._peer.knows_all_subscribers
        others = sum(peer != self._peer.config.peer for peer in receipt.targets) if knows_all else NONE
        text = batch.encode_text(topic if isinstance(topic, str) else "")
        self._add_row(batch, (self._now(), *receipt.id, text, len(event.payload), others))

    def on_packet(self, sender: PeerId, data: Data, waited_ns: Nanos) -> None:
        if not (self._all or is_sampled(data.event.id, self._sample_bound)):
            return
        link = self._links.get(sender)
        if link is None or (link.incarnation == data.tx >> TX_SHIFT and (data.tx & TX_MASK) in link.window):
            return  # it came before, and its ACK was lost
        link_ns = link.delay_ns + waited_ns
        cells = (self._now(), *data.event.id, sender, data.age_ns + link.delay_ns, link_ns, waited_ns)
        self._add_row(self._batches["hops"], cells)

    def on_delivered(self, effect: Deliver) -> None:
        event = effect.event
        if not (self._all or is_sampled(event.id, self._sample_bound)) or effect.again or effect.retained:
            return
        deadline_ns = NONE if effect.deadline_ns is None else effect.deadline_ns
        number = effect.subscription.number
        cells = (self._now(), *event.id, number, effect.age_ns, deadline_ns, len(event.payload))
        self._add_row(self._batches["deliveries"], cells)

    def on_link_change(self, neighbour: PeerId, up: bool) -> None:
        now, link, batch = self._clock(), self._links.get(neighbour), self._batches["changes"]
        state, heard_ns, detection_ns = "unlinked", now, 0
        if link is not None and not up:
            state, heard_ns, detection_ns = "down", link.heard_ns, link.silence_ns
            self._outages[neighbour] = (heard_ns, detection_ns)
        else:
            heard_ns, detection_ns = self._outages.pop(neighbour, (now, 0))
            if link is not None:
                state = "up"
        delay_ns = 0 if link is None else link.delay_ns
        since_ns = heard_ns + self._offset_ns
        self._add_row(
            batch, (now + self._offset_ns, neighbour, batch.encode_text(state), since_ns, detection_ns, delay_ns)
        )

    # ---------------------------------------------------------------- once a period

    def take_sample(self) -> None:
        """Add rows about all links and counters, and close segments that are old enough."""
        now = self._clock()
        time_ns, period_ns = now + self._offset_ns, now - self._ticked_ns
        self._ticked_ns = now
        for neighbour, link in self._links.items():
            self._add_link_sample(time_ns, period_ns, neighbour, link)
        for neighbour in self._link_counts.keys() - self._links.keys():
            del self._link_counts[neighbour]
        self._add_counters(time_ns)
        self._add_heartbeat(time_ns)
        self._close_batches(all_=False)

    def _tick(self) -> None:
        if self._loop is None:
            return
        try:
            self.take_sample()
        except Exception:
            self._counters.failed["telemetry"] += 1
            log.exception("peer %d failed to write telemetry and goes on", self._peer.config.peer)
        self._timer = self._loop.call_later(self._options.period_ns / SECOND, self._tick)

    def _add_link_sample(self, time_ns: Nanos, period_ns: Nanos, neighbour: PeerId, link: Link) -> None:
        sent, acknowledged, lost = self._link_counts.get(neighbour, (0, 0, 0))
        if link.transmitted < sent:  # a new link to the same neighbour
            sent = acknowledged = lost = 0
        timed_out = link.unanswered.timed_out
        newly_lost = max(0, timed_out - lost)  # an outage explains some after all
        self._link_counts[neighbour] = (link.transmitted, link.answers, max(lost, timed_out))
        sender, estimator, batch = link.sender, link.estimator, self._batches["links"]
        cells = (
            time_ns,
            neighbour,
            batch.encode_text(link.state.value),
            link.delay_ns,
            float_bits(link.reliability),
            link.transmitted - sent,
            link.answers - acknowledged,
            newly_lost,
            link.queue_ns,
            0 if sender is None else sender.queued_bytes,
            period_ns,
            0 if estimator is None else estimator.srtt_ns,
            0 if sender is None else round(sender.capacity * BYTES_PER_NS_TO_BPS),
        )
        self._add_row(batch, cells)

    def _add_counters(self, time_ns: Nanos) -> None:
        counters, batch = self._counters, self._batches["counts"]
        sections = {
            "drop": counters.drops, "refusal": counters.refused, "notice": counters.notices,
            "failure": counters.failed, "sent": {**counters.control, "data": counters.data},
        }  # fmt: skip
        for kind, now in sections.items():
            before = self._counted.get(kind, {})
            for reason, count in now.items():
                if more := count - before.get(reason, 0):
                    self._add_row(batch, (time_ns, batch.encode_text(kind), batch.encode_text(reason), more))
            self._counted[kind] = dict(now)

    def _add_heartbeat(self, time_ns: Nanos) -> None:
        counters, writer, folder = self._counters, self.writer, self.folder
        totals = (counters.publications, counters.deliveries, counters.late_deliveries, writer.unwritten)
        since = tuple(now - before for now, before in zip(totals, self._totals, strict=True))
        self._totals = totals
        sample = float_bits(self._options.sample)
        self._add_row(self._batches["heartbeats"], (time_ns, time.time_ns(), sample, *since))
        self._count_segment_failures(since[-1], writer.failures, folder.removed)

    def _count_segment_failures(self, rows: int, failures: int, removed: int) -> None:
        """Count new rows that were not written, and all failed and removed segments, where an operator looks."""
        (old_failures, old_removed), self._reported = self._reported, (failures, removed)
        if rows:
            self._counters.failed["telemetry-rows"] += rows
        if failures > old_failures:
            self._counters.failed["telemetry-segment"] += failures - old_failures
        if removed > old_removed:
            self._counters.failed["telemetry-removed"] += removed - old_removed

    # ---------------------------------------------------------------- rows

    def _now(self) -> Nanos:
        return self._clock() + self._offset_ns

    def _add_row(self, batch: RowBatch, cells: tuple[int, ...]) -> None:
        batch.add(cells)
        if batch.size_bytes >= self._options.segment_bytes:
            self._close_batch(batch)

    def _close_batch(self, batch: RowBatch) -> None:
        self._batches[batch.table] = RowBatch(batch.table, self._clock())
        self.writer.offer(batch)

    def _close_batches(self, *, all_: bool) -> None:
        old_ns = self._clock() - self._options.segment_age_ns
        for batch in list(self._batches.values()):
            if not batch.rows:
                batch.begun_ns = self._clock()
            elif all_ or batch.begun_ns <= old_ns:
                self._close_batch(batch)

    def _on_started(self, event: Started) -> None:
        for subscription in event.subscriptions:
            self._add_subscription(subscription)
        for text in event.advertisements:
            self._add_interest("advertisement", "begin", NONE, text)
        for backlog in self._peer.durable.values():
            self._add_subscription(backlog.subscription)

    def _add_subscription(self, subscription: LocalSubscription) -> None:
        self._add_interest("subscription", "begin", subscription.number, subscription.filter, subscription.qos)

    def _add_interest(self, kind: str, change: str, number: int, filter: str = "", qos: Qos | None = None) -> None:
        batch = self._batches["interest"]
        deadline_ns = NONE if qos is None or qos.deadline_ns is None else qos.deadline_ns
        factor = float_bits(0.0 if qos is None or qos.factor is None else qos.factor)
        texts = (batch.encode_text(kind), batch.encode_text(change), number, batch.encode_text(filter))
        self._add_row(batch, (self._now(), *texts, deadline_ns, factor))
