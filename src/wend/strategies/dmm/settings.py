"""The settings of `dmm` and `dmm-ar`."""

from typing import Annotated, ClassVar, Literal

from wend.model.settings import everyday, setting
from wend.model.units import SECOND, Nanos
from wend.strategies.ring.key_based import KeyBasedSettings


class DmmSettings(KeyBasedSettings, frozen=True, kw_only=True):
    """Attribute spaces, their search trees, and the cache of leaves."""

    title: ClassVar[str] = "Attribute spaces"

    domains: Annotated[
        dict[str, list[float]],
        everyday(
            "The range of attributes with numbers: [low, high], or [low, high, granularity]. For an attribute with "
            "texts, [letters]: how many of its first letters (a to z) place a text. `dmm` indexes these attributes "
            "alone."
        ),
    ] = {}  # noqa: RUF012  # msgspec copies it
    delegation: Annotated[
        int, setting("How many entries a region of an attribute space holds before it is split.", low=1)
    ] = 1000
    tree_cache: Annotated[
        bool, setting("Whether peers remember the active leaves of search trees, and send events there directly.")
    ] = True
    tree_cache_place: Annotated[
        Literal["last", "publisher", "every-arrival"],
        setting(
            "Which peer remembers a leaf: the last one before the walk through the tree (`last`) or the publisher's "
            "(`publisher`), after a walk; or the publisher's after any arrival, with or without a walk "
            "(`every-arrival`)."
        ),
    ] = "last"
    primary_attribute: Annotated[
        Literal["narrowest", "observed"],
        setting(
            "By which of its attributes events find a subscription in `dmm-ar`: the one of whose domain it wants the "
            "least, or the one that the fewest events have met of late."
        ),
    ] = "narrowest"
    tree_beacon_ns: ClassVar[Nanos] = 15 * SECOND
    """How often the owner of a leaf reminds the peers that use it."""
    tree_expiry_ns: ClassVar[Nanos] = 30 * SECOND
    """How long a peer remembers a leaf without a reminder."""
    tree_replicas: ClassVar[int] = 2
    """How many other peers know where the entries of a region came from."""
