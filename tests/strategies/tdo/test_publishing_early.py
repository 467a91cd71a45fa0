"""A peer that publishes before it has joined says so."""

from wend.model.publication import Publication
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Notice, Started
from wend.strategies.registry import make_peer


def test_a_peer_without_links_publishes_early() -> None:
    joining = make_peer(PeerConfig(peer=0, membership="tdo-random"))
    joining.handle(0, Started(()))
    assert Notice("published-early", 0) in joining.handle(0, Publication({"topic": "t"}))
