"""An emulated wide-area network on one machine: network namespaces joined by links that delay, lose and fail."""

from wend.lab.control import MARKER, EmulatorStatus, LinkChange, LinkCounter, outages, read_failures
from wend.lab.network import Interface, Lab, LabNode, Removed, clean

__all__ = [
    "Lab", "LabNode", "Interface", "LinkCounter", "LinkChange", "EmulatorStatus", "Removed", "MARKER",
    "clean", "outages", "read_failures",
]  # fmt: skip
