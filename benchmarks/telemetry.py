"""What telemetry costs: CPU time per event of two live peers at 1000 events/s, with telemetry beside without.

One process has three pairs of linked peers: without telemetry, with the default sample, and with all events. They take
turns of two seconds, so that all see the same machine, the same memory and the same modules. In its turn a pair also
looks at its links once a second. At the end each pair writes its segments, which become a minute old as a rule; what
that costs for a minute of events is added.

`python -m benchmarks.telemetry [--rounds N] [--rate N]`
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from wend.drivers.live.peer import LivePeer
from wend.drivers.live.telemetry.recorder import TelemetryOptions, TelemetryRecorder
from wend.drivers.live.telemetry.row_batch import RowBatch
from wend.model.publication import Publication
from wend.model.units import HOUR, MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import LocalSubscription, Neighbour, Started

ROUNDS = 30
RATE = 1000
TURN_S = 2
SAMPLES = (None, 0.01, 1.0)
"""Shares of events; None: without telemetry."""
_AT_ONCE = 5
_PAYLOAD = bytes(200)


class _Pair:
    """Two peers with a link, one publishing and one subscribed."""

    def __init__(self, folder: Path, sample: float | None) -> None:
        self._peers = [LivePeer(PeerConfig(peer=peer, strategy="adaptive", margin_ns=100 * MS)) for peer in (0, 1)]
        self._recorders: list[TelemetryRecorder] = []
        for here, there in (self._peers, self._peers[::-1]):
            here.add_peer(there.id, there.address)
            if sample is not None:
                options = TelemetryOptions(folder=folder / f"{sample}", sample=sample, segment_age_ns=HOUR)
                self._recorders.append(TelemetryRecorder(here.peer, here.counters, options))
                here.observe(self._recorders[-1])

    async def start(self) -> None:
        here, there = self._peers
        here.start(Started((Neighbour(1, MS),), advertisements=("topic = 'x'",)))
        there.start(Started((Neighbour(0, MS),), (LocalSubscription(1, "topic = 'x'"),)))
        while not here.publish(Publication({"topic": "x"})).targets:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        for recorder in self._recorders:  # the first segment of a process takes longer
            recorder.folder.write(RowBatch("deliveries", 0), 10**6)

    async def turn(self, rate: int) -> float:
        """Seconds of the processor for a turn of events."""
        begin, began = time.process_time(), time.monotonic()
        for number in range(0, rate * TURN_S, _AT_ONCE):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            for _ in range(_AT_ONCE):
                self._peers[0].publish(Publication({"topic": "x", "number": number}, _PAYLOAD))
            if number % rate == 0:
                for recorder in self._recorders:
                    recorder.take_sample()
        await asyncio.sleep(0.05)
        return time.process_time() - begin

    def write(self) -> float:
        """Seconds of the processor to write all segments."""
        begin = time.process_time()
        for recorder in self._recorders:
            recorder.end()
        for recorder in self._recorders:
            assert recorder.writer.join(60)
            assert not recorder.writer.unwritten
        return time.process_time() - begin

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


async def measure(rounds: int, rate: int) -> tuple[list[list[float]], list[float]]:
    """By case: what each turn cost, and what writing cost, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = [_Pair(Path(folder), sample) for sample in SAMPLES]
        for pair in pairs:
            await pair.start()
        turns: list[list[float]] = [[] for _ in pairs]
        for number in range(rounds + 1):
            for which in range(len(pairs))[:: 1 if number % 2 else -1]:
                spent = await pairs[which].turn(rate)
                if number:  # the first round warms up
                    turns[which].append(spent)
        written = [pair.write() for pair in pairs]
        for pair in pairs:
            pair.close()
        return turns, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rate", type=int, default=RATE)
    options = parser.parse_args()
    turns, written = uvloop.run(measure(options.rounds, options.rate))
    events = options.rate * TURN_S
    print("sample: CPU microseconds per event, of that writing; ratio to without telemetry")
    for sample, spent, wrote in zip(SAMPLES, turns, written, strict=True):
        share = wrote / options.rounds
        ratio = median((on + share) / base for on, base in zip(spent, turns[0], strict=True))
        each, writing = 1e6 * (median(spent) + share) / events, 1e6 * share / events
        print(f"{'none' if sample is None else f'{sample:g}':>5}: {each:7.1f} {writing:6.2f}  {ratio:.3f}")


if __name__ == "__main__":
    main()
