"""What coded redundancy costs and gives, beside full copies and hedges: bytes per delivery, and what arrives in time.

20 peers of degree 8 with ACKs that take real round trips. In each second a link is down with probability 0.06, and it
loses a share of the packets. A variant is a strategy with its settings: `multipath` with 2 or 3 full copies, or coded
over as many routes as its rate names; `spt-k` alike, on trees; `adaptive` with whole events and hedges, or coded as it
chooses. All variants of a world run with the same seeds. Bytes are those of data packets with all headers, as live
peers would encode them, per delivery that was expected.

`python -m benchmarks.coded_redundancy`; `--only loss,sizes` for some parts, `--seeds N`, `--duration SECONDS`,
`--jobs N`, `--output FILE` for the data of the picture in docs/explanation/coding.md.
"""

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from wend.drivers.live.transport.wire import FRAME_BYTES, encode_message
from wend.drivers.scenarios import make_scenario
from wend.drivers.sim.engine import Engine
from wend.drivers.sim.network import Network
from wend.drivers.sim.run import summarise_run
from wend.drivers.world import build_world
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.messages import Data, Fragment, Message

IP_UDP_BYTES = 28
"""The headers of IPv4 and UDP."""

VARIANTS: dict[str, dict[str, Any]] = {
    "adaptive, whole": {"strategy": "adaptive", "coding": "off"},
    "adaptive, coded": {"strategy": "adaptive", "coding": "auto"},
    "2 copies": {"strategy": "multipath", "copies": 2},
    "3 copies": {"strategy": "multipath", "copies": 3},
    "coded 1/2": {"strategy": "multipath", "coding": "1/2"},
    "coded 2/3": {"strategy": "multipath", "coding": "2/3"},
    "coded 2/4": {"strategy": "multipath", "coding": "2/4"},
    "2 trees": {"strategy": "spt-k", "trees": 2},
    "3 trees": {"strategy": "spt-k", "trees": 3},
    "3 trees, coded 2/3": {"strategy": "spt-k", "trees": 3, "coding": "2/3"},
    "4 trees, coded 2/4": {"strategy": "spt-k", "trees": 4, "coding": "2/4"},
}
ADAPTIVE = tuple(VARIANTS)[:2]
ROUTES = tuple(VARIANTS)[2:]
LOSSES = (0.0, 0.01, 0.02, 0.03, 0.05)
PF = 0.06
CODES_SMALL = ("small", "routes")
"""The parts in which events of any size are coded, also those of one packet."""


class Conditions(NamedTuple):
    """What distinguishes one world of the benchmark from another."""

    part: str
    payload_bytes: int
    loss: float
    factor: float


class Run(msgspec.Struct, frozen=True):
    on_time: float
    delivered: float
    bytes: float
    packets: float


class Point(msgspec.Struct, frozen=True):
    """The means of one variant in one world. Bytes and packets are per expected delivery."""

    part: str
    variant: str
    payload_bytes: int
    loss: float
    factor: float
    on_time: float
    delivered: float
    bytes: float
    packets: float


def points() -> Iterator[tuple[str, Conditions]]:
    """Every variant in every world that is measured, by part."""
    for loss in LOSSES:
        for variant in (*ADAPTIVE, "2 copies", "3 copies", "coded 1/2", "coded 2/3"):
            yield variant, Conditions("loss", 4_000, loss, 1.5)
    for size in (1_000, 2_000, 4_000, 16_000):
        for loss in (0.0, 0.02, 0.05):
            for variant in ADAPTIVE:
                yield variant, Conditions("sizes", size, loss, 2.0)
    for factor in (1.5, 2.0, 3.0):
        for variant in ADAPTIVE:
            yield variant, Conditions("factors", 4_000, 0.02, factor)
    for size in (500, 1_000):
        for loss in (0.02, 0.05):
            for variant in ADAPTIVE:
                yield variant, Conditions("small", size, loss, 1.5)
    for size in (1_000, 4_000):
        for loss in (0.0, 0.02):
            for variant in ROUTES:
                yield variant, Conditions("routes", size, loss, 3.0)


class CountingNetwork(Network):
    """Counts the bytes of data packets."""

    data_bytes = 0

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        if type(message) is Data or type(message) is Fragment:
            self.data_bytes += IP_UDP_BYTES + FRAME_BYTES + len(encode_message(message))
        super().send(now, sender, receiver, message)


class CountingEngine(Engine):
    def make_links(self) -> Network:
        return CountingNetwork(self.world, self.agenda, self.trace, self.peers)


def run(variant: str, where: Conditions, seed: int, duration_s: float) -> Run:
    fields = {
        "peers": 20, "degree": 8, "ack": "round-trip", "pf": PF, "pl": where.loss, "factor": where.factor,
        "payload_bytes": where.payload_bytes, "coding_least": 2 if where.part in CODES_SMALL else 1_101,
        "seed": seed, "duration": f"{duration_s}s",
    }  # fmt: skip
    scenario = make_scenario({**fields, **VARIANTS[variant]})
    engine = CountingEngine(build_world(scenario).for_strategy(scenario.strategy))
    engine.run()
    summary = summarise_run(engine, 0.0)
    assert isinstance(engine.links, CountingNetwork)
    expected = summary.expected
    return Run(
        summary.on_time,
        summary.delivered / expected,
        engine.links.data_bytes / expected,
        engine.transmissions / expected,
    )


def mean(variant: str, where: Conditions, runs: list[Run]) -> Point:
    means = {field: fmean(getattr(one, field) for one in runs) for field in Run.__struct_fields__}
    return Point(where.part, variant, *where[1:], **means)


def print_points(measured: list[Point]) -> None:
    table = Table("part", "bytes", "loss", "factor", "variant", "on time", "delivered", "bytes/delivery", "packets")
    for one in measured:
        shares = (f"{100 * one.on_time:.2f} %", f"{100 * one.delivered:.2f} %")
        world = (one.part, f"{one.payload_bytes}", f"{one.loss:.0%}", f"{one.factor:g}")
        table.add_row(*world, one.variant, *shares, f"{one.bytes:.0f}", f"{one.packets:.2f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="loss,sizes,factors,small,routes")
    parser.add_argument("--duration", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    chosen = [(variant, where) for variant, where in points() if where.part in options.only.split(",")]
    with ProcessPoolExecutor(options.jobs) as pool:
        asked = [
            [pool.submit(run, variant, where, seed, options.duration) for seed in range(1, options.seeds + 1)]
            for variant, where in chosen
        ]
        measured = []
        for (variant, where), runs in zip(chosen, asked, strict=True):
            measured.append(mean(variant, where, [one.result() for one in runs]))
            Console(stderr=True).print(f"{measured[-1]}", style="dim")
    print_points(measured)
    if options.output is not None:
        sizes = f"--seeds {options.seeds} --duration {options.duration:g}"
        data = {
            "made by": f"python -m benchmarks.coded_redundancy {sizes} --output docs/figures/coding.json",
            "metric": "share of deliveries on time and in all; bytes and packets of data per expected delivery",
            "setting": {"peers": 20, "degree": 8, "pf": PF, "duration_s": options.duration, "seeds": options.seeds},
            "points": [msgspec.to_builtins(one) for one in measured],
        }
        options.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
