"""How a peer is at this moment, as numbers under names, beside what it has counted.

links.5             1 while the link to peer 5 works as far as this peer can tell, else 0: before peer 5 is heard for
                    the first time; where the strategy probes, while peer 5 is silent or says that it does not hear
                    this one; where it does not, since a packet went unanswered and until peer 5 is heard again

and the sections of its plug-ins, as those of `mrst` and `spt-k`:

trees.generation    the trees that events from here use: their number, who called for them, in which incarnation
trees.caller
trees.incarnation
trees.0.5           tree 0 leads from here to peer 5
"""

from wend.protocol.peer import Peer


def standing(peer: Peer) -> dict[str, int]:
    status = peer.status()
    found = {f"links.{link.peer}": int(link.up) for link in status.links}
    for section in status.plugins.values():
        found |= section
    return found
