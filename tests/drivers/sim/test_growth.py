"""A peer that runs for long holds no more than one that ran for a while."""

import gc
from collections import deque
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest

from tests.cores import pure_only
from tests.holdings import OURS, containers, held
from wend.drivers.scenarios import Scenario
from wend.drivers.sim.engine import Engine
from wend.drivers.world import build_world
from wend.protocol.link.link import Link
from wend.protocol.messages import Ack
from wend.protocol.peer import Peer
from wend.protocol.plugins.copy_ranks import ForwardedCopies
from wend.protocol.ports import Received
from wend.strategies.registry import linked_strategies

SHORT_S, LONG_S = 10.0, 40.0
BOUNDED = {
    "_host.by_name[].plugin._forwarded._young": 2 * ForwardedCopies().limit,
    "_host.by_name[].plugin._usable._detours[].beyond": 3 * 6 * 4,
    "_host.by_name[].plugin._usable._detours[].links": 3 * 6 * 5,
    "_host.by_name[].plugin._usable._detours[].path": 3 * 6 * 5,
    "_host.by_name[].plugin._usable._later_links[][].edge": 3 * 6 * 4 * 2,
    "links[].window._block": 3 * 1024,
    "_local._seen._windows[]._block": 3 * 1024,
}
"""What may grow, and how far: the events that were forwarded last, the routes without the links that were down last, by
hop and destination, and the windows of three links and publishers."""

MUTABLE = (dict, list, set, deque)
FOLLOWED = (*MUTABLE, tuple, frozenset, MethodType)


def played(strategy: str, duration_s: float, persistence: bool) -> list[Peer]:
    scenario = Scenario(
        strategy=strategy, peers=6, degree=3, topics=3, pf=0.2, pl=0.02, transmissions=2,
        duration=f"{duration_s}s", drain="30s", heal=f"{duration_s}s", persistence=persistence, rate=5.0,
    )  # fmt: skip
    engine = Engine(build_world(scenario))
    engine.run()
    return [peer for peer in engine.peers if peer is not None]


def grown(strategy: str, persistence: bool = False) -> dict[str, tuple[int, int]]:
    """What holds more after long than after short, in the peer that holds most of it."""
    short, long = (most(played(strategy, d, persistence)) for d in (SHORT_S, LONG_S))
    # what is known of links, ways and trees differs from one moment to another, but not by much
    more = {path: (short.get(path, 0), n) for path, n in long.items() if n > 1.5 * short.get(path, 0) + 3}
    for path, bound in BOUNDED.items():
        if more.get(path, (0, 0))[1] <= bound:
            more.pop(path, None)
            more.pop(f"{path}[]", None)  # for whom they were
    return more


def most(peers: list[Peer]) -> dict[str, int]:
    all_held = [held(peer) for peer in peers]
    return {path: max(one.get(path, 0) for one in all_held) for path in sorted({p for one in all_held for p in one})}


@pytest.mark.parametrize("persistence", [False, True])
@pytest.mark.parametrize("strategy", sorted(linked_strategies()))
def test_once_calm_a_peer_holds_as_little_after_long_as_after_short(strategy: str, persistence: bool) -> None:
    assert grown(strategy, persistence) == {}


# ---------------------------------------------------------------- that it would be seen


def _keep_numbers(kept: list[int], link: Link, tx: int) -> None:
    kept.append(tx)


def _lengthen_path(kept: list[int], link: Link, tx: int) -> None:
    link.set_path((*link.path, tx))


@pure_only
@pytest.mark.parametrize(
    ("leak", "where"),
    [
        (_keep_numbers, "kept"),
        (_lengthen_path, "links[].path"),
    ],
)
def test_a_planted_leak_is_found(
    leak: Callable[[list[int], Link, int], None], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Peer.handle

    def leaky(self: Peer, now: int, event: Any) -> Any:
        if isinstance(event, Received) and isinstance(event.message, Ack) and event.sender in self.links:
            leak(vars(self).setdefault("kept", []), self.links[event.sender], event.message.tx)
        return handle(self, now, event)

    monkeypatch.setattr(Peer, "handle", leaky)
    assert any(path.endswith(where) for path in grown("r-tree"))


@pure_only
@pytest.mark.parametrize("persistence", [False, True])
@pytest.mark.parametrize("strategy", ["adaptive", "spt-k"])
def test_what_the_garbage_collector_finds_in_a_peer_is_found(strategy: str, persistence: bool) -> None:
    """The collector follows pointers, not names, so there is none that it could miss."""
    peer = played(strategy, 2.0, persistence)[0]
    found = {id(container) for _, container in containers(peer)}
    known: set[int] = set()
    stack: list[object] = [peer]
    while stack:
        one = stack.pop()
        if id(one) in known or not (type(one).__module__.startswith(OURS) or isinstance(one, FOLLOWED)):
            continue
        known.add(id(one))
        assert id(one) in found or not isinstance(one, MUTABLE), one
        names = getattr(one, "__dict__", {})
        stack += [*names.values(), *(other for other in gc.get_referents(one) if other is not names)]
    assert len(known) > 100
