"""The state of a lab in the file system, and the removal of a lab.

A lab consists of its folder /run/wend-lab/NAME, its namespaces wend-NAME-*, its emulator and the processes in the
namespaces. The lab's name is enough to find all four. So `clean` can remove the remains of an interrupted command that
wrote no state. Only the compiled emulator stays, in /run/wend-lab/bin.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from wend.lab import emulator, namespaces
from wend.lab.address_plan import LabNode, check_lab_name, find_lab_name
from wend.model.errors import LabError
from wend.model.files import write_atomically
from wend.topology.graph import Overlay, OverlayLink

RUN = Path("/run/wend-lab")
DEFAULT = "lab"
PROGRAMS = RUN / "bin"
_STATE = "lab.json"
_LOCK = "lock"


class LabState(msgspec.Struct, frozen=True):
    """The state of a running lab, which `attach` reads."""

    name: str
    peers: int
    links: tuple[OverlayLink, ...]
    names: tuple[str, ...]
    nodes: tuple[LabNode, ...]

    @property
    def overlay(self) -> Overlay:
        return Overlay(self.peers, self.links, self.names)


class RemovedLabs(msgspec.Struct, frozen=True):
    """The parts that `clean` removed, and the running labs that it spared."""

    labs: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    emulators: int = 0
    processes: int = 0
    spared: tuple[str, ...] = ()


def lab_folder(name: str) -> Path:
    check_lab_name(name)
    return RUN / name


@contextmanager
def new_lab_folder(name: str) -> Iterator[Path]:
    """Create the folder of a new lab and hold its lock during the body. If the body fails, remove the lab."""
    folder = lab_folder(name)
    try:
        RUN.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        raise LabError(
            f"a lab named {name!r} is up, or a crash left its remains: remove it with `{_down_command(name)}`"
        ) from None
    except OSError as error:
        raise LabError(f"cannot write {folder}: {error.strerror}", code="unwritable") from None
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        except BaseException:
            remove_lab(name)
            raise


def _down_command(name: str) -> str:
    return "wend lab down" if name == DEFAULT else f"wend lab down --name {name}"


def save_state(folder: Path, state: LabState) -> None:
    with write_atomically(folder / _STATE) as draft:
        draft.write_bytes(msgspec.json.encode(state))


def load_state(name: str) -> LabState:
    path = lab_folder(name) / _STATE
    try:
        return msgspec.json.decode(path.read_bytes(), type=LabState)
    except FileNotFoundError:
        raise LabError(f"no lab named {name!r} is up") from None
    except PermissionError:
        raise LabError(f"cannot read {path}: a lab needs root", code="unreadable") from None
    except msgspec.DecodeError:
        raise LabError(f"{path} is not the state of a lab: remove the lab with `{_down_command(name)}`") from None


def list_labs() -> list[str]:
    """The names of all labs, running or with remains."""
    names = {name for name in map(find_lab_name, namespaces.list_lab_namespaces()) if name}
    names |= {Path(place).name for _, place in emulator.find_running_emulators() if Path(place).parent == RUN}
    with suppress(FileNotFoundError):
        names |= {entry.name for entry in RUN.iterdir() if entry.is_dir() and entry != PROGRAMS}
    return sorted(names)


def is_in_use(name: str) -> bool:
    """Whether the lab is up, or `up` is creating it."""
    folder = RUN / name
    if (folder / _STATE).exists() and emulator.is_running(folder):
        return True
    try:
        with (folder / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def remove_lab(name: str) -> RemovedLabs:
    """Remove a lab in any state. A second call does nothing."""
    folder = lab_folder(name)
    existed = folder.exists()
    removed: list[str] = []
    emulators = processes = 0
    # An `ip` of a killed command may still create namespaces, so look again.
    while spaces := [space for space in namespaces.list_lab_namespaces() if find_lab_name(space) == name]:
        processes += namespaces.end_processes(spaces)
        namespaces.remove_devices(spaces)
        emulators += emulator.kill_emulators(folder)
        namespaces.delete_namespaces(spaces)
        removed += spaces
    emulators += emulator.kill_emulators(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise LabError(f"cannot remove {folder}")
    labs = (name,) if removed or emulators or existed else ()
    return RemovedLabs(labs, tuple(removed), emulators, processes)


def clean(name: str | None = None) -> RemovedLabs:
    """Remove one lab, running or not. Without a name, remove the remains of all crashed labs and spare running ones."""
    check_root()
    if name is not None:
        return remove_lab(name)
    names = list_labs()
    spared = tuple(n for n in names if is_in_use(n))
    removed = [remove_lab(n) for n in names if n not in spared]
    return RemovedLabs(
        labs=tuple(lab for r in removed for lab in r.labs),
        namespaces=tuple(space for r in removed for space in r.namespaces),
        emulators=sum(r.emulators for r in removed),
        processes=sum(r.processes for r in removed),
        spared=spared,
    )


def check_root() -> None:
    if os.geteuid() != 0:
        raise LabError("a lab needs root, for network namespaces and TUN devices: run it with sudo")
