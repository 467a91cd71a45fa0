"""Wend: content-based publish/subscribe over wide-area overlays, reliably and on time while links fail.

    async with wend.connect("wend://127.0.0.1:7700") as client:
        receipt = await client.publish({"topic": "stuttgart", "temperature": 15}, b"payload")

The names below are loaded when they are first used, so that `import wend` costs nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wend.drivers.live.client import Client, Receipt, connect
    from wend.drivers.live.subscription import Arrival, Subscription
    from wend.model.errors import ClientError, ConfigError, ConnectionLost, FilterError, Refused, WendError

_HOMES = {
    "connect": "wend.drivers.live.client",
    "Client": "wend.drivers.live.client",
    "Receipt": "wend.drivers.live.client",
    "Arrival": "wend.drivers.live.subscription",
    "Subscription": "wend.drivers.live.subscription",
    "WendError": "wend.model.errors",
    "ConfigError": "wend.model.errors",
    "FilterError": "wend.model.errors",
    "ClientError": "wend.model.errors",
    "ConnectionLost": "wend.model.errors",
    "Refused": "wend.model.errors",
}

__all__ = [
    "connect",
    "Client",
    "Receipt",
    "Arrival",
    "Subscription",
    "WendError",
    "ConfigError",
    "FilterError",
    "ClientError",
    "ConnectionLost",
    "Refused",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'wend' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
