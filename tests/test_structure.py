"""The shape of the source, held by reading it: parts instead of ancestors, and files and functions of readable size."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "wend"
MAX_LINES, MAX_FUNCTION_LINES, MAX_BRANCHES, MAX_LEVELS = 450, 70, 15, 2

KERNELS = {
    "drivers/sim/engine.py:Engine.run": "the loop of the simulator, where calls for each entry and effect are slow",
    "strategies/adaptive/routes.py:RouteTable.search": "the search for routes, once per packet while links are down",
}
"""Functions that may be long or branch often, each with the reason."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class OwnClass(NamedTuple):
    """A class of ours: where it is, and the classes that it inherits from."""

    file: str
    name: str
    bases: tuple[str, ...]


def sources() -> dict[str, str]:
    return {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))}


# ---------------------------------------------------------------- classes


def classes(files: dict[str, str]) -> dict[str, OwnClass]:
    """All classes by module and name. A base is named by its module, too, as far as imports tell."""
    made: dict[str, OwnClass] = {}
    for file, source in files.items():
        tree = ast.parse(source)
        module = "wend." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        names = {node.name: f"{module}.{node.name}" for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = tuple(names.get(base, base) for base in map(_base_name, node.bases))
                made[f"{module}.{node.name}"] = OwnClass(file, node.name, bases)
    return _resolved(made, files)


def _base_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        return _base_name(base.value)
    return base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")


def _resolved(made: dict[str, OwnClass], files: dict[str, str]) -> dict[str, OwnClass]:
    """Follow bases that a package exports to the module that has them."""
    exported = {
        f"wend.{file.removesuffix('/__init__.py').replace('/', '.')}.{alias.asname or alias.name}": (
            f"{node.module}.{alias.name}"
        )
        for file, source in files.items()
        if file.endswith("/__init__.py")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return {key: one._replace(bases=tuple(exported.get(base, base) for base in one.bases)) for key, one in made.items()}


def levels(key: str, made: dict[str, OwnClass]) -> int:
    """How many classes of ours stand above one, on the longest way up."""
    return max((1 + levels(base, made) for base in made[key].bases if base in made), default=0)


def too_deep(made: dict[str, OwnClass]) -> list[str]:
    return [f"{one.file} {one.name}" for key, one in made.items() if levels(key, made) > MAX_LEVELS]


def only_children(made: dict[str, OwnClass]) -> list[str]:
    """Base classes whose only subclass is in another file."""
    subclasses = defaultdict(list)
    for one in made.values():
        for base in one.bases:
            if base in made:
                subclasses[base].append(one)
    return [
        f"{made[base].file} {made[base].name} <- {heirs[0].file} {heirs[0].name}"
        for base, heirs in subclasses.items()
        if len(heirs) == 1 and heirs[0].file != made[base].file
    ]


def foreign_private_names(file: str, source: str) -> list[str]:
    """Private names that a class uses of itself and does not make: those of a base class."""
    complaints = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            used = {
                each.attr
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute)
                and isinstance(each.value, ast.Name)
                and each.value.id in ("self", "cls")
                and each.attr.startswith("_")
                and not each.attr.startswith("__")
            }
            complaints += [f"{file} {node.name}.{name}" for name in sorted(used - _made_names(node))]
    return complaints


def _made_names(node: ast.ClassDef) -> set[str]:
    made: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                made.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                made.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                made.add(name)
            case ast.Constant(value=str() as name):  # a slot
                made.add(name)
    return made


# ---------------------------------------------------------------- sizes


def functions(source: str) -> Iterator[tuple[str, Function]]:
    """All functions and methods, each with its dotted name in the file."""

    def within(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}", child
                yield from within(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.ClassDef):
                yield from within(child, f"{prefix}{child.name}.")
            else:
                yield from within(child, prefix)

    return within(ast.parse(source), "")


def branches(function: Function) -> int:
    """How often a function decides, and one: ifs, loops, handlers, ternaries, `and` and `or`, comprehensions. A `match`
    is one decision, because it is a table."""
    count = 1
    todo: list[ast.AST] = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.IfExp | ast.Match):
            count += 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        todo += ast.iter_child_nodes(node)
    return count


def large_functions(file: str, source: str) -> list[str]:
    complaints = []
    for name, function in functions(source):
        lines = (function.end_lineno or 0) - function.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            complaints.append(f"{file}:{name} has {lines} lines")
        elif branches(function) > MAX_BRANCHES:
            complaints.append(f"{file}:{name} branches {branches(function)} times")
    return complaints


# ---------------------------------------------------------------- the source


def test_at_most_two_classes_of_ours_stand_above_any_class() -> None:
    assert too_deep(classes(sources())) == []


def test_no_base_class_has_its_only_subclass_in_another_file() -> None:
    assert only_children(classes(sources())) == []


def test_no_class_uses_private_names_of_its_bases() -> None:
    assert [name for file, source in sources().items() for name in foreign_private_names(file, source)] == []


def test_a_public_class_name_stands_once() -> None:
    """Codes, settings and pages name classes without their modules."""
    places = defaultdict(list)
    for one in classes(sources()).values():
        if not one.name.startswith("_"):
            places[one.name].append(one.file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_module_is_too_long() -> None:
    lengths = {file: len(source.splitlines()) for file, source in sources().items()}
    assert {file for file, lines in lengths.items() if lines > MAX_LINES} == set()


def test_no_function_is_too_long_or_branches_too_often() -> None:
    large = [each for file, source in sources().items() for each in large_functions(file, source)]
    assert [each for each in large if each.partition(" ")[0] not in KERNELS] == []
    names = {each.partition(" ")[0] for each in large}
    assert {name for name in KERNELS if name not in names} == set(), "an allowance that is not needed"


# ---------------------------------------------------------------- the checkers


@pytest.mark.parametrize(
    ("files", "deep", "alone"),
    [
        ({"a.py": "class A: pass\nclass B(A): pass\nclass C(B): pass"}, [], []),
        ({"a.py": "class A: pass\nclass B(A): pass\nclass C(B): pass\nclass D(C): pass"}, ["a.py D"], []),
        ({"a.py": "class A: pass", "b.py": "from wend.a import A\nclass B(A): pass"}, [], ["a.py A <- b.py B"]),
        (
            {"a.py": "class A: pass", "b.py": "from wend.a import A as X\nclass B(X): pass\nclass C(X): pass"},
            [],
            [],
        ),
        (
            {"p/a.py": "class A: pass", "p/__init__.py": "from wend.p.a import A", "b.py": "from wend.p import A\n"
             "class B(A): pass"},
            [],
            ["p/a.py A <- b.py B"],
        ),
    ],
)  # fmt: skip
def test_the_checker_counts_ancestors(files: dict[str, str], deep: list[str], alone: list[str]) -> None:
    assert too_deep(classes(files)) == deep
    assert only_children(classes(files)) == alone


def test_the_checker_sees_private_names_of_a_base() -> None:
    source = "class B(A):\n    def f(self):\n        self._mine = self._yours\n        return self._mine"
    assert foreign_private_names("b.py", source) == ["b.py B._yours"]


def test_the_checker_counts_branches_and_lines() -> None:
    ((_, function),) = functions(
        "def f(a, b):\n    if a and b:\n        return [x for x in b if x]\n    return 1 if a else 2"
    )
    assert branches(function) == 6
    assert large_functions("a.py", "def f():\n" + "    x = 1\n" * 70) == ["a.py:f has 71 lines"]
    assert large_functions("a.py", "def f():\n" + "    if x: pass\n" * 15) == ["a.py:f branches 16 times"]
