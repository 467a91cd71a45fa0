"""A peer's place on the ring: its leaf set, probed, repaired and compared with its neighbours' (MSPastry, section 3).

Each peer sends a heartbeat to its predecessor, once per period. If a peer does not hear its successor, it probes it. A
successor that does not answer is dead. The peer tells its leaf set, whose members probe the dead peer themselves before
they drop it, so one bad path harms nobody else. Each then asks the farthest member on that side for more.

A heartbeat carries the sender's leaf set, and the receiver compares it with its own. If the sender knows a peer that
belongs here, the receiver probes this peer. If the sender lacks one, the receiver probes that one and tells the sender.
So leaf sets agree after a while, whatever was lost. A peer becomes a member only by a message of its own, never by what
others say of it.

Detection time D: a heartbeat every 0.4 D, a suspicion after 0.52 D of silence, four transmissions of a probe at
intervals of 0.06 D, and the same once more at the peers that were told. Where a round trip is longer than an interval,
probes wait for it, and the detection takes longer.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final

from wend.model.events import PeerId
from wend.model.keys import RING, node_id
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Begun,
    Changed,
    ComposedReason,
    ContactFound,
    Due,
    Heard,
    Membership,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    SendTo,
    Stopping,
    Timer,
    Unanswered,
    View,
)
from wend.strategies.ring.leaf_set import FULL, HALF, LeafSet, fits_beside
from wend.strategies.ring.messages import (
    LeafProbe,
    LeafReply,
    PastryMessage,
    RingHeartbeat,
    RingLeave,
    TablePing,
    TablePong,
    cannot_be,
)
from wend.strategies.ring.probes import PendingProbe, PendingProbes
from wend.strategies.ring.settings import PastrySettings

OWNERSHIP: Final = "ownership"
TOLD_DEAD = 8
"""The most dead peers that a probe names."""
RECHECK = 8
"""Heartbeats after which a leaf set that has not changed is compared again: what was said of it may be lost."""
MEMORY = 12
"""Detection times for which a peer remembers who is dead. Then it asks each of them once more, and forgets it."""
DOUBTED = 2
"""Detection times after which a peer probes a dead one that others name: by then they would know, too."""
LIMIT = 8 * FULL
"""Peers beyond which it looks for some to forget."""
_BEAT, _SILENCE, _PROBE = "beat", "silence", "probe"


class RingMember(Membership):
    """The leaf set and the failure detector. A subclass joins the ring, and has the routing table."""

    settings: ClassVar[type[Settings]] = PastrySettings
    messages: ClassVar[Any] = PastryMessage

    def __init__(self, config: PeerConfig) -> None:
        self.me = config.peer
        self.joined = False
        self._settings = settings = config.of(PastrySettings)
        self._incarnation = config.incarnation
        self._detection = detection = settings.pastry_detection_ns
        self._period = detection * 2 // 5
        self._silence = detection * 13 // 25
        self._wait = detection * 3 // 50
        self._guess = settings.pastry_round_trip_ns
        self._leaf = LeafSet(config.peer)
        self._dead: dict[PeerId, Nanos] = {}
        """When each was found dead, or left; in this order."""
        self._trips: dict[PeerId, Nanos] = {}
        self._incarnations: dict[PeerId, int] = {}
        """Of peers that have restarted."""
        self._refuted: dict[PeerId, Nanos] = {}
        """When each last answered, although others took it for dead."""
        self._probes = PendingProbes()
        self._probe_timer: Nanos | None = None
        self._silence_timer = False
        self._expected: PeerId | None = None
        self._heard_ns: Nanos = 0
        """When the successor was last heard."""
        self._compared: tuple[PeerId, ...] | None = None
        """The successor's leaf set, as it was last compared with this one."""
        self._beats = 0
        self._moved = False
        self._gone = False
        self._out: list[PluginEffect] = []

    def handle(self, now: Nanos, event: PluginInput, view: View | None = None) -> list[PluginEffect]:
        if self._gone:
            return []
        if type(event) is Heard:
            message = event.message
            if (
                type(message) is RingHeartbeat
                and message.leaves == self._compared
                and event.sender == self._leaf.successor
            ):
                self._heard_ns = now
                return []
            self._told(now, event.sender, message)
        elif type(event) is Due:
            self._due(now, event.name)
        elif type(event) is Begun:
            self._out.append(Timer(now + 1 + node_id(self.me) % self._period, _BEAT))
            self._begin(now, event.contacts, event.contacts_follow)
        elif type(event) is ContactFound:
            self._contact_found(now, event.peer)
        elif type(event) is Unanswered:
            self._suspect(now, event.peer)
        elif type(event) is Stopping:
            for peer in self._leaf.peers:
                self._say(peer, RingLeave(self._incarnation, self._leaf.peers))
            self._gone, self.joined = True, False
        return self._answer(now)

    def _answer(self, now: Nanos) -> list[PluginEffect]:
        self._settle(now)
        if self._probe_timer is None:
            due = self._probes.next_ns()
            if due is not None:
                self._probe_timer = due
                self._out.append(Timer(due, _PROBE))
        if self._moved:
            self._moved = False
            self._out.append(Changed(OWNERSHIP))
        out, self._out = self._out, []
        return out

    def _told(self, now: Nanos, sender: PeerId, message: Any) -> None:
        if sender == self.me or cannot_be(sender, message):
            self._out.append(Refuse(sender, ComposedReason(f"{type(message).__name__}: a message that cannot be")))
        else:
            self._handlers()[type(message)](self, now, sender, message)

    def _due(self, now: Nanos, name: str) -> None:
        if name == _BEAT:
            self._beat(now)
        elif name == _SILENCE:
            self._silence_timer = False
            successor = self._leaf.successor
            if successor is not None and now >= self._heard_ns + self._silence:
                self._heard_ns = now
                self._probe_leaf(now, successor)
            self._expect_successor()
        elif name == _PROBE and self._probe_timer is not None and now >= self._probe_timer:
            self._probe_timer = None
            for peer, probe in self._probes.due(now):
                if probe.left:
                    self._transmit(now, peer, probe)
                    self._look_further(now, peer)
                else:
                    self._probes.give_up(peer)
                    if not probe.last_chance:
                        self._failed(now, peer, probe.claimed)
                    elif self._leaf.peers:
                        self._dead.pop(peer, None)
                    else:
                        self._buried(now, peer)  # all others may be: a peer that is alone forgets nobody

    def _say(self, peer: PeerId, message: PastryMessage) -> None:
        self._out.append(SendTo(peer, message))

    # ---------------------------------------------------------------- for the subclass

    def _handlers(self) -> "Handlers":
        return HANDLERS

    def _begin(self, now: Nanos, contacts: tuple[PeerId, ...], contacts_follow: bool) -> None:
        raise NotImplementedError

    def _contact_found(self, now: Nanos, peer: PeerId) -> None:
        raise NotImplementedError

    def _settle(self, now: Nanos) -> None:
        """The end of every input."""

    def _tend(self, now: Nanos) -> None:
        """Once per period."""

    def _alive(self, now: Nanos, peer: PeerId, answers: bool = False) -> bool:
        """A message of the peer came. If it was taken for dead, only an answer shows that it hears this peer, too."""
        if answers:
            self._dead.pop(peer, None)
        elif peer in self._dead:
            self._probe_leaf(now, peer)
            return False
        return True

    def _drop(self, now: Nanos, peer: PeerId) -> bool:
        """Forget a peer that is dead; whether it was a member of the leaf set."""
        self._trips.pop(peer, None)
        self._incarnations.pop(peer, None)
        if not self._leaf.remove(peer):
            return False
        self._changed(now)
        return True

    def _measured(self, now: Nanos, peer: PeerId, trip: Nanos) -> None:
        """A probe was answered after this time."""
        self._guess += (trip - self._guess) // 8

    def _others(self) -> list[PeerId]:
        """Peers that are known beyond the leaf set."""
        return []

    # ---------------------------------------------------------------- heartbeats

    def _beat(self, now: Nanos) -> None:
        self._beats += 1
        self._out.append(Timer(now + self._period, _BEAT))
        predecessor = self._leaf.predecessor
        if predecessor is not None:
            self._say(predecessor, RingHeartbeat(self._leaf.peers))
        if self._beats % RECHECK == 0:
            self._compared = None
            self._forget_dead(now)
            self._forget_strangers()
        if self.joined and len(self._leaf) < FULL and not self._leaf.whole:
            self._repair(now, clockwise=True)
            self._repair(now, clockwise=False)
        self._tend(now)

    def _forget_dead(self, now: Nanos) -> None:
        limit = now - MEMORY * self._detection
        for peer, since in self._dead.items():
            if since < limit:
                self._probe(now, peer, leaf=False, last_chance=True)

    def _forget_strangers(self) -> None:
        """Drop what was measured and heard of peers that are no longer known."""
        for known in (self._trips, self._incarnations, self._refuted):
            if len(known) > LIMIT:
                others = set(self._others())
                for peer in [peer for peer in known if peer not in self._leaf and peer not in others]:
                    del known[peer]

    def _expect_successor(self) -> None:
        if not self._silence_timer and self._leaf.peers:
            self._silence_timer = True
            self._out.append(Timer(self._heard_ns + self._silence, _SILENCE))

    def _hear_heartbeat(self, now: Nanos, sender: PeerId, message: RingHeartbeat) -> None:
        if self._alive(now, sender) and self._leaf.add(sender):
            self._changed(now)
        if sender == self._leaf.successor:
            self._heard_ns = now
            self._compared = message.leaves
        self._learn(now, message.leaves)
        leaves = message.leaves
        lacks = [
            peer
            for peer in (self.me, *self._leaf.peers)
            if peer != sender and peer not in leaves and fits_beside(sender, leaves, peer)
        ]
        if lacks or any(peer in self._dead for peer in leaves):
            for peer in lacks:
                self._claimed_dead(now, peer)
            self._probe_leaf(now, sender)

    # ---------------------------------------------------------------- leaf sets

    def _changed(self, now: Nanos) -> None:
        self._moved = True
        if self._leaf.successor != self._expected:
            self._expected = self._leaf.successor
            self._heard_ns = now
        self._compared = None
        self._expect_successor()

    def _learn(self, now: Nanos, leaves: tuple[PeerId, ...], dead: tuple[PeerId, ...] = ()) -> None:
        """Probe the peers that belong into this leaf set, and those that are said to be dead."""
        for peer in leaves:
            self._consider(now, peer)
        for peer in dead:
            if peer in self._leaf:
                self._claimed_dead(now, peer)

    def _claimed_dead(self, now: Nanos, peer: PeerId) -> None:
        """Probe a member that others take for dead, unless it has lately answered such a probe."""
        if now >= self._refuted.get(peer, now - self._detection) + self._detection:
            self._probe_leaf(now, peer, claimed=True)

    def _consider(self, now: Nanos, peer: PeerId) -> None:
        """Others know this peer: probe it if it belongs into the leaf set, but not while it is surely dead."""
        since = self._dead.get(peer)
        if self._leaf.fits(peer) and (since is None or now > since + DOUBTED * self._detection):
            self._probe_leaf(now, peer)

    def _hear_probe(self, now: Nanos, sender: PeerId, message: LeafProbe) -> None:
        if self._member(now, sender, message.incarnation):
            self._say(sender, LeafReply(message.number, self._incarnation, self._leaf.peers, self._lately_dead(now)))
            self._learn(now, message.leaves, message.dead)

    def _hear_reply(self, now: Nanos, sender: PeerId, message: LeafReply) -> None:
        pending = self._probes.get(sender)
        trip = self._probes.answered(now, sender, message.number)
        if trip is not None and self._member(now, sender, message.incarnation, answers=True):
            if pending is not None and pending.claimed:
                self._refuted[sender] = now
            self._measured(now, sender, trip)
            self._learn(now, message.leaves, message.dead)

    def _member(self, now: Nanos, peer: PeerId, incarnation: int, answers: bool = False) -> bool:
        """Make the sender of a message a member, if it is near enough. False if a former incarnation sent it."""
        known = self._incarnations.get(peer, 1)
        if incarnation < known:
            return False
        if incarnation > known:
            self._incarnations[peer] = incarnation
            self._moved |= peer in self._leaf  # it may have lost what it held
        if self._alive(now, peer, answers) and self._leaf.add(peer):
            self._changed(now)
        return True

    def _lately_dead(self, now: Nanos) -> tuple[PeerId, ...]:
        if not self._dead:
            return ()
        since = now - 2 * self._detection
        return tuple([peer for peer, when in list(self._dead.items())[-TOLD_DEAD:] if when >= since])

    def _hear_leave(self, now: Nanos, sender: PeerId, message: RingLeave) -> None:
        if message.incarnation < self._incarnations.get(sender, 1):
            return
        self._probes.pop(sender)
        self._buried(now, sender)
        member = self._drop(now, sender)
        self._learn(now, message.leaves)
        if member:
            self._repair(now, self._clockwise(sender))

    # ---------------------------------------------------------------- probes

    def _probe_leaf(self, now: Nanos, peer: PeerId, claimed: bool = False) -> None:
        if peer != self.me:
            self._probe(now, peer, leaf=True, claimed=claimed)

    def _probe(self, now: Nanos, peer: PeerId, leaf: bool, claimed: bool = False, last_chance: bool = False) -> None:
        pending = self._probes.get(peer)
        if pending is None or (leaf and not pending.leaf):
            self._transmit(now, peer, self._probes.add(peer, leaf, claimed, last_chance))

    def _transmit(self, now: Nanos, peer: PeerId, probe: PendingProbe) -> None:
        """Send a probe. The first and the last transmission wait for a round trip, those between them less."""
        wait = 0
        if probe.due_ns == 0 or probe.left == 1:
            trip = self._trips.get(peer)
            wait = trip * 5 // 4 if trip is not None else self._guess * (2 if probe.left == 1 else 1)
        probe.due_ns = now + max(wait, self._wait)
        probe.left -= 1
        if self._probe_timer is None or self._probe_timer > probe.due_ns:
            self._probe_timer = probe.due_ns
            self._out.append(Timer(probe.due_ns, _PROBE))
        self._send_probe(now, peer, probe)

    def _send_probe(self, now: Nanos, peer: PeerId, probe: PendingProbe) -> None:
        number = self._probes.number(now, probe)
        if probe.leaf:
            message = LeafProbe(number, self._incarnation, self._leaf.peers, self._lately_dead(now))
            self._say(peer, message)
        else:
            self._say(peer, TablePing(number))

    def _look_further(self, now: Nanos, late: PeerId) -> None:
        """If all successors up to this one are late with their answers, probe the next: many may have crashed."""
        near = self._leaf.peers[:HALF]
        after = near.index(late) + 1 if late in near else len(near)
        if after < len(near) and all(self._probes.get(peer) is not None for peer in near[:after]):
            self._probe_leaf(now, near[after])

    def _hear_ping(self, now: Nanos, sender: PeerId, message: TablePing) -> None:
        self._say(sender, TablePong(message.number))
        self._alive(now, sender)
        self._consider(now, sender)

    def _hear_pong(self, now: Nanos, sender: PeerId, message: TablePong) -> None:
        trip = self._probes.answered(now, sender, message.number)
        if trip is not None:
            self._alive(now, sender, answers=True)
            self._measured(now, sender, trip)
            self._consider(now, sender)

    def _suspect(self, now: Nanos, peer: PeerId) -> None:
        if peer in self._leaf:
            self._probe_leaf(now, peer)

    # ---------------------------------------------------------------- failures

    def _clockwise(self, peer: PeerId) -> bool:
        """Whether the peer is on the side of the successors."""
        return (node_id(peer) - self._leaf.mine) % RING < RING // 2

    def _buried(self, now: Nanos, peer: PeerId) -> None:
        self._dead.pop(peer, None)
        self._dead[peer] = now

    def _failed(self, now: Nanos, peer: PeerId, claimed: bool) -> None:
        self._buried(now, peer)
        before = self._leaf.before(peer)
        if not self._drop(now, peer) or not self.joined:
            return
        if before == self.me:
            for member in self._leaf.peers:
                pending = self._probes.get(member)
                if pending is not None and pending.leaf:
                    self._send_probe(now, member, pending)  # the former one did not name the dead peer
                else:
                    self._probe_leaf(now, member)
        elif not claimed:
            self._probe_leaf(now, before)  # which then tells all others
        self._repair(now, self._clockwise(peer))

    def _repair(self, now: Nanos, clockwise: bool) -> None:
        """Ask the farthest member on a side for more; if there is none, the nearest other peer on that side."""
        target = self._leaf.farthest(clockwise)
        if target is None:
            mine, sign = self._leaf.mine, 1 if clockwise else -1
            target = min(self._others(), key=lambda peer: sign * (node_id(peer) - mine) % RING, default=None)
        if target is not None:
            self._probe_leaf(now, target)


Handlers = dict[type, Callable[[Any, Nanos, PeerId, Any], None]]
"""What a peer does about a message, by its type."""
HANDLERS: Handlers = {
    RingHeartbeat: RingMember._hear_heartbeat,
    LeafProbe: RingMember._hear_probe,
    LeafReply: RingMember._hear_reply,
    RingLeave: RingMember._hear_leave,
    TablePing: RingMember._hear_ping,
    TablePong: RingMember._hear_pong,
}
