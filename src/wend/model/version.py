"""The version of the package, for modules that may not import all of it."""

__version__ = "0.1.0"


def core_build() -> str:
    """Which build of the protocol, the matching and the simulator runs: `compiled` or `pure`."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.util import find_spec

    spec = find_spec("wend.protocol.peer")
    origin = "" if spec is None else spec.origin or ""
    return "compiled" if origin.endswith(tuple(EXTENSION_SUFFIXES)) else "pure"
