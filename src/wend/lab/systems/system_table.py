"""The table of systems that `wend lab bench` can measure.

To add a system, write a class with the interface `system.System` and add one line to the table.
"""

from collections.abc import Callable
from functools import partial

from wend.lab.systems.mosquitto import MOSQUITTO
from wend.lab.systems.nats import NATS
from wend.lab.systems.system import System
from wend.lab.systems.udp import Udp
from wend.lab.systems.wend import Wend
from wend.lab.systems.zenoh import ZENOH

SYSTEMS: dict[str, Callable[[], System]] = {
    "udp-tree": partial(Udp, "tree"),
    "udp-two-path": partial(Udp, "two-path"),
    "udp-flood": partial(Udp, "flood"),
    "wend-dcrd": partial(Wend, "wend-dcrd", "dcrd"),
    "wend-none": partial(Wend, "wend-none", "adaptive", "none"),
    "wend": partial(Wend, "wend", "adaptive", "tight"),
    "wend-free": partial(Wend, "wend-free", "adaptive", "free"),
    "wend-sealed": partial(Wend, "wend-sealed", "adaptive", "tight", sealed=True),
    **NATS,
    **ZENOH,
    **MOSQUITTO,
}
