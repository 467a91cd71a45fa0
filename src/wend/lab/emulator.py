"""The emulator process: compiles the C sources in `emulation/` when needed, starts it and finds running ones.

The emulator is written in C: it needs a few microseconds for a packet, while Python would need most of a core for a
tenth of the packets. It continues when the command that started it ends. A running emulator is identified by its
program and its folder, so `clean` also finds one whose command died before it wrote any state.
"""

import hashlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from wend.lab.address_plan import LabNode
from wend.lab.namespaces import MTU, find_program
from wend.model.errors import LabError
from wend.model.units import MS, Nanos
from wend.topology.graph import Overlay

QUEUE_BYTES = 256_000
REORDERING_DELAY_NS: Nanos = 50 * MS
_SOURCE = Path(__file__).parent / "emulation"
_PROGRAM = "emulator-"
_START_S = 30.0
_END_S = 60.0  # the kernel takes 20 ms for each device that still exists


def build_emulator(folder: Path) -> Path:
    """The path of the program. Compiles it into `folder`, unless the same sources were compiled there before."""
    sources = sorted(_SOURCE.glob("*.[ch]"))
    version = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    program = folder / f"{_PROGRAM}{version}"
    if program.exists():
        return program
    compiler = find_program("cc")
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"draft-{os.getpid()}"
    try:
        result = subprocess.run(
            [compiler, "-O2", "-o", str(draft), *(str(path) for path in sources if path.suffix == ".c")],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            why = (result.stderr.strip().splitlines() or ["no reason given"])[0]
            raise LabError(f"the C compiler could not build the emulator: {why}")
        draft.replace(program)  # atomically: another lab may start at the same time
    finally:
        draft.unlink(missing_ok=True)
    return program


class EmulatedLinkSettings(TypedDict, total=False):
    """The settings of all links of a lab."""

    seed: int
    """Determines which packets are lost."""
    loss: float | None
    """Replaces the loss of the links."""
    rate_bps: int
    """If it is above 0, a link drops a packet that finds more than `queue_bytes` in its queue; else it has no queue."""
    queue_bytes: int
    corruption: float
    """The share of packets in which a link flips a bit."""
    reordering: float
    """The share of packets that a link holds back, so that later packets overtake them."""
    reordering_delay_ns: Nanos
    """The longest time for which a link holds a packet back."""


def write_plan(
    overlay: Overlay,
    nodes: tuple[LabNode, ...],
    *,
    seed: int = 1,
    loss: float | None = None,
    rate_bps: int = 0,
    queue_bytes: int = QUEUE_BYTES,
    corruption: float = 0.0,
    reordering: float = 0.0,
    reordering_delay_ns: Nanos = REORDERING_DELAY_NS,
) -> str:
    """The emulator's input: the seed and the number of links, then one line per link."""
    if rate_bps < 0 or queue_bytes < MTU:
        raise LabError(f"a rate is at least 0, and a queue holds at least {MTU} bytes, one packet")
    for what, share in (("corrupt", corruption), ("reorder", reordering)):
        if not 0 <= share <= 1:
            raise LabError(f"links cannot {what} {share} of their packets, which is not a probability")
    if reordering_delay_ns < 0:
        raise LabError(f"a link holds a packet back for 0 ns or longer, not for {reordering_delay_ns} ns")
    faults = f"{float(corruption)!r} {float(reordering)!r} {reordering_delay_ns}"
    lines = [f"{seed % 2**64} {len(overlay.links)}"]
    for number, link in enumerate(overlay.links):
        share = float(link.loss if loss is None else loss)
        ends = (nodes[link.a], link.b), (nodes[link.b], link.a)
        devices = [f"{host.namespace} {_device_name(host, other)}" for host, other in ends]
        if not 0 <= share <= 1:
            raise LabError(f"link {number} loses {share} of its packets, which is not a probability")
        lines.append(
            f"{link.a} {link.b} {link.delay_ns} {share!r} {faults} {rate_bps} {queue_bytes} {' '.join(devices)}"
        )
    return "\n".join(lines) + "\n"


def _device_name(host: LabNode, neighbour: int) -> str:
    return next(i.device for i in host.interfaces if i.neighbour == neighbour)


def start_emulator(program: Path, folder: Path) -> "subprocess.Popen[bytes]":
    """Start the emulator on the plan in `folder`. On return every device exists and it accepts commands."""
    with (folder / "emulator.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C ends the command, not the emulator
            cwd="/",
        )
    assert process.stdout is not None
    with process.stdout as output:
        ready, _, _ = select.select([output], [], [], _START_S)
        line = output.readline().decode(errors="replace").strip() if ready else "it does not answer"
    if line != "ready":
        process.kill()
        process.wait()
        raise LabError(f"the emulator did not start: {line or 'it ended at once'}")
    return process


def find_running_emulators() -> Iterator[tuple[int, str]]:
    """(process id, lab folder) of every running emulator."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                argv = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                if len(argv) == 3 and Path(os.fsdecode(argv[0])).name.startswith(_PROGRAM):
                    yield int(entry), os.fsdecode(argv[1])


def is_running(folder: Path) -> bool:
    return any(Path(place) == folder for _, place in find_running_emulators())


def kill_emulators(folder: Path) -> int:
    """Kill the emulators of a folder and wait for their end. Returns how many there were."""
    killed: set[int] = set()
    until = time.monotonic() + _END_S
    while pids := {pid for pid, place in find_running_emulators() if Path(place) == folder} | set(
        filter(_is_ending, killed)
    ):
        for pid in pids - killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= pids
        if time.monotonic() > until:
            raise LabError(f"the emulator, process {min(pids)}, does not end")
        time.sleep(0.005)
    return len(killed)


def _is_ending(pid: int) -> bool:
    """Whether a killed process still releases its devices; it no longer has arguments."""
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
