"""Network namespaces: made, entered, set up and emptied with few processes.

`ip` reads a batch where a call per address or route would take seconds; a setting is written by this very thread,
which steps into the namespace and back, since /proc/sys/net shows the namespace of who looks.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wend.lab.addresses import Host, Route, lab_of
from wend.model.errors import LabError

NETNS = Path("/run/netns")
MTU = 1500
_QUEUE_PACKETS = 4000  # between a host and the emulator, for when it is busy elsewhere
_GROUP = 7
_CLONE_NEWNET = 0x40000000
_ENDING_S = 5.0

# A lab is a wide area, not an office: everyone forwards, routes need not be symmetric, routers answer every
# traceroute, and ports from 32768 on are those that the kernel gives to clients.
SETTINGS = {
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
    "ipv4/ip_forward": "1",
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    "ipv4/conf/all/send_redirects": "0",
    "ipv4/conf/default/send_redirects": "0",
    "ipv4/icmp_ratelimit": "0",
    "ipv4/icmp_msgs_per_sec": "1000000",
    "ipv4/icmp_msgs_burst": "1000000",
    "ipv4/ip_local_port_range": "32768 60999",
}

_libc = ctypes.CDLL(None, use_errno=True)


def existing() -> list[str]:
    """The namespaces of all labs."""
    try:
        return sorted(name for name in os.listdir(NETNS) if lab_of(name))
    except OSError:
        return []


def make(names: Iterable[str]) -> None:
    _ip([], [f"netns add {name}" for name in names])


def delete(names: Iterable[str]) -> None:
    names = tuple(names)
    try:
        _ip(["-force"], [f"netns del {name}" for name in names])
    except LabError as error:
        # Where making it was interrupted there is a file and no namespace behind it: then only the file is removed.
        for name in names:
            try:
                (NETNS / name).unlink(missing_ok=True)
            except OSError:
                raise error from None


def unplug(names: Iterable[str]) -> None:
    """Remove the devices, all of a namespace in one step: when the emulator closes them one by one it takes seconds."""
    for name in names:
        with suppress(LabError):  # in a lab that was half made there may be none, or no namespace
            _ip(["-n", name], [f"link del group {_GROUP}"])


def prepare(host: Host) -> None:
    """What must be so before the namespace has devices: they take over the defaults."""
    with inside(host.namespace):
        for name, value in SETTINGS.items():
            try:
                Path("/proc/sys/net", name).write_text(value)
            except FileNotFoundError:
                pass  # kernels differ in what they let a namespace decide
            except OSError as error:
                raise LabError(f"this system does not let root set net/{name}: {error.strerror}") from None


def connect(host: Host, routes: Iterable[Route]) -> None:
    lines = ["link set lo up", f"addr add {host.address}/32 dev lo"]
    for way in host.ways:
        lines.append(f"addr add {way.local}/30 dev {way.device}")
        lines.append(f"link set {way.device} mtu {MTU} txqueuelen {_QUEUE_PACKETS} group {_GROUP} up")
    lines += [f"route add {r.target} via {r.via} dev {r.device} src {host.address}" for r in routes]
    _ip(["-n", host.namespace], lines)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread is in the namespace, and then back: sockets that it opens within stay there."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            wanted = os.open(NETNS / namespace, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise LabError(f"there is no network namespace {namespace}") from None
        try:
            _enter(wanted)
        finally:
            os.close(wanted)
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


def command(namespace: str, argv: Iterable[str]) -> list[str]:
    """What to execute so that `argv` runs in the namespace, as the very process that is started."""
    return [require("nsenter"), f"--net={NETNS / namespace}", "--", *argv]


def end_processes(names: Iterable[str]) -> int:
    """Kill what still lives in the namespaces, and wait until it is gone; how many there were."""
    names = tuple(names)
    killed: set[int] = set()
    until = time.monotonic() + _ENDING_S
    while found := _living(names):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        if time.monotonic() > until:
            raise LabError(f"process {min(found)} in a namespace of the lab does not end")
        time.sleep(0.01)
    return len(killed)


def _living(names: Iterable[str]) -> set[int]:
    """Processes in these namespaces, this one apart. A process that has ended but was not waited for has none."""
    wanted = set()
    for name in names:
        with suppress(OSError):
            seen = os.stat(NETNS / name)
            wanted.add((seen.st_dev, seen.st_ino))
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                seen = os.stat(f"/proc/{entry}/ns/net")
                if (seen.st_dev, seen.st_ino) in wanted:
                    found.add(int(entry))
    return found


def _enter(file: int) -> None:
    if _libc.setns(file, _CLONE_NEWNET) != 0:
        raise LabError(f"cannot enter a network namespace: {os.strerror(ctypes.get_errno())}")


def _ip(options: list[str], lines: list[str]) -> None:
    if not lines:
        return
    given = "\n".join(lines) + "\n"
    done = subprocess.run(
        [require("ip"), *options, "-batch", "-"], input=given, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise LabError(f"ip could not set up the network: {said}")


def require(program: str) -> str:
    """Where a program is. System programs may be where an ordinary PATH does not look."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
    found = shutil.which(program, path=places)
    if found is None:
        hint = {"ip": "iproute2", "cc": "gcc", "nsenter": "util-linux"}.get(program, program)
        raise LabError(f"a lab needs the program {program!r}: install {hint}")
    return found
