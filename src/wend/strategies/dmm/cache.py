"""The cache of active leaves at a peer, which sends events and entries there directly (the paper's TreeCache).

As in section V-C, the owner of a leaf tells it to a peer from which these come, and reminds this peer while they do.
The cache forgets a leaf without a reminder. A stale leaf costs a detour: its former owner passes them on by the key of
the region.
"""

from collections.abc import Iterable, Mapping

from wend.matching.filters import parse
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Timer
from wend.strategies.dmm.messages import FromLeaves, Reply, ToCachedLeaf, ToLeaves, TreeInfo, WantInSpace
from wend.strategies.dmm.search_nodes import SearchNode
from wend.strategies.dmm.settings import DmmSettings
from wend.strategies.dmm.spaces import SpaceName, Spaces
from wend.strategies.ring.key_based import Entry, EntryId
from wend.strategies.ring.reverse_paths import Outgoing, ReversePaths

_TREE_BEACON = "tree-beacon"


class TreeCache:
    """The active leaves that events and entries from here have found, by space and code."""

    __slots__ = ("_expiry_ns", "_leaves", "_limit")

    def __init__(self, expiry_ns: Nanos, limit: int = 4096) -> None:
        self._expiry_ns = expiry_ns
        self._limit = limit
        self._leaves: dict[SpaceName, dict[str, tuple[PeerId, Nanos]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._leaves.values()))

    def add(self, now: Nanos, space: SpaceName, code: str, owner: PeerId) -> None:
        """Add or renew a leaf. It replaces leaves that contain it, and those that it contains."""
        if space not in self._leaves and len(self._leaves) >= self._limit:
            return
        leaves = self._leaves.setdefault(space, {})
        for other in [each for each in leaves if each != code and (code.startswith(each) or each.startswith(code))]:
            del leaves[other]
        if code in leaves or len(leaves) < self._limit:
            leaves[code] = (owner, now + self._expiry_ns)

    def find(self, now: Nanos, space: SpaceName, code: str) -> tuple[str, PeerId] | None:
        """The leaf that contains this region, and its owner."""
        leaves = self._leaves.get(space)
        if leaves:
            for length in range(len(code), -1, -1):
                leaf = leaves.get(code[:length])
                if leaf is not None and leaf[1] > now:
                    return code[:length], leaf[0]
        return None

    def discard(self, space: SpaceName, code: str) -> None:
        self._leaves.get(space, {}).pop(code, None)

    def forget(self, space: SpaceName) -> None:
        self._leaves.pop(space, None)

    def expire(self, now: Nanos) -> None:
        for space, leaves in list(self._leaves.items()):
            for code in [code for code, (_, expires) in leaves.items() if expires <= now]:
                del leaves[code]
            if not leaves:
                del self._leaves[space]


class LeafUsers:
    """The peers that remember the active leaves of this peer, which informs them and reminds them.

    With `last` this is the last peer before the walk through the tree, and only a walk informs it; with `publisher` it
    is the publisher's peer. With `every-arrival` the publisher's peer is informed of any leaf. The space without
    attributes has no tree: its only leaf is known to publishers' peers in any case.
    """

    def __init__(self, me: PeerId, cache: TreeCache, settings: DmmSettings, spaces: Spaces) -> None:
        self.follow_paths = settings.tree_cache and settings.tree_cache_place == "last"
        """Whether peers on the paths of events and entries use their caches, and not only publishers' peers."""
        self._me = me
        self._cache = cache
        self._settings = settings
        self._spaces = spaces
        self._reminds = False
        """Whether the timer is set to remind other peers of leaves."""

    def inform_of_event(
        self, now: Nanos, node: SearchNode, event: Event, has_walked: bool, last: PeerId | None, is_aware: bool
    ) -> list[Reply]:
        """Inform peers of a leaf that an event has reached. An event that came from a cache has walked, too."""
        settings, name = self._settings, node.space.name
        if not settings.tree_cache or not self._spaces.publishes_in(name):
            return []
        if not name or settings.tree_cache_place == "every-arrival":
            return self._inform_user(now, node, event.id.publisher, is_aware)
        user = last if self.follow_paths else event.id.publisher
        return self._inform_user(now, node, user, is_aware) if has_walked and user is not None else []

    def inform_of_entries(self, now: Nanos, node: SearchNode, message: ToLeaves | ToCachedLeaf) -> list[Reply]:
        """Inform the last peer on the path of entries of the node that they reached, if they walked there."""
        is_from_cache = isinstance(message, ToCachedLeaf)
        has_walked = bool(message.code) or is_from_cache
        if node.leaf is None or not has_walked or not self.follow_paths or not self._spaces.publishes_in(message.space):
            return []
        is_aware = message.back in node.users or (is_from_cache and message.route_hops <= 1)
        return self._inform_user(now, node, message.back, is_aware)

    def _inform_user(self, now: Nanos, node: SearchNode, user: PeerId, is_aware: bool) -> list[Reply]:
        """Tell a peer of a leaf, unless it knows the leaf."""
        node.users[user] = now
        replies = self._make_tree_info(now, node, user) if user == self._me or not is_aware else []
        if user != self._me and not self._reminds:
            self._reminds = True
            replies.append(Timer(now + self._settings.tree_beacon_ns, _TREE_BEACON))
        return replies

    def _make_tree_info(self, now: Nanos, node: SearchNode, user: PeerId) -> list[Reply]:
        if user == self._me:
            self._cache.add(now, node.space.name, node.code, user)
            return []
        return [Outgoing(user, TreeInfo(node.space.name, node.code))]

    def tell_empty_space(self, event: Event) -> list[Reply]:
        """Inform a publisher's peer that no filter lacks attributes, so that its events come here directly."""
        if not self._settings.tree_cache or not self._spaces.has_detour or event.id.publisher == self._me:
            return []
        return [Outgoing(event.id.publisher, TreeInfo((), ""))]

    def remind(self, now: Nanos, nodes: Iterable[SearchNode]) -> list[Reply]:
        """Remind the peers from which events or entries have come lately."""
        replies: list[Reply] = []
        self._reminds = False
        for node in nodes:
            for user in node.recent_users(now, self._settings.tree_expiry_ns) if node.users else ():
                self._reminds = True
                replies += self._make_tree_info(now, node, user)
        if self._reminds:
            replies.append(Timer(now + self._settings.tree_beacon_ns, _TREE_BEACON))
        return replies


class Shortcuts:
    """The entries that this peer has sent directly to a leaf that it remembered, instead of towards the root."""

    def __init__(self, me: PeerId, cache: TreeCache, spaces: Spaces) -> None:
        self._me = me
        self._cache = cache
        self._spaces = spaces
        self._leaves: dict[EntryId, tuple[SpaceName, str, Entry]] = {}

    def split(self, now: Nanos, message: WantInSpace) -> tuple[list[Outgoing], tuple[Entry, ...]]:
        """The messages for leaves that this peer remembers, and the entries for the next hop."""
        name = message.space
        if not name or not self._spaces.publishes_in(name):
            return [], message.entries
        space = self._spaces[name]
        others: list[Entry] = []
        by_leaf: dict[tuple[str, PeerId], list[Entry]] = {}
        for entry in message.entries:
            leaf = self._cache.find(now, name, space.code(space.filter_box(parse(entry.filter))))
            if leaf is None or leaf[1] == self._me:
                others.append(entry)
            else:
                by_leaf.setdefault(leaf, []).append(entry)
                self._leaves[entry.id] = (name, leaf[0], entry)
        direct = [
            Outgoing(owner, ToCachedLeaf(name, code, self._me, tuple(entries), 1))
            for (code, owner), entries in by_leaf.items()
        ]
        return direct, tuple(others)

    def withdraw(
        self, tables: Mapping[SpaceName, ReversePaths], ids: Iterable[EntryId] | None = None
    ) -> list[FromLeaves]:
        """Remove entries (all, or these) from leaves if nobody wants them here any longer."""
        messages = []
        for id_ in list(self._leaves) if ids is None else ids:
            if id_ in self._leaves:
                space, code, entry = self._leaves[id_]
                if space not in tables or not tables[space].find_branches([id_]):
                    del self._leaves[id_]
                    messages.append(FromLeaves(space, code, self._me, (entry,)))
        return messages
