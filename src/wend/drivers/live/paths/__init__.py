"""Underlay paths of a live peer: the routers between it and another peer, by traceroute or from a file."""
