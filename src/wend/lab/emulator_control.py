"""The control connection to a running emulator, its counters and its failure log.

A command is one line of text, its answer one line of JSON. The failure log is a file: a user can read it while the lab
runs and copy it when it ends. `outages` converts it for the simulator and the oracle.
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
"""Packets that contain this count as data, all others as control."""
_PATIENCE_S = 10.0


class LinkCounter(msgspec.Struct, frozen=True):
    """Packets put on a link in one direction for one port, and how many of them were dropped.

    `port` is the UDP or TCP port below 32768, the receiver's if both are. It is 0 if neither is, and the negative
    protocol number for other protocols: ICMP is -1, OSPF -89.
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
    """Packets that contain the marker."""
    corrupted: int = 0
    reordered: int = 0
    """Packets that arrive all the same: with a wrong bit, and held back."""

    @property
    def dropped(self) -> int:
        return self.down + self.loss + self.queue


class LinkChange(msgspec.Struct, frozen=True):
    """A link went up or down at `at_ns` (CLOCK_MONOTONIC)."""

    at_ns: Nanos
    link: int
    a: PeerId
    b: PeerId
    up: bool
    cause: Literal["schedule", "command"]


class EmulatorStatus(msgspec.Struct, frozen=True):
    """The emulator's status. `late_*`: how much later than due packets left the emulator."""

    now_ns: Nanos
    delivered: int
    late_mean_ns: Nanos
    late_max_ns: Nanos
    cpu_ns: Nanos
    changes_ahead: int
    """Scheduled failures and repairs that have not happened yet."""
    down: tuple[int, ...]
    """Links that are down now."""


class EmulatorClient:
    """A connection to an emulator, opened with the first command. Several threads may use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._rest = b""
        self._turn = threading.Lock()

    def ask(self, command: str) -> dict[str, Any]:
        """Send one command and return its answer. Raises `LabError` if the command is not one line, if no answer comes,
        or if the answer is malformed or reports an error."""
        if "\n" in command or "\0" in command:
            raise LabError("a command is one line of text")
        try:
            with self._turn:
                answer = msgspec.json.decode(self._exchange(command.encode() + b"\n"))
        except (OSError, msgspec.DecodeError) as error:
            self.close()
            raise LabError(f"the emulator in {self._folder} does not answer: {error}") from None
        if not isinstance(answer, dict):
            raise LabError("the emulator's answer is not a JSON object")
        if "error" in answer:
            raise LabError(str(answer["error"]))
        return answer

    def status(self) -> EmulatorStatus:
        return msgspec.convert(self.ask("status"), EmulatorStatus)

    def counters(self) -> list[LinkCounter]:
        return msgspec.convert(self.ask("counters")["counters"], list[LinkCounter])

    def schedule(self, planned: Iterable[Outage], at_ns: Nanos) -> None:
        """Replace the schedule. Times of outages count from `at_ns`."""
        spans = [f"{link}:{start}:{until}" for link, start, until in planned]
        self.ask(" ".join([f"schedule {at_ns}", *spans]))

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
        chunks = [self._rest]
        while b"\n" not in chunks[-1]:
            chunk = self._socket.recv(1 << 18)
            if not chunk:
                raise ConnectionResetError("it closed the connection")
            chunks.append(chunk)
        answer, _, self._rest = b"".join(chunks).partition(b"\n")
        return answer


def read_failures(path: Path) -> list[LinkChange]:
    """The failure log so far, without an incomplete last line."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = text.split(b"\n")[:-1]
    try:
        return [msgspec.json.decode(line, type=LinkChange) for line in lines]
    except msgspec.DecodeError as error:
        raise LabError(f"{path} is not a failure log: {error}") from None


def outages(failures: Iterable[LinkChange], epoch_ns: Nanos, until_ns: Nanos) -> list[Outage]:
    """Convert the log to outages between `epoch_ns` and `until_ns`, in nanoseconds after `epoch_ns`, by start and link.

    A link that is down at the end of the log stays down until `until_ns`. Outages are clipped to the two times.
    """
    since: dict[int, Nanos] = {}
    spans: list[Outage] = []
    for failure in sorted(failures, key=lambda f: f.at_ns):
        if not failure.up:
            since.setdefault(failure.link, failure.at_ns)
        elif failure.link in since:
            spans.append((failure.link, since.pop(failure.link), failure.at_ns))
    spans += [(link, start, max(start, until_ns)) for link, start in since.items()]
    length = until_ns - epoch_ns
    clipped = [(link, max(0, a - epoch_ns), min(length, b - epoch_ns)) for link, a, b in spans]
    links = 1 + max((link for link, _, _ in clipped), default=-1)
    return list(Intervals(links, [o for o in clipped if o[1] < o[2]]).outages())
