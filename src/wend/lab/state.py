"""What a lab leaves in the file system while it is up, and how everything goes away again.

A lab is its folder /run/wend-lab/NAME, its namespaces wend-NAME-*, its emulator and the processes in the namespaces.
Each of the four is found by its name alone, so that whatever an interrupted command left behind can be removed
without anything that it should have written down. The one thing that stays is the compiled emulator, in
/run/wend-lab/bin.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from wend.lab import emulator, namespaces
from wend.lab.addresses import Host, check_name, lab_of
from wend.model.errors import LabError
from wend.model.files import written
from wend.topology.graph import Overlay, OverlayLink

RUN = Path("/run/wend-lab")
DEFAULT = "lab"
PROGRAMS = RUN / "bin"
_STATE = "lab.json"
_LOCK = "making"


class State(msgspec.Struct, frozen=True):
    """What `attach` needs to know of a running lab."""

    name: str
    peers: int
    links: tuple[OverlayLink, ...]
    names: tuple[str, ...]
    nodes: tuple[Host, ...]
    routes: str
    seed: int

    @property
    def overlay(self) -> Overlay:
        return Overlay(self.peers, self.links, self.names)


class Removed(msgspec.Struct, frozen=True):
    """What `clean` took away, and the labs that it left alone because they are up."""

    labs: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    emulators: int = 0
    processes: int = 0
    spared: tuple[str, ...] = ()


def folder_of(name: str) -> Path:
    check_name(name)
    return RUN / name


@contextmanager
def making(name: str) -> Iterator[Path]:
    """A folder for a new lab. While it is made its lock is held; if that fails, everything is removed again."""
    folder = folder_of(name)
    try:
        RUN.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        raise LabError(f"a lab named {name!r} is up or was left behind: end it with `{_down(name)}`") from None
    except OSError as error:
        raise LabError(f"cannot write {folder}: {error.strerror}") from None
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        except BaseException:
            remove(name)
            raise


def _down(name: str) -> str:
    return "wend lab down" if name == DEFAULT else f"wend lab down --name {name}"


def save(folder: Path, state: State) -> None:
    with written(folder / _STATE) as draft:
        draft.write_bytes(msgspec.json.encode(state))


def load(name: str) -> State:
    path = folder_of(name) / _STATE
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        raise LabError(f"no lab named {name!r} is up") from None
    except PermissionError:
        raise LabError(f"a lab is root's business: {path} cannot be read") from None
    except msgspec.DecodeError:
        raise LabError(f"{path} is not a lab's state: end the lab with `{_down(name)}`") from None


def known() -> list[str]:
    """Every lab of which anything exists."""
    found = {name for name in map(lab_of, namespaces.existing()) if name}
    found |= {Path(place).name for _, place in emulator.running() if Path(place).parent == RUN}
    with suppress(FileNotFoundError):
        found |= {entry.name for entry in RUN.iterdir() if entry.is_dir() and entry != PROGRAMS}
    return sorted(found)


def in_use(name: str) -> bool:
    """Whether the lab is up, or being made at this moment."""
    folder = RUN / name
    if (folder / _STATE).exists() and emulator.alive(folder):
        return True
    try:
        with (folder / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def remove(name: str) -> Removed:
    """Everything of this lab, in whatever state it is. Safe to repeat."""
    folder = folder_of(name)
    existed = folder.exists()
    found: list[str] = []
    emulators = processes = 0
    # An `ip` that a killed command had started may still be at work, so it is looked at again.
    while spaces := [space for space in namespaces.existing() if lab_of(space) == name]:
        processes += namespaces.end_processes(spaces)
        namespaces.unplug(spaces)
        emulators += emulator.end(folder)
        namespaces.delete(spaces)
        found += spaces
    emulators += emulator.end(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise LabError(f"cannot remove {folder}")
    labs = (name,) if found or emulators or existed else ()
    return Removed(labs, tuple(found), emulators, processes)


def clean(name: str | None = None) -> Removed:
    """Remove a lab by name, up or not; without a name what crashed labs left behind, sparing those that are up."""
    require_root()
    if name is not None:
        return remove(name)
    names = known()
    spared = tuple(n for n in names if in_use(n))
    removed = [remove(n) for n in names if n not in spared]
    return Removed(
        labs=tuple(lab for r in removed for lab in r.labs),
        namespaces=tuple(space for r in removed for space in r.namespaces),
        emulators=sum(r.emulators for r in removed),
        processes=sum(r.processes for r in removed),
        spared=spared,
    )


def require_root() -> None:
    if os.geteuid() != 0:
        raise LabError("a lab needs root, for network namespaces and TUN devices: run it with sudo")
