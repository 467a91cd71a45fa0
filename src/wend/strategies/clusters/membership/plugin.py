"""`clusters`: the peers of one routing domain, behind coordinators that speak for them (esposito, section 3).

Peers with the same cluster name are members of one cluster. All members know each other. For each tree between clusters
one of them is the active coordinator, and some are its backups (`cluster_slots.py`). Coordinators and backups also know
the directory of all clusters.

| part | where |
| --- | --- |
| finding the cluster, telling others of it | `cluster_contacts.py`, `cluster_search.py` |
| rosters and election | `cluster_roster.py`, by the rule in `cluster_election.py` |
| heartbeats, merging | `cluster_member.py` |
| failure detector, round trips | `cluster_detector.py` |
| whether multicast works | `cluster_multicast.py` |
| other clusters | `cluster_directory.py` |
| the name, if nobody gives one | `cluster_domains.py` |

The paper leaves the election to a bully algorithm and does not say how clusters find each other; both are Wend's own.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Begun,
    Changed,
    ComposedReason,
    ContactFound,
    Due,
    Heard,
    Needs,
    PathFound,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    Stopping,
    Unanswered,
    View,
)
from wend.strategies.clusters.membership.contacts import GOSSIP, NAME, SEEK, ClusterContacts
from wend.strategies.clusters.membership.domains import domain_of_path
from wend.strategies.clusters.membership.messages import MemberLeave, cannot_be
from wend.strategies.clusters.membership.roster import ADMIT, BEAT, DETECT, SETTLE, TAKE_OVER
from wend.strategies.clusters.membership.slots import Slots

CLUSTER: Final = "cluster"
"""What changed, for other plug-ins."""
MEASURED = 16
"""Heartbeat periods between two measurements of a round trip."""
MOST_UNANSWERED = 256


class Clusters(ClusterContacts):
    """Who belongs to this peer's cluster, and who speaks for it and for others."""

    needs: ClassVar[Needs] = Needs()
    joins: ClassVar[bool] = True
    strategy: ClassVar[str | None] = "clusters"
    domain_setting: ClassVar[str | None] = "cluster"

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._unanswered: dict[PeerId, Nanos] = {}
        """When each peer last left a message of some plug-in without an answer."""
        self._gone = False

    # ---------------------------------------------------------------- what other plug-ins ask

    @property
    def joined(self) -> bool:
        """Whether this peer belongs to a cluster, which then has a coordinator for every tree."""
        return self._roster is not None and not self._gone

    @property
    def my_tree(self) -> int | None:
        """The first of them."""
        return next(iter(self.my_trees), None)

    @property
    def my_backups(self) -> tuple[int, ...]:
        """The trees for which this peer is a backup."""
        return tuple(tree for tree, slot in enumerate(self.slots) if self.me in slot.backups)

    @property
    def directory(self) -> Mapping[str, Slots]:
        """All known clusters, this peer's own among them; empty unless it is a coordinator or backup."""
        return self._directory.slots

    @property
    def multicast_works(self) -> bool:
        """Whether this peer's multicast reaches all live members, as they say."""
        return self._test.works

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        """The measured round trip, or a first guess."""
        return self._detector.round_trip_ns(peer)

    def believes_live(self, peer: PeerId) -> bool:
        """Whether a member, a coordinator or a backup of any cluster lives, as far as this peer knows."""
        if peer == self.me:
            return True
        known = peer in self._members or peer in self._directory
        return known and peer not in self._detector.dead and peer not in self._unanswered

    def informants(self) -> tuple[PeerId, ...]:
        """The head hears all members, and coordinators hear those of other clusters."""
        own = () if self._roster is None else (self._roster.head, *self._holders)
        return tuple(peer for peer in dict.fromkeys((*own, *self._others())) if peer != self.me)

    def status(self) -> dict[str, int]:
        """1 under `joined` where it has; `members`; `clusters` that it knows; `head`, the peer that assigned the slots,
        and their `term`; 1 under `multicast` where the peer's multicast reaches all members. `active/0` is 1 at the
        active coordinator of tree 0, `backup/0` at its backups."""
        shown = {
            "joined": int(self.joined),
            "members": len(self._members),
            "clusters": len(self._directory),
            "multicast": int(self.multicast_works),
        }
        if self._roster is not None:
            shown |= {"head": self._roster.head, "term": self._roster.term}
        shown |= {f"active/{tree}": 1 for tree in self.my_trees}
        return shown | {f"backup/{tree}": 1 for tree in self.my_backups}

    # ---------------------------------------------------------------- inputs

    def handle(self, now: Nanos, event: PluginInput, view: View | None = None) -> list[PluginEffect]:
        if self._gone:
            return []
        match event:
            case Heard(sender, message):
                self._hear(now, sender, message)
            case Due(name):
                self._due(now, name)
            case Begun(contacts, contacts_follow):
                self._search.begin(contacts, contacts_follow)
                self._start_beats(now)
                self._name_cluster(now)
            case ContactFound(peer):
                self._search.found_contact(peer)
                self._greet(peer)
            case PathFound(_, path):
                if not self.cluster:
                    self._named(now, domain_of_path(path))
            case Unanswered(peer):
                self._unanswered.pop(peer, None)
                self._unanswered[peer] = now
                if len(self._unanswered) > MOST_UNANSWERED:
                    del self._unanswered[next(iter(self._unanswered))]
                self._detector.suspect(now, peer)
            case Stopping():
                self._leave()
        self._arm(now)
        if self._moved:
            self._moved = False
            self._out.append(Changed(CLUSTER))
        out, self._out = self._out, []
        return out

    def _hear(self, now: Nanos, sender: PeerId, message: Any) -> None:
        self._unanswered.pop(sender, None)
        if sender == self.me or cannot_be(message, self._settings.coordinators):
            self._out.append(Refuse(sender, ComposedReason(f"{type(message).__name__}: a message that cannot be")))
        elif self.cluster:
            self.hears[type(message)](self, now, sender, message)

    def _due(self, now: Nanos, name: str) -> None:
        if name == BEAT:
            self._beat(now)
        elif name == DETECT:
            self._detect(now)
        elif name == ADMIT:
            if self.is_head and self._joiners:
                self._write_roster(now)
        elif name == SETTLE:
            self._settle(now)
        elif name == TAKE_OVER:
            self._take_over(now)
        elif name == SEEK:
            self._seek(now)
        elif name == GOSSIP:
            self._gossip(now)
        elif name == NAME and not self.cluster:
            self._named(now, f"peer {self.me}")

    def _leave(self) -> None:
        if self._roster is not None:
            told = dict.fromkeys((self._roster.head, *self._holders))
            for peer in told:
                self._say(peer, MemberLeave(self.cluster, self._incarnation))
        self._gone = True

    # ---------------------------------------------------------------- round trips

    def _tend(self, now: Nanos) -> None:
        limit = now - self._detection
        for peer in [peer for peer, when in self._unanswered.items() if when < limit]:
            del self._unanswered[peer]
        super()._tend(now)
        self._measure(now)

    def _measure(self, now: Nanos) -> None:
        """Measure the round trip to a coordinator or backup that was not measured yet, else now and then to anyone."""
        coordinators = [peer for peer in (*self._holders, *self._others()) if peer != self.me]
        chosen = [peer for peer in coordinators if not self._detector.measured(peer)]
        if not chosen and self._beats % MEASURED == 0:
            chosen = [*coordinators, *(peer for peer in self._sorted if peer != self.me)]
        if chosen:
            self._probe(now, self._draw("measure").choice(chosen))

    def _others(self) -> list[PeerId]:
        """The coordinators of other clusters, as far as this peer knows them."""
        return [slot.active for name, slots in self._directory.slots.items() if name != self.cluster for slot in slots]
