"""The system's `traceroute`, for systems whose sockets do not show who sent an ICMP error."""

import ipaddress
import os
import re
import shutil
import subprocess
import threading

from wend.drivers.live.addresses import Address
from wend.drivers.live.paths.trace import Settings, Traced
from wend.model.units import SECOND

_LINE = re.compile(r"^ *(\d+) +(\S.*)$", re.MULTILINE)
_SETTINGS = Settings()
_LOOK_S = 0.1


def where() -> str | None:
    """It may be where an ordinary PATH does not look."""
    return shutil.which("traceroute", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def trace(target: Address, stopped: threading.Event, settings: Settings = _SETTINGS) -> Traced:
    """Blocks, until it is done or stopped. Raises `OSError` where the program is missing or refuses."""
    wait_s = max(1, round(settings.wait_ns / SECOND))
    words = ["-n", "-q", str(settings.tries), "-w", str(wait_s), "-m", str(settings.hops), target[0]]
    call = [where() or "traceroute", *(["-6"] if ":" in target[0] else []), *words]
    with subprocess.Popen(
        call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        while True:
            try:
                said, complaint = process.communicate(timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if stopped.is_set():
                    process.kill()
    if process.returncode != 0 and not stopped.is_set():
        raise OSError(f"traceroute refused: {' '.join(complaint.split()) or process.returncode}")
    return read(said, target[0])


def read(said: str, target: str) -> Traced:
    """What the program printed: a line per hop, its number and then addresses, times, `*`, or `!H` and the like."""
    hops: list[str | None] = []
    sent = answers = 0
    for number, rest in _LINE.findall(said):
        if int(number) != len(hops) + 1:
            continue  # no line of a hop
        words = rest.split()
        answers += words.count("ms")
        sent += words.count("ms") + words.count("*")
        router = next((word for word in words if _is_address(word)), None)
        if router == target:
            return Traced(tuple(hops), True, sent, answers)
        hops.append(router)
    while hops and hops[-1] is None:
        hops.pop()
    return Traced(tuple(hops), False, sent, answers)


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True
