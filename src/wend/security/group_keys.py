"""Keys of multicast groups: a keeper makes the key of a group and sends it to the members in their sessions.

The keeper is the first active coordinator of a cluster. It makes a new key, of the next epoch, when a peer joins,
leaves, dies, restarts or is revoked, and every hour. It repeats the key to each member until the member confirms it. A
member that lacks the key asks for it.

- **Sealing.** Every sender seals with a key of its own, derived from the group's key, its id and a random salt. So no
  two packets ever have the same key and counter, even after a restart.
- **Rolling.** A peer seals with the newest key that it has. If the key of an epoch has not arrived yet, its packets
  wait for a moment. If the keeper has only added members, the former key still opens packets for a short time. If a
  member has left, or another keeper has taken over, the former key opens nothing: a peer that left may know it.
- **Trust.** A peer accepts a key only from the keeper in its own roster, and in a session with it. All members share
  the key, so each of them could seal as another member. Packets that no member sealed are refused.
"""

import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from wend.model.events import PeerId
from wend.model.units import MINUTE, MS, SECOND, Nanos
from wend.security import packets
from wend.security.noise import derive, nonce
from wend.security.packets import GROUP_HEADER, GROUP_HEADER_BYTES, KEY_BYTES, TAG_BYTES
from wend.security.replay import ReplayWindow

OVERLAP_NS: Nanos = 2 * SECOND
"""How long the former key opens packets after members were added."""
REPEAT_NS: Nanos = 250 * MS
"""How often a key is sent or asked for again."""
LOOK_NS: Nanos = 5 * SECOND
"""The shortest time between two attempts to reach a member that is excluded."""
HOLD_NS: Nanos = SECOND
"""How long a packet waits for its key."""
ROLL_NS: Nanos = 60 * MINUTE
"""The age at which a key is replaced."""
MAX_EPOCH = 1 << 31
"""The highest epoch number that a peer believes of another keeper. So a lying keeper leaves numbers for the next
one."""
MAX_HELD = 64
MAX_HELD_BYTES = 1 << 18
"""Packets of a group that wait for a key."""
MAX_KEEPERS = 32
MAX_SALTS = 4
"""Restarts of one sender in one epoch. Each changes the roster, and so begins another epoch."""

TOLD, TAKEN, ASKED = 1, 2, 3
TOLD_FORM: Final = struct.Struct(f"<BQQQ{KEY_BYTES}s")
SHORT_FORM: Final = struct.Struct("<BQQ")
_HEAD: Final = packets.packet_head(packets.MULTICAST)
_LABEL: Final = b"wend multicast sender"

Member = tuple[PeerId, int]
"""A peer and its incarnation."""


class GroupMessage(NamedTuple):
    """Send this to a peer, in the session with it."""

    peer: PeerId
    body: bytes


class GroupOpened(NamedTuple):
    """A multicast of a member."""

    sender: PeerId
    body: bytes


GroupEffect = GroupMessage | GroupOpened


class _Stream(NamedTuple):
    """The packets of one sender in one epoch."""

    cipher: ChaCha20Poly1305
    window: ReplayWindow


class GroupKey:
    """The key of a group in one epoch."""

    def __init__(self, now: Nanos, epoch: int, secret: bytes, me: PeerId, salt: bytes, maker: PeerId) -> None:
        self.epoch = epoch
        self.secret = secret
        self.maker = maker
        self.made_ns = now
        self.ends_ns: Nanos | None = None
        """When it stops opening packets; None for the current key."""
        self._make_salt = salt
        self._sealing = self._derive_cipher(me, salt)
        self._sent = 0
        self._streams: dict[tuple[PeerId, bytes], _Stream] = {}
        self._salts: Counter[PeerId] = Counter()

    def _derive_cipher(self, sender: PeerId, salt: bytes) -> ChaCha20Poly1305:
        key, _ = derive(self.secret, _LABEL + sender.to_bytes(8, "little") + salt)
        return ChaCha20Poly1305(key)

    def seal(self, group: int, me: PeerId, body: bytes) -> bytes:
        counter, self._sent = self._sent, self._sent + 1
        header = GROUP_HEADER.pack(_HEAD, group, self.epoch, me, self._make_salt, counter)
        return header + self._sealing.encrypt(nonce(counter), body, header)

    def open(self, sender: PeerId, salt: bytes, counter: int, datagram: bytes) -> bytes | str:
        """The body, or why the packet is refused."""
        stream = self._streams.get((sender, salt))
        is_new = stream is None
        if stream is None:
            if self._salts[sender] >= MAX_SALTS:
                return "forged"
            stream = _Stream(self._derive_cipher(sender, salt), ReplayWindow())
        if not stream.window.is_new(counter):
            return "replayed"
        header = datagram[:GROUP_HEADER_BYTES]
        try:
            body = stream.cipher.decrypt(nonce(counter), datagram[GROUP_HEADER_BYTES:], header)
        except InvalidTag:
            return "forged"
        stream.window.add(counter)
        if is_new:
            self._streams[sender, salt] = stream
            self._salts[sender] += 1
        return body


class _Group:
    """One group, as this peer knows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.keeper: Member | None = None
        self.members: dict[PeerId, int] = {}
        self.key: GroupKey | None = None
        self.former: GroupKey | None = None
        self.highest = 0
        """The number of the highest epoch that this peer has seen, at most `MAX_EPOCH`."""
        self.last_made = 0
        """The number of the last epoch that this peer made."""
        self.epochs: dict[Member, int] = {}
        """The highest epoch of each keeper. A lower one arrives late, and its counters must not begin again."""
        self.holders: frozenset[Member] = frozenset()
        """At the keeper: the members that may have the current key."""
        self.unconfirmed: dict[PeerId, None] = {}
        """At the keeper: the members that have not confirmed the current key."""
        self.repeat_ns: Nanos = 0
        self.pending: list[tuple[bytes, Nanos]] = []
        """Packets that wait for a key, each with its time of arrival."""

    def has_room(self, size: int) -> bool:
        """Whether another packet of this size may wait for its key."""
        pending_bytes = sum(len(datagram) for datagram, _ in self.pending)
        return len(self.pending) < MAX_HELD and pending_bytes + size <= MAX_HELD_BYTES

    def all_keys(self) -> Iterator[GroupKey]:
        for key in (self.key, self.former):
            if key is not None:
                yield key


class GroupKeys:
    """The groups of one peer."""

    def __init__(
        self, me: PeerId, random: Callable[[int], bytes], refused: Counter[str], notices: Counter[str]
    ) -> None:
        self._me = me
        self._random = random
        self.refused = refused
        self.notices = notices
        self._groups: dict[int, _Group] = {}
        self._salts: deque[bytes] = deque(maxlen=MAX_SALTS * 4)
        """The last salts of this peer."""
        self._excluded: dict[PeerId, Nanos] = {}
        """Peers whose certificate is no longer accepted, and when to find out whether they have a new one."""
        self.effects: list[GroupEffect] = []

    def take_effects(self) -> list[GroupEffect]:
        effects, self.effects = self.effects, []
        return effects

    # ---------------------------------------------------------------- what the driver tells

    def set_members(self, now: Nanos, group: int, keeper: PeerId, members: Iterable[Member]) -> None:
        """Set the members of a group and the keeper of its key. If this peer is not among them, it has left."""
        incarnations = dict(members)
        if self._me not in incarnations or keeper not in incarnations:
            self._groups.pop(group, None)
            return
        entry = self._groups.setdefault(group, _Group(group))
        if entry.keeper != (keeper, incarnations[keeper]):
            entry.keeper, entry.repeat_ns = (keeper, incarnations[keeper]), now
            if entry.key is not None:
                entry.key.maker = -1  # the epochs of the new keeper may have any number
        entry.members = incarnations
        if keeper == self._me:
            self._roll_group_if_changed(now, entry)
        elif entry.key is None or entry.key.maker != keeper:
            self._repeat_messages(now, entry)

    def keys(self, group: int) -> list[GroupKey]:
        """The current key of a group and the former one, if there are any."""
        entry = self._groups.get(group)
        return [] if entry is None else [*entry.all_keys()]

    def leave(self, group: int) -> None:
        self._groups.pop(group, None)

    def exclude(self, now: Nanos, peer: PeerId) -> None:
        """Make new keys without a peer whose certificate is no longer accepted."""
        self._excluded[peer] = now
        self._roll_changed_groups(now)

    def include(self, now: Nanos, peer: PeerId) -> None:
        """Give keys to a peer again that was excluded: there is a session with it."""
        if self._excluded.pop(peer, None) is not None:
            self._roll_changed_groups(now)

    def _roll_changed_groups(self, now: Nanos) -> None:
        for group in self._groups.values():
            if group.keeper is not None and group.keeper[0] == self._me:
                self._roll_group_if_changed(now, group)

    def tick(self, now: Nanos) -> None:
        """Repeat messages that were not answered. Call this a few times a second."""
        for group in self._groups.values():
            group.pending = [one for one in group.pending if now - one[1] < HOLD_NS]
            if group.former is not None and group.former.ends_ns is not None and now >= group.former.ends_ns:
                group.former = None
            if group.keeper is not None and now >= group.repeat_ns:
                if group.keeper[0] == self._me and group.key is not None and now - group.key.made_ns >= ROLL_NS:
                    self._make_next_key(now, group, group.holders, overlaps=True)
                else:
                    self._repeat_messages(now, group)

    # ---------------------------------------------------------------- multicasts

    def seal(self, group: int, body: bytes) -> bytes | None:
        """The datagram of a message to a group; None while this peer has no key."""
        entry = self._groups.get(group)
        if entry is None or entry.key is None:
            self.notices["multicast-without-key"] += 1
            return None
        return entry.key.seal(group, self._me, body)

    def open(self, now: Nanos, datagram: bytes) -> GroupOpened | None:
        """The message in a datagram. None if it was refused, or waits for a key."""
        if len(datagram) < GROUP_HEADER_BYTES + TAG_BYTES or packets.packet_type(datagram) != packets.MULTICAST:
            self.refused["foreign-multicast"] += 1
            return None
        _, number, epoch, sender, salt, counter = GROUP_HEADER.unpack_from(datagram)
        group = self._groups.get(number)
        if group is None:
            self.refused["other-multicast-group"] += 1
            return None
        if sender == self._me:
            if salt not in self._salts:
                self.refused["misdirected"] += 1
            return None  # else the peer hears itself
        if sender not in group.members or sender in self._excluded:
            self.refused["multicast-of-nonmember"] += 1
            if sender in group.members:
                self._seek_session(now, group, sender)
            return None
        key = next((key for key in group.all_keys() if key.epoch == epoch), None)
        if key is None or (key.ends_ns is not None and now >= key.ends_ns):
            self._hold_packet(now, group, epoch, datagram)
            return None
        body = key.open(sender, salt, counter, datagram)
        if isinstance(body, str):
            self.refused[body] += 1
            return None
        return GroupOpened(sender, body)

    def _seek_session(self, now: Nanos, group: _Group, peer: PeerId) -> None:
        """Send an excluded member a message now and then, which begins a session if it has renewed its certificate.

        Then `include` follows. A revoked member gets no session."""
        if now >= self._excluded[peer]:
            self._excluded[peer] = now + LOOK_NS
            self.effects.append(GroupMessage(peer, SHORT_FORM.pack(ASKED, group.number, 0)))

    def _hold_packet(self, now: Nanos, group: _Group, epoch: int, datagram: bytes) -> None:
        """Hold a packet of an epoch whose key this peer lacks, and ask for the key."""
        if group.key is not None and epoch >> 32 < group.key.epoch >> 32 and group.key.maker >= 0:
            self.refused["former-group-key"] += 1
        elif not group.has_room(len(datagram)):
            self.refused["unknown-group-key"] += 1
        else:
            group.pending.append((datagram, now))
            if now >= group.repeat_ns and group.keeper is not None and group.keeper[0] != self._me:
                self._request_key(now, group)

    # ---------------------------------------------------------------- messages in sessions

    def receive(self, now: Nanos, sender: PeerId, incarnation: int, body: bytes) -> None:
        """Handle a message about keys, from a session with this incarnation of its sender."""
        form = TOLD_FORM if body[:1] == bytes((TOLD,)) else SHORT_FORM
        if len(body) != form.size:
            self.refused["garbage"] += 1
            return
        fields = form.unpack(body)
        group = self._groups.get(fields[1])
        if group is None or group.members.get(sender) != incarnation or sender in self._excluded:
            self.refused["group-key-of-nonmember"] += 1
        elif fields[0] == TOLD:
            self._receive_key(now, group, sender, *fields[2:])
        elif fields[0] == TAKEN:
            if group.key is not None and group.key.epoch == fields[2]:
                group.unconfirmed.pop(sender, None)
        elif fields[0] == ASKED:
            self._on_key_request(now, group, sender, fields[2])
        else:
            self.refused["garbage"] += 1

    def _receive_key(self, now: Nanos, group: _Group, sender: PeerId, epoch: int, former: int, secret: bytes) -> None:
        if group.keeper is None or sender != group.keeper[0] or sender == self._me:
            self.refused["group-key-of-nonkeeper"] += 1
            return
        key = group.key
        if key is not None and key.epoch == epoch:
            key.maker = sender
        elif epoch <= group.epochs.get(group.keeper, 0):
            self.refused["former-group-key"] += 1
            return
        else:
            group.epochs.pop(group.keeper, None)
            group.epochs[group.keeper] = epoch
            if len(group.epochs) > MAX_KEEPERS:
                del group.epochs[next(iter(group.epochs))]
            self._adopt_key(now, group, GroupKey(now, epoch, secret, self._me, self._make_salt(), sender), former)
        self.effects.append(GroupMessage(sender, SHORT_FORM.pack(TAKEN, group.number, epoch)))

    def _adopt_key(self, now: Nanos, group: _Group, key: GroupKey, former: int) -> None:
        """Seal with a key from now on. `former` is the epoch whose key still opens packets for a moment, or 0."""
        group.former = group.key if group.key is not None and group.key.epoch == former else None
        if group.former is not None:
            group.former.ends_ns = now + OVERLAP_NS
        group.key = key
        group.highest = max(group.highest, min(key.epoch >> 32, MAX_EPOCH))
        self.notices["group-key"] += 1
        pending, group.pending = group.pending, []
        for datagram, since in pending:
            if now - since < HOLD_NS and (opened := self.open(now, datagram)) is not None:
                self.effects.append(opened)

    # ---------------------------------------------------------------- the keeper

    def _roll_group_if_changed(self, now: Nanos, group: _Group) -> None:
        members = frozenset(one for one in group.members.items() if one[0] not in self._excluded)
        is_own = group.key is not None and group.key.maker == self._me
        if not is_own or group.holders != members:
            self._make_next_key(now, group, members, overlaps=is_own and group.holders <= members)

    def _make_next_key(self, now: Nanos, group: _Group, members: frozenset[Member], overlaps: bool) -> None:
        """Make the next key, and send it to the members."""
        group.last_made = max(group.highest, group.last_made) + 1
        epoch = group.last_made << 32 | int.from_bytes(self._random(4), "little")
        group.holders = members
        group.unconfirmed = {peer: None for peer, _ in sorted(members) if peer != self._me}
        key = GroupKey(now, epoch, self._random(KEY_BYTES), self._me, self._make_salt(), self._me)
        self._adopt_key(now, group, key, group.key.epoch if overlaps and group.key is not None else 0)
        self._repeat_messages(now, group)

    def _repeat_messages(self, now: Nanos, group: _Group) -> None:
        """As the keeper, send the key again to members that have not confirmed it; as a member, ask for a key."""
        assert group.keeper is not None
        group.repeat_ns = now + REPEAT_NS
        if group.keeper[0] == self._me:
            for peer in group.unconfirmed:
                self._send_key(group, peer)
        elif group.key is None or group.key.maker != group.keeper[0]:
            self._request_key(now, group)

    def _on_key_request(self, now: Nanos, group: _Group, peer: PeerId, beyond: int) -> None:
        """Send the key to a member that lacks it.

        `beyond` is the last epoch of this keeper that the member had and cannot use again."""
        key = group.key
        if key is None or key.maker != self._me or (peer, group.members[peer]) not in group.holders:
            return
        if key.epoch <= beyond and now - key.made_ns >= REPEAT_NS:
            self._make_next_key(now, group, group.holders, overlaps=True)
        else:
            self._send_key(group, peer)

    def _make_salt(self) -> bytes:
        """A new salt for every key, so that the same key and counter never occur twice."""
        self._salts.append(self._random(8))
        return self._salts[-1]

    def _send_key(self, group: _Group, peer: PeerId) -> None:
        key = group.key
        if key is not None and key.maker == self._me:
            former = 0 if group.former is None else group.former.epoch
            body = TOLD_FORM.pack(TOLD, group.number, key.epoch, former, key.secret)
            self.effects.append(GroupMessage(peer, body))

    def _request_key(self, now: Nanos, group: _Group) -> None:
        assert group.keeper is not None
        group.repeat_ns = now + REPEAT_NS
        has_key = group.key is not None and group.key.maker == group.keeper[0]
        # A member with a key sends 0: otherwise a forged packet could make the keeper roll.
        beyond = 0 if has_key else group.epochs.get(group.keeper, 0)
        self.effects.append(GroupMessage(group.keeper[0], SHORT_FORM.pack(ASKED, group.number, beyond)))
