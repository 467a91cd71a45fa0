"""A plan: which ways the flows of a network take, and in which shares."""

import hashlib
from collections.abc import Iterable

from wend.model.events import PeerId


def fingerprint(peers: int, links: Iterable[tuple[PeerId, PeerId]]) -> str:
    """Names a topology by who is linked to whom. Delays and capacities drift; a plan outlives that."""
    text = f"{peers};" + ";".join(f"{min(a, b)}-{max(a, b)}" for a, b in sorted((min(e), max(e)) for e in links))
    return hashlib.sha256(text.encode()).hexdigest()
