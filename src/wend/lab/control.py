"""Talking to a running emulator: commands on its socket, counters, and the log of what failed.

A command is one line, its answer one line of JSON. The log is a file, so that it can be read while the lab runs and
copied when it ends; `outages` turns it into what the simulator and the oracle understand.
"""

import socket
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from wend.model.errors import LabError
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.topology.faults import Intervals, Outage

SOCKET = "control.sock"
FAILURES = "failures.jsonl"
MARKER = b"WENDLAB!"
"""Packets whose payload holds this are data; the rest is control."""
_PATIENCE_S = 10.0


class Counter(msgspec.Struct, frozen=True):
    """Packets that were put on a link in one direction for one service, with those that did not arrive.

    `port` is the UDP or TCP port below 32768 (the receiver's first), 0 where there is none such, and minus the
    protocol's number for others: ICMP is -1, OSPF -89.
    """

    link: int
    sender: PeerId
    receiver: PeerId
    port: int
    packets: int
    bytes: int
    down: int
    loss: int
    queue: int
    data: int
    """Of the packets, those that hold the marker."""

    @property
    def dropped(self) -> int:
        return self.down + self.loss + self.queue


class Failure(msgspec.Struct, frozen=True):
    """A link changed: `up` is how it has been since `at_ns` (CLOCK_MONOTONIC)."""

    at_ns: Nanos
    link: int
    a: PeerId
    b: PeerId
    up: bool
    cause: Literal["schedule", "command"]


class Status(msgspec.Struct, frozen=True):
    """How the emulator is doing; `late` is how much later than planned packets left it."""

    now_ns: Nanos
    delivered: int
    late_mean_ns: Nanos
    late_max_ns: Nanos
    cpu_ns: Nanos
    changes_ahead: int
    """Failures and repairs that are scheduled and have not happened yet."""
    down: tuple[int, ...]
    """Links that are down now."""


class Control:
    """One connection to an emulator, made when first needed; threads take turns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._rest = b""
        self._turn = threading.Lock()

    def ask(self, command: str) -> dict[str, Any]:
        """Send one command and wait for its answer; an `error` in it is raised as a LabError."""
        if "\n" in command or "\0" in command:
            raise LabError("a command is one line of text")
        try:
            with self._turn:
                answer = msgspec.json.decode(self._exchange(command.encode() + b"\n"))
        except (OSError, msgspec.DecodeError) as error:
            self.close()
            raise LabError(f"the emulator in {self._folder} does not answer: {error}") from None
        if not isinstance(answer, dict):
            raise LabError("the emulator's answer is no JSON object")
        if "error" in answer:
            raise LabError(str(answer["error"]))
        return answer

    def status(self) -> Status:
        return msgspec.convert(self.ask("status"), Status)

    def counters(self) -> list[Counter]:
        return msgspec.convert(self.ask("counters")["counters"], list[Counter])

    def schedule(self, planned: Iterable[Outage], at_ns: Nanos) -> None:
        """Outages with times from `at_ns` on; they take the place of those scheduled before."""
        words = [f"{link}:{start}:{until}" for link, start, until in planned]
        self.ask(" ".join([f"schedule {at_ns}", *words]))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def _exchange(self, line: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(_PATIENCE_S)
            self._socket.connect(str(self._folder / SOCKET))
        self._socket.sendall(line)
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            part = self._socket.recv(1 << 18)
            if not part:
                raise ConnectionResetError("it hung up")
            parts.append(part)
        answer, _, self._rest = b"".join(parts).partition(b"\n")
        return answer


def read_failures(path: Path) -> list[Failure]:
    """The log so far; a last line that is not complete yet is left out."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = text.split(b"\n")[:-1]
    try:
        return [msgspec.json.decode(line, type=Failure) for line in lines]
    except msgspec.DecodeError as error:
        raise LabError(f"{path} is not a failure log: {error}") from None


def outages(failures: Iterable[Failure], epoch_ns: Nanos, until_ns: Nanos) -> list[Outage]:
    """The log as outages between two moments, in nanoseconds after the first; by start and link.

    A link that is down at the end of the log is down until `until_ns`; what lies outside is cut off.
    """
    since: dict[int, Nanos] = {}
    found: list[Outage] = []
    for failure in sorted(failures, key=lambda f: f.at_ns):
        if not failure.up:
            since.setdefault(failure.link, failure.at_ns)
        elif failure.link in since:
            found.append((failure.link, since.pop(failure.link), failure.at_ns))
    found += [(link, start, max(start, until_ns)) for link, start in since.items()]
    length = until_ns - epoch_ns
    clipped = [(link, max(0, a - epoch_ns), min(length, b - epoch_ns)) for link, a, b in found]
    parts = 1 + max((link for link, _, _ in clipped), default=-1)
    return list(Intervals(parts, [o for o in clipped if o[1] < o[2]]).outages())
