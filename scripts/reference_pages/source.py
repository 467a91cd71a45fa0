"""Structs as their source declares them: the docstring, and for each field its type in words and its docstring."""

import ast
import inspect
import re
import sys
from functools import cache
from typing import NamedTuple, get_args

import msgspec

WORDS = {
    "int": "integer", "float": "float", "str": "text", "bytes": "bytes", "bool": "boolean", "Any": "any",
    "PeerId": "peer id", "Nanos": "integer", "EventId": "event id", "SubscriptionId": "subscription id",
    "Attributes": "attributes", "Headers": "headers", "Path": "path", "Router": "router", "Counts": "counters",
    "Slot": "slot", "SpaceName": "array of text", "Route": "route", "Generation": "generation", "Key": "key",
    "Version": "[integer, integer]", "GroupChoice": "[text, array of peer id]", "Pairs": "array of [peer id, peer id]",
    "GroupNumbers": "array of [text, integer]", "Value": "boolean or integer or float or text or Range",
}  # fmt: skip
"""Types that are not structs, in words; `wire_format.py` explains those that are Wend's own."""


class Field(NamedTuple):
    name: str
    type: str
    about: str
    default: str
    """Empty where it is required."""


@cache
def _module(name: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[name]))


@cache
def _definition(struct: type) -> ast.ClassDef:
    (found,) = [
        node
        for node in ast.walk(_module(struct.__module__))
        if isinstance(node, ast.ClassDef) and node.name == struct.__name__
    ]
    return found


def fields(struct: type[msgspec.Struct]) -> list[Field]:
    """The fields of a struct, in order: those that it inherits come first."""
    bases = [base for base in reversed(struct.__mro__) if base.__module__.startswith("wend.")]
    body = [node for base in bases for node in (*_definition(base).body, ast.Pass())]
    found = []
    defaults = {field.name: field for field in msgspec.structs.fields(struct)}
    for node, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name = node.target.id
        if name in defaults:
            default = "" if defaults[name].required else _shown(defaults[name].default)
            found.append(Field(name, in_words(node.annotation), _docstring(following), default))
    return found


def summary(struct: type) -> str:
    """The docstring of a class as one line; empty where it has none."""
    text = ast.get_docstring(_definition(struct)) or ""
    return one_line(text)


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def _docstring(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return one_line(node.value.value)
    return ""


def _shown(default: object) -> str:
    if default is msgspec.NODEFAULT or isinstance(default, msgspec.Struct):  # made by a factory, or of defaults
        return "empty"
    words: dict[object, str] = {None: "nil", True: "true", False: "false", (): "empty", b"": "empty", "": "empty"}
    return words.get(default, str(default)) if isinstance(default, bool | None | tuple | bytes | str) else str(default)


def in_words(node: ast.expr) -> str:
    """`tuple[PeerId, ...]` -> `array of peer id`"""
    match node:
        case ast.Name(name):
            return WORDS.get(name, name)
        case ast.Constant(None):
            return "nil"
        case ast.Constant(str(text)):
            return in_words(ast.parse(text, mode="eval").body)
        case ast.BinOp(left, ast.BitOr(), right):
            return f"{in_words(left)} or {in_words(right)}"
        case ast.Subscript(ast.Name("Literal"), ast.Tuple(values)):
            return " or ".join(f"`{ast.literal_eval(each)}`" for each in values)
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([inner, *_])):
            return in_words(inner)
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([inner, ast.Constant(value)])) if value is ...:
            return f"array of {in_words(inner)}"
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(inner)):
            return f"[{', '.join(in_words(each) for each in inner)}]"
        case ast.Subscript(ast.Name("dict"), ast.Tuple([key, value])):
            return f"map from {in_words(key)} to {in_words(value)}"
    raise ValueError(f"no words for the type {ast.unparse(node)}")


def members(union: object) -> tuple[type[msgspec.Struct], ...]:
    """The structs of a tagged union, or the one struct that it is."""
    return get_args(union) or ((union,) if union is not None else ())  # type: ignore[return-value]
