"""Where a command writes: it says which folders it makes."""

from pathlib import Path

import pytest

from tests.console.calls import Said
from wend.console.outputs import check_file, check_output_folder, check_page, check_resumable


def test_a_missing_folder_is_named_and_an_output_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for inside in (tmp_path / "new", tmp_path / "new.svg"):
        check_output_folder(inside, False)
        check_resumable(inside)
        check_file(inside)
        check_page(inside)
    check_page(tmp_path / "new" / "report.html", say=False)
    assert capsys.readouterr().err == ""
    for check in (lambda path: check_output_folder(path, False), check_resumable, check_file, check_page):
        check(tmp_path / "dta" / "new")
        assert capsys.readouterr().err == f"wend: the folder {tmp_path / 'dta'} does not exist; this command makes it\n"


@pytest.mark.parametrize(
    "words",
    [
        ("sim", "--duration", "1", "--peers", "4", "--degree", "3", "--topics", "1", "--trace"),
        ("topology", "make", "brite", "--seed", "1", "--out"),
        ("plan", "workload", "--messages", "5", "--popularity", "0.5", "--out"),
    ],
)
def test_commands_say_which_folder_they_make(said: Said, tmp_path: Path, words: tuple[str, ...]) -> None:
    out = tmp_path / "typo" / "out.gml"
    code, _, err = said(*words, str(out))
    assert (code, out.exists()) == (0, True), err
    assert err.startswith(f"wend: the folder {tmp_path / 'typo'} does not exist; this command makes it\n")
