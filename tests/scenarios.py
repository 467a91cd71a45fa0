"""Small random worlds in which links and peers fail and heal. The seed decides everything."""

import random
from typing import Any

from wend.drivers.scenarios import Scenario, make_scenario
from wend.protocol.link.fragments import FRAGMENT_BYTES

SETTLE_S = 22.0


def random_scenario(seed: int, strategies: tuple[str, ...]) -> Scenario:
    """Half of them keep packets, and all of these heal in time for every promise to be judged."""
    draw = random.Random(seed)
    persistence = draw.random() < 0.5
    duration = draw.uniform(3.0, 6.0)
    fields: dict[str, Any] = {
        "seed": seed,
        "strategy": draw.choice(strategies),
        **_overlay(draw),
        "pf": draw.choice([0.0, 0.1, 0.3]),
        "pl": draw.choice([0.0, 0.01, 0.1]),
        "outages": _outages(draw, 1.5, 0.5) if draw.random() < 0.5 else None,
        "peer_outages": _outages(draw, 4.0, 0.8) if draw.random() < 0.6 else None,
        "rate": draw.choice([1.0, 3.0]),
        "popularity": (0.3, 1.0),
        "factor": draw.choice([1.5, 3.0]),
        "duration": f"{duration}s",
        "heal": f"{duration + draw.uniform(-1.0, 1.0)}s",
        "warmup": "4s",
        "drain": f"{1.0 + SETTLE_S if persistence else 3.0}s",
        "transmissions": draw.choice([1, 2]),
        "ack": draw.choice(["free", "round-trip"]),
        "estimator": draw.choice(["nominal", "nominal", "measured"]),
        "monitoring": f"{draw.choice([1.0, 300.0])}s",
        "persistence": persistence,
        "redundancy": draw.choice(["none", "tight", "free"]),
    }
    fields["topics"] = draw.randint(1, min(3, fields["peers"]))
    if draw.random() < 0.25:
        fields["content"] = {"predicates": (1, 2), "attributes": 3, "domain": 16}
    return make_scenario(fields)


def large_scenario(seed: int, strategies: tuple[str, ...]) -> Scenario:
    """The same with events of several parts, and peers that keep them and are back before their neighbours give up."""
    draw = random.Random(seed)
    return random_scenario(seed, strategies).with_(
        payload_bytes=draw.choice([2, 20, 70, 100]) * FRAGMENT_BYTES - 7,
        rate=1.0,
        popularity=(1.0, 1.0),
        peer_outages=_outages(draw, 1.5, 0.05),
        persistence=True,
        drain=f"{1.0 + SETTLE_S}s",
    )


def _overlay(draw: random.Random) -> dict[str, Any]:
    peers = draw.randint(3, 8)
    if draw.random() < 0.25:
        return {"topology": "full-mesh", "peers": peers}
    degrees = [d for d in (2, 3, 4) if d < peers and d * peers % 2 == 0]
    return {"topology": "regular", "peers": peers, "degree": draw.choice(degrees)}


def _outages(draw: random.Random, up_s: float, down_s: float) -> dict[str, Any]:
    kind = draw.choice(["exponential", "uniform"])
    if kind == "exponential":
        return {"up": {"kind": kind, "mean_s": up_s}, "down": {"kind": kind, "mean_s": down_s}}
    return {
        "up": {"kind": kind, "low_s": 0.0, "high_s": 2 * up_s},
        "down": {"kind": kind, "low_s": 0.0, "high_s": 2 * down_s},
    }


def roaming_scenario(seed: int, strategies: tuple[str, ...], overlays: tuple[str, ...]) -> Scenario:
    """Peers that choose their links themselves, and crash often enough that links are dropped while events use them."""
    draw = random.Random(seed)
    return random_scenario(seed, strategies).with_(
        topology="full-mesh",
        membership=draw.choice(overlays),
        membership_k=draw.choice([1, 2, 3]),
        peers=draw.randint(5, 8),
        peer_outages=_outages(draw, 3.5, 2.0),
        rate=3.0,
        pf=0.3,
        pl=draw.choice([0.01, 0.1]),
        heal="12s",
        duration="12s",
    )
