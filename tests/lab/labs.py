"""Helpers of the lab's tests: small networks, unique names, and the conditions for a lab."""

import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from wend.lab import Lab
from wend.lab.address_plan import Interface, find_lab_name
from wend.lab.emulator import find_running_emulators
from wend.lab.lab_state import RUN
from wend.lab.namespaces import list_lab_namespaces
from wend.model.units import MS
from wend.topology.graph import Overlay, OverlayLink

PORT = 7000


def _missing() -> str:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "a lab needs root"
    if not Path("/dev/net/tun").exists():
        return "a lab needs /dev/net/tun"
    lacking = [program for program in ("ip", "nsenter", "cc") if shutil.which(program) is None]
    if lacking:
        return f"a lab needs {lacking[0]}"
    tried = f"wend-{uuid.uuid4().hex[:8]}-0"  # root in a container may lack the permission
    if subprocess.run(["ip", "netns", "add", tried], capture_output=True, check=False).returncode != 0:
        return "this system does not allow network namespaces"
    subprocess.run(["ip", "netns", "del", tried], capture_output=True, check=False)
    return ""


_REASON = _missing()
needs_lab = pytest.mark.skipif(bool(_REASON), reason=_REASON or "-")


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


def a_name() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


def pair(delay_ms: float = 10.0, loss: float = 0.0) -> Overlay:
    return Overlay(2, [OverlayLink(0, 1, round(delay_ms * MS), loss)])


def triangle() -> Overlay:
    """The path 0-1-2 is shorter than the link 0-2."""
    return Overlay(3, [OverlayLink(0, 1, 5 * MS), OverlayLink(0, 2, 30 * MS), OverlayLink(1, 2, 8 * MS)])


def remains(name: str) -> list[str]:
    """The namespaces, emulator and folder of a lab, as far as they exist."""
    found = [f"namespace {space}" for space in list_lab_namespaces() if find_lab_name(space) == name]
    found += [f"emulator {pid}" for pid, place in find_running_emulators() if Path(place) == RUN / name]
    return found + ([f"folder {RUN / name}"] if (RUN / name).exists() else [])


def ends(lab: Lab, a: int, b: int) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, one at each end of the link between two neighbours."""
    return _end(lab, a, b), _end(lab, b, a)


def interface(lab: Lab, here: int, there: int) -> Interface:
    return next(w for w in lab.nodes[here].interfaces if w.neighbour == there)


def _end(lab: Lab, here: int, there: int) -> socket.socket:
    through = interface(lab, here, there)
    with lab.inside(here):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((through.local, PORT))
    made.connect((through.remote, PORT))
    made.settimeout(5.0)
    return made


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.01)


def sent(lab: Lab, port: int = PORT) -> int:
    """The number of packets put on links."""
    return sum(c.packets for c in lab.counters() if c.port == port)
