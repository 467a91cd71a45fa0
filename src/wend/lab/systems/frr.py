"""FRR (zebra, ospfd, bfdd) in every namespace: IP routing for a system that does not route around failures itself."""

import asyncio
import shutil
import time
from pathlib import Path

from wend.lab.address_plan import LabNode
from wend.lab.systems.system import Processes, RunContext, find_missing_program, read_first_line, write_config
from wend.model.errors import LabError
from wend.model.units import MS

BIN = "/usr/lib/frr"
CONVERGE_S = 60.0
DAEMONS = ("zebra", "bfdd", "ospfd")
BFD_MS = 50
"""FRR's default is 300, which detects a silent link hardly sooner than OSPF's own hellos."""
TUNED_BFD_MS = 30
"""Deadlines are about 100 ms, so fast detection counts. Two cores suffice for twenty hosts at this interval."""
_INTERFACE = """interface {device}
 ip ospf area 0
 ip ospf network point-to-point
 ip ospf cost {cost}
 ip ospf dead-interval minimal hello-multiplier 4
 ip ospf retransmit-interval 2
 ip ospf bfd
 ip ospf bfd profile lab
exit
"""


class Frr:
    """The three daemons on every host, among the processes of the system that needs them."""

    def __init__(self, processes: Processes, *, tuned: bool = False) -> None:
        self.bfd_ms = TUNED_BFD_MS if tuned else BFD_MS
        self._processes = processes

    def missing(self) -> str | None:
        return find_missing_program(DAEMONS, "frr")

    def version(self) -> str:
        return read_first_line([f"{BIN}/zebra", "--version"]).removeprefix("zebra version ")

    async def start(self, context: RunContext) -> None:
        context.folder.chmod(0o711)
        for host in context.lab.hosts:
            folder = context.folder / f"frr-{host.number}"
            folder.mkdir()
            shutil.chown(folder, "frr", "frr")  # the daemons switch to this user
            for daemon in DAEMONS:
                config = write_config(
                    context, f"frr-{daemon}.conf", f"frr-{host.number}/{daemon}.conf", **self.template_values(host)
                )
                argv = [f"{BIN}/{daemon}", "-f", str(config), "-i", str(folder / f"{daemon}.pid")]
                argv += ["-z", str(folder / "zserv"), "--vty_socket", str(folder), "-P", "0"]
                argv += ["--log", "stdout", "--log-level", "warnings"]
                argv += ["--bfdctl", str(folder / "bfdd.sock")] if daemon == "bfdd" else []
                self._processes.spawn(context, host, argv, daemon)

        give_up = time.monotonic() + CONVERGE_S
        while any(_count_routes(context, host) < len(context.lab.hosts) - 1 for host in context.lab.hosts):
            self._processes.check_running()
            if time.monotonic() > give_up:
                raise LabError(f"OSPF did not find all hosts within {CONVERGE_S:g} s")
            await asyncio.sleep(0.2)

    def template_values(self, host: LabNode) -> dict[str, object]:
        """The values for the configuration templates of the daemons."""
        return {
            "id": host.number,
            "address": host.address,
            "interval": self.bfd_ms,
            "interfaces": interface_config(host),
        }


def interface_config(host: LabNode) -> str:
    """The interface sections of ospfd.conf. The cost of a link is its delay in tenths of a millisecond."""
    return "".join(
        _INTERFACE.format(device=interface.device, cost=max(1, round(10 * interface.delay_ns / MS)))
        for interface in host.interfaces
    )


def _count_routes(context: RunContext, host: LabNode) -> int:
    """Count the other hosts to which there is a route. The kernel prints addresses in reverse, so 10.255 comes last."""
    with context.lab.inside(host.number):
        lines = Path("/proc/thread-self/net/route").read_text().splitlines()[1:]
    return sum(line.split()[1].endswith("FF0A") for line in lines)
