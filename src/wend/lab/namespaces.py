"""Network namespaces: creates, configures, enters and deletes them.

`ip` reads a batch of lines, since one call per address or route would take seconds. To write a kernel setting, this
thread enters the namespace: /proc/sys/net shows the namespace of the thread that opens it.
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

from wend.lab.address_plan import LabNode, StaticRoute, find_lab_name
from wend.model.errors import LabError

NETNS = Path("/run/netns")
MTU = 1500
_QUEUE_PACKETS = 4000  # between a host and the emulator, while the emulator is busy
_GROUP = 7
_CLONE_NEWNET = 0x40000000
_ENDING_S = 5.0

# Settings of a wide-area network: every node forwards, routes may be asymmetric, routers answer every traceroute,
# and the kernel gives ports from 32768 on to clients.
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


def list_lab_namespaces() -> list[str]:
    """The namespaces of all labs."""
    try:
        return sorted(name for name in os.listdir(NETNS) if find_lab_name(name))
    except OSError:
        return []


def make_namespaces(names: Iterable[str]) -> None:
    _run_ip([], [f"netns add {name}" for name in names])


def delete_namespaces(names: Iterable[str]) -> None:
    names = tuple(names)
    try:
        _run_ip(["-force"], [f"netns del {name}" for name in names])
    except LabError as error:
        # If `ip netns add` was interrupted there is a file without a namespace: remove the file.
        for name in names:
            try:
                (NETNS / name).unlink(missing_ok=True)
            except OSError:
                raise error from None


def remove_devices(names: Iterable[str]) -> None:
    """Remove all devices of a namespace in one step. The emulator would take seconds to close them one by one."""
    for name in names:
        with suppress(LabError):  # an incomplete lab may lack devices or namespaces
            _run_ip(["-n", name], [f"link del group {_GROUP}"])


def write_kernel_settings(host: LabNode) -> None:
    """Write the kernel settings. Call it before the namespace has devices: they copy the defaults."""
    with inside(host.namespace):
        for name, value in SETTINGS.items():
            try:
                Path("/proc/sys/net", name).write_text(value)
            except FileNotFoundError:
                pass  # not every kernel has every setting per namespace
            except OSError as error:
                raise LabError(f"this system does not let root set net/{name}: {error.strerror}") from None


def configure_devices(host: LabNode, routes: Iterable[StaticRoute]) -> None:
    """Give the devices their addresses, set them up and add the routes."""
    lines = ["link set lo up", f"addr add {host.address}/32 dev lo"]
    for interface in host.interfaces:
        lines.append(f"addr add {interface.local}/30 dev {interface.device}")
        lines.append(f"link set {interface.device} mtu {MTU} txqueuelen {_QUEUE_PACKETS} group {_GROUP} up")
    lines += [f"route add {r.target} via {r.via} dev {r.device} src {host.address}" for r in routes]
    _run_ip(["-n", host.namespace], lines)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Move this thread into the namespace, and back at the end. Sockets opened meanwhile stay in the namespace."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            target = os.open(NETNS / namespace, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise LabError(f"there is no network namespace {namespace}") from None
        try:
            _enter(target)
        finally:
            os.close(target)
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


def wrap_command(namespace: str, argv: Iterable[str]) -> list[str]:
    """The command line that runs `argv` in the namespace, in the same process."""
    return [find_program("nsenter"), f"--net={NETNS / namespace}", "--", *argv]


def end_processes(names: Iterable[str]) -> int:
    """Kill all processes in the namespaces and wait for their end. Returns how many there were."""
    names = tuple(names)
    killed: set[int] = set()
    until = time.monotonic() + _ENDING_S
    while pids := _find_processes(names):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= pids
        if time.monotonic() > until:
            raise LabError(f"process {min(pids)} in a namespace of the lab does not end")
        time.sleep(0.01)
    return len(killed)


def _find_processes(names: Iterable[str]) -> set[int]:
    """The processes in these namespaces, except this one. A zombie is in no namespace."""
    spaces = set()
    for name in names:
        with suppress(OSError):
            file = os.stat(NETNS / name)
            spaces.add((file.st_dev, file.st_ino))
    pids = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                file = os.stat(f"/proc/{entry}/ns/net")
                if (file.st_dev, file.st_ino) in spaces:
                    pids.add(int(entry))
    return pids


def _enter(file: int) -> None:
    if _libc.setns(file, _CLONE_NEWNET) != 0:
        raise LabError(f"cannot enter a network namespace: {os.strerror(ctypes.get_errno())}")


def _run_ip(options: list[str], lines: list[str]) -> None:
    if not lines:
        return
    batch = "\n".join(lines) + "\n"
    result = subprocess.run(
        [find_program("ip"), *options, "-batch", "-"], input=batch, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        why = " ".join(result.stderr.split()) or f"exit code {result.returncode}"
        raise LabError(f"ip could not set up the network: {why}")


def find_program(program: str) -> str:
    """The path of a program. Also searches the folders of system programs, which PATH may lack."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
    path = shutil.which(program, path=places)
    if path is None:
        hint = {"ip": "iproute2", "cc": "gcc", "nsenter": "util-linux"}.get(program, program)
        raise LabError(f"a lab needs the program {program!r}: install {hint}")
    return path
