"""What the log of a peer says of strangers and of its links: one line each, and not too many."""

import logging
import socket
from collections.abc import Iterator

import pytest

from tests.drivers.live import datagrams
from tests.drivers.live.net import PAIR, overlay, run, until
from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport import link_log, strangers, wire
from wend.drivers.live.transport.link_log import LinkLog
from wend.drivers.live.transport.senders import STALE_NS
from wend.drivers.live.transport.strangers import StrangerLog
from wend.drivers.live.transport.wire import Header
from wend.model.units import MINUTE, MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.link.link import Link
from wend.protocol.messages import Hello
from wend.protocol.ports import Neighbour, Notice, Started

HERE, THERE, ELSEWHERE = ("192.0.2.1", 7701), ("192.0.2.2", 7701), ("192.0.2.3", 7701)
GOOD = datagrams.encode(wire.make_header(1, 0, 5), Hello(5, True))


class StepClock:
    now: Nanos = 0

    def __call__(self) -> Nanos:
        return self.now


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The lines of the log, as they come."""

    class Lines(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.found.append(record.getMessage())

    handler = Lines()
    log = logging.getLogger("wend.peer")
    log.addHandler(handler)
    with caplog.at_level(logging.INFO, logger="wend.peer"):
        yield handler.found
    log.removeHandler(handler)


@pytest.mark.parametrize(
    ("header", "datagram", "address", "why"),
    [
        (Header(1, 0, 5), GOOD, ELSEWHERE, "they are from peer 1, whose address is 192.0.2.1:7701 here"),
        (Header(3, 0, 5), GOOD, ELSEWHERE, "they are from peer 3, whose name has no address yet"),
        (Header(9, 0, 5), GOOD, ELSEWHERE, "they are from peer 9, which is no neighbour of this peer"),
        (Header(2, 0, 5), GOOD, HERE, "they are from peer 2, and this address is that of peer 1"),
        (Header(1, 7, 5), GOOD, HERE, "peer 1 sends them to peer 7, and this is peer 0"),
        (Header(9, 7, 5), GOOD, ELSEWHERE, "peer 9 sends them to peer 7, and this is peer 0"),
        (Header(0, 0, 5), GOOD, ELSEWHERE, "they are from another peer that has this peer's id"),
        (None, b"?", ELSEWHERE, "the sender is unknown, and it sent a datagram of 1 bytes that is not Wend's"),
        (
            None,
            GOOD[:2] + b"\x01" + GOOD[3:],
            ELSEWHERE,
            f"the sender is unknown, and it sent a datagram of version 1, this peer speaks version {wire.VERSION}",
        ),
    ],
)
def test_a_stranger_is_named_with_the_neighbour_that_may_be_meant(
    lines: list[str], header: Header | None, datagram: bytes, address: Address, why: str
) -> None:
    book = AddressBook(0)
    book.add(1, HERE)
    book.add(2, THERE)
    log = StrangerLog(0, book, {1, 2, 3}, StepClock())
    for _ in range(3):
        log.log_refused(header, datagram, address)
    assert lines == [f"peer 0 refuses datagrams from {format_address(address)}: {why}"]


def test_a_peer_whose_clock_was_set_back_is_named_when_it_goes_on(lines: list[str]) -> None:
    async def scene() -> None:
        clock = StepClock()
        peer = LivePeer(PeerConfig(peer=0, strategy="dcrd"), clock=clock)
        peer.add_peer(1, HERE)
        peer.start(Started((Neighbour(1, MS),)))

        def hear(incarnation: int) -> None:
            datagram = datagrams.encode(wire.make_header(1, 0, incarnation), Hello(incarnation, True))
            peer.receive(memoryview(datagram), HERE)

        hear(5)
        hear(4)  # a copy that was delayed
        clock.now += 60 * SECOND
        hear(4)
        assert [line for line in lines if "refuses" in line] == []
        clock.now += STALE_NS
        hear(4)
        hear(4)
        (line,) = [line for line in lines if "refuses" in line]
        assert "they are from an earlier incarnation of peer 1; the clock of its host was set back" in line
        peer.close()

    run(scene())


def test_the_lines_about_strangers_are_bounded(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "MAX_REMEMBERED", 5)
    clock = StepClock()
    log = StrangerLog(0, AddressBook(0), (), clock)
    for port in range(100):
        log.log_refused(Header(9, 0, 1), GOOD, ("192.0.2.9", port))
    assert len(lines) == strangers.LINES_PER_MINUTE
    clock.now = MINUTE
    log.log_refused(Header(9, 0, 1), GOOD, ("192.0.2.9", 99))
    assert len(lines) == strangers.LINES_PER_MINUTE + 1


def test_peers_that_are_wired_wrongly_say_so(lines: list[str]) -> None:
    async def scene() -> None:
        a, b = LivePeer(PeerConfig(peer=1)), LivePeer(PeerConfig(peer=2))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
            nobody.bind(("127.0.0.1", 0))
            wrong = nobody.getsockname()
            a.add_peer(2, b.address)
            b.add_peer(1, wrong)
            try:
                a.start(Started((Neighbour(2, MS),)))
                b.start(Started((Neighbour(1, MS),)))
                await until(lambda: b.counters.refused["stranger"] > 3)
            finally:
                a.close()
                b.close()
        named = f"peer 2 refuses datagrams from {format_address(a.address)}: they are from peer 1, whose address is "
        assert [line for line in lines if "refuses" in line] == [f"{named}{format_address(wrong)} here"]

    run(scene())


def test_link_changes_are_one_line_each(lines: list[str]) -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b):
            at = format_address(b.peer.address)
            await until(lambda: f"peer 0: link-up 1 ({at}), heard for the first time" in lines)
            for one, other in ((a, 1), (b, 0)):
                one.peer.pipes.cut(other)
            await until(lambda: any(line.startswith(f"peer 0: link-down 1 ({at}), silent for ") for line in lines))
            assert a.peer.status().links[0].changed_ns < SECOND
            for one, other in ((a, 1), (b, 0)):
                one.peer.pipes.heal(other)
            await until(lambda: any(line.startswith(f"peer 0: link-up 1 ({at}), after ") for line in lines))

    run(scene())


def test_the_log_of_links_says_how_long_and_is_bounded(lines: list[str]) -> None:
    clock = StepClock()
    links = {5: Link(5, MS, 1.0, PeerConfig(peer=1))}
    log = LinkLog(1, links, {5: THERE}, clock)
    links[5].declare_down()
    log.log_incarnation(5, restarted=False)
    assert not lines, "that the link is up is told next"
    clock.now = 160 * MS
    log.log_change(Notice("link-down", 5))
    clock.now += 2100 * MS
    assert log.link_age_ns(5) == 2100 * MS
    log.log_change(Notice("link-up", 5))
    log.log_incarnation(5, restarted=True)
    assert lines == [
        "peer 1: link-down 5 (192.0.2.2:7701), silent for 160 ms",
        "peer 1: link-up 5 (192.0.2.2:7701), after 2.1 s",
        "peer 1: restarted 5 (192.0.2.2:7701)",
    ]
    for _ in range(100):
        log.log_change(Notice("link-up", 5))
    assert len(lines) == link_log.LINES
    clock.now += link_log.PERIOD_NS
    del links[5]
    log.log_change(Notice("unlinked", 5))
    assert lines[link_log.LINES :] == [
        f"peer 1: {103 - link_log.LINES} more link changes were not logged",
        "peer 1: unlinked 5 (192.0.2.2:7701)",
    ]


def test_the_log_tells_a_neighbour_that_hears_nothing_from_one_that_is_silent(lines: list[str]) -> None:
    link = Link(5, MS, 1.0, PeerConfig(peer=1))
    link.on_hello(Hello(1, hearing=False))
    LinkLog(1, {5: link}, {5: THERE}, StepClock()).log_change(Notice("link-down", 5))
    assert lines == ["peer 1: link-down 5 (192.0.2.2:7701), it does not hear this peer"]
