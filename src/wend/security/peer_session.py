"""What the session layer remembers of one other peer: its keys, its address, and what waits for a handshake."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from wend.model.events import PeerId
from wend.model.units import MINUTE, MS, SECOND, Nanos
from wend.security.cookies import SECRET_NS, Address
from wend.security.identity import Identity
from wend.security.noise import Initiation
from wend.security.transport import TransportKeys

RETRY_NS: tuple[Nanos, ...] = tuple(ms * MS for ms in (250, 500, 1000, 2000, 5000))
"""How long a handshake waits for an answer before the first retry, the second, and so on."""
WAIT_NS: Nanos = 2 * SECOND
"""How long a message waits for a handshake. The protocol has repeated or given it up by then."""
MOST_WAITING = 64
"""Messages to one peer that wait for a handshake."""
MOST_WAITING_BYTES = 1 << 17
MOST_PREVIOUS = 2
CROSSED_NS: Nanos = 5 * SECOND
"""The keys of handshakes that crossed differ in age by less than this."""
ALIVE_NS: Nanos = 5 * SECOND
"""A peer that was heard so lately lives."""
IDLE_NS: Nanos = 10 * MINUTE
"""So long after its last keys a peer may be forgotten, with the number of its last handshake."""
REKEYING_NS: Nanos = 100 * MS
"""Handshakes under the present keys come less often. Whoever needs one repeats it later."""


class WaitingMessage(NamedTuple):
    kind: int
    body: bytes
    address: Address | None
    """Where it is to go, if not where the peer is."""
    since_ns: Nanos


class WaitingQueue:
    """Messages that wait for keys. The oldest make room."""

    def __init__(self) -> None:
        self.waiting: list[WaitingMessage] = []

    def trim(self, now: Nanos) -> int:
        """Drop messages that have waited for too long or are too many. Returns how many."""
        if not self.waiting:
            return 0
        stay = [message for message in self.waiting if now - message.since_ns < WAIT_NS][-MOST_WAITING:]
        size = sum(len(message.body) for message in stay)
        while size > MOST_WAITING_BYTES:
            size -= len(stay.pop(0).body)
        dropped = len(self.waiting) - len(stay)
        self.waiting = stay
        return dropped


class Retry:
    """When to ask again."""

    def __init__(self, address: Address, now: Nanos) -> None:
        self.address = address
        self.question = b""
        """The number of the question about the certificate that is under way."""
        self.asked: Address | None = None
        """Where the question went."""
        self.tries = 0
        self.due_ns = now + RETRY_NS[0]

    def retry(self, now: Nanos) -> None:
        self.tries += 1
        self.due_ns = now + RETRY_NS[min(self.tries, len(RETRY_NS) - 1)]


class PendingHandshake(Retry):
    """A handshake that this peer has begun."""

    def __init__(self, peer: PeerId, address: Address, now: Nanos) -> None:
        super().__init__(address, now)
        self.peer = peer
        self.index = 0
        self.identity: Identity | None = None
        """Of the other peer, as its certificate says."""
        self.noise: Initiation | None = None
        self.mac1 = b""
        self.cookied = False
        """Whether it was repeated with a cookie."""
        self.wanted_ns = now
        """When there was something to send last."""


class AddressSession(Retry, WaitingQueue):
    """An address at which some peer is."""

    def __init__(self, address: Address, now: Nanos) -> None:
        Retry.__init__(self, address, now)
        WaitingQueue.__init__(self)


class PeerSession(WaitingQueue):
    """Everything about one other peer."""

    def __init__(self, peer: PeerId) -> None:
        super().__init__()
        self.peer = peer
        self.address: Address | None = None
        """Where it was heard last; until then `given`."""
        self.given: Address | None = None
        """Where the driver says that it is. Whoever is on the path can pass packets on from another address, and leave:
        then this is the one that works."""
        self.certificate = b""
        self.identity: Identity | None = None
        """What the current keys rest on; without keys, what the peer has shown last."""
        self.latest = (-1, -1)
        """The incarnation and number of the last initiation that was accepted."""
        self.incarnation = -1
        """Of the peer, as the current keys have it."""
        self.next: TransportKeys | None = None
        self.current: TransportKeys | None = None
        self.previous: list[TransportKeys] = []
        self.superseded: TransportKeys | None = None
        """Keys of the incarnation before. If packets keep coming under them, two processes have one certificate."""
        self.superseded_ns: Nanos = 0
        self.former_keys: TransportKeys | None = None
        """Of the last packet that came under former keys."""
        self.present_highest = -1
        """The highest number under the present keys, at that time."""
        self.rekeying_ns: Nanos = 0
        """When the last handshake came under the present keys."""
        self.handshake: PendingHandshake | None = None
        self.cookie = b""
        self.cookie_ns: Nanos = 0
        self.heard_ns: Nanos = 0
        self.owes_ns: Nanos = 0
        """When the first packet came that nothing was sent after; 0 for none."""
        self.unanswered_ns: Nanos = 0
        """When the first packet was sent that nothing came after; 0 for none."""
        self.doubted_ns: Nanos = 0
        """The silence that a handshake was begun for: that which began at this time."""

    def retry_address(self, tries: int) -> Address | None:
        """Where to try a handshake for the n-th time: two times here, two times there."""
        return self.given if tries & 2 and self.given is not None else self.address

    def cookie_at(self, now: Nanos) -> bytes | None:
        """The cookie that the peer sent, while it is valid."""
        return self.cookie if self.cookie and now - self.cookie_ns < SECRET_NS else None

    def is_of_another_process(self, now: Nanos, incarnation: int, process: int) -> bool:
        """Whether this is another process than the one with which there is a session, and that one lives."""
        keys = self.current
        if keys is None or keys.incarnation != incarnation or keys.process == process:
            return False
        return now < keys.ends_ns and now - self.heard_ns <= ALIVE_NS

    def certificates(self) -> list[bytes]:
        """All certificates of the peer that sessions with it rest on."""
        found = [self.certificate] if self.certificate else []
        return found + [keys.certificate for keys in (self.next, self.current) if keys is not None]

    def adopt(self, now: Nanos, keys: TransportKeys) -> list[TransportKeys]:
        """Make keys the current ones. Returns those that are not used any more: too many, or of an earlier incarnation
        of the peer."""
        former = self.previous if self.current is None else [*self.previous, self.current]
        if keys.incarnation != self.incarnation:
            dropped, self.previous = [one for one in (*former, self.superseded) if one not in (None, self.current)], []
            self.superseded, self.superseded_ns = self.current, now
            if self.next is not None and self.next.incarnation < keys.incarnation:
                dropped, self.next = [*dropped, self.next], None
        else:
            dropped, self.previous = former[:-MOST_PREVIOUS], former[-MOST_PREVIOUS:]
        self.current, self.incarnation = keys, keys.incarnation
        self.certificate, self.identity = keys.certificate, keys.identity
        return dropped

    def uncross(self, keys: TransportKeys) -> None:
        """Seal with former keys again, because the other peer does, if they are about as old as the present ones."""
        present = self.current
        if present is not None and abs(present.made_ns - keys.made_ns) < CROSSED_NS and keys in self.previous:
            self.previous = [present if one is keys else one for one in self.previous]
            self.current = keys
            self.certificate, self.identity = keys.certificate, keys.identity

    def ended(self, now: Nanos) -> list[TransportKeys]:
        """Forget keys that have ended, and return them."""
        if not any(now >= keys.ends_ns for keys in self.previous) and all(
            keys is None or now < keys.ends_ns for keys in (self.current, self.next, self.superseded)
        ):
            return []
        over = [keys for keys in self._all() if now >= keys.ends_ns]
        if over:
            self.previous = [keys for keys in self.previous if keys not in over]
            self.current = None if self.current in over else self.current
            self.next = None if self.next in over else self.next
            self.superseded = None if self.superseded in over else self.superseded
        return over

    def drop_former(self, is_void: Callable[[TransportKeys], bool]) -> list[TransportKeys]:
        """Forget former keys of which this is true, and return them."""
        over = [keys for keys in self.previous if is_void(keys)]
        if over:
            self.previous = [keys for keys in self.previous if keys not in over]
        return over

    def drop_keys(self) -> list[TransportKeys]:
        keys = [*self._all()]
        self.next = self.current = self.superseded = None
        self.previous = []
        return keys

    def is_idle(self, now: Nanos) -> bool:
        """Whether the peer may be forgotten."""
        if self.current or self.next or self.previous or self.handshake or self.waiting:
            return False
        return now - self.heard_ns > IDLE_NS

    def _all(self) -> Iterator[TransportKeys]:
        yield from self.previous
        for keys in (self.current, self.next, self.superseded):
            if keys is not None:
                yield keys
