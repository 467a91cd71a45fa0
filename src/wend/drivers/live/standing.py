"""How a peer stands at this moment, as numbers under names, beside what it has counted.

links.5             1 while the link to peer 5 is up, else 0

and what its strategy has to say, as `mrst` and `spt-k`:

trees.generation    the trees that events from here go on: their number, and who called for them, in which life
trees.caller
trees.life
trees.0.5           tree 0 leads from here to peer 5
"""

from wend.protocol.peer import Peer


def standing(peer: Peer) -> dict[str, int]:
    links = {f"links.{other}": int(link.up and link.hearing) for other, link in sorted(peer.links.items())}
    return links | peer.routing.standing()
