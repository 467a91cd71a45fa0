"""Slots: who speaks for a cluster on each tree.

A slot is (cluster, tree). It has one active coordinator and some backups, which hold its state. The head of a cluster
assigns all its slots at once, so one term numbers the assignment of all of them.
"""

import msgspec

from wend.model.events import PeerId


class Slot(msgspec.Struct, frozen=True, gc=False):
    """Who speaks for a cluster on one tree; the tree is the slot's index."""

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


def holders_of(slots: Slots) -> tuple[PeerId, ...]:
    """The coordinators and backups of a cluster, each once: active ones by tree, then first backups, and so on."""
    actives = [slot.active for slot in slots]
    most = max((len(slot.backups) for slot in slots), default=0)
    backups = [slot.backups[place] for place in range(most) for slot in slots if place < len(slot.backups)]
    return tuple(dict.fromkeys((*actives, *backups)))


MOST_BACKUPS = 32
"""Of one slot, in a message."""


def are_slots_invalid(slots: Slots, trees: int) -> bool:
    """Whether no head assigns such slots: one for each tree, all of one term, no peer twice in a slot."""
    return len(slots) != trees or any(
        slot.term != slots[0].term
        or slot.term < 1
        or len(slot.backups) > MOST_BACKUPS
        or len({*slot.holders}) != len(slot.holders)
        for slot in slots
    )
