"""The systems that `wend lab bench` can measure, one file each; the table is at the end.

A system is added by one class with the shape of `base.System` and one line in the table.
"""

from collections.abc import Callable
from functools import partial

from wend.lab.systems.base import System
from wend.lab.systems.mosquitto import MOSQUITTO
from wend.lab.systems.nats import NATS
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
    **NATS,
    **ZENOH,
    **MOSQUITTO,
}
