"""Runs the system's `traceroute`, for systems whose sockets do not report the sender of an ICMP error."""

import os
import re
import shutil
import subprocess
import threading

from wend.drivers.live.addressing.addresses import Address, is_numeric_address
from wend.drivers.live.paths.traceroute import TracerouteResult, TracerouteSettings
from wend.model.units import SECOND

_LINE = re.compile(r"^ *(\d+) +(\S.*)$", re.MULTILINE)
_SETTINGS = TracerouteSettings()
_LOOK_S = 0.1


def find_program() -> str | None:
    """The path of the program. Also searches the folders of system programs, which PATH may lack."""
    return shutil.which("traceroute", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def run_traceroute(
    target: Address, stopped: threading.Event, settings: TracerouteSettings = _SETTINGS
) -> TracerouteResult:
    """Run the program, until it ends or `stopped` is set. Raises `OSError` if it is missing or fails."""
    wait_s = max(1, round(settings.wait_ns / SECOND))
    options = ["-n", "-q", str(settings.tries), "-w", str(wait_s), "-m", str(settings.hops), target[0]]
    call = [find_program() or "traceroute", *(["-6"] if ":" in target[0] else []), *options]
    with subprocess.Popen(
        call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        while True:
            try:
                output, complaint = process.communicate(timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if stopped.is_set():
                    process.kill()
    if process.returncode != 0 and not stopped.is_set():
        raise OSError(f"traceroute failed: {' '.join(complaint.split()) or process.returncode}")
    return parse_output(output, target[0])


def parse_output(output: str, target: str) -> TracerouteResult:
    """Parse the output: a line per hop with its number, then addresses, times, `*`, or `!H` and the like."""
    hops: list[str | None] = []
    sent = answers = 0
    for number, rest in _LINE.findall(output):
        if int(number) != len(hops) + 1:
            continue  # not the line of a hop
        fields = rest.split()
        answers += fields.count("ms")
        sent += fields.count("ms") + fields.count("*")
        router = next((field for field in fields if is_numeric_address((field, 0))), None)
        if router == target:
            return TracerouteResult(tuple(hops), True, sent, answers)
        hops.append(router)
    while hops and hops[-1] is None:
        hops.pop()
    return TracerouteResult(tuple(hops), False, sent, answers)
