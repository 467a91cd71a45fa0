"""Every error has a code: short, stable, declared with one sentence, and used for one meaning."""

import ast
import pickle
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from wend.model import errors
from wend.model.errors import ERROR_CODES, ConfigError, ErrorCode, FilterError, Refused, WendError, make_refusal
from wend.protocol.notices import DROPS, NOTICES, REFUSALS

SOURCE = Path(errors.__file__).parents[1]
CLASSES = {name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, WendError)}


@cache
def calls() -> tuple[tuple[str, ast.Call], ...]:
    """Where the source makes an error, and how."""
    return tuple(
        (f"{path.relative_to(SOURCE)}:{node.lineno}", node)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES
    )


def given_code(call: ast.Call) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)


def test_each_code_has_one_sentence() -> None:
    assert tuple(ERROR_CODES) == get_args(ErrorCode)
    assert [code for code in ERROR_CODES if not re.fullmatch(r"[a-z][a-z0-9-]*", code)] == []
    assert [text for text in ERROR_CODES.values() if not re.fullmatch(r"[A-Z].*\.", text)] == []
    assert len(set(ERROR_CODES.values())) == len(ERROR_CODES)


def test_a_code_that_is_also_counted_has_one_meaning() -> None:
    counted = {**NOTICES, **DROPS, **REFUSALS}
    assert {code: counted[code] for code in ERROR_CODES.keys() & counted.keys()} == {
        code: ERROR_CODES[code] for code in ERROR_CODES.keys() & counted.keys()
    }


def test_each_class_has_a_code_of_its_own() -> None:
    codes = [each.__dict__.get("code") for each in CLASSES.values()]
    assert len(set(codes)) == len(codes) and set(codes) <= ERROR_CODES.keys()


def test_every_class_of_errors_stands_in_the_tree_at_the_top() -> None:
    rows = re.findall(r"(\w+) +([a-z-]+)  ", (errors.__doc__ or "").split("The second column")[0])
    assert {name: each.code for name, each in CLASSES.items()} == dict(rows)
    for path in SOURCE.rglob("*.py"):
        if path.name != "errors.py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            made = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and bases(node) & {*CLASSES}]
            assert not made, f"{path} declares errors"


def bases(node: ast.ClassDef) -> set[str]:
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


def test_every_error_that_is_made_has_a_declared_code() -> None:
    for place, call in calls():
        code = given_code(call)
        if isinstance(code, ast.Constant):
            assert code.value in ERROR_CODES, place
        elif code is not None:  # the code of another error
            assert isinstance(code, ast.Attribute) and code.attr == "code", place


def test_every_code_is_used() -> None:
    used = {code.value for _, call in calls() if isinstance(code := given_code(call), ast.Constant)}
    used |= {each.code for each in CLASSES.values()} | {"usage"}  # the command line's own
    assert ERROR_CODES.keys() - used == set()


FILE_ERRORS = {"OSError", "FileNotFoundError", "PermissionError", "ArrowException"}
ABOUT_SOCKETS = "drivers/live/addressing/addresses.py"


def file_errors(tree: ast.AST) -> list[ast.Call]:
    """The errors that a source raises after an error of the file system."""
    return [
        node
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler)
        and handler.type is not None
        and {getattr(name, "id", getattr(name, "attr", "")) for name in ast.walk(handler.type)} & FILE_ERRORS
        for node in ast.walk(handler)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in CLASSES.keys() - {"LabError"}
    ]


def test_an_error_within_another_keeps_its_code() -> None:
    """`PATH: cannot read ...` is as unreadable as `cannot read ...`."""
    lost = []
    for path in sorted(SOURCE.rglob("*.py")):
        for handler in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match handler:
                case ast.ExceptHandler(type=ast.Name(id="ConfigError"), name=str() as name):
                    raised = [node.exc for node in ast.walk(handler) if isinstance(node, ast.Raise)]
                    lost += [
                        f"{path.relative_to(SOURCE).as_posix()}:{call.lineno}"
                        for call in raised
                        if isinstance(call, ast.Call)
                        and getattr(call.func, "id", "") == "ConfigError"
                        and name in {each.id for each in ast.walk(call.args[0]) if isinstance(each, ast.Name)}
                        and given_code(call) is None
                    ]
    assert lost == []


def test_an_error_about_a_file_says_so_by_its_code() -> None:
    uncoded = [
        f"{path.relative_to(SOURCE).as_posix()}:{call.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        for call in file_errors(ast.parse(path.read_text(encoding="utf-8")))
        if given_code(call) is None
    ]
    assert [place for place in uncoded if not place.startswith(ABOUT_SOCKETS)] == []


@pytest.mark.parametrize(
    ("code", "kind"), [("filter-syntax", FilterError), ("publish-refused", Refused), ("of-tomorrow", Refused)]
)
def test_a_refusal_becomes_an_error_of_the_class_of_its_code(code: str, kind: type[WendError]) -> None:
    error = make_refusal(code, "no")
    assert (type(error), error.code, str(error)) == (kind, code, "no")


def test_a_code_survives_the_way_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(ConfigError("cannot read x", code="unreadable")))
    assert (str(error), error.code) == ("cannot read x", "unreadable")
