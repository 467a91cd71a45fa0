"""Memory of an idle simulated peer, by its number of links.

Each peer has started, its neighbours have acknowledged all control, and nothing else has happened. tracemalloc counts
what the peers allocate, without code and data that all peers share.

`python -m benchmarks.memory [strategy]`; with `--lines LINKS` it lists the lines that allocate most for so many links.
"""

import gc
import sys
import tracemalloc

from benchmarks.rows import Row
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Ack, Control
from wend.protocol.peer import Peer
from wend.protocol.ports import Neighbour, Received, Send, Started
from wend.strategies.registry import make_peer

STRATEGY = "d-tree"
LINKS = (0, 5, 20)
PEERS = 100
_APART = 64
_SHOWN = 30


def idle_peer(number: int, links: int, strategy: str = STRATEGY) -> Peer:
    """A peer with this many links, to silent neighbours."""
    peer = make_peer(PeerConfig(peer=number * _APART, strategy=strategy))
    neighbours = tuple(Neighbour(number * _APART + 1 + i, 10 * MS) for i in range(links))
    for effect in peer.handle(0, Started(neighbours)):
        if isinstance(effect, Send) and isinstance(effect.message, Control):
            peer.handle(20 * MS, Received(effect.peer, Ack(effect.message.tx)))
    return peer


def idle_kilobytes(links: int, strategy: str = STRATEGY, peers: int = PEERS) -> float:
    """How much memory one such peer takes, in kB of 1000 bytes."""
    return _measure(links, strategy, peers)[0]


def _measure(links: int, strategy: str, peers: int, shown: int = 0) -> tuple[float, list[str]]:
    first = [idle_peer(-1 - n, links, strategy) for n in range(peers)]  # fills the caches that all peers share
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        held = [idle_peer(n, links, strategy) for n in range(peers)]
        gc.collect()
        found = tracemalloc.take_snapshot().compare_to(before, "lineno")
    finally:
        tracemalloc.stop()
    lines = [f"{line.size_diff / peers:9.0f} B  {line.traceback}" for line in found[:shown]]
    total = sum(line.size_diff for line in found if line.traceback[0].filename != tracemalloc.__file__)
    del first, held
    return total / peers / 1000, lines


def rows() -> list[Row]:
    return [
        Row(f"memory.idle_{links}_links_kB", f"an idle peer with {links} links, kB", idle_kilobytes(links), None, True)
        for links in LINKS
    ]


def main() -> None:
    words = sys.argv[1:]
    if "--lines" in words:
        at = words.index("--lines")
        kilobytes, lines = _measure(int(words[at + 1]), words[0] if at else STRATEGY, PEERS, _SHOWN)
        print(f"{kilobytes:.1f} kB", *lines, sep="\n")
        return
    for links in LINKS:
        print(f"{links:3} links {idle_kilobytes(links, *words[:1]):9.1f} kB")


if __name__ == "__main__":
    main()
