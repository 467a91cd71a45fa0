"""An emulated wide-area network on one machine: network namespaces joined by links that delay, lose and fail."""

from wend.lab.emulated_network import Interface, Lab, LabNode, Removed, clean
from wend.lab.emulator_control import MARKER, EmulatorStatus, LinkChange, LinkCounter, outages, read_failures

__all__ = [
    "Lab", "LabNode", "Interface", "LinkCounter", "LinkChange", "EmulatorStatus", "Removed", "MARKER",
    "clean", "outages", "read_failures",
]  # fmt: skip
