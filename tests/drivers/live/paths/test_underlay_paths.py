"""Live peers that know the underlay paths of their links."""

import pytest

from tests.drivers.live import datagrams
from wend.drivers.live.config import PeerFile
from wend.drivers.live.transport import wire
from wend.protocol.config import LinkSettings
from wend.protocol.messages import Control
from wend.protocol.plugins import LINK_STATE
from wend.strategies.link_state.plugin import LinkState

TYPES = wire.MessageTypes({LINK_STATE: LinkState}, None)


@pytest.mark.parametrize(("paths", "traces"), [(None, False), ("none", False), ("book.txt", True)])
def test_a_peer_traces_its_links_where_it_is_told_how(paths: str | None, traces: bool) -> None:
    assert PeerFile(id=1, paths=paths).peer_config(1).of(LinkSettings).trace_paths == traces


def test_paths_travel_with_their_holes_and_cost_nothing_where_there_are_none() -> None:
    links = ((2, 10, 1.0), (3, 10, 0.5))
    plain = Control(1, LINK_STATE, LinkState(1, (1, 1), links))
    traced = Control(1, LINK_STATE, LinkState(1, (1, 1), links, (("192.0.2.1", None, 7), ())))
    head = wire.make_header(1, 2, 1)
    assert b"paths" not in datagrams.encode(head, plain)
    for message in (plain, traced):
        assert datagrams.decode(datagrams.encode(head, message), TYPES).message == message
