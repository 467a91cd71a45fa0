"""The shape of an overlay: a small state machine that decides who the neighbours are.

It is told what concerns it and answers with the effects below; words to peers that are no neighbours may be lost. The
peer makes and ends links as it says, and the driver measures paths.
"""

from typing import Protocol

import msgspec

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.membership.messages import MembershipMessage
from wend.protocol.notices import ComposedReason
from wend.protocol.ports import FindPath, PathFound

# ---------------------------------------------------------------- what an overlay is told


class Begun(msgspec.Struct, frozen=True, gc=False):
    """With peers to begin with; they are asked again where all others are lost."""

    contacts: tuple[PeerId, ...]


class Told(msgspec.Struct, frozen=True, gc=False):
    sender: PeerId
    word: MembershipMessage


class Rung(msgspec.Struct, frozen=True, gc=False):
    """The alarm that was set. A spurious one is harmless."""


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """This peer goes, and says so."""


OverlayInput = Begun | Told | PathFound | Rung | Leaving

# ---------------------------------------------------------------- what it answers


class Say(msgspec.Struct, frozen=True, gc=False):
    peer: PeerId
    word: MembershipMessage


class Link(msgspec.Struct, frozen=True, gc=False):
    peer: PeerId
    path: Path
    """From here, as measured or inferred."""


class Rerouted(msgspec.Struct, frozen=True, gc=False):
    """The path of a link is another by now."""

    peer: PeerId
    path: Path


class Unlink(msgspec.Struct, frozen=True, gc=False):
    peer: PeerId


class Ring(msgspec.Struct, frozen=True, gc=False):
    time_ns: Nanos


class Distrust(msgspec.Struct, frozen=True, gc=False):
    """A word that no honest peer says."""

    peer: PeerId
    reason: ComposedReason


OverlayEffect = Say | FindPath | Link | Rerouted | Unlink | Ring | Distrust


class Overlay(Protocol):
    def handle(self, now: Nanos, event: OverlayInput) -> list[OverlayEffect]: ...
