"""Routes on a ring of 5000 peers that is ready: hops, the time of one hop, and the memory of a peer's tables.

The reference for hops is the logarithm to the base 16 of the peers: a hop adds one digit of the key, at least.
"""

import math
import time
import tracemalloc

from benchmarks.rows import Row
from wend.model.events import PeerId
from wend.model.random_stream import peer_stream
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun
from wend.strategies.ring.pastry import Pastry
from wend.studies.settled_contacts import find_settled_contacts

PEERS = 5000
KEYS = 20_000


def measure() -> dict[str, float]:
    started = time.process_time()
    contacts = list(find_settled_contacts(range(PEERS), lambda _, some: some[0]))
    contacts_s = time.process_time() - started
    config = PeerConfig(peer=0, pastry_settled=True)
    tracemalloc.start()
    peers = [_peer(config.with_(peer=peer), known) for peer, known in contacts]
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    draw = peer_stream(1, "keys")
    asked = [(draw.getrandbits(128), draw.randrange(PEERS)) for _ in range(KEYS)]
    started = time.process_time()
    hops = sum(_count_hops(peers, key, start) for key, start in asked)
    route_s = time.process_time() - started
    return {
        "hops": hops / KEYS,
        "hop_us": route_s / (hops + KEYS) * 1e6,
        "peer_kb": memory / PEERS / 1024,
        "contacts_s": contacts_s,
    }


def _peer(config: PeerConfig, contacts: tuple[PeerId, ...]) -> Pastry:
    made = Pastry(config)
    made.handle(0, Begun(contacts))
    return made


def _count_hops(peers: list[Pastry], key: int, start: PeerId) -> int:
    hops, at = 0, start
    while (hop := peers[at].next_hop(key)) != at:
        hops, at = hops + 1, hop
    return hops


def rows() -> list[Row]:
    found = measure()
    return [
        Row("rings.hops", "hops to a key, 5000 peers (log16)", found["hops"], math.log(PEERS, 16), True),
        Row("rings.hop_us", "the next hop of a key, us", found["hop_us"]),
        Row("rings.peer_kb", "a peer of a ring, kB", found["peer_kb"]),
        Row("rings.contacts_s", "contacts of a ready ring of 5000, s", found["contacts_s"]),
    ]
