"""The tables of a scenario that describe faults: how links and peers fail, and how links disturb packets.

The nine faults of esposito's taxonomy (section 2.2) are settings of a scenario:

    loss          pl                        partition     peer_partitions
    reordering    reordering                link crash    pf, outages, router_outages, mean_outage
    corruption    corruption                node crash    peer_outages
    delay         delay_spikes              churn         churn
    congestion    congestion
"""

from math import inf
from typing import Literal

import msgspec

from wend.model.errors import ConfigError

MAX_EXTRA_MS = 1e6
MAX_LOAD = 10.0
MAX_PAST_S = 1e7


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A distribution of seconds: fixed(mean), exponential(mean) or uniform(low, high)."""

    kind: Literal["fixed", "exponential", "uniform"]
    mean_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0

    def check(self, name: str) -> None:
        if self.kind == "uniform":
            if not 0 <= self.low_s <= self.high_s < inf or self.high_s == 0:
                raise ConfigError(f"{name}: uniform needs 0 <= low_s <= high_s, got {self.low_s} and {self.high_s}")
        elif not 0 < self.mean_s < inf:
            raise ConfigError(f"{name}: {self.kind} needs a mean_s above 0, got {self.mean_s}")


class Outages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a component fails: it works for a time drawn from `up`, then fails for a time drawn from `down`."""

    up: Spread
    down: Spread
    past_s: float = 0.0
    """For how long components have been failing at the first publication. Outages of that moment start then."""

    def check(self, name: str) -> None:
        self.up.check(f"{name}.up")
        self.down.check(f"{name}.down")
        if not 0 <= self.past_s <= MAX_PAST_S:
            raise ConfigError(f"{name}.past_s must be in 0..{MAX_PAST_S:g}, got {self.past_s:g}")


class DelaySpikes(Outages, frozen=True, forbid_unknown_fields=True):
    """Times in which a link takes longer. The extra delay is drawn once for each spike."""

    extra_ms: tuple[float, float] = (50.0, 500.0)

    def check(self, name: str) -> None:
        super().check(name)
        low, high = self.extra_ms
        if not 0 < low <= high <= MAX_EXTRA_MS:
            raise ConfigError(f"{name}.extra_ms needs 0 < low <= high <= {MAX_EXTRA_MS:g}, got {low:g} and {high:g}")


class Congestion(Outages, frozen=True, forbid_unknown_fields=True):
    """Times in which other traffic loads a link. The load, a share of the link's capacity, is drawn once for each.

    The link is a queue (M/M/1/K) that serves a packet in `service_ms` and holds `queue_msgs` of them. Packets wait in
    it, and a full queue drops them."""

    load: tuple[float, float] = (0.8, 1.2)
    queue_msgs: int = 50
    service_ms: float = 1.0

    def check(self, name: str) -> None:
        super().check(name)
        low, high = self.load
        if not 0 < low <= high <= MAX_LOAD:
            raise ConfigError(f"{name}.load needs 0 < low <= high <= {MAX_LOAD:g}, got {low:g} and {high:g}")
        if not 1 <= self.queue_msgs <= 10**6 or not 0 < self.service_ms * self.queue_msgs <= MAX_EXTRA_MS:
            raise ConfigError(
                f"{name} needs queue_msgs of 1 or more and a service_ms above 0, together at most {MAX_EXTRA_MS:g} ms, "
                f"got {self.queue_msgs} and {self.service_ms:g}"
            )


class Partitions(Outages, frozen=True, forbid_unknown_fields=True):
    """Times in which some peers are cut off from the rest. Their share of all peers is drawn once for each time."""

    share: tuple[float, float] = (0.1, 0.5)

    def check(self, name: str) -> None:
        super().check(name)
        low, high = self.share
        if not 0 < low <= high < 1:
            raise ConfigError(f"{name}.share needs 0 < low <= high < 1, got {low:g} and {high:g}")
