"""Converts the addresses of a traceroute into the router names of a path.

Peers compare paths by router names, so a name must be unique. Private addresses (10.0.0.1 and the like) exist in
many networks:

- If the target has a private address, both peers are in the same private network, and its addresses are unique there.
- If the target has a public address, private addresses are no names. The path omits them at this peer's end, where no
  other peer sees them: it starts at the first public router. Further on they are routers without a name.

If an address answers at several hops, only the first hop has the name: a path has no loops. A path without routers
(both peers on one link) becomes one router without a name. A path that does not reach the target ends with one.
"""

import ipaddress
from itertools import dropwhile

from wend.drivers.live.paths.trace import TracerouteResult
from wend.model.paths import UNKNOWN, Path


def named(traced: TracerouteResult, target: str) -> Path:
    """The path to `target`, with None for routers without a name."""
    hops = list(traced.hops)
    if is_public(target):
        hops = list(dropwhile(lambda hop: hop is not None and not is_public(hop), hops))
        hops = [hop if hop is None or is_public(hop) else None for hop in hops]
    first = {hop: place for place, hop in reversed(list(enumerate(hops)))}
    path = tuple(hop if first[hop] == place else None for place, hop in enumerate(hops))
    return (path or UNKNOWN) if traced.reached else (*path, None)


def is_public(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global
