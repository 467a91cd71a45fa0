"""The optional packages: which extra of Wend brings each, and the sentence about one that is missing.

`pip install wend` brings all that a peer and a client need. The other parts import optional packages late, so a missing
one shows as `ModuleNotFoundError`. `needed_by` turns that error into a sentence for the user.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from wend.model.errors import MissingExtra

EXTRAS: dict[str, tuple[str, ...]] = {
    "sim": ("numpy", "scipy", "pyarrow"),
    "maps": ("numba", "rustworkx", "topohub"),
    "plan": ("numba", "highspy"),
    "telemetry": ("pyarrow",),
    "pictures": ("matplotlib",),
    "spark": ("numba", "pyspark", "pandas", "jinja2"),
    "lab": ("zenoh", "nats", "paho"),
}
"""By extra: the modules that it brings, besides those of the extras that it includes."""
INCLUDED: dict[str, tuple[str, ...]] = {
    "plan": ("sim",),
    "maps": ("sim",),
    "spark": ("sim", "pictures"),
    "lab": ("sim", "pictures"),
}
_NAMES = {
    "numpy": "NumPy", "scipy": "SciPy", "pyarrow": "PyArrow", "numba": "Numba", "highspy": "HiGHS",
    "pyspark": "Spark", "matplotlib": "Matplotlib", "jinja2": "Jinja", "zenoh": "Zenoh's client",
    "nats": "NATS' client", "paho": "Paho",
}  # fmt: skip


def extra_modules(extra: str) -> tuple[str, ...]:
    """The modules that an extra brings, with those of the extras that it includes."""
    return (*EXTRAS[extra], *(module for other in INCLUDED.get(extra, ()) for module in EXTRAS[other]))


@contextmanager
def needed_by(what: str, extra: str | None = None) -> Iterator[None]:
    """Raise `MissingExtra` if the block fails to import an optional package; the error says what needs it.

    The sentence names `extra` if that brings the package, else the first extra that does.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        first = next((each for each, modules in EXTRAS.items() if module in modules), None)
        if first is None:
            raise
        named = extra if extra is not None and module in extra_modules(extra) else first
        sentence = f"{what} needs {_NAMES.get(module, module)}: pip install 'wend[{named}]'"
        raise MissingExtra(sentence) from None
