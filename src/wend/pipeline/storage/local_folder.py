"""A local folder of versioned tables, with the operations of `HadoopFolder`.

One operation is special: a version is created completely, and by one writer only. A local file is linked to its name,
which fails if the name is taken. HDFS renames without replacing. An object store shows an object when it is complete;
whether it refuses the second of two writers depends on the store (`s3a:` does, if
`fs.s3a.create.conditional.enabled` is true and the store knows conditional writes).
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from wend.model.errors import ConfigError


class LocalFolder:
    """A local folder. Paths inside it begin at the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, inside: str) -> str:
        return str(self._folder / inside)

    def list_names(self, inside: str) -> list[str]:
        try:
            return os.listdir(self._folder / inside)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"cannot read {self._folder}: {error.strerror}", code="unreadable") from None

    def read(self, inside: str) -> bytes | None:
        try:
            return (self._folder / inside).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"cannot read {self._folder / inside}: {error.strerror}", code="unreadable") from None

    def create(self, inside: str, content: bytes) -> bool:
        """Create a file completely; False if it exists."""
        path = self._folder / inside
        draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror or error}", code="unwritable") from None
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        return True

    def list_sizes(self, inside: str) -> Iterator[tuple[str, int]]:
        """All files below, with their sizes."""
        for at, _, names in os.walk(self._folder / inside):
            for name in names:
                path = Path(at, name)
                with suppress(FileNotFoundError):
                    yield path.relative_to(self._folder).as_posix(), path.stat().st_size

    def list_ages(self, inside: str, now_ns: int) -> Iterator[tuple[str, int]]:
        for path, _ in list(self.list_sizes(inside)):
            with suppress(FileNotFoundError):
                yield path, now_ns - (self._folder / path).stat().st_mtime_ns

    def remove(self, inside: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        if (self._folder / inside).is_dir():
            shutil.rmtree(self._folder / inside, ignore_errors=True)
        else:
            (self._folder / inside).unlink(missing_ok=True)

    def remove_empty_folders(self, inside: str) -> None:
        """Remove empty folders below."""
        for at, _, _ in os.walk(self._folder / inside, topdown=False):
            with suppress(OSError):
                os.rmdir(at)
