"""What a log remembers of itself beside its segments: its id, and how far it had come.

`log.json` is written when a log opens, begins a segment, or closes. So a log whose segments lost their end notices it.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from wend.drivers.live.logs.segment import ID_BYTES, LogSegment, read_header
from wend.drivers.live.store.format import MARKER_BYTES
from wend.model.errors import ConfigError

VERSION: Final = 1
NAME: Final = "log.json"


class LogIdentity(msgspec.Struct, frozen=True):
    """The content of `log.json`."""

    version: int
    id: str
    marker: str
    boot: str = ""
    """The boot of the host in which it was opened; empty if that is unknown."""
    reached: int = 0
    """A position that the log had reached, and everything before it."""
    is_closed: bool = False
    """Whether nothing came after `reached`."""

    @property
    def marker_bytes(self) -> bytes:
        return bytes.fromhex(self.marker)

    @property
    def id_bytes(self) -> bytes:
        return bytes.fromhex(self.id)


def new_identity() -> LogIdentity:
    return LogIdentity(VERSION, os.urandom(ID_BYTES).hex(), os.urandom(MARKER_BYTES).hex())


def read_identity(folder: Path) -> LogIdentity | None:
    """The identity of the log in a folder; None if there is none, or it is damaged. Raises `ConfigError` for a log of a
    newer version."""
    path = folder / NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=LogIdentity)
    except (OSError, msgspec.MsgspecError):
        return None
    if found.version > VERSION:
        raise ConfigError(
            f"{folder} is a log of a newer version of Wend: it has format {found.version}, and this version reads "
            f"{VERSION}; nothing was changed",
            code="log-unreadable",
        )
    try:
        is_valid = len(found.marker_bytes) == MARKER_BYTES and len(found.id_bytes) == ID_BYTES
    except ValueError:
        is_valid = False
    return found if is_valid else None


def recover_identity(segments: list[LogSegment]) -> LogIdentity | None:
    """The identity by the newest segment whose header can be read; None if there is none."""
    for segment in reversed(segments):
        try:
            header = read_header(segment.path)
        except OSError:
            continue
        if header is not None:
            marker, log = header
            return LogIdentity(VERSION, log.hex(), marker.hex())
    return None


def write_identity(folder: Path, identity: LogIdentity, *, sync: bool) -> None:
    """Replace the file. Raises `OSError`."""
    path = folder / (NAME + ".new")
    with path.open("wb") as file:
        file.write(msgspec.json.encode(identity))
        if sync:
            file.flush()
            os.fsync(file.fileno())
    path.replace(folder / NAME)
