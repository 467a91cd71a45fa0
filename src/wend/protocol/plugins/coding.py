"""When a routing sends an event in blocks (`model/blocks.py`), and which.

Only the publisher's peer cuts an event. Peers on the way forward blocks like events, and the peers of subscribers put
them together (`delivery/block_reassembly.py`). Some events always stay whole: small ones, since each block repeats all
but the payload; those of peers with persistence, which stay responsible for whole events; and those of interests that
repair losses themselves.
"""

from wend.model.blocks import AUTO, CodeRate, count_pieces, cut_event, parse_coding
from wend.model.erasure_code import MAX_BLOCKS
from wend.model.events import Event
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.plugins.view import View


class Coder:
    """Cuts the events of one publisher's peer."""

    __slots__ = ("is_auto", "least", "rate")

    def __init__(self, config: PeerConfig) -> None:
        settings = config.of(DeliverySettings)
        self.least = settings.coding_least_bytes
        """The smallest payload that is coded."""
        self.is_auto = settings.coding == AUTO
        """Whether the routing chooses the number of blocks."""
        self.rate: CodeRate | None = parse_coding(settings.coding)

    def can_cut(self, event: Event, view: View) -> bool:
        """Whether an event may travel in blocks."""
        return (
            len(event.payload) >= self.least
            and event.block is None
            and event.id.publisher == view.me
            and not view.persistence
            and view.interest.header is None
        )

    def cut(self, event: Event, view: View) -> list[Event]:
        """The blocks of an event at the rate of the settings; empty if the event stays whole. Block i is for route
        i modulo the number of routes."""
        if self.rate is None or not self.can_cut(event, view):
            return []
        needed, count = self.rate.count_blocks(len(event.payload))
        return cut_event(event, needed, count)

    def needed_blocks(self, event: Event) -> int:
        """How many blocks an event needs, if it may have as many of parity."""
        return min(count_pieces(len(event.payload)), MAX_BLOCKS // 2)
