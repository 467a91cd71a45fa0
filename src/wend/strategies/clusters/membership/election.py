"""Who heads a cluster, and who speaks for it: the rule of election, as functions of what a peer knows.

**The roster.** One member, the head, writes a roster: all members, and one slot for each tree with an active
coordinator and backups. A roster has a term, and every new one has a higher term than all that its head has heard of.

**Which roster counts.** Of two rosters, the one with the higher term wins; if terms are equal, the one whose head has
the lower id (`wins`). A peer adopts a roster that names it and has a higher term than its own. If a roster wins but
does not name the peer, or has the same term, the peer asks its head for the next one. So two heads that meet after a
partition become one: the losing head and its members join the other.

**Succession.** The order is the head, the active coordinators by tree, first backups by tree, second ones and so on,
then all other members by id (`succession`). Coordinators and backups send each other heartbeats. If one of them finds
all peers before it dead, it is the head (`is_first`). A member without a role finds the head and all coordinators and
backups dead; then it waits one heartbeat period for each member between, so that the first of them acts alone
(`takeover_delay`). A head lives as long as it answers: nobody takes over because of a lower id.

**Slots** (`reassign`). An active coordinator that lives stays. If it is dead, the first backup of the slot that lives
takes over, one that coordinates no other tree if there is one. Without a live backup it is the member with the fewest
trees. If the cluster has fewer members than trees, some coordinate several.

**Make before break.** If a member coordinates several trees and others none, one of those becomes a backup first, and
only then, when the head has waited a detection time (`ready`), the coordinator. Better backups likewise come before the
others go. So whoever takes over a tree has had time to get its state.
"""

from collections import Counter
from collections.abc import Collection

from wend.model.events import PeerId
from wend.strategies.clusters.membership.messages import Roster, Slot, Slots, slot_holders


def wins(term: int, head: PeerId, other_term: int, other_head: PeerId) -> bool:
    """Whether the first roster wins over the second."""
    return (term, -head) > (other_term, -other_head)


def succession(roster: Roster) -> tuple[PeerId, ...]:
    """The members in the order in which they head the cluster."""
    everyone = [peer for peer, _ in roster.members]
    return tuple(dict.fromkeys((roster.head, *slot_holders(roster.slots), *everyone)))


def is_first(roster: Roster, me: PeerId, dead: Collection[PeerId]) -> bool:
    """Whether all members before this one in the order of succession are dead."""
    return next((peer for peer in succession(roster) if peer not in dead), me) == me


def takeover_delay(roster: Roster, me: PeerId, dead: Collection[PeerId]) -> int:
    """Heartbeat periods that a member without a role waits before it takes over."""
    roles = {roster.head, *slot_holders(roster.slots)}
    others = [peer for peer in succession(roster) if peer not in roles and peer not in dead]
    return min(others.index(me), MAX_PATIENCE) if me in others else 0


MAX_PATIENCE = 12


def first_slots(me: PeerId, trees: int) -> Slots:
    """Assign all trees to the only member of a cluster."""
    return (Slot(me, (), 1),) * trees


def reassign(
    slots: Slots, live: Collection[PeerId], fresh: Collection[PeerId], backups: int, term: int, ready: bool
) -> Slots:
    """The slots of the next term: `live` are the members, sorted, with those that `fresh` names: they have just joined
    or restarted, and hold no state. `ready`: new backups have had time to get the state."""
    members = list(live)
    stateful = [peer for peer in members if peer not in fresh]
    actives = _assign_actives(slots, stateful, members)
    heirs = [_heirs(slot, stateful) for slot in slots]
    if ready:
        _spread_trees(actives, heirs)
    assigned: list[Slot] = []
    load: Counter[PeerId] = Counter()
    for slot, active, before in zip(slots, actives, heirs, strict=True):
        present = tuple(peer for peer in dict.fromkeys((slot.active, *before)) if peer != active and peer in stateful)
        best = _best_backups(active, present, members, actives, load, backups)
        load.update(best)
        stay = tuple(peer for peer in present if not ready or peer in best)
        assigned.append(Slot(active, (*stay, *(peer for peer in best if peer not in stay)), term))
    return tuple(assigned)


def _assign_actives(slots: Slots, stateful: list[PeerId], members: list[PeerId]) -> list[PeerId]:
    actives: list[PeerId] = []
    for tree, slot in enumerate(slots):
        active = slot.active
        if active not in stateful:
            later = [other.active for other in slots[tree + 1 :] if other.active in stateful]
            active = _successor(_heirs(slot, stateful), stateful, members, Counter([*actives, *later]))
        actives.append(active)
    return actives


def _heirs(slot: Slot, stateful: list[PeerId]) -> tuple[PeerId, ...]:
    return tuple(peer for peer in slot.backups if peer in stateful)


def _successor(
    heirs: tuple[PeerId, ...], stateful: list[PeerId], members: list[PeerId], load: Counter[PeerId]
) -> PeerId:
    if heirs:
        return min(heirs, key=lambda peer: load[peer] > 0)  # the first of them, if all are alike
    return min(members, key=lambda peer: (load[peer], peer not in stateful, peer))


def _spread_trees(actives: list[PeerId], heirs: list[tuple[PeerId, ...]]) -> None:
    """Hand trees of members that coordinate several over to backups that coordinate none."""
    for tree in reversed(range(len(actives))):
        if actives.count(actives[tree]) > 1:
            idle = [peer for peer in heirs[tree] if peer not in actives]
            if idle:
                heirs[tree] = (actives[tree], *(peer for peer in heirs[tree] if peer != idle[0]))
                actives[tree] = idle[0]


def _best_backups(
    active: PeerId,
    present: tuple[PeerId, ...],
    members: list[PeerId],
    actives: list[PeerId],
    load: Counter[PeerId],
    backups: int,
) -> tuple[PeerId, ...]:
    """Choose first peers that coordinate nothing, then those that back up fewer trees, then the present ones.

    If the active coordinator has several trees and others none, one of those is to be a backup in any case: it
    coordinates this tree later."""
    if actives.count(active) > 1 and any(peer not in actives for peer in members):
        backups = max(backups, 1)
    others = [peer for peer in members if peer != active]
    others.sort(key=lambda peer: (actives.count(peer), load[peer], peer not in present, peer))
    return tuple(others[:backups])
