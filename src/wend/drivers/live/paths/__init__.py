"""Underlay paths of a live peer: the routers between it and another peer, by traceroute or from a file.

The live driver answers `FindPath` with them.

| file | content |
| --- | --- |
| `source.py` | the interface `PathSource`, and the choice of one by name |
| `searches.py` | the searches that a peer has under way |
| `table.py` | paths from a file |
| `trace.py` | one traceroute as a state machine: the next probe, the meaning of an answer |
| `probes.py` | the socket of a traceroute: UDP with rising TTL, ICMP errors from the error queue |
| `program.py` | the system's `traceroute`, for systems without such an error queue |
| `names.py` | the addresses of routers as names that peers can compare |
| `traced.py` | traceroutes in threads, with a limit and a cache |
"""
