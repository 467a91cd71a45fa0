"""Pickled objects with large arrays in a file that several processes map into memory.

Pickle (protocol 5) hands out large buffers instead of copying them. The file holds the rest of the object, then the
buffers, each at a multiple of 64 bytes. A reader maps the file, so all tasks of a machine share its pages and load
only those that they use. The mapping is copy-on-write, because numba compiles every function a second time for
read-only arrays.
"""

import mmap
import pickle
import struct
from pathlib import Path
from typing import Any

from wend.model.files import write_atomically

_ALIGN = 64
_NUMBER = struct.Struct("<Q")


def dump_mapped(value: Any, path: Path) -> int:
    """Write the object atomically; return the size of the file in bytes."""
    buffers: list[pickle.PickleBuffer] = []
    small = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(small), *(buffer.raw() for buffer in buffers)]
    with write_atomically(path) as draft, draft.open("wb") as out:
        out.write(_NUMBER.pack(len(parts)) + b"".join(_NUMBER.pack(part.nbytes) for part in parts))
        for part in parts:
            out.write(b"\0" * (-out.tell() % _ALIGN))
            out.write(part)
        return out.tell()


def load_mapped(path: Path) -> Any:
    """Read an object that `dump_mapped` wrote."""
    with path.open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    (count,) = _NUMBER.unpack_from(whole, 0)
    sizes = [_NUMBER.unpack_from(whole, _NUMBER.size * (1 + at))[0] for at in range(count)]
    at, parts = _NUMBER.size * (1 + count), []
    for size in sizes:
        at += -at % _ALIGN
        parts.append(whole[at : at + size])
        at += size
    return pickle.loads(parts[0], buffers=parts[1:])
