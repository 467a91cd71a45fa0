"""Overlay links as JSON."""

import msgspec
import pytest

from wend.topology.graph import OverlayLink


@pytest.mark.parametrize(
    "link", [OverlayLink(0, 1, 5), OverlayLink(0, 1, 5, 0.25, 40.0), OverlayLink(0, 1, 5, 0.0, capacity_bps=1e6)]
)
def test_a_link_survives_json_though_json_has_no_infinity(link: OverlayLink) -> None:
    assert msgspec.json.decode(msgspec.json.encode(link), type=OverlayLink) == link
