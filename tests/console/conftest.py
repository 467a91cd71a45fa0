"""Fixtures of the console's tests."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.console.calls import Said
from wend.console.app import main


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Run the command in this process, which is quicker. Returns its exit code, stdout and stderr."""

    def call(*words: str, given: bytes = b"") -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["wend", *words])
        with _stdin(given):
            try:
                main()
                code: object = 0
            except SystemExit as ended:
                code = ended.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


@contextmanager
def _stdin(given: bytes) -> Iterator[None]:
    """Let the descriptor 0, which `wend pub` reads, hold these bytes."""
    before = os.dup(0)
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)
