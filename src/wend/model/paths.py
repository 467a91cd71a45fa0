"""The type of an underlay path between two peers, as far as it is known."""

Router = int | str
Path = tuple[Router | None, ...]
"""The routers from one peer's to another's, with both; None for a router that did not answer."""
UNKNOWN: Path = (None,)
"""A path that was not measured: one router that did not answer."""


def count_shared_routers(one: Path, other: Path) -> int:
    """Q, the number of routers on both paths (esposito, section 3.4). Routers that did not answer do not count."""
    return len({*one} & {*other} - {None})
