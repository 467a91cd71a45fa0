"""Replacing a folder by another in one step. A reader, or a crash, finds either the old folder or the new one."""

import ctypes
from pathlib import Path

_HERE = -100
_EXCHANGE = 2


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically. False if the system cannot do that; then nothing has changed."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # only Linux has it
        return False
    return bool(renameat2(_HERE, bytes(one), _HERE, bytes(other), _EXCHANGE) == 0)


def put(draft: Path, folder: Path, former: Path) -> None:
    """Move `draft` to `folder`. An old folder is at `draft` or `former` afterwards. After an OSError nothing has
    changed."""
    if not folder.exists() or not any(folder.iterdir()):
        draft.replace(folder)
    elif not exchange(draft, folder):
        folder.replace(former)
        try:
            draft.replace(folder)
        except BaseException:  # also an interrupt, which may come after the last step
            if not folder.exists():
                former.replace(folder)
            raise
