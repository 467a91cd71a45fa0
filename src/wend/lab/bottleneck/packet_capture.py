"""Captures the packets of a host of the lab: when each left or came, and how large it was.

A packet socket in the host's namespace sees what the kernel hands to the devices of the lab, before a link queues or
drops it, and what arrives. Packets that both ends of a link captured are paired by their content. That tells how long
the link took for each.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

from wend.lab.lab import Lab
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos

_ETH_P_ALL = 0x0003
_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("qq")
_PORTS = struct.Struct("!HH")
_POLL_S = 0.1
_LARGEST = 65_536
_PACKET_OUTGOING = 4


class CapturedPacket(NamedTuple):
    """An IP packet as a host sent or received it."""

    time_ns: Nanos
    """CLOCK_MONOTONIC."""
    sent: bool
    """Whether this host sent it."""
    size: int
    """Its bytes, with the IP header."""
    protocol: int
    ports: tuple[int, int]
    """The sender's and the receiver's."""
    content: bytes
    """Everything behind the IP header."""

    def has_port(self, port: int) -> bool:
        return port in self.ports


class PacketCapture:
    """Records the packets of one host on the lab's devices, from `with` to its end."""

    def __init__(self, lab: Lab, host: PeerId) -> None:
        devices = {interface.device for interface in lab.nodes[host].interfaces}
        with lab.inside(host):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.settimeout(_POLL_S)
        self._devices = devices
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.packets: list[CapturedPacket] = []

    def __enter__(self) -> "PacketCapture":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while not self._ended.is_set():
            try:
                data, ancillary, _, address = self._socket.recvmsg(_LARGEST, 128)
            except TimeoutError:
                continue
            device, _, kind = address[:3]
            if device in self._devices and data and data[0] >> 4 == 4:
                self.packets.append(self._parse_packet(data, ancillary, kind == _PACKET_OUTGOING))

    def _parse_packet(self, data: bytes, ancillary: Iterable[tuple[int, int, bytes]], sent: bool) -> CapturedPacket:
        now = time.time_ns()
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanos = _STAMP.unpack_from(value)
                now = seconds * SECOND + nanos
        header = 4 * (data[0] & 15)
        content = data[header:]
        ports = _PORTS.unpack_from(content) if len(content) >= 4 else (0, 0)
        return CapturedPacket(now - self._offset_ns, sent, len(data), data[9], (ports[0], ports[1]), content)


def match_packets(
    sender: Iterable[CapturedPacket], receiver: Iterable[CapturedPacket]
) -> list[tuple[Nanos, Nanos, int]]:
    """Pair the packets that one host sent and the other received. Returns the send time, delay and size of each."""
    left: dict[bytes, list[Nanos]] = {}
    for packet in sender:
        if packet.sent:
            left.setdefault(packet.content, []).append(packet.time_ns)
    delays = []
    for packet in receiver:
        times = left.get(packet.content)
        if not packet.sent and times:
            delays.append((times[0], packet.time_ns - times.pop(0), packet.size))
    return delays


def find_peak_bytes(packets: Iterable[CapturedPacket], span_ns: Nanos) -> int:
    """The most bytes within any time span of this length."""
    times = [(packet.time_ns, packet.size) for packet in packets]
    most = total = first = 0
    for time_ns, size in times:
        total += size
        while times[first][0] <= time_ns - span_ns:
            total -= times[first][1]
            first += 1
        most = max(most, total)
    return most
