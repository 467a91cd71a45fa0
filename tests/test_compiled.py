"""The compiled core: the same source, told apart from the pure one wherever results are stored."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from wend.model.errors import ConfigError
from wend.pipeline import code_hash
from wend.pipeline.sweeps import run_kind

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import compiled  # noqa: E402 - a script, not a package


@pytest.fixture
def fresh() -> Iterator[None]:
    code_hash.hash_code.cache_clear()
    yield
    code_hash.hash_code.cache_clear()


def made(source: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def classes(source: str) -> dict[str, str]:
    """The classes of a module but for `NATIVE`, without the mark that mypyc reads."""
    found = {name: node for name, node in made(source).items() if name not in compiled.NATIVE}
    for node in found.values():
        node.decorator_list = [one for one in node.decorator_list if "mypyc_attr" not in ast.unparse(one)]
    return {name: ast.dump(node) for name, node in found.items()}


@pytest.mark.parametrize("module", compiled.core_modules())
def test_a_module_and_its_declarations_are_the_source(module: str) -> None:
    source = (compiled.SOURCE / module).read_text(encoding="utf-8")
    text, declared = compiled.prepare_source(source, module)
    kept, moved = classes(text), classes(declared)
    assert kept | moved == classes(source)
    assert not kept.keys() & moved.keys()
    keywords = {name for name, node in made(source).items() if node.keywords}
    tuples = {name for name, node in made(source).items() if "NamedTuple" in map(ast.unparse, node.bases)}
    assert keywords.difference(compiled.NATIVE) <= moved.keys() <= keywords | tuples
    functions = {ast.dump(node) for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert {ast.dump(node) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)} == functions


@pytest.mark.parametrize("module", compiled.core_modules())
def test_all_lines_but_those_of_declarations_stay_where_they_are(module: str) -> None:
    source = (compiled.SOURCE / module).read_text(encoding="utf-8")
    before = {name: (node.lineno, node.end_lineno) for name, node in made(source).items() if not node.keywords}
    text, declared = compiled.prepare_source(source, module)
    after = {name: (node.lineno, node.end_lineno) for name, node in made(text).items() if name not in compiled.NATIVE}
    assert after == {name: lines for name, lines in before.items() if name not in made(declared)}


STRUCTS = """\"\"\"A module.\"\"\"

import msgspec


class Forward(msgspec.Struct, frozen=True, gc=False):
    \"\"\"A Struct that is made for every packet.\"\"\"

    peer: int
    tries: int = 0
    \"\"\"A field with a default.\"\"\"

    @property
    def again(self) -> bool:
        return self.tries > 0


LAST = Forward(3)
"""


def test_a_native_class_behaves_as_its_struct_does() -> None:
    text, declared = compiled.prepare_source(STRUCTS, "protocol/plugins/ports.py")
    assert not declared
    assert text.splitlines()[-1] == STRUCTS.splitlines()[-1] and text.count("\n") == STRUCTS.count("\n")
    pure: dict[str, Any] = {}
    exec(STRUCTS, pure)
    native: dict[str, Any] = {"mypyc_attr": lambda **_: lambda one: one, "Final": Final}
    exec(text, native)
    for space in (pure, native):
        forward = space["Forward"]
        assert forward(3) == space["LAST"] == forward(peer=3, tries=0) != forward(3, 1)
        assert hash(forward(3)) == hash(space["LAST"]) and forward(3, 2).again and not forward(3).again
        assert repr(forward(3)) == "Forward(peer=3, tries=0)" and forward.__match_args__ == ("peer", "tries")


def test_native_classes_are_structs_of_the_core() -> None:
    sources = [(compiled.SOURCE / module).read_text(encoding="utf-8") for module in compiled.core_modules()]
    structs = {name for source in sources for name, node in made(source).items() if node.keywords}
    assert structs.issuperset(compiled.NATIVE)


def test_every_pattern_of_the_core_finds_modules() -> None:
    for pattern in compiled.CORE:
        assert list(compiled.SOURCE.glob(pattern)), pattern


LAZY = ("Iterator[", "Iterable[", "Generator[")


@cache
def lazy_functions(folder: Path) -> set[str]:
    """The functions of a folder that may return generators."""
    defined = [node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    return {node.name for node in defined if isinstance(node, ast.FunctionDef) and _is_lazy(node.returns)}


def _is_lazy(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).startswith(LAZY)


def late_generators(source: str, lazy: set[str]) -> list[str]:
    """Displays and calls in which a generator with a star comes before another call."""
    found = []
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        nodes = list(ast.walk(function))
        declared = [(one.target, one.annotation) for one in nodes if isinstance(one, ast.AnnAssign)]
        names = {ast.unparse(target) for target, annotation in declared if _is_lazy(annotation)}
        names |= {one.arg for one in nodes if isinstance(one, ast.arg) and _is_lazy(one.annotation)}
        for node in nodes:
            items = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
            for at, item in enumerate(items):
                is_lazy = isinstance(item, ast.Starred) and _used(item) & names | _called(item) & lazy
                if is_lazy and any(_called(later) for later in items[at + 1 :]):
                    found.append(ast.unparse(node))
    return found


def _used(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _called(expression: ast.expr) -> set[str]:
    calls = [node.func for node in ast.walk(expression) if isinstance(node, ast.Call)]
    return {call.attr if isinstance(call, ast.Attribute) else ast.unparse(call) for call in calls}


@pytest.mark.parametrize("module", compiled.core_modules())
def test_the_order_of_execution_is_the_same_in_the_compiled_core(module: str) -> None:
    """mypyc evaluates all items of `[*effects(), *more()]` before it runs the generators among them."""
    path = compiled.SOURCE / module
    assert not late_generators(path.read_text(encoding="utf-8"), lazy_functions(path.parent))


@pytest.mark.parametrize(
    ("source", "is_late"),
    [
        ("def f(self): return [*self.lazy(), *self.more()]", True),
        ("def f(self): return self.send(*self.lazy(), self.more())", True),
        ("def f(self, some: Iterable[int]): return (*some, self.more())", True),
        ("def f(self):\n some: Iterator[int] = self.x()\n return [*some, self.more()]", True),
        ("def f(self): return [self.more(), *self.lazy()]", False),
        ("def f(self): return [*self.more(), *self.lazy()]", False),
        ("def f(self): return [*self.lazy(), 3]", False),
    ],
)
def test_the_checker_sees_generators_that_run_late(source: str, is_late: bool) -> None:
    assert bool(late_generators(source, {"lazy"})) is is_late


def replaced_natives(source: str) -> list[str]:
    """Calls of msgspec's `replace` for a parameter that is one of the classes of `NATIVE`."""
    found = []
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        nodes = list(ast.walk(function))
        kinds = {one.arg: ast.unparse(one.annotation) for one in nodes if isinstance(one, ast.arg) and one.annotation}
        calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
        changes = [call for call in calls if ast.unparse(call.func).endswith("structs.replace")]
        found += [ast.unparse(call) for call in changes if kinds.get(ast.unparse(call.args[0])) in compiled.NATIVE]
    return found


def test_no_native_class_is_copied_as_a_struct() -> None:
    """In the compiled core they are no Structs, wherever the code that copies them is."""
    sources = {path: path.read_text(encoding="utf-8") for path in compiled.SOURCE.rglob("*.py")}
    assert not {path: calls for path, source in sources.items() if (calls := replaced_natives(source))}


def test_the_checker_sees_native_classes_that_are_copied_as_structs() -> None:
    copied = "def f(one: {}): return msgspec.structs.replace(one, kept=True)"
    assert replaced_natives(copied.format("Receipt")) and not replaced_natives(copied.format("Event"))


@cache
def float_fields() -> set[str]:
    """The names that fields of classes have only for floats."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in compiled.SOURCE.rglob("*.py")]
    made = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = [field for node in made for field in node.body if isinstance(field, ast.AnnAssign)]
    kinds = {(ast.unparse(field.target), ast.unparse(field.annotation)) for field in fields}
    return {name for name, kind in kinds if "float" in kind} - {name for name, kind in kinds if "float" not in kind}


def integer_sums(source: str, floats: set[str]) -> list[str]:
    """Sums of fields that are floats, without a float to start with."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    sums = [call for call in calls if ast.unparse(call.func) == "sum" and len(call.args) == 1 and not call.keywords]
    added = [(call, getattr(call.args[0], "elt", None)) for call in sums]
    return [ast.unparse(call) for call, item in added if isinstance(item, ast.Attribute) and item.attr in floats]


@pytest.mark.parametrize("module", compiled.core_modules())
def test_sums_of_floats_start_with_a_float(module: str) -> None:
    """mypyc takes the sum in `2 * sum(x.rate_hz for x in reports)` for an integer, and refuses the float that it is."""
    assert not integer_sums((compiled.SOURCE / module).read_text(encoding="utf-8"), float_fields())


@pytest.mark.parametrize(
    ("source", "is_integer"),
    [
        ("2 * sum(x.rate_hz for x in reports)", True),
        ("1 - sum([x.rate_hz for x in reports])", True),
        ("2 * sum((x.rate_hz for x in reports), 0.0)", False),
        ("2 * sum((x.rate_hz for x in reports), start=0.0)", False),
        ("2 * sum(x.entries for x in reports)", False),
    ],
)
def test_the_checker_sees_sums_that_start_with_an_integer(source: str, is_integer: bool) -> None:
    assert bool(integer_sums(source, {"rate_hz"})) is is_integer


def test_a_sweep_says_which_core_it_used(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_hash, "core_build", lambda: "pure")
    pure = code_hash.hash_code()
    code_hash.hash_code.cache_clear()
    monkeypatch.setattr(code_hash, "core_build", lambda: "compiled")
    assert code_hash.hash_code() == f"{pure}-compiled"


@pytest.mark.parametrize(("here", "there"), [("pure", "compiled"), ("compiled", "pure")])
def test_a_sweep_mixes_no_cores(fresh: None, monkeypatch: pytest.MonkeyPatch, here: str, there: str) -> None:
    monkeypatch.setattr(code_hash, "core_build", lambda: there)
    driver = code_hash.hash_code()
    code_hash.hash_code.cache_clear()
    monkeypatch.setattr(code_hash, "core_build", lambda: here)
    monkeypatch.setattr(run_kind, "core_build", lambda: here)
    with pytest.raises(ConfigError, match=f"this worker runs Wend's {here} core, the driver the other one"):
        run_kind.check_code(code_hash.PARTS, driver)
