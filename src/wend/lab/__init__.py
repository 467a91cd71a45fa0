"""An emulated wide-area network on one machine: network namespaces joined by links that delay, lose and fail."""

from wend.lab.address_plan import Interface, LabNode
from wend.lab.emulator_control import MARKER, EmulatorStatus, LinkChange, LinkCounter, outages, read_failures
from wend.lab.lab import Lab
from wend.lab.lab_state import RemovedLabs, clean

__all__ = [
    "Lab", "LabNode", "Interface", "LinkCounter", "LinkChange", "EmulatorStatus", "RemovedLabs", "MARKER",
    "clean", "outages", "read_failures",
]  # fmt: skip
