"""A filter in the kernel for times of flood: it drops most datagrams of strangers before the process reads them.

A peer reads at most some hundred thousand datagrams per second. A flood of handshakes fills its socket, and packets of
neighbours are lost with those of strangers. During a flood, a filter (BPF, on Linux) passes packets of sessions and a
random 32nd of all other datagrams. So the peer hears its neighbours, and strangers can still get in.
"""

import ctypes
import socket
import struct
import sys

from wend.security import packets

FLOOD_PER_TICK = 500
"""More useless datagrams than these between two ticks are a flood."""
_SHARE = 32
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_LOAD_WORD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_RANDOM = 0xFFFFF000 + 56
_UDP_HEADER = 8
_ALL, _NOTHING = 0xFFFFFFFF, 0
_INSTRUCTION = struct.Struct("=HBBI")


_LAST = packets.TRANSPORT + packets.MAX_KINDS
_PASS_TYPES = (packets.ANSWER, packets.COOKIE, packets.CERTIFICATE)


def is_passed(datagram: bytes | memoryview) -> bool:
    """Whether the filter passes a datagram: it claims to belong to a session, or to a handshake that this peer began.
    Such packets cost little, so they are no reason to filter others."""
    kind = packets.packet_type(datagram)
    return kind is not None and (kind in _PASS_TYPES or packets.TRANSPORT <= kind < _LAST)


def filter_program() -> bytes:
    """Instructions of classic BPF: operation, jump if true, jump if false, operand."""
    head = int.from_bytes(packets.packet_head(0))
    jumps = [(_JUMP_EQUAL, head + kind) for kind in _PASS_TYPES] + [(_JUMP_AT_LEAST, head + packets.TRANSPORT)]
    last = head + _LAST
    code = [(_LOAD_WORD, 0, 0, _UDP_HEADER), (_JUMP_AT_LEAST, len(jumps), 0, last)]
    code += [(jump, len(jumps) - number + 2, 0, operand) for number, (jump, operand) in enumerate(jumps)]
    code += [
        (_LOAD_WORD, 0, 0, _RANDOM),
        (_AND, 0, 0, _SHARE - 1),
        (_JUMP_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALL),
        (_RETURN, 0, 0, _NOTHING),
    ]
    return b"".join(_INSTRUCTION.pack(*one) for one in code)


class FloodFilter:
    """Counts datagrams that it would drop, and filters its socket while they are too many."""

    def __init__(self, socket_: socket.socket) -> None:
        self._socket = socket_
        self._useless = 0
        self.on = False
        self._works = sys.platform == "linux"

    def count_datagram(self, datagram: bytes | memoryview) -> None:
        """Count a datagram that holds no message."""
        if is_passed(datagram):
            return
        self._useless += 1
        if self._useless > FLOOD_PER_TICK and not self.on and self._works:
            self._switch(True)

    def tick(self) -> None:
        """Remove the filter once the flood has ended. Called at regular times."""
        if self.on and self._useless <= FLOOD_PER_TICK // _SHARE:
            self._switch(False)
        self._useless = 0

    def _switch(self, on: bool) -> None:
        try:
            if on:
                code = ctypes.create_string_buffer(filter_program())
                filter_ = struct.pack("HP", (len(code) - 1) // _INSTRUCTION.size, ctypes.addressof(code))
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
            else:
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, struct.pack("i", 0))
            self.on = on
        except OSError:
            self._works = False
