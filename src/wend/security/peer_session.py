"""The state of a session with one other peer: its keys, its address, and messages that wait for a handshake."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from wend.model.events import PeerId
from wend.model.units import MINUTE, MS, SECOND, Nanos
from wend.security.cookies import SECRET_NS, Address
from wend.security.identity import Identity
from wend.security.noise import InitiatorHandshake
from wend.security.transport import TransportKeys

RETRY_NS: tuple[Nanos, ...] = tuple(ms * MS for ms in (250, 500, 1000, 2000, 5000))
"""How long a handshake waits for an answer before the first retry, the second, and so on."""
WAIT_NS: Nanos = 2 * SECOND
"""How long a message waits for a handshake. After that the protocol has repeated it or given it up."""
MAX_WAITING = 64
"""Messages to one peer that wait for a handshake."""
MAX_WAITING_BYTES = 1 << 17
MAX_PREVIOUS = 2
CROSSED_NS: Nanos = 5 * SECOND
"""The keys of handshakes that crossed differ in age by less than this."""
ALIVE_NS: Nanos = 5 * SECOND
"""A peer that was heard within this time is alive."""
IDLE_NS: Nanos = 10 * MINUTE
"""A peer without keys that was silent for this long may be forgotten, with the number of its last handshake."""


class WaitingMessage(NamedTuple):
    kind: int
    body: bytes
    address: Address | None
    """Its destination, if that is not the address of the peer."""
    since_ns: Nanos


class WaitingQueue:
    """Messages that wait for keys. The oldest make room."""

    def __init__(self) -> None:
        self._messages: list[WaitingMessage] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, now: Nanos, *messages: WaitingMessage) -> int:
        """Returns how many messages were dropped."""
        self._messages.extend(messages)
        return self.trim(now)

    def pop_all(self) -> list[WaitingMessage]:
        messages, self._messages = self._messages, []
        return messages

    def trim(self, now: Nanos) -> int:
        """Drop messages that have waited for too long or are too many. Returns how many."""
        if not self._messages:
            return 0
        kept = [message for message in self._messages if now - message.since_ns < WAIT_NS][-MAX_WAITING:]
        size = sum(len(message.body) for message in kept)
        while size > MAX_WAITING_BYTES:
            size -= len(kept.pop(0).body)
        dropped = len(self._messages) - len(kept)
        self._messages = kept
        return dropped


class Attempt:
    """An attempt to reach the peer at an address, which asks for the certificate of that peer if it must."""

    def __init__(self, address: Address, now: Nanos) -> None:
        self.address = address
        self.question = b""
        """The number of the open question about the certificate."""
        self.question_address: Address | None = None
        self.tries = 0
        self.due_ns = now + RETRY_NS[0]

    def count_retry(self, now: Nanos) -> None:
        self.tries += 1
        self.due_ns = now + RETRY_NS[min(self.tries, len(RETRY_NS) - 1)]


class PendingHandshake(Attempt):
    """A handshake that this peer has begun."""

    def __init__(self, peer: PeerId, address: Address, now: Nanos) -> None:
        super().__init__(address, now)
        self.peer = peer
        self.index = 0
        self.identity: Identity | None = None
        """Of the other peer, from its certificate."""
        self.noise: InitiatorHandshake | None = None
        self.mac1 = b""
        self.has_shown_cookie = False
        self.demand_ns = now
        """When a message to the peer last needed the handshake."""


class AddressSession(Attempt):
    """An address whose peer is not known yet."""

    def __init__(self, address: Address, now: Nanos) -> None:
        super().__init__(address, now)
        self.waiting = WaitingQueue()


class PeerSession:
    """One other peer."""

    def __init__(self, peer: PeerId) -> None:
        self.peer = peer
        self.waiting = WaitingQueue()
        self.address: Address | None = None
        """Where it was last heard; until then `given_address`."""
        self.given_address: Address | None = None
        """The address from the driver. It still works after somebody on the path passed packets on from another address
        and left."""
        self.certificate = b""
        self.identity: Identity | None = None
        """Of the current keys; without keys, the last one that the peer has shown."""
        self.last_initiation = (-1, -1)
        """The incarnation and number of the last initiation that was accepted."""
        self.incarnation = -1
        """Of the peer, from the current keys."""
        self.next: TransportKeys | None = None
        self.current: TransportKeys | None = None
        self.previous: list[TransportKeys] = []
        self.superseded: TransportKeys | None = None
        """Keys of the previous incarnation. If packets keep coming under them, two processes have one certificate."""
        self.superseded_ns: Nanos = 0
        self.former_keys: TransportKeys | None = None
        """Of the last packet that came under former keys."""
        self.current_highest = -1
        """The highest number under the current keys, at that time."""
        self.rekeying_ns: Nanos = 0
        """When the last handshake came under the current keys."""
        self.handshake: PendingHandshake | None = None
        self.cookie = b""
        self.cookie_ns: Nanos = 0
        self.heard_ns: Nanos = 0
        self.owes_ns: Nanos = 0
        """When the first packet came since this peer last sent one; 0: it owes no answer."""
        self.unanswered_ns: Nanos = 0
        """When this peer sent the first packet since the other was last heard; 0: all were answered."""
        self.doubted_ns: Nanos = 0
        """The `unanswered_ns` of the last silence that led to a handshake."""

    @property
    def known_certificates(self) -> list[bytes]:
        """The certificates that the next and the current keys rest on, and the last one that the peer has shown."""
        shown = [self.certificate] if self.certificate else []
        return shown + [keys.certificate for keys in (self.next, self.current) if keys is not None]

    def has_keys(self, now: Nanos) -> bool:
        return self.current is not None and now < self.current.ends_ns

    def is_silent(self, now: Nanos, for_ns: Nanos) -> bool:
        """Whether it has not answered for this time."""
        return self.unanswered_ns > 0 and now - self.unanswered_ns > for_ns

    def is_idle(self, now: Nanos) -> bool:
        """Whether the peer may be forgotten."""
        if self.current or self.next or self.previous or self.handshake or self.waiting:
            return False
        return now - self.heard_ns > IDLE_NS

    def is_twin(self, now: Nanos, incarnation: int, process: int) -> bool:
        """Whether this is a second process with the certificate of the session's process, which is alive."""
        keys = self.current
        if keys is None or keys.incarnation != incarnation or keys.process == process:
            return False
        return now < keys.ends_ns and now - self.heard_ns <= ALIVE_NS

    def retry_address(self, tries: int) -> Address | None:
        """The address for the n-th try of a handshake: two tries at one address, then two at the other."""
        return self.given_address if tries & 2 and self.given_address is not None else self.address

    def valid_cookie(self, now: Nanos) -> bytes | None:
        """The cookie that the peer sent, while it is valid."""
        return self.cookie if self.cookie and now - self.cookie_ns < SECRET_NS else None

    # ---------------------------------------------------------------- keys

    def adopt(self, now: Nanos, keys: TransportKeys) -> list[TransportKeys]:
        """Make these keys the current ones. Returns the keys that are no longer used: surplus ones, and those of
        earlier incarnations of the peer."""
        former = self.previous if self.current is None else [*self.previous, self.current]
        if keys.incarnation != self.incarnation:
            dropped, self.previous = [one for one in (*former, self.superseded) if one not in (None, self.current)], []
            self.superseded, self.superseded_ns = self.current, now
            if self.next is not None and self.next.incarnation < keys.incarnation:
                dropped, self.next = [*dropped, self.next], None
        else:
            dropped, self.previous = former[:-MAX_PREVIOUS], former[-MAX_PREVIOUS:]
        self.incarnation = keys.incarnation
        self._make_current(keys)
        return dropped

    def restore_former_keys(self, keys: TransportKeys) -> None:
        """Seal with former keys again, as the other peer does, if they are about as old as the current ones."""
        current = self.current
        if current is not None and abs(current.made_ns - keys.made_ns) < CROSSED_NS and keys in self.previous:
            self.previous = [current if one is keys else one for one in self.previous]
            self._make_current(keys)

    def _make_current(self, keys: TransportKeys) -> None:
        self.current = keys
        self.certificate, self.identity = keys.certificate, keys.identity

    def drop_ended(self, now: Nanos) -> list[TransportKeys]:
        """Forget keys that have ended, and return them."""
        ended = [keys for keys in self._all_keys() if now >= keys.ends_ns]
        if ended:
            self.previous = [keys for keys in self.previous if keys not in ended]
            self.current = None if self.current in ended else self.current
            self.next = None if self.next in ended else self.next
            self.superseded = None if self.superseded in ended else self.superseded
        return ended

    def drop_former(self, is_void: Callable[[TransportKeys], bool]) -> list[TransportKeys]:
        """Forget former keys that are void, and return them."""
        void = [keys for keys in self.previous if is_void(keys)]
        if void:
            self.previous = [keys for keys in self.previous if keys not in void]
        return void

    def drop_all(self) -> list[TransportKeys]:
        keys = [*self._all_keys()]
        self.next = self.current = self.superseded = None
        self.previous = []
        return keys

    def _all_keys(self) -> Iterator[TransportKeys]:
        yield from self.previous
        for keys in (self.current, self.next, self.superseded):
            if keys is not None:
                yield keys
