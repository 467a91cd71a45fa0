"""Wend: content-based publish/subscribe over wide-area overlays, reliably and on time while links fail.

    async with wend.connect("wend://127.0.0.1:7700") as client:
        receipt = await client.publish({"topic": "stuttgart", "temperature": 15}, b"payload")

    print(wend.simulate(wend.Scenario(strategy="adaptive", duration="60s")).summary.on_time)

`docs/how-to/python.md` describes the rest. Python loads the names below when a program first uses them, so `import
wend` costs nothing.
"""

from wend.model.version import __version__

TYPE_CHECKING = False
"""True for type checkers. The module `typing` would take most of the time that `import wend` takes."""

if TYPE_CHECKING:
    from wend.drivers.live.client.arrivals import Arrival, PublishReceipt
    from wend.drivers.live.client.client import Client
    from wend.drivers.live.client.connect import connect
    from wend.drivers.live.client.event_stream import EventStream
    from wend.drivers.live.status import StatusSnapshot
    from wend.drivers.scenarios import Scenario, load_scenario
    from wend.drivers.sim import Outcome, simulate
    from wend.model.errors import (
        ClientError,
        ConfigError,
        ConnectionLost,
        FilterError,
        NoReply,
        PartlyPublished,
        Refused,
        WendError,
    )
    from wend.model.events import Attributes, EventId, Headers, Range
    from wend.model.summary import Summary
    from wend.protocol.status import LinkStatus

__all__ = [
    "connect",
    "Client",
    "EventStream",
    "PublishReceipt",
    "Arrival",
    "StatusSnapshot",
    "LinkStatus",
    "EventId",
    "Attributes",
    "Range",
    "Headers",
    "simulate",
    "Scenario",
    "load_scenario",
    "Outcome",
    "Summary",
    "WendError",
    "ConfigError",
    "FilterError",
    "ClientError",
    "ConnectionLost",
    "NoReply",
    "PartlyPublished",
    "Refused",
    "__version__",
]

if not TYPE_CHECKING:  # a type checker that sees `__getattr__` accepts every name
    _HOMES = {
        "wend.drivers.live.client.client": ("Client",),
        "wend.drivers.live.client.connect": ("connect",),
        "wend.drivers.live.client.event_stream": ("EventStream",),
        "wend.drivers.live.client.arrivals": ("PublishReceipt", "Arrival"),
        "wend.drivers.live.status": ("StatusSnapshot",),
        "wend.protocol.status": ("LinkStatus",),
        "wend.drivers.sim": ("simulate", "Outcome"),
        "wend.model.errors": (
            "WendError",
            "ConfigError",
            "FilterError",
            "ClientError",
            "ConnectionLost",
            "NoReply",
            "PartlyPublished",
            "Refused",
        ),
        "wend.model.events": ("EventId", "Attributes", "Range", "Headers"),
        "wend.drivers.scenarios": ("Scenario", "load_scenario"),
        "wend.model.summary": ("Summary",),
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        from wend.model.extras import needed_by

        for home, names in _HOMES.items():
            if name in names:
                with needed_by(f"wend.{name}", "sim"):
                    return getattr(import_module(home), name)
        raise AttributeError(f"module 'wend' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
