"""What telemetry costs: CPU time per event of two live peers at 1000 events/s, with telemetry beside without.

Each case is a process of its own with two linked peers, one publishing and one subscribed, both with telemetry. The
processes take turns of two seconds, so that all see the same machine. A process writes its segments at the end, after a
minute of events, which is how old segments become; the share of each event in that is added.

`python -m benchmarks.telemetry [--rounds N] [--rate N]`
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from wend.drivers.live.peer import LivePeer
from wend.drivers.live.telemetry.options import TelemetryOptions
from wend.drivers.live.telemetry.recorder import TelemetryRecorder
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
    def __init__(self, folder: Path, sample: float | None) -> None:
        self._peers = [LivePeer(PeerConfig(peer=peer, strategy="adaptive", margin_ns=100 * MS)) for peer in (0, 1)]
        self._recorders: list[TelemetryRecorder] = []
        for here, there in (self._peers, self._peers[::-1]):
            here.add_peer(there.id, there.address)
            if sample is not None:
                options = TelemetryOptions(folder=folder, sample=sample, segment_age_ns=HOUR)
                self._recorders.append(TelemetryRecorder(here, options))
                here.observe(self._recorders[-1])

    async def start(self) -> None:
        here, there = self._peers
        here.start(Started((Neighbour(1, MS),), advertisements=("topic = 'x'",)))
        there.start(Started((Neighbour(0, MS),), (LocalSubscription(1, "topic = 'x'"),)))
        for recorder in self._recorders:
            recorder.begin()
        while not here.publish({"topic": "x"}).targets:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    async def turn(self, rate: int) -> float:
        """Seconds of the processor for a turn of events."""
        begin, began = time.process_time(), time.monotonic()
        for number in range(0, rate * TURN_S, _AT_ONCE):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            for _ in range(_AT_ONCE):
                self._peers[0].publish({"topic": "x", "number": number}, _PAYLOAD)
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


async def _serve(sample: float | None, rate: int) -> None:
    """Take a turn for each line of the input, and tell what it cost; at its end, what writing cost."""
    with tempfile.TemporaryDirectory() as folder:
        pair = _Pair(Path(folder), sample)
        await pair.start()
        await pair.turn(rate)  # so that caches are as in the middle of a run
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(await pair.turn(rate), flush=True)
        print(pair.write(), flush=True)


def measure(rounds: int, rate: int) -> tuple[list[list[float]], list[float]]:
    """By case: what each turn cost, and what writing cost, in seconds."""
    command = [sys.executable, "-m", "benchmarks.telemetry", "--rate", str(rate), "--case"]
    cases = [
        subprocess.Popen([*command, str(sample)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for sample in SAMPLES
    ]
    turns: list[list[float]] = [[] for _ in cases]
    try:
        for case in cases:
            assert case.stdout is not None and case.stdout.readline() == "ready\n"
        for number in range(rounds):
            for which in range(len(cases))[:: 1 if number % 2 else -1]:
                case = cases[which]
                assert case.stdin is not None and case.stdout is not None
                case.stdin.write("turn\n")
                case.stdin.flush()
                turns[which].append(float(case.stdout.readline()))
        written = [float(case.communicate()[0]) for case in cases]
    finally:
        for case in cases:
            case.kill()
            case.wait()
    return turns, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        uvloop.run(_serve(None if options.case == "None" else float(options.case), options.rate))
        return
    turns, written = measure(options.rounds, options.rate)
    events = options.rate * TURN_S
    off = turns[0]
    print("sample: CPU microseconds per event, of that writing; ratio to without telemetry")
    for sample, spent, wrote in zip(SAMPLES, turns, written, strict=True):
        share = wrote / options.rounds
        ratio = median((on + share) / base for on, base in zip(spent, off, strict=True))
        each, writing = 1e6 * (median(spent) + share) / events, 1e6 * share / events
        print(f"{'none' if sample is None else f'{sample:g}':>5}: {each:7.1f} {writing:6.2f}  {ratio:.3f}")


if __name__ == "__main__":
    main()
