"""Random worlds for `clusters`, and what a cluster costs.

`python -m tests.strategies.clusters.membership.worlds 500` plays so many worlds. Without a number it measures
the traffic in a cluster of 200 members.
"""

import sys
from random import Random

from tests.strategies.clusters.membership.net import ClusterNet
from wend.model.random_stream import peer_stream
from wend.model.units import SECOND

QUIET = 30
"""Detection times after which nothing that happened before has effects: entries of clusters that are gone expire."""
NAMES = ("north", "south", "east")


def turbulent(seed: int, **settings: int) -> ClusterNet:
    """Peers join, leave, crash one by one or together, return, and are cut off; then the network calms down.

    Who joins knows some peers that it can reach. Peer 0 stays. At the end the network may still be in two parts."""
    draw = peer_stream(seed, "turbulence")
    chosen = {"coordinators": draw.choice([1, 2, 2, 3]), "backups": draw.choice([0, 1, 1, 2]), **settings}
    net = ClusterNet(seed, draw.choice([0.0, 0.0, 0.05, 0.2]), draw.random() < 0.5, directory_ns=SECOND // 2, **chosen)
    names = NAMES[: draw.choice([1, 2, 3])]
    net.begin(0, names[0])
    for peer in range(1, draw.randrange(1, 16)):
        join(net, draw, peer, draw.choice(names))
        net.run(draw.choice([0.0, 0.0, 0.3]))
    for _ in range(draw.randrange(1, 25)):
        happen(net, draw, names)
        net.run(draw.choice([0.0, 0.0, 0.01, 0.1, 0.5, 1.0, 3.0]))
    if draw.random() < 0.7:
        net.heal()
    net.loss = 0.0
    net.run(QUIET)
    return net


def join(net: ClusterNet, draw: Random, peer: int, name: str) -> None:
    side = net.sides.get(peer, 0)
    near = [other for other in sorted(net.peers) if other != peer and net.sides.get(other, 0) == side]
    net.begin(peer, name, *draw.sample(near, min(3, len(near))), 0)


def happen(net: ClusterNet, draw: Random, names: tuple[str, ...]) -> None:
    others = sorted(net.peers.keys() - {0})
    gone = sorted(net.clusters.keys() - net.peers.keys())
    what = draw.choice(["join", "join", "leave", "crash", "crash", "several", "monitors", "return", "return", "split"])
    if what == "join":
        join(net, draw, len(net.clusters), draw.choice(names))
    elif what == "return" and gone:
        peer = draw.choice(gone)
        join(net, draw, peer, net.clusters[peer])
    elif what == "split":
        if net.sides:
            net.heal()
        else:
            net.split([peer for peer in net.clusters if draw.random() < 0.5 and peer != 0])
    elif what == "monitors":
        name = draw.choice(names)
        net.crash(
            *[
                peer
                for peer in others
                if net.clusters[peer] == name and (net.peers[peer].my_trees or net.peers[peer].my_backups)
            ]
        )
    elif others and what == "leave":
        net.leave(draw.choice(others))
    elif others and what == "crash":
        net.crash(draw.choice(others))
    elif others and what == "several":
        net.crash(*draw.sample(others, draw.randrange(1, len(others) + 1)))


def messages_per_member(members: int, others: int, multicast: bool) -> tuple[float, float]:
    """Messages that a member without a role sends and receives per second, beside two other clusters of so many members
    each."""
    net = ClusterNet(multicast=multicast, cluster_detection_ns=3 * SECOND, directory_ns=5 * SECOND)
    for peer in range(members + 2 * others):
        net.begin(peer, "large" if peer < members else ("north", "south")[peer % 2], *([0] if peer else []))
    net.run(20)
    net.check()
    net.sent.clear()
    net.received.clear()
    net.run(60)
    plain = [peer for peer in range(members) if not net.peers[peer].directory]
    sent, received = (sum(count[peer] for peer in plain) / len(plain) / 60 for count in (net.sent, net.received))
    return sent, received


def play(count: int, first: int) -> int:
    """How many of these worlds are not as they should be."""
    bad = 0
    for seed in range(first, first + count):
        net = turbulent(seed)
        wrong = [*net.mistakes(), *net.refused]
        if wrong:
            bad += 1
            print(f"seed {seed}: {'; '.join(wrong[:4])}")
    print(f"{count - bad} of {count} worlds are as they should be")
    return bad


def main(*numbers: int) -> int:
    if numbers:
        return int(play(numbers[0], *numbers[1:] or (0,)) > 0)
    for multicast in (True, False):
        for others in (100, 200):
            sent, received = messages_per_member(200, others, multicast)
            print(
                f"multicast {multicast}, 200 members, {2 * others} peers elsewhere: "
                f"a member sends {sent:.2f} messages/s and receives {received:.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
