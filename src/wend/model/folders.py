"""A folder in another's place, in one step: who looks, or is killed in between, finds the one or the other, whole."""

import ctypes
from pathlib import Path

_HERE = -100
_EXCHANGE = 2


def exchange(one: Path, other: Path) -> bool:
    """Both change places at once; False, and nothing has changed, where the system cannot do that."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # Linux has it, others have not
        return False
    return bool(renameat2(_HERE, bytes(one), _HERE, bytes(other), _EXCHANGE) == 0)


def put(draft: Path, folder: Path, former: Path) -> None:
    """The draft becomes the folder; what was there is the draft or the former then. Raises OSError: nothing changed."""
    if not folder.exists() or not any(folder.iterdir()):
        draft.replace(folder)
    elif not exchange(draft, folder):
        folder.replace(former)
        try:
            draft.replace(folder)
        except BaseException:  # an interruption too, which may come when all is done
            if not folder.exists():
                former.replace(folder)
            raise
