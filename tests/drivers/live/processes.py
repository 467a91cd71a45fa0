"""Peers as processes of their own, for tests."""

import asyncio
import atexit
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]


_one_at_a_time = threading.Lock()


def _fork_server() -> str:
    """The socket of a server that all tests of this process share, also if several peers start at once."""
    with _one_at_a_time:
        return _started_server()


@cache
def _started_server() -> str:
    folder = tempfile.TemporaryDirectory(prefix="wend-peers-")
    path = f"{folder.name}/socket"
    command = [sys.executable, "-m", "tests.drivers.live.fork_server", path]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None and server.stdout.readline() == b"listening\n"

    def end() -> None:
        server.communicate()
        folder.cleanup()

    atexit.register(end)
    return path


class Process:
    """A `wend peer` that listens for clients."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pid: int, url: str) -> None:
        self._reader = reader
        self._writer = writer
        self._pid = pid
        self._exit_code: int | None = None
        self.url = url

    @classmethod
    async def start(cls, config: Path) -> "Process":
        reader, writer = await asyncio.open_unix_connection(await asyncio.to_thread(_fork_server))
        writer.write(f"{config}\n".encode())
        pid, printed = None, ""
        while found := re.match(r"pid (\d+)", printed := (await reader.readline()).decode()):
            pid = int(found[1])
        listening = re.search(r"clients on (wends?://\S+)", printed)
        assert pid is not None and listening is not None, printed
        return cls(reader, writer, pid, listening[1])

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Stop it in order; its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        if self._exit_code is None:
            self.send_signal(number)
            printed = (await self._reader.read()).decode()
            found = re.search(r"^exit (-?\d+)$", printed, re.MULTILINE)
            assert found is not None, printed
            self._exit_code = int(found[1])
            self._writer.close()
        return self._exit_code
