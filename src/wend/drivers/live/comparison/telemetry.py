"""Telemetry of a whole overlay in one process, for `wend up`: each peer writes to its own folder, DIR/peer-N.

The peers share a clock, so their rows have the same time. `run.json` beside their folders says what nobody knows in a
real overlay: when links were down, and the metrics of the run by an exact clock.
"""

import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from wend.drivers.live.clock import Clock
from wend.drivers.live.counters import Counters
from wend.drivers.live.store.store import fresh_incarnation
from wend.drivers.live.telemetry.recorder import TelemetryOptions, TelemetryRecorder
from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.config import PeerConfig

if TYPE_CHECKING:
    from wend.drivers.live.peer import LivePeer
    from wend.drivers.world import World

SEGMENT_AGE_NS = 5 * SECOND
"""Short, because the user of `wend up` looks at segments soon."""


class OverlayTelemetry:
    """The recorders of an overlay's peers."""

    def __init__(self, folder: Path, clock: Clock, about: Mapping[str, Any]) -> None:
        """`about`: more content of the manifests. Raises `ConfigError` if the folder cannot be used."""
        self.incarnation = fresh_incarnation()
        """The incarnation of all peers. Segments of an earlier run in the same folder have another."""
        self.offset_ns: Nanos = 0
        self._folder = folder
        self._clock = clock
        self._about = about
        self._recorders: dict[PeerId, TelemetryRecorder] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot write telemetry to {folder}: {error.strerror or error}", code="unwritable"
            ) from None

    def prepare_member(self, config: PeerConfig, overlay: Counters) -> tuple[PeerConfig, Counters]:
        """The configuration and the counters of a peer that is recorded."""
        return config.with_(incarnation=self.incarnation), MemberCounters(overlay)

    def observe(self, peers: "list[LivePeer]") -> None:
        """Observe the peers. Call it when the clock runs."""
        self.offset_ns = time.time_ns() - self._clock()
        for peer in peers:
            options = TelemetryOptions(
                folder=self._folder / f"peer-{peer.id}", sample=1.0, segment_age_ns=SEGMENT_AGE_NS
            )
            recorder = TelemetryRecorder(
                peer.peer, peer.counters, options, clock=self._clock, offset_ns=self.offset_ns, about=self._about
            )
            self._recorders[peer.id] = recorder
            peer.observe(recorder)

    def begin(self, peer: PeerId) -> None:
        self._recorders[peer].begin()

    def crash(self, peer: PeerId) -> None:
        """Stop recording a peer that has crashed. Its unwritten rows are lost."""
        self._recorders.pop(peer).stop()

    def close(self) -> None:
        """Write the last segments."""
        for recorder in self._recorders.values():
            recorder.end()
        for recorder in self._recorders.values():
            recorder.writer.join()

    def write_run_file(self, world: "World", origin_ns: Nanos, strategy: str, summary: Any) -> None:
        """Write `run.json`."""
        start_ns = origin_ns + self.offset_ns
        links = world.overlay.links
        content = {
            "strategy": strategy,
            "incarnation": self.incarnation,
            "begin_ns": start_ns + world.begin_ns,
            "stop_ns": start_ns + world.stop_ns,
            "links": [{"a": link.a, "b": link.b, "delay_ns": link.delay_ns, "loss": link.loss} for link in links],
            "outages": [
                {"a": links[number].a, "b": links[number].b, "begin_ns": start_ns + begin, "end_ns": start_ns + end}
                for number, begin, end in world.faults.outages()
                if begin < self._clock() - origin_ns
            ],
            "summary": summary,
            "scenario": world.scenario.flat(),
        }
        partial = self._folder / ".run.json.part"
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        os.rename(partial, self._folder / "run.json")


class ForwardedCounter(Counter[str]):
    """A counter that also counts in another one."""

    def __init__(self, total: Counter[str]) -> None:
        super().__init__()
        self._total = total

    def __setitem__(self, name: str, count: int) -> None:
        self._total[name] += count - self.get(name, 0)
        super().__setitem__(name, count)


class MemberCounters(Counters):
    """The counters of one peer, which also count for its overlay."""

    def __init__(self, overlay: Counters) -> None:
        super().__init__()
        self._overlay = overlay
        for name in ("control", "notices", "drops", "refused", "paths", "failed"):
            setattr(self, name, ForwardedCounter(getattr(overlay, name)))

    def count_data(self, id_: EventId, destinations: int) -> None:
        super().count_data(id_, destinations)
        self._overlay.count_data(id_, destinations)
