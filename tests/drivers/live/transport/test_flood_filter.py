"""The filter for floods: what belongs to sessions passes, and a small share of all else."""

import socket
import sys

import pytest

from wend.drivers.live.transport.flood_filter import FLOOD_PER_TICK, FloodFilter
from wend.security import packets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's")
STRANGERS = 2000


def passed(filter_on: bool) -> tuple[int, int]:
    """How many packets of sessions pass, of 20, and how many datagrams of strangers, of `STRANGERS`."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        flood = FloodFilter(receiver)
        for _ in range(FLOOD_PER_TICK + filter_on):
            flood.count_datagram(packets.encode_question(bytes(8)))
        assert flood.on == filter_on
        wanted = [packets.TRANSPORT, packets.TRANSPORT + 15, packets.ANSWER, packets.COOKIE, packets.CERTIFICATE] * 4
        found = [0, 0]
        for number in range(STRANGERS):
            kinds = (packets.INITIATION, packets.QUESTION, 0, 6, packets.TRANSPORT + packets.MAX_KINDS, 255)
            other = [packets.packet_head(kind) + bytes(60) for kind in kinds] + [b"", b"wd", b"wd\3\0" + bytes(60)]
            sender.sendto(other[number % len(other)], receiver.getsockname())
            if number < len(wanted):
                sender.sendto(packets.packet_head(wanted[number]) + bytes(60), receiver.getsockname())
            while True:
                try:
                    datagram = receiver.recv(100)
                except BlockingIOError:
                    break
                found[datagram not in {packets.packet_head(kind) + bytes(60) for kind in wanted}] += 1
        flood.tick()
        assert flood.on == filter_on
        flood.tick()
        assert not flood.on
        return found[0], found[1]


def test_without_a_flood_everything_passes() -> None:
    assert passed(filter_on=False) == (20, STRANGERS)


def test_in_a_flood_sessions_pass_and_strangers_seldom() -> None:
    sessions, strangers = passed(filter_on=True)
    assert sessions == 20
    assert STRANGERS // 64 < strangers < STRANGERS // 16


def test_packets_that_pass_the_filter_are_no_reason_for_it() -> None:
    """Else a few packets a second with random keys would keep it on, and new peers out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        flood = FloodFilter(receiver)
        for kind in (packets.TRANSPORT, packets.TRANSPORT + 15, packets.ANSWER, packets.COOKIE, packets.CERTIFICATE):
            for _ in range(2 * FLOOD_PER_TICK):
                flood.count_datagram(packets.packet_head(kind) + bytes(60))
        assert not flood.on
