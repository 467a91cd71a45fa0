"""The routing domain of a peer, from traced paths: it names the cluster of a peer whose configuration names none."""

from wend.model.paths import Path


def domain_of_path(path: Path | None) -> str | None:
    """The domain of the peer at the start of a traced path: its first router. None if that did not answer."""
    if not path or path[0] is None:
        return None
    return f"router {path[0]}"
