"""What a peer has to say, on its way to the links: at once while it is quiet, bundled while it drains its socket.

A busy peer answers many datagrams in one go, most of them of a few neighbours. What goes to the same neighbour then
leaves as one datagram, as long as it is one packet on every link.
"""

from collections.abc import Callable

from wend.drivers.live import wire
from wend.model.events import PeerId

Put = Callable[[bytes], None]


class SendQueue:
    def __init__(self) -> None:
        self._links: dict[PeerId, tuple[bytes, Put]] = {}
        """By neighbour: the header of all that is said to it, and what takes its datagrams."""
        self._gathering = False
        self._waiting: dict[PeerId, tuple[int, list[bytes]]] = {}
        """By neighbour: how large it is, and the encoded messages."""

    def link(self, neighbour: PeerId, header: bytes, put: Put) -> None:
        self._links[neighbour] = (header, put)

    def say(self, neighbour: PeerId, body: bytes) -> None:
        header, put = self._links[neighbour]
        if not self._gathering:
            put(header + body)
            return
        size, bodies = self._waiting.get(neighbour, (0, []))
        if bodies and size + len(body) > wire.BUNDLE_BYTES:
            put(wire.bundle(header, bodies))
            size, bodies = 0, []
        bodies.append(body)
        self._waiting[neighbour] = (size + len(body), bodies)

    def gather(self) -> None:
        """From now on wait for `flush`."""
        self._gathering = True

    def flush(self) -> None:
        self._gathering = False
        for neighbour, (_, bodies) in self._waiting.items():
            header, put = self._links[neighbour]
            put(wire.bundle(header, bodies))
        self._waiting.clear()

    def drop(self) -> None:
        """The peer is gone, and what it was about to say with it."""
        self._gathering = False
        self._waiting.clear()
