"""What tests of the console share."""

import sys

import pytest

from tests.console.calls import Said
from wend.console.app import main


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """The command in this process, which is quicker: its exit code and what it printed."""

    def call(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["wend", *words])
        try:
            main()
            code: object = 0
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call
