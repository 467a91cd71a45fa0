"""The routers between this peer and another, measured or from a file: what the live driver answers `FindPath` with.

| file | what |
| --- | --- |
| `book.py` | paths from a file |
| `trace.py` | one traceroute as a state machine: what to send next, what an answer means |
| `probes.py` | its socket: UDP with rising TTL, answers from the error queue |
| `program.py` | the system's `traceroute`, where there is no such socket |
| `names.py` | which of the routers' addresses are names that others may be compared with |
| `traced.py` | traces as paths: in threads, few at once, remembered for a while |
"""
