"""Runs in a process of their own, so that a run that kills its process, or never ends, does not cost a Spark worker.

Spark gives up a whole job if a worker dies a few times at one task. So the worker forks a process, which executes runs
one after the other and need not import and compile again. If the process dies, or a run exceeds its time, the worker
starts a fresh process for the next run. The process ends when its worker does.
"""

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from pyspark import cloudpickle


class RunFailed(Exception):
    """Raised if a run raised an exception. It has the error as one line, and the traceback."""

    def __init__(self, error: str, trace: str) -> None:
        super().__init__(error)
        self.trace = trace


class RunDied(Exception):
    """Raised if a run ended its process."""


class RunTimeout(Exception):
    """Raised if a run took too long."""


class RunProcess:
    """A child of this process that executes calls."""

    def __init__(self) -> None:
        forked = get_context("fork")
        self._calls, theirs = forked.Pipe()
        life, self._alive = os.pipe()
        self._process = forked.Process(target=_serve_calls, args=(theirs, self._calls, life, self._alive), daemon=True)
        self._process.start()
        theirs.close()
        os.close(life)

    def call(self, task: Callable[[], Any], limit_s: float | None = None) -> Any:
        """Execute the task in the child. Raises RunFailed, RunDied or, after `limit_s`, RunTimeout."""
        try:
            self._calls.send_bytes(cloudpickle.dumps(task))  # type: ignore[no-untyped-call]
            if not self._calls.poll(limit_s):
                self.close()
                raise RunTimeout(f"the run took longer than {limit_s:g} s")
            good, answer = pickle.loads(self._calls.recv_bytes())
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode or 0
            self.close()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            hint = "; the machine had too little memory, perhaps" if code == -signal.SIGKILL else ""
            raise RunDied(f"the run ended its process ({how}{hint})") from None
        if not good:
            raise RunFailed(*answer)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._calls.close()
        os.close(self._alive)


def _serve_calls(calls: Connection, theirs: Connection, life: int, alive: int) -> None:
    # The copies of the parent's ends must be closed, or this process would not see the parent end.
    theirs.close()
    os.close(alive)
    Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    while True:
        try:
            task = pickle.loads(calls.recv_bytes())
        except EOFError:
            os._exit(0)
        calls.send_bytes(pickle.dumps(_execute(task)))


def _execute(task: Callable[[], Any]) -> tuple[bool, Any]:
    try:
        return True, task()
    except Exception as error:
        return False, (f"{type(error).__name__}: {error}", traceback.format_exc())


def _end_with_parent(life: int) -> None:
    os.read(life, 1)
    os._exit(1)


_processes: dict[int, RunProcess] = {}


def call_in_child(task: Callable[[], Any], limit_s: float | None = None) -> Any:
    """Execute the task in the child of this process, forked at the first call and again if a call ended it."""
    here = os.getpid()
    process = _processes.pop(here, None) or RunProcess()
    try:
        answer = process.call(task, limit_s)
    except RunFailed:
        _processes[here] = process
        raise
    _processes[here] = process
    return answer
