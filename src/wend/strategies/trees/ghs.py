"""k maximum-reliability spanning trees at once: extended GHS, message by message (quist, section 6.1).

One instance of GHS runs per tree. A link starts in the first instance. When an instance has decided about it, as a
branch or as rejected, the link passes to the next instance. An instance prefers links that fewer earlier trees use,
then those that fail less (eq. 6.1.1), so trees share links only if nothing else connects them. The result is that of
Kruskal's algorithm, tree after tree, whatever the delays of messages.

Four rules extend the print, which stalls in places or depends on message order. An instance without undecided links
waits while an earlier instance still has some. A message about a link that has not reached this peer's instance waits,
too. A rejected link passes to the next instance with an unchanged use count. And GHS ends in silence, but here the core
of the last tree sends `Complete`: its search ends only when every link of every peer is decided in every tree.

Links must deliver messages in order and without loss; the caller ensures that.
"""

from collections.abc import Mapping

from wend.model.events import PeerId
from wend.strategies.trees.messages import (
    Accept,
    ChangeCore,
    Complete,
    Connect,
    GhsMessage,
    Initiate,
    Key,
    Probe,
    Reject,
    Report,
)

Outbound = list[tuple[PeerId, GhsMessage]]
PATIENCE = 3
"""The most messages of one neighbour that may wait at once: a connection, a probe and a report."""


class _Instance:
    """One tree as one peer sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.keys: dict[PeerId, Key] = {}
        """The links that have reached this instance."""
        self.basic: dict[PeerId, Key] = {}
        """The undecided ones."""
        self.branches: set[PeerId] = set()
        self.is_awake = False
        self.level = 0
        self.core: Key | None = None
        self.is_finding = False
        self.is_stalled = False
        """Whether the search waits for an earlier tree to decide."""
        self.missing_reports = 0
        """The number of branches that have not reported."""
        self.probed: PeerId | None = None
        self.parent: PeerId | None = None
        self.best: Key | None = None
        self.best_peer: PeerId | None = None
        self.deferred: list[tuple[PeerId, GhsMessage]] = []


class GhsBuilder:
    """Builds k trees with the neighbours, at one peer that knows the weights of its links (smaller is better)."""

    def __init__(self, me: PeerId, k: int, weights: Mapping[PeerId, float]) -> None:
        self.me = me
        self.is_complete = not weights
        """Whether all trees are complete at all peers."""
        self._trees = [_Instance(number) for number in range(k)]
        self._weights = {peer: weights[peer] for peer in sorted(weights)}
        self._out: Outbound = []
        for peer in self._weights:
            self._pass_link_on(peer, 0, 0)

    def branches(self, tree: int) -> tuple[PeerId, ...]:
        return tuple(sorted(self._trees[tree].branches))

    @property
    def is_decided(self) -> bool:
        """Whether all links of this peer are decided in all trees."""
        return not any(tree.basic for tree in self._trees)

    def start(self) -> Outbound:
        self._resume_waiting()
        return self._take_outbound()

    def on_message(self, sender: PeerId, message: GhsMessage) -> Outbound | None:
        """Handle a message. Return the messages to send, or None if no honest neighbour sends such a message."""
        if isinstance(message, Complete):
            if sender not in self._trees[-1].branches:
                return None
            self._pass_complete(sender)
            return self._take_outbound()
        if sender not in self._weights or not 0 <= message.tree < len(self._trees):
            return None
        tree = self._trees[message.tree]
        if not self._is_plausible(tree, sender, message):
            return None
        if self._handle(tree, sender, message):
            self._resume_waiting()
        elif sum(peer == sender for peer, _ in tree.deferred) < PATIENCE:
            tree.deferred.append((sender, message))
        else:
            return None
        return self._take_outbound()

    def _take_outbound(self) -> Outbound:
        out, self._out = self._out, []
        return out

    def _send(self, peer: PeerId, message: GhsMessage) -> None:
        self._out.append((peer, message))

    def _is_plausible(self, tree: _Instance, sender: PeerId, message: GhsMessage) -> bool:
        match message:
            case Accept() | Reject():
                return tree.probed == sender
            case Connect(_, level):
                return level >= 0
            case Initiate(_, level):
                return level > 0 and sender in tree.branches
            case Report():
                return sender in tree.branches
            case ChangeCore():
                return sender == tree.parent and tree.best_peer is not None
        return True

    # ---------------------------------------------------------------- links pass from tree to tree

    def _pass_link_on(self, peer: PeerId, number: int, used: int) -> None:
        if number < len(self._trees):
            tree = self._trees[number]
            key = (used, self._weights[peer], min(self.me, peer), max(self.me, peer))
            tree.keys[peer] = tree.basic[peer] = key

    def _add_branch(self, tree: _Instance, peer: PeerId) -> None:
        if tree.basic.pop(peer, None) is not None:
            tree.branches.add(peer)
            self._pass_link_on(peer, tree.number + 1, tree.keys[peer][0] + 1)

    def _reject(self, tree: _Instance, peer: PeerId) -> None:
        if tree.basic.pop(peer, None) is not None:
            self._pass_link_on(peer, tree.number + 1, tree.keys[peer][0])

    def _must_wait(self, tree: _Instance) -> bool:
        """Eq. 6.1.2: whether an earlier instance may still pass on a link that is better than any here."""
        mine = min(tree.basic.values(), default=None)
        for earlier in self._trees[: tree.number]:
            if earlier.basic and (mine is None or mine[0] > 0 or mine[1:] > min(earlier.basic.values())[1:]):
                return True
        return False

    def _resume_waiting(self) -> None:
        """Resume the searches, sleeping instances and deferred messages that waited for a decision."""
        changed = True
        while changed:
            changed = False
            for tree in self._trees:
                if not tree.is_awake and tree.basic and not self._must_wait(tree):
                    self._wake_instance(tree)
                    changed = True
                if tree.is_stalled and not self._must_wait(tree):
                    self._test_best_link(tree)
                    changed = True
                deferred, tree.deferred = tree.deferred, []
                for sender, message in deferred:
                    if self._handle(tree, sender, message):
                        changed = True
                    else:
                        tree.deferred.append((sender, message))

    # ---------------------------------------------------------------- GHS

    def _wake_instance(self, tree: _Instance) -> None:
        """Start as a fragment of level 0, and connect over the best link."""
        tree.is_awake = True
        key = min(tree.basic.values())
        best = key[2] + key[3] - self.me
        self._add_branch(tree, best)
        self._send(best, Connect(tree.number, 0))

    def _handle(self, tree: _Instance, sender: PeerId, message: GhsMessage) -> bool:
        """Handle a message. Return False if it is too early."""
        match message:
            case Connect():
                return self._handle_connect(tree, sender, message)
            case Initiate():
                self._handle_initiate(tree, sender, message)
            case Probe():
                return self._handle_probe(tree, sender, message)
            case Accept():
                tree.probed = None
                self._keep_better(tree, tree.keys[sender], sender)
                self._send_report(tree)
            case Reject():
                tree.probed = None
                self._reject(tree, sender)
                self._test_best_link(tree)
            case Report():
                return self._handle_report(tree, sender, message)
            case ChangeCore():
                self._change_core(tree)
        return True

    def _handle_connect(self, tree: _Instance, sender: PeerId, message: Connect) -> bool:
        if not tree.is_awake or sender not in tree.keys:
            return False
        if message.level < tree.level:  # absorbed
            assert tree.core is not None
            self._add_branch(tree, sender)
            self._send(sender, Initiate(tree.number, tree.level, tree.core, tree.is_finding))
            tree.missing_reports += tree.is_finding
            return True
        if sender not in tree.branches:
            return False
        self._send(sender, Initiate(tree.number, tree.level + 1, tree.keys[sender], True))  # merged
        return True

    def _handle_initiate(self, tree: _Instance, sender: PeerId, message: Initiate) -> None:
        tree.level, tree.core, tree.is_finding = message.level, message.core, message.finding
        tree.parent = sender
        tree.best = tree.best_peer = None
        for peer in sorted(tree.branches - {sender}):
            self._send(peer, message)
            tree.missing_reports += message.finding
        if message.finding:
            self._test_best_link(tree)

    def _test_best_link(self, tree: _Instance) -> None:
        """Test the best undecided link, once no earlier instance can pass on a better one."""
        tree.is_stalled = self._must_wait(tree)
        if tree.is_stalled:
            return
        if not tree.basic:
            self._send_report(tree)
            return
        assert tree.core is not None
        key = min(tree.basic.values())
        tree.probed = key[2] + key[3] - self.me
        self._send(tree.probed, Probe(tree.number, tree.level, tree.core))

    def _handle_probe(self, tree: _Instance, sender: PeerId, message: Probe) -> bool:
        if not tree.is_awake or sender not in tree.keys or message.level > tree.level:
            return False
        if message.core != tree.core:
            self._send(sender, Accept(tree.number))
            return True
        self._reject(tree, sender)
        if tree.probed == sender:  # each has probed the other: that is the answer
            tree.probed = None
            self._test_best_link(tree)
        else:
            self._send(sender, Reject(tree.number))
        return True

    def _keep_better(self, tree: _Instance, key: Key | None, peer: PeerId) -> None:
        if key is not None and (tree.best is None or key < tree.best):
            tree.best, tree.best_peer = key, peer

    def _send_report(self, tree: _Instance) -> None:
        if tree.missing_reports == 0 and tree.probed is None and not tree.is_stalled:
            tree.is_finding = False
            assert tree.parent is not None
            self._send(tree.parent, Report(tree.number, tree.best))

    def _handle_report(self, tree: _Instance, sender: PeerId, message: Report) -> bool:
        if sender != tree.parent:
            tree.missing_reports -= 1
            self._keep_better(tree, message.best, sender)
            self._send_report(tree)
            return True
        if tree.is_finding:
            return False
        if tree.best is None and message.best is None:
            if tree.number == len(self._trees) - 1:
                self._pass_complete(sender)
        elif message.best is None or (tree.best is not None and tree.best < message.best):
            self._change_core(tree)
        return True

    def _change_core(self, tree: _Instance) -> None:
        best = tree.best_peer
        assert best is not None
        if best in tree.branches:
            self._send(best, ChangeCore(tree.number))
        else:
            self._send(best, Connect(tree.number, tree.level))
            self._add_branch(tree, best)

    def _pass_complete(self, sender: PeerId) -> None:
        """Pass `Complete` down the last tree. Both ends of its core start it."""
        if not self.is_complete:
            self.is_complete = True
            for peer in sorted(self._trees[-1].branches - {sender}):
                self._send(peer, Complete())
