"""What peers say to each other while they build trees. Trees are numbered from 0; links are ordered by their `Key`."""

import msgspec

from wend.model.events import PeerId

Key = tuple[int, float, PeerId, PeerId]
"""A link as one tree orders it: how many trees before it use it, its weight, its ends. No two are equal."""


class Connect(msgspec.Struct, frozen=True, gc=False, tag="tc"):
    """My fragment, of this level, joins yours over this link."""

    tree: int
    level: int


class Initiate(msgspec.Struct, frozen=True, gc=False, tag="ti"):
    """You belong to the fragment with this core, of this level; look for its best way out if it is `finding`."""

    tree: int
    level: int
    core: Key
    finding: bool


class Probe(msgspec.Struct, frozen=True, gc=False, tag="tt"):
    """Does this link lead out of my fragment? GHS calls it TEST."""

    tree: int
    level: int
    core: Key


class Accept(msgspec.Struct, frozen=True, gc=False, tag="ta"):
    tree: int


class Reject(msgspec.Struct, frozen=True, gc=False, tag="tr"):
    tree: int


class Report(msgspec.Struct, frozen=True, gc=False, tag="tp"):
    """The best way out that was found on this side; None where there is none."""

    tree: int
    best: Key | None


class ChangeCore(msgspec.Struct, frozen=True, gc=False, tag="th"):
    """The best way out of all is on your side: connect over it."""

    tree: int


class Complete(msgspec.Struct, frozen=True, gc=False, tag="td"):
    """All trees stand."""


Word = Connect | Initiate | Probe | Accept | Reject | Report | ChangeCore | Complete
