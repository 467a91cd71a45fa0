"""The place of a cluster in a tree between clusters, and the search for a parent there."""

from wend.model.events import PeerId
from wend.model.units import Nanos

Router = int | str


class TreePlace:
    """Who is next to this cluster in one tree of a group."""

    __slots__ = ("ancestors", "beacons", "children", "cut_off", "parent")

    def __init__(self) -> None:
        self.beacons = 0
        """How often it was renewed with a parent."""
        self.cut_off = False
        """Whether the last search found nobody who is connected to the root."""
        self.parent: str | None = None
        """None at the root, and until a parent is found."""
        self.children: dict[str, Nanos] = {}
        """Each with the time at which it expires."""
        self.ancestors: tuple[str, ...] = ()
        """The clusters between here and the root, the parent first."""

    @property
    def neighbours(self) -> list[str]:
        return list(self.children) if self.parent is None else [self.parent, *self.children]


class ParentSearch:
    """A coordinator looks for a parent: who was asked, and who answered."""

    __slots__ = ("answers", "asked", "avoid", "improves", "until_ns", "wide")

    def __init__(self, until_ns: Nanos, avoid: str, wide: bool, improves: bool) -> None:
        self.until_ns = until_ns
        self.wide = wide
        """Whether all clusters are asked."""
        self.improves = improves
        """Whether there is a parent, and another may be better."""
        self.avoid = avoid
        """A cluster that did not answer or was cut off."""
        self.asked: dict[str, None] = {}
        self.answers: dict[str, tuple[PeerId, tuple[tuple[Router, ...], ...], tuple[str, ...]]] = {}
        """By cluster: its coordinator, its paths to its neighbours, and the clusters between it and the root."""
