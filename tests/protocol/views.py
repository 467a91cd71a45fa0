"""What a routing plug-in sees, made by hand."""

from types import SimpleNamespace
from typing import Any

from wend.protocol.config import PeerConfig
from wend.protocol.plugins import View


def seen(me: int, links: dict[int, Any], **graph: Any) -> View:
    """A peer's links, and the fields of its graph."""
    view = View(PeerConfig(peer=me), links, False)
    view.graph = SimpleNamespace(**graph)
    return view
