"""The way between two peers, as far as it is known."""

Router = int | str
Path = tuple[Router | None, ...]
"""The routers from one peer's to another's, both included; None for one that did not give its name."""
