"""The underlays that Wend can make, by name: drawn from a seed, from the topohub collection, or from a file."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from wend.model.errors import ConfigError
from wend.topology import transit_stub, underlay_files
from wend.topology.brite import brite
from wend.topology.powerlaw import PowerLaw, power_law
from wend.topology.underlay import Underlay

Maker = Callable[[int], Underlay]

DRAWN: dict[str, tuple[Maker, str]] = {
    "transit-stub": (
        transit_stub.transit_stub,
        "1640 routers: 4 transit domains of 10, 4 stub domains of 10 at each router (quist)",
    ),
    "transit-stub-dmm": (
        lambda seed: transit_stub.transit_stub(seed, transit_stub.DMM, "transit-stub-dmm"),
        "5050 routers: 10 transit domains of 5, 10 stub domains of 10 at each router, slow (dmm)",
    ),
    "brite": (brite, "1640 routers: 20 AS of 82, Waxman on both levels (quist)"),
    "power-law": (
        power_law,
        "300 routers: 8 AS, PFP between them, HOT inside, every AS multi-homed (esposito)",
    ),
    "power-law-single": (
        lambda seed: power_law(seed, PowerLaw(homing="single"), "power-law-single"),
        "the same, but an AS joins by one link",
    ),
    "power-law-4": (
        lambda seed: power_law(seed, PowerLaw(domains=4), "power-law-4"),
        "as power-law, with 4 AS",
    ),
    "power-law-16": (
        lambda seed: power_law(seed, PowerLaw(domains=16), "power-law-16"),
        "as power-law, with 16 AS",
    ),
}


def make(name: str, seed: int = 1) -> Underlay:
    """The underlay of this name, such as `brite`, `topohub:topozoo/Abilene` or a file."""
    if name in DRAWN:
        return DRAWN[name][0](seed)
    if name.startswith("topohub:"):
        return underlay_files.from_topohub(name.removeprefix("topohub:"), seed=seed)
    path = Path(name)
    if path.suffix in (".graphml", ".gml"):
        return underlay_files.read(path, seed=seed)
    if name in ("regular", "random", "full-mesh"):
        raise ConfigError(f"{name} is an overlay, not an underlay: see `wend sim --topology {name}`")
    raise ConfigError(f"there is no network {name!r}; known are {', '.join(DRAWN)}, topohub:NAME, or a file")


def list_real_maps() -> list[str]:
    """The names of topohub's maps, as `make` takes them."""
    names = []
    for folder in files("topohub").joinpath("data").iterdir():
        if folder.is_dir():
            names += [f"topohub:{folder.name}/{name}" for name in _list_maps(folder)]
    return sorted(names)


def _list_maps(folder: object) -> list[str]:
    names = []
    for entry in folder.iterdir():  # type: ignore[attr-defined]
        if entry.is_dir():
            names += [f"{entry.name}/{name}" for name in _list_maps(entry)]
        elif entry.name.endswith(".json"):
            names.append(entry.name.removesuffix(".json"))
    return names
