"""How a peer stands at this moment, as numbers under names, beside what it has counted.

links.5             1 while the link to peer 5 works as far as this peer can tell, else 0: before peer 5 is heard for
                    the first time; where the strategy probes, while peer 5 is silent or says that it does not hear
                    this one; where it does not, since a packet went unanswered and until peer 5 is heard again

and what its strategy has to say, as `mrst` and `spt-k`:

trees.generation    the trees that events from here go on: their number, and who called for them, in which life
trees.caller
trees.life
trees.0.5           tree 0 leads from here to peer 5
"""

from wend.protocol.link.link import Link
from wend.protocol.peer import Peer


def standing(peer: Peer) -> dict[str, int]:
    probes = peer.routing.traits.probes
    links = {f"links.{other}": int(_works(link, probes)) for other, link in sorted(peer.links.items())}
    return links | peer.routing.standing()


def _works(link: Link, probes: bool) -> bool:
    heard = link.incarnation > 0  # whoever was heard has said which life it lives
    return heard and link.up and link.heard_by_neighbour and (probes or not link.fails)
