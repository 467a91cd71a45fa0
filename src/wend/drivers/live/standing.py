"""How a peer stands at this moment, as numbers under names, beside what it has counted.

links.5             1 while the link to peer 5 is up, else 0
trees.generation    the trees that events from here go on: their number, and who called for them
trees.caller
trees.0.5           tree 0 leads from here to peer 5
"""

from wend.protocol.peer import Peer
from wend.protocol.routing.on_trees import OnTrees


def standing(peer: Peer) -> dict[str, int]:
    found = {f"links.{other}": int(link.up and link.hearing) for other, link in sorted(peer.links.items())}
    serving = peer.routing.serving if isinstance(peer.routing, OnTrees) else None
    if serving is not None:
        (number, caller), trees = serving
        found |= {"trees.generation": number, "trees.caller": caller}
        found |= {f"trees.{tree}.{other}": 1 for tree, others in enumerate(trees) for other in others}
    return found
