"""Flat BRITE networks have the expected number of links and the shape of their model."""

import numpy as np
import pytest

from wend.model.errors import ConfigError
from wend.studies.campr.brite_flat import Growth, grow


@pytest.mark.parametrize("growth", ["waxman", "attached"])
@pytest.mark.parametrize(("peers", "links"), [(3, 2), (60, 2), (60, 1), (40, 3)])
def test_each_new_peer_adds_its_links(growth: Growth, peers: int, links: int) -> None:
    overlay = grow(peers, growth, links=links, seed=1)
    assert len(overlay.links) == links * (links - 1) // 2 + links * (peers - links)
    assert overlay.is_connected()
    assert min(len(overlay.neighbours(p)) for p in range(peers)) >= min(links, peers - 1)


def test_the_seed_determines_a_network() -> None:
    assert grow(50, "waxman", seed=1).links == grow(50, "waxman", seed=1).links
    assert grow(50, "waxman", seed=1).links != grow(50, "waxman", seed=2).links


def test_waxman_links_are_short_and_attached_ones_meet_at_hubs() -> None:
    near, hubs = grow(300, "waxman", seed=3), grow(300, "attached", seed=3)
    degrees = [max(len(net.neighbours(p)) for p in range(300)) for net in (near, hubs)]
    assert degrees[1] > 1.5 * degrees[0]
    delays = [np.mean([link.delay_ns for link in net.links]) for net in (near, hubs)]
    assert delays[0] < 0.8 * delays[1]


def test_too_few_peers_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs at least 3 peers, got 2"):
        grow(2, "waxman", seed=1)
