"""The messages of `clusters`. Any of them may get lost, so a peer repeats what it needs an answer to.

Messages inside a cluster carry its name and its agreement, a hash of the settings that all members must share. So a
peer of another cluster, or of another one with the same name, is told apart by every single message.
"""

from zlib import crc32

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.clusters.membership.settings import ClusterSettings
from wend.strategies.clusters.membership.slots import Slots, are_slots_invalid, holders_of

MOST_MEMBERS = 3000
"""A roster must fit a datagram."""
MOST_CLUSTERS = 1000
"""In a directory."""
MOST_NAMED = 64
"""Peers or clusters that other lists name, at most."""
LAST_TERM = 1 << 48
LONGEST_NAME = 100


class Roster(msgspec.Struct, frozen=True, gc=False):
    """All of a cluster in one term, as its head made it."""

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
    """Grows as long as the cluster lives."""

    @property
    def version(self) -> tuple[int, int, int]:
        """Entries of one name compare by the rule for rosters, then by stamp."""
        return self.slots[0].term, -self.head, self.stamp


class ClusterSearch(msgspec.Struct, frozen=True, gc=False, tag="cs"):
    """The sender looks for its cluster: by multicast, and from contacts. The answer is `ClusterFound`."""

    cluster: str
    agreement: int
    incarnation: int


class ClusterFound(msgspec.Struct, frozen=True, gc=False, tag="cf"):
    """What a peer says to one that looks for a cluster: who coordinates the sender's own, and the one asked for."""

    cluster: str
    asked: str
    entries: tuple[ClusterEntry, ...]
    """Of the sender's own cluster and of the one asked for, where they are known."""
    seekers: tuple[PeerId, ...] = ()
    """Others that look for the cluster asked for."""
    term: int = 0
    """If the cluster asked for was known and has expired: its last term."""


class MemberBeat(msgspec.Struct, frozen=True, gc=False, tag="cb"):
    """A member's heartbeat, to the head, and among coordinators and backups. From others: a request to join."""

    cluster: str
    agreement: int
    incarnation: int
    term: int
    head: PeerId
    """Of the sender's roster; term 0 where it has none."""
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


class HeadBeacon(msgspec.Struct, frozen=True, gc=False, tag="ch"):
    """From the head to all members, once per period; others pass it on where somebody misses it."""

    cluster: str
    agreement: int
    term: int
    head: PeerId
    digest: int = 0
    """Of the roster: who has another one asks for it."""
    stamp: int = 0
    by_multicast: bool = False
    age_ns: Nanos = 0
    """Where it is passed on: how long ago the head sent it."""
    works: bool = False
    """Whether multicast works in this cluster."""
    mute: tuple[PeerId, ...] = ()
    """Members whose multicast does not reach all others."""


class RosterRequest(msgspec.Struct, frozen=True, gc=False, tag="cq"):
    """Asks for the receiver's roster. The answer is `RosterTold`."""

    cluster: str


class RosterTold(msgspec.Struct, frozen=True, gc=False, tag="cr"):
    """A roster, from the head to all members, or to one that asked."""

    cluster: str
    agreement: int
    roster: Roster
    stamp: int = 0
    by_multicast: bool = False


class MemberProbe(msgspec.Struct, frozen=True, gc=False, tag="cp"):
    """Are you there, and how far away?"""

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
    """By multicast only: who gets it hears the sender's multicast."""

    cluster: str


class DirectoryDigest(msgspec.Struct, frozen=True, gc=False, tag="cd"):
    """The clusters that a coordinator or backup knows, for one of another cluster. The answer is `DirectoryEntries`."""

    number: int
    known: tuple[tuple[str, int, int, int], ...]
    """Name, and version of the entry."""


class DirectoryEntries(msgspec.Struct, frozen=True, gc=False, tag="ce"):
    """Entries that the receiver lacks, and names of those that the sender lacks."""

    entries: tuple[ClusterEntry, ...]
    wanted: tuple[str, ...] = ()
    number: int = 0
    """Of the digest that it answers; 0 where it answers none."""


ClusterMessage = (
    ClusterSearch
    | ClusterFound
    | MemberBeat
    | PassedBeat
    | HeadBeacon
    | RosterRequest
    | RosterTold
    | MemberProbe
    | MemberAnswer
    | MemberLeave
    | MulticastProbe
    | DirectoryDigest
    | DirectoryEntries
)


def agreement_of(settings: ClusterSettings) -> int:
    """A hash of the settings that all members of a cluster share."""
    shared = (settings.coordinators, settings.backups, settings.cluster_domain)
    return crc32(msgspec.msgpack.encode(shared))


def digest_of(roster: Roster) -> int:
    return crc32(msgspec.msgpack.encode(roster))


def is_invalid(message: ClusterMessage, coordinators: int) -> bool:
    """Whether no correct peer sends such a message to peers whose clusters have so many coordinators."""
    match message:
        case RosterTold(cluster, _, roster):
            return _is_bad_name(cluster) or _is_bad_roster(roster, coordinators)
        case MemberBeat() | HeadBeacon():
            return _is_bad_beat(message)
        case PassedBeat(_, beat):
            return _is_bad_beat(beat)
        case ClusterSearch(cluster) | MemberLeave(cluster):
            return _is_bad_name(cluster) or message.incarnation < 1
        case ClusterFound(_, _, entries, seekers, term):
            is_long = len(entries) > 2 or len(seekers) > MOST_NAMED
            return is_long or not 0 <= term < LAST_TERM or _has_bad_entry(entries, coordinators)
        case DirectoryEntries(entries, wanted):
            return max(len(entries), len(wanted)) > MOST_CLUSTERS or _has_bad_entry(entries, coordinators)
        case DirectoryDigest(_, known):
            return len(known) > MOST_CLUSTERS or any(_is_bad_name(name) for name, *_ in known)
    return False


def _is_bad_name(name: str) -> bool:
    return not 0 < len(name) <= LONGEST_NAME


def _is_bad_beat(message: MemberBeat | HeadBeacon) -> bool:
    if _is_bad_name(message.cluster) or len(message.mute) > MOST_NAMED:
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
        or len(peers) > MOST_MEMBERS
        or peers != sorted({*peers})
        or roster.head not in peers
        or len(roster.lost) > MOST_NAMED
        or are_slots_invalid(roster.slots, coordinators)
        or roster.slots[0].term != roster.term
        or not {*holders_of(roster.slots)} <= {*peers}
    )
