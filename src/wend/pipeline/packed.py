"""An object with large arrays as a file that several processes share.

Pickle hands large buffers out instead of copying them, so the file holds the small rest of the object and then the
arrays, each at a multiple of 64 bytes. A reader maps the file: its pages are in memory once for all tasks of a
machine, and only those that are asked for. They are mapped copy-on-write, because compiled code makes a second
version of every function for arrays that cannot be written.
"""

import mmap
import pickle
import struct
from pathlib import Path
from typing import Any

from wend.model.files import written

_ALIGN = 64
_NUMBER = struct.Struct("<Q")


def pack(value: Any, place: Path) -> int:
    """Write it, whole or not at all, and say how many bytes it has."""
    buffers: list[pickle.PickleBuffer] = []
    small = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(small), *(buffer.raw() for buffer in buffers)]
    with written(place) as draft, draft.open("wb") as out:
        out.write(_NUMBER.pack(len(parts)) + b"".join(_NUMBER.pack(part.nbytes) for part in parts))
        for part in parts:
            out.write(b"\0" * (-out.tell() % _ALIGN))
            out.write(part)
        return out.tell()


def unpack(place: Path) -> Any:
    with place.open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    (count,) = _NUMBER.unpack_from(whole, 0)
    sizes = [_NUMBER.unpack_from(whole, _NUMBER.size * (1 + at))[0] for at in range(count)]
    at, parts = _NUMBER.size * (1 + count), []
    for size in sizes:
        at += -at % _ALIGN
        parts.append(whole[at : at + size])
        at += size
    return pickle.loads(parts[0], buffers=parts[1:])
