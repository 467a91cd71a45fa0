"""Clusters of a simulated world: the routing domains of its underlay, or groups of peers that are near each other."""

from collections.abc import Sequence

from wend.model.units import Nanos


def domain_clusters(domains: Sequence[int], homes: Sequence[int]) -> tuple[str, ...] | None:
    """For each peer the name of its router's domain. None if the underlay has one domain only."""
    return tuple(f"domain-{domains[home]}" for home in homes) if len({*domains}) > 1 else None


def near_clusters(delays_ns: Sequence[Sequence[Nanos]], count: int) -> tuple[str, ...]:
    """Cut peers into groups of equal size, by their delays; for each peer the name of its group.

    The first peers of the groups are far from each other. Then the pairs of a peer and a first peer are matched, the
    nearest pair first, until a group is full. Ties go to the lower number."""
    peers = len(delays_ns)
    count = min(count, peers)
    first = [0]
    while len(first) < count:
        others = (peer for peer in range(peers) if peer not in first)
        first.append(max(others, key=lambda peer: (min(delays_ns[one][peer] for one in first), -peer)))
    largest = -(-peers // count)
    with_largest = peers - (largest - 1) * count
    members: list[list[int]] = [[] for _ in first]
    group_of: dict[int, int] = {}
    pairs = [(delays_ns[one][peer], peer, group) for group, one in enumerate(first) for peer in range(peers)]
    for _, peer, group in sorted(pairs):
        full = sum(len(each) == largest for each in members) >= with_largest
        if peer not in group_of and len(members[group]) < (largest - 1 if full else largest):
            group_of[peer] = group
            members[group].append(peer)
    return tuple(f"cluster-{group_of[peer]}" for peer in range(peers))
