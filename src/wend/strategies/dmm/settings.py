"""The settings of `dmm` and `dmm-ar`."""

from typing import Annotated, ClassVar, Literal

from wend.model.settings import setting
from wend.model.units import SECOND, Nanos
from wend.strategies.ring.key_based import KeyBasedSettings


class DmmSettings(KeyBasedSettings, frozen=True, kw_only=True):
    """Attribute spaces, their search trees, and the cache of leaves at publishers' peers."""

    title: ClassVar[str] = "Attribute spaces"

    domains: Annotated[
        dict[str, list[float]],
        setting(
            "The range of numeric attributes: [low, high], or [low, high, granularity]. `dmm` indexes these alone."
        ),
    ] = {}  # noqa: RUF012  # msgspec copies it
    delegation: Annotated[
        int, setting("How many entries a region of an attribute space holds before it is split.", low=1)
    ] = 1000
    primary: Annotated[
        Literal["selective", "first"],
        setting("Which attribute of a filter of several its events are found by: the most selective, or the first."),
    ] = "selective"
    tree_cache: Annotated[
        bool, setting("Whether the peers of publishers remember where the regions are that their events go to.")
    ] = True
    tree_beacon_ns: Annotated[
        Nanos,
        setting("How often the owner of a region reminds the peers that publish there.", unit="s", low=0.1, high=1e6),
    ] = 15 * SECOND
    tree_expiry_ns: Annotated[
        Nanos,
        setting("How long a publisher's peer remembers a region without a reminder.", unit="s", low=0.2, high=1e7),
    ] = 30 * SECOND
    tree_replicas: Annotated[
        int, setting("How many peers know where the entries of a region came from, besides its owner.", low=0, high=16)
    ] = 2
