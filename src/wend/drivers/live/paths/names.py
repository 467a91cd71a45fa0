"""From the addresses of a trace to the names of a path.

An address is a name as long as nobody else has it. Private ones (10.0.0.1 and the like) are given again in every
network, so:

- Where the other peer itself is reached by a private address, both live in one network with one plan of addresses,
  and its routers' addresses are names.
- Else they are not. Those at this end of the way are left out: nobody else sees them, and the first router that all see
  stands for this peer's. Those further on are routers without a name.

A router is named where it answered first: a way has no circles. A path without any router (peers on one link)
is one router without a name, and a path that ends on the way ends with one.
"""

import ipaddress
from itertools import dropwhile

from wend.drivers.live.paths.trace import Traced
from wend.model.paths import Path
from wend.protocol.membership.paths import UNKNOWN


def named(traced: Traced, target: str) -> Path:
    hops = list(traced.hops)
    if is_public(target):
        hops = list(dropwhile(lambda hop: hop is not None and not is_public(hop), hops))
        hops = [hop if hop is None or is_public(hop) else None for hop in hops]
    first = {hop: place for place, hop in reversed(list(enumerate(hops)))}
    path = tuple(hop if first[hop] == place else None for place, hop in enumerate(hops))
    return (path or UNKNOWN) if traced.reached else (*path, None)


def is_public(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global
