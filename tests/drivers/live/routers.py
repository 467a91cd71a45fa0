"""A line of routers between two hosts: network namespaces joined by veth devices. Needs root."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wend.lab import namespaces
from wend.model.errors import LabError

SETTINGS = {"ip_forward": "1", "icmp_ratelimit": "0", "conf/all/rp_filter": "0", "conf/default/rp_filter": "0"}


def _ip(*lines: str, space: str | None = None) -> None:
    within = [] if space is None else ["-n", space]
    call = ["ip", *within, "-batch", "-"]
    subprocess.run(call, input="\n".join(lines) + "\n", text=True, capture_output=True, check=True)


class Line:
    """Host 0, routers 1 to n, host n + 1. Node i reaches node j by 10.77.i.2 if j > i, else by 10.77.(i - 1).1."""

    def __init__(self, routers: int) -> None:
        self.prefix = f"tr-{os.getpid()}-{uuid.uuid4().hex[:4]}-"
        self.last = routers + 1
        self.names = [f"{self.prefix}{node}" for node in range(routers + 2)]

    def up(self) -> None:
        namespaces.make_namespaces(self.names)
        for name in self.names:
            with namespaces.inside(name):
                for setting, value in SETTINGS.items():
                    Path("/proc/sys/net/ipv4", setting).write_text(value)
        for left, (a, b) in enumerate(zip(self.names, self.names[1:], strict=False)):
            _ip(f"link add east type veth peer name west netns {b}", space=a)
            _ip("link set lo up", "link set east up", f"addr add 10.77.{left}.1/24 dev east", space=a)
            _ip("link set lo up", "link set west up", f"addr add 10.77.{left}.2/24 dev west", space=b)
        for node, name in enumerate(self.names):
            right = [f"route add 10.77.{net}.0/24 via 10.77.{node}.2" for net in range(node + 1, self.last)]
            left = [f"route add 10.77.{net}.0/24 via 10.77.{node - 1}.1" for net in range(node - 1)]
            if right or left:
                _ip(*right, *left, space=name)

    def down(self) -> None:
        namespaces.delete_namespaces(self.names)

    def address(self, node: int, from_: int) -> str:
        """The address at which node `from_` reaches `node`."""
        return f"10.77.{node}.1" if from_ > node else f"10.77.{node - 1}.2"

    def silence(self, router: int) -> None:
        """Drop the ICMP messages of a router; it still forwards."""
        _ip("rule add pref 5 iif lo ipproto icmp blackhole", space=self.names[router])

    def silent(self, router: int) -> bool:
        call = ["ip", "-n", self.names[router], "rule"]
        return "blackhole" in subprocess.run(call, capture_output=True, text=True, check=True).stdout


@contextmanager
def line(routers: int) -> Iterator[Line]:
    made = Line(routers)
    try:
        made.up()
        yield made
    finally:
        made.down()


def _missing() -> str:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "routers in namespaces need root"
    try:
        with line(1):
            return ""
    except (LabError, OSError, subprocess.CalledProcessError) as error:
        return f"this system does not allow routers in namespaces: {error}"


_REASON = _missing()
needs_routers = pytest.mark.skipif(bool(_REASON), reason=_REASON or "-")
