"""A process for runs executes them one after the other, and ends with the one that made it."""

import os
import select
from functools import partial

import pytest

from wend.pipeline.sweeps.run_process import RunDied, RunFailed, RunProcess, RunTimeout, call_in_child

pytest.importorskip("pyspark")


def test_one_process_executes_many_calls_and_survives_errors() -> None:
    child = call_in_child(os.getpid)
    assert child != os.getpid()
    with pytest.raises(RunFailed, match="ZeroDivisionError: ") as told:
        call_in_child(partial(divmod, 1, 0))
    assert "Traceback" in told.value.trace
    assert call_in_child(os.getpid) == child
    with pytest.raises(RunDied, match="exit code 7"):
        call_in_child(partial(os._exit, 7))
    assert call_in_child(os.getpid) not in (child, os.getpid())


def test_a_call_that_does_not_end_is_ended() -> None:
    process = RunProcess()
    reading, writing = os.pipe()
    with pytest.raises(RunTimeout, match=r"longer than 0\.05 s"):
        process.call(partial(os.read, reading, 1), 0.05)
    os.close(reading)
    os.close(writing)


def test_the_process_ends_with_the_one_that_made_it() -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:  # this process makes one, whose call waits for ever, and dies with a call under way
        process = RunProcess()
        process._calls.send_bytes(_pickled(reading))  # noqa: SLF001
        os._exit(0)
    os.close(writing)
    os.waitpid(parent, 0)
    # The pipe ends when the last process that holds it has ended.
    assert select.select([reading], [], [], 60)[0] and os.read(reading, 1) == b""
    os.close(reading)


def _pickled(number: int) -> bytes:
    import pickle

    return pickle.dumps(partial(os.read, number, 1))
