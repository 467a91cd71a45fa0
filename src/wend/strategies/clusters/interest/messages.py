"""The messages of `clusters`: inside a cluster, and between the coordinators of clusters."""

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.strategies.clusters.interest.event_log import Numbers, Stream
from wend.strategies.path_diversity.parents import ParentCandidate, RouterPath

GroupNumbers = tuple[tuple[str, int], ...]
"""The groups of an event, each with its number there."""
Urgency = tuple[Nanos | None, float | None]
"""The tightest deadline, and the tightest factor of the shortest delay, of some subscriptions."""
GroupUrgency = tuple[str, Nanos | None, float | None]

# ---------------------------------------------------------------- inside a cluster


class MemberWants(msgspec.Struct, frozen=True, gc=False, tag="cw"):
    """To the coordinators and backups, with every beacon: groups that a member follows, and for how long it has
    followed each. The first coordinator answers with the digests of these groups."""

    groups: tuple[tuple[str, Nanos], ...]
    gone: tuple[str, ...] = ()
    """Those that it follows no longer."""


class ClusterEvent(msgspec.Struct, frozen=True, gc=False, tag="ce"):
    """To all members of the cluster: an event."""

    home: str
    """The cluster of its publisher."""
    numbers: GroupNumbers
    """Its groups, each with its number there."""
    event: Event
    age_ns: Nanos
    hops: int = 0


class MemberDeadlines(msgspec.Struct, frozen=True, gc=False, tag="cx"):
    """To the coordinators and backups: how soon a member needs events of these groups."""

    deadlines: tuple[GroupUrgency, ...]


class EventAccepted(msgspec.Struct, frozen=True, gc=False, tag="ca"):
    """To the publisher's peer: the coordinator of these trees has the event."""

    id: EventId
    trees: tuple[int, ...]


class StreamDigest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How far the sender has a stream."""

    publisher: PeerId
    incarnation: int
    last: int


class GroupDigest(msgspec.Struct, frozen=True, gc=False, tag="cd"):
    """What the sender has of a group: to all members, or to another cluster on this tree."""

    group: str
    streams: tuple[StreamDigest, ...]
    to: str = ""
    """The other cluster; empty inside a cluster."""
    tree: int = -1
    asks: bool = False
    """Whether the receiver is to answer with its own."""


class StreamMessage(msgspec.Struct, frozen=True, gc=False):
    """A message about some events of a stream."""

    publisher: PeerId
    incarnation: int
    group: str
    numbers: tuple[Numbers, ...]

    @property
    def stream(self) -> Stream:
        return self.publisher, self.incarnation, self.group


class FetchEvents(StreamMessage, frozen=True, gc=False, tag="cf"):
    """Asks for these events, if they were published within `age_ns`."""

    age_ns: Nanos
    to: str = ""
    """The cluster that has them, if it is another one."""
    tree: int = -1


class EventsGone(StreamMessage, frozen=True, gc=False, tag="cg"):
    """The answer about events that the sender had once: they are too old, or forgotten."""


# ---------------------------------------------------------------- coordinators of one cluster


class HoldTrees(msgspec.Struct, frozen=True, gc=False, tag="ch"):
    """To the backups of a coordinator: its place in the trees of these groups."""

    tree: int
    places: tuple[tuple[str, str, tuple[str, ...]], ...]
    """For each group: the parent's cluster, empty without one, and the children's. Neither: it has left the tree."""


class ParentsFound(msgspec.Struct, frozen=True, gc=False, tag="cp"):
    """To the coordinator that chooses: who may be the parent in a tree."""

    group: str
    tree: int
    candidates: tuple["ParentCandidate", ...]


class ParentChosen(msgspec.Struct, frozen=True, gc=False, tag="cc"):
    """From the coordinator that chooses: this cluster is the parent in your tree."""

    group: str
    tree: int
    parent: str


# ---------------------------------------------------------------- between clusters


class ToCluster(msgspec.Struct, frozen=True, gc=False):
    """A message to another cluster, on a tree."""

    to: str
    tree: int


class TreePlaceMessage(ToCluster, frozen=True, gc=False):
    """A message of a cluster about its place in the tree of a group."""

    group: str
    cluster: str


class TreeEvent(ToCluster, frozen=True, gc=False, tag="te"):
    """An event on a tree, to another cluster."""

    home: str
    group: str
    number: int
    event: Event
    age_ns: Nanos
    hops: int


class ClusterFollows(ToCluster, frozen=True, gc=False, tag="tf"):
    """To a coordinator of another cluster: the groups that the sender's cluster follows, and how soon it needs their
    events. It says so again with every beacon."""

    groups: tuple[GroupUrgency, ...]
    gone: tuple[str, ...] = ()
    """Those that it follows no longer."""
    asks: bool = False
    """Whether the receiver is to answer with its own."""


class EventNumbers(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The header of a packet between clusters."""

    home: str
    """The cluster of the event's publisher."""
    numbers: GroupNumbers
    """Its groups, each with its number there."""


class AskParents(TreePlaceMessage, frozen=True, gc=False, tag="tp"):
    """Asks a cluster on a tree which clusters may be the sender's parent."""


class PossibleParents(msgspec.Struct, frozen=True, gc=False, tag="tq"):
    """The answer: the sender's cluster, its neighbours on the tree with its paths to them, and its ancestors."""

    tree: int
    group: str
    cluster: str
    neighbours: tuple[str, ...]
    paths: tuple[RouterPath, ...]
    ancestors: tuple[str, ...]


class AddChild(TreePlaceMessage, frozen=True, gc=False, tag="tj"):
    """The sender's cluster is a child of the receiver's in this tree. It says so again with every beacon."""


class ChildAdded(msgspec.Struct, frozen=True, gc=False, tag="tk"):
    """The answer, with the sender's ancestors. The sender also sends it when it is cut off from the root."""

    tree: int
    group: str
    cluster: str
    ancestors: tuple[str, ...]
    """From the sender to the root; empty if it is cut off."""


class RemoveChild(TreePlaceMessage, frozen=True, gc=False, tag="tl"):
    """The sender's cluster is no longer a child of the receiver's."""


class HaveEvent(ToCluster, frozen=True, gc=False, tag="th"):
    """To a neighbour on a tree that did not send an event in time: the sender has the event."""

    publisher: PeerId
    incarnation: int
    group: str
    number: int


class PublishedEvent(msgspec.Struct, frozen=True, gc=False, tag="cr"):
    """What a publisher's peer stores of an event: its slot in the store, and its numbers. Without an event the slot is
    free."""

    slot: int
    numbers: GroupNumbers = ()
    event: Event | None = None
    born_ns: Nanos = 0


class FollowedSince(msgspec.Struct, frozen=True, gc=False, tag="cs"):
    """What a member stores of a group that it follows."""

    group: str
    since_ns: Nanos


SharedMessage = (
    MemberWants
    | ClusterEvent
    | EventAccepted
    | GroupDigest
    | FetchEvents
    | EventsGone
    | TreeEvent
    | PublishedEvent
    | FollowedSince
)
"""Those of both `cluster-trees` and `cluster-graph`."""
TreeMessage = (
    HoldTrees
    | ParentsFound
    | ParentChosen
    | AskParents
    | PossibleParents
    | AddChild
    | ChildAdded
    | RemoveChild
    | HaveEvent
)
"""Those of `cluster-trees` alone."""
