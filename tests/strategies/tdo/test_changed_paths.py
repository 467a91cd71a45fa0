"""A link that takes another underlay path: its peer tells all others."""

from wend.model.paths import Path
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Control, PlainMessage
from wend.protocol.ports import Neighbour, Received, Send, Started
from wend.strategies.link_state.plugin import LinkState
from wend.strategies.registry import make_peer
from wend.strategies.tdo.messages import Adopt, Gossip, Shuffle


def test_when_a_link_takes_another_path_its_peer_says_so() -> None:
    peer = make_peer(PeerConfig(peer=3, strategy="adaptive", trace_paths=True, membership="tdo-landmark"))
    peer.handle(0, Started((Neighbour(1, MS),)))
    peer.handle(0, Received(1, PlainMessage("tdo-landmark", Shuffle((), Gossip(landmarks=((1, 1),)), True))))

    def told(path: Path) -> list[tuple[Path, ...]]:
        effects = peer.handle(0, Received(1, PlainMessage("tdo-landmark", Adopt(1, path, ()))))
        bodies = [e.message.body for e in effects if isinstance(e, Send) and isinstance(e.message, Control)]
        return [body.paths for body in bodies if isinstance(body, LinkState) and body.origin == 3]

    assert told((10, 14, 15))[-1] == ((15, 14, 10),)
    assert told((10, 14, 15)) == []
    assert told((10, 18, 15)) == [((15, 18, 10),)]
    assert peer.links[1].path == (15, 18, 10)
