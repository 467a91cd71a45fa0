"""The messages of `esposito`: inside a cluster, and between the coordinators of clusters. Nobody acknowledges them."""

import msgspec

from wend.model.events import Event, EventId
from wend.model.units import Nanos
from wend.strategies.path_diversity.parents import RouterPath

PUBLISHED_HERE = -1
"""In place of a tree: the event was published in this cluster."""

# ---------------------------------------------------------------- inside a cluster


class MemberFollows(msgspec.Struct, frozen=True, gc=False, tag="ef"):
    """To the coordinators and backups, with every beacon: groups that the sender follows."""

    groups: tuple[str, ...]
    gone: tuple[str, ...] = ()
    """Those that it follows no longer."""


class MulticastEvent(msgspec.Struct, frozen=True, gc=False, tag="ee"):
    """To all members: an event of theirs, or one that came by a tree."""

    event: Event
    age_ns: Nanos
    tree: int = PUBLISHED_HERE
    group: str = ""
    """The group of the tree."""


class ChosenParent(msgspec.Struct, frozen=True, gc=False, tag="ep"):
    """From the coordinator that joins to its partners: the parent of this cluster in a tree."""

    group: str
    tree: int
    parent: str


class PlaceChanged(msgspec.Struct, frozen=True, gc=False, tag="es"):
    """From an active coordinator to its partners and backups: the neighbours of this cluster in its tree."""

    group: str
    tree: int
    parent: str | None
    children: tuple[str, ...]
    ancestors: tuple[str, ...]


class Rejoin(msgspec.Struct, frozen=True, gc=False, tag="er"):
    """From a coordinator that missed an event to its partners: join all trees of the group again."""

    group: str


MemberMessage = MemberFollows | MulticastEvent | ChosenParent | PlaceChanged | Rejoin

# ---------------------------------------------------------------- between clusters


class FindParent(msgspec.Struct, frozen=True, gc=False, tag="ej"):
    """Travels towards the root. The first cluster that belongs to the tree answers with `TreeNeighbours`."""

    group: str
    tree: int
    cluster: str
    """The one that joins."""
    hops: int = 0


class AskPath(msgspec.Struct, frozen=True, gc=False, tag="ea"):
    """Asks a neighbour of the cluster that answered for its path and neighbours, too."""

    group: str
    tree: int
    cluster: str


class TreeNeighbours(msgspec.Struct, frozen=True, gc=False, tag="en"):
    """The answer: the path to the joiner, and the neighbours on the tree with the paths to them."""

    group: str
    tree: int
    cluster: str
    path: RouterPath
    neighbours: tuple[str, ...]
    neighbour_paths: tuple[RouterPath, ...]
    ancestors: tuple[str, ...]
    """The clusters between the sender and the root."""


class RegisterChild(msgspec.Struct, frozen=True, gc=False, tag="ec"):
    """The sender's cluster is a child of the receiver's. It says so again with every beacon."""

    group: str
    tree: int
    cluster: str


class ChildRegistered(msgspec.Struct, frozen=True, gc=False, tag="eC"):
    """The answer, told again when the ancestors change: the sender's cluster, then its ancestors."""

    group: str
    tree: int
    ancestors: tuple[str, ...]


class DropChild(msgspec.Struct, frozen=True, gc=False, tag="ex"):
    """The sender's cluster is no longer a child of the receiver's."""

    group: str
    tree: int
    cluster: str


class EventToRoot(msgspec.Struct, frozen=True, gc=False, tag="eu"):
    """An event on its way to the root of a tree."""

    group: str
    tree: int
    event: Event
    age_ns: Nanos
    hops: int = 0


class EventDown(msgspec.Struct, frozen=True, gc=False, tag="ed"):
    """An event on its way down a tree, or one that the sender's parent has asked for (`FetchEvent`)."""

    group: str
    tree: int
    event: Event
    age_ns: Nanos
    hops: int = 0


class OfferEvent(msgspec.Struct, frozen=True, gc=False, tag="eh"):
    """The sender has an event that the receiver did not send it on this tree: the receiver may miss it (Figure 7)."""

    group: str
    tree: int
    id: EventId


class FetchEvent(msgspec.Struct, frozen=True, gc=False, tag="eg"):
    """The answer of a receiver that misses the event: send it to me."""

    group: str
    tree: int
    id: EventId


JoinMessage = FindParent | AskPath | TreeNeighbours | RegisterChild | ChildRegistered | DropChild
TreeMessage = JoinMessage | EventToRoot | EventDown | OfferEvent | FetchEvent
EspositoMessage = MemberMessage | TreeMessage
