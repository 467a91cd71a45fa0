"""Wend: content-based publish/subscribe over wide-area overlays, reliably and on time while links fail.

    async with wend.connect("wend://127.0.0.1:7700") as client:
        receipt = await client.publish({"topic": "stuttgart", "temperature": 15}, b"payload")

    print(wend.simulate(wend.Scenario(strategy="adaptive", duration="60s")).summary.on_time)

`docs/python.md` tells the rest. The names below are loaded when they are first used, so that `import wend` costs
nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wend.drivers.live.client import Client, Receipt, connect
    from wend.drivers.live.subscription import Arrival, Subscription
    from wend.drivers.scenarios import Scenario, load_scenario
    from wend.drivers.sim import Outcome, simulate
    from wend.model.errors import ClientError, ConfigError, ConnectionLost, FilterError, Refused, WendError
    from wend.model.events import Attributes, EventId, Headers, Range
    from wend.model.summary import Summary

__all__ = [
    "connect",
    "Client",
    "Subscription",
    "Receipt",
    "Arrival",
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
    "Refused",
    "__version__",
]

if not TYPE_CHECKING:  # one who sees `__getattr__` believes in every name
    _HOMES = {
        "wend.drivers.live.client": ("connect", "Client", "Receipt"),
        "wend.drivers.live.subscription": ("Subscription", "Arrival"),
        "wend.drivers.sim": ("simulate", "Outcome"),
        "wend.model.errors": ("WendError", "ConfigError", "FilterError", "ClientError", "ConnectionLost", "Refused"),
        "wend.model.events": ("EventId", "Attributes", "Range", "Headers"),
        "wend.drivers.scenarios": ("Scenario", "load_scenario"),
        "wend.model.summary": ("Summary",),
    }

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(home), name)
        raise AttributeError(f"module 'wend' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
