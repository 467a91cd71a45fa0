"""A wide area on one machine: emulated links between network namespaces, for real processes on real sockets."""

from wend.lab.control import MARKER, Counter, Failure, Status, outages, read_failures
from wend.lab.network import Host, Lab, Removed, Way, clean

__all__ = [
    "Lab", "Host", "Way", "Counter", "Failure", "Status", "Removed", "MARKER", "clean", "outages", "read_failures",
]  # fmt: skip
