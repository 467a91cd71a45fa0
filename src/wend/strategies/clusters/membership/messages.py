"""The messages of `clusters`. Any of them may get lost, so a peer repeats those that need an answer.

Messages inside a cluster carry its name and its agreement, a hash of the settings that all members must share. So every
single message shows whether its sender belongs to another cluster, or to another one of the same name.

A slot says who speaks for a cluster on one tree: an active coordinator, and some backups that hold its state. The head
of a cluster assigns all its slots at once, so they have one term.
"""

from zlib import crc32

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.clusters.membership.settings import ClusterSettings


class Slot(msgspec.Struct, frozen=True, gc=False):
    """Who speaks for a cluster on the tree whose number is the slot's index."""

    active: PeerId
    backups: tuple[PeerId, ...] = ()
    """In the order in which they succeed the active coordinator."""
    term: int = 0
    """Of the assignment: the highest one counts."""

    @property
    def holders(self) -> tuple[PeerId, ...]:
        """The active coordinator, then the backups: the order in which others write to them."""
        return self.active, *self.backups


Slots = tuple[Slot, ...]
"""Of one cluster, by tree."""


def slot_holders(slots: Slots) -> tuple[PeerId, ...]:
    """The coordinators and backups of a cluster, each once: active ones by tree, then first backups, and so on."""
    actives = [slot.active for slot in slots]
    most = max((len(slot.backups) for slot in slots), default=0)
    backups = [slot.backups[place] for place in range(most) for slot in slots if place < len(slot.backups)]
    return tuple(dict.fromkeys((*actives, *backups)))


MAX_BACKUPS = 32
"""Of one slot, in a message."""


def are_slots_invalid(slots: Slots, trees: int) -> bool:
    """Whether no head assigns these slots. It assigns one for each tree, all of one term, with no peer twice in one."""
    return len(slots) != trees or any(
        slot.term != slots[0].term
        or slot.term < 1
        or len(slot.backups) > MAX_BACKUPS
        or len({*slot.holders}) != len(slot.holders)
        for slot in slots
    )


MAX_MEMBERS = 3000
"""A roster must fit a datagram."""
MAX_CLUSTERS = 1000
MAX_NAMED = 64
"""The longest of the other lists of peers."""
LAST_TERM = 1 << 48
LONGEST_NAME = 100


class Roster(msgspec.Struct, frozen=True, gc=False):
    """The members and slots of a cluster in one term, as its head assigned them."""

    term: int
    head: PeerId
    members: tuple[tuple[PeerId, int], ...]
    """Each with its incarnation; sorted."""
    slots: Slots
    lost: tuple[PeerId, ...] = ()
    """Former members that did not leave: heads look for them."""


class ClusterEntry(msgspec.Struct, frozen=True, gc=False):
    """A cluster in the directory."""

    name: str
    agreement: int
    head: PeerId
    slots: Slots
    stamp: int
    """It grows while the cluster lives."""

    @property
    def version(self) -> tuple[int, int, int]:
        """Entries of one name compare by the rule for rosters, then by stamp."""
        return self.slots[0].term, -self.head, self.stamp


class ClusterSearch(msgspec.Struct, frozen=True, gc=False, tag="cs"):
    """The sender searches for its cluster, by multicast and from contacts. The answer is `SearchAnswer`."""

    cluster: str
    agreement: int
    incarnation: int


class SearchAnswer(msgspec.Struct, frozen=True, gc=False, tag="cf"):
    """The answer to `ClusterSearch`: who coordinates the sender's own cluster and the one in question."""

    cluster: str
    asked: str
    entries: tuple[ClusterEntry, ...]
    """Of both clusters, as far as the sender knows them."""
    seekers: tuple[PeerId, ...] = ()
    """Others that search for the cluster in question."""
    term: int = 0
    """The last term of the cluster in question, if its entry has expired."""


class IntraClusterMessage(msgspec.Struct, frozen=True, gc=False):
    """A message among peers of one cluster."""

    cluster: str
    agreement: int


class MemberBeat(IntraClusterMessage, frozen=True, gc=False, tag="cb"):
    """A member's heartbeat to the head, and among coordinators and backups. From another peer, a request to join."""

    incarnation: int
    term: int
    head: PeerId
    """Of the sender's roster; term 0 if it has none."""
    seeks: bool = False
    """Whether the sender misses its head, and asks coordinators and backups to pass messages on."""
    hears_head: bool = False
    """Whether it hears the head's multicast."""
    hears: bool = False
    """Whether it hears any multicast of the cluster."""
    mute: tuple[PeerId, ...] = ()
    """Members whose multicast it does not hear."""


class PassedBeat(msgspec.Struct, frozen=True, gc=False, tag="cy"):
    """To the head: the heartbeat of a member that misses it."""

    member: PeerId
    beat: MemberBeat


class HeadBeacon(IntraClusterMessage, frozen=True, gc=False, tag="ch"):
    """From the head to all members, once per period. Other members pass it on to one that misses the head."""

    term: int
    head: PeerId
    digest: int = 0
    """Of the roster: a member that has another roster asks for this one."""
    stamp: int = 0
    by_multicast: bool = False
    age_ns: Nanos = 0
    """How long ago the head sent it, if another member passes it on."""
    works: bool = False
    """Whether multicast works in this cluster."""
    mute: tuple[PeerId, ...] = ()
    """Members whose multicast does not reach all others."""


class RosterRequest(msgspec.Struct, frozen=True, gc=False, tag="cq"):
    """Asks for the receiver's roster. The answer is `RosterUpdate`."""

    cluster: str


class RosterUpdate(IntraClusterMessage, frozen=True, gc=False, tag="cr"):
    """A roster, from the head to all members, or from any member to a peer that asked for it."""

    roster: Roster
    stamp: int = 0
    by_multicast: bool = False


class MemberProbe(msgspec.Struct, frozen=True, gc=False, tag="cp"):
    """Asks for a sign of life, and measures the round trip."""

    number: int


class MemberAnswer(msgspec.Struct, frozen=True, gc=False, tag="cP"):
    """The answer to `MemberProbe`, with its number."""

    number: int
    incarnation: int


class MemberLeave(msgspec.Struct, frozen=True, gc=False, tag="cl"):
    """The sender leaves its cluster."""

    cluster: str
    incarnation: int


class MulticastProbe(msgspec.Struct, frozen=True, gc=False, tag="cm"):
    """Sent by multicast only: a peer that gets it hears the sender's multicast."""

    cluster: str


class DirectoryDigest(msgspec.Struct, frozen=True, gc=False, tag="cd"):
    """The clusters that a coordinator or backup knows, for one of another cluster. The answer is `DirectoryEntries`."""

    number: int
    known: tuple[tuple[str, int, int, int], ...]
    """Name, and version of the entry."""


class DirectoryEntries(msgspec.Struct, frozen=True, gc=False, tag="ce"):
    """Entries that the receiver lacks, and names of entries that the sender lacks."""

    entries: tuple[ClusterEntry, ...]
    wanted: tuple[str, ...] = ()
    number: int = 0
    """Of the digest that it answers; 0 if it answers none."""


ClusterMessage = (
    ClusterSearch
    | SearchAnswer
    | MemberBeat
    | PassedBeat
    | HeadBeacon
    | RosterRequest
    | RosterUpdate
    | MemberProbe
    | MemberAnswer
    | MemberLeave
    | MulticastProbe
    | DirectoryDigest
    | DirectoryEntries
)


def settings_hash(settings: ClusterSettings) -> int:
    """A hash of the settings that all members of a cluster share."""
    shared = (settings.coordinators, settings.backups, settings.cluster_domain)
    return crc32(msgspec.msgpack.encode(shared))


def roster_digest(roster: Roster) -> int:
    return crc32(msgspec.msgpack.encode(roster))


def is_invalid(message: ClusterMessage, coordinators: int) -> bool:
    """Whether no correct peer sends this message to peers whose clusters have this number of coordinators."""
    match message:
        case RosterUpdate(cluster, _, roster):
            return _is_bad_name(cluster) or _is_bad_roster(roster, coordinators)
        case MemberBeat() | HeadBeacon():
            return _is_bad_beat(message)
        case PassedBeat(_, beat):
            return _is_bad_beat(beat)
        case ClusterSearch(cluster) | MemberLeave(cluster):
            return _is_bad_name(cluster) or message.incarnation < 1
        case SearchAnswer(_, _, entries, seekers, term):
            is_long = len(entries) > 2 or len(seekers) > MAX_NAMED
            return is_long or not 0 <= term < LAST_TERM or _has_bad_entry(entries, coordinators)
        case DirectoryEntries(entries, wanted):
            return max(len(entries), len(wanted)) > MAX_CLUSTERS or _has_bad_entry(entries, coordinators)
        case DirectoryDigest(_, known):
            return len(known) > MAX_CLUSTERS or any(_is_bad_name(name) for name, *_ in known)
    return False


def _is_bad_name(name: str) -> bool:
    return not 0 < len(name) <= LONGEST_NAME


def _is_bad_beat(message: MemberBeat | HeadBeacon) -> bool:
    if _is_bad_name(message.cluster) or len(message.mute) > MAX_NAMED:
        return True
    if isinstance(message, MemberBeat):
        return message.incarnation < 1 or not 0 <= message.term < LAST_TERM
    return message.age_ns < 0 or not 0 < message.term < LAST_TERM


def _has_bad_entry(entries: tuple[ClusterEntry, ...], coordinators: int) -> bool:
    return any(
        _is_bad_name(entry.name) or are_slots_invalid(entry.slots, coordinators) or entry.slots[0].term >= LAST_TERM
        for entry in entries
    )


def _is_bad_roster(roster: Roster, coordinators: int) -> bool:
    peers = [peer for peer, _ in roster.members]
    return (
        not 0 < roster.term < LAST_TERM
        or len(peers) > MAX_MEMBERS
        or peers != sorted({*peers})
        or roster.head not in peers
        or len(roster.lost) > MAX_NAMED
        or are_slots_invalid(roster.slots, coordinators)
        or roster.slots[0].term != roster.term
        or not {*slot_holders(roster.slots)} <= {*peers}
    )
