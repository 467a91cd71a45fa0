"""Error texts about files and flags in the user's terms: names of fields, lists of choices, the nearest known name.

The decoder's own errors have Python's types and paths that begin with `$`.
"""

import re
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

_AT = re.compile(r" - at `(?:key in )?\$(.*)`$")
_KINDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "array": "a list",
    "object": "a table", "null": "nothing", "datetime": "a date",
}  # fmt: skip


def describe_field_error(error: msgspec.ValidationError, struct: Any) -> str:
    """One sentence about the field of `struct` that is invalid."""
    text = str(error)
    where = _AT.search(text)
    path = where[1].lstrip(".") if where else ""
    text = text[: where.start()] if where else text
    kinds = _find_types(inspect.type_info(struct), path)
    for pattern, sentence in _SENTENCES:
        if (parts := pattern.fullmatch(text)) is not None:
            return sentence(path, kinds, *parts.groups())
    return f"{path}: {text}" if path else text


def _describe_unknown_field(path: str, kinds: list[Any], name: str) -> str:
    names = [field.encode_name for each in kinds if isinstance(each, inspect.StructType) for field in each.fields]
    return f"{f'{path} has' if path else 'there is'} no field {name!r}{suggest_nearest(name, names)}"


def _describe_missing_field(path: str, kinds: list[Any], name: str) -> str:
    return f"{path or 'it'} lacks {name!r}"


def _describe_wrong_choice(path: str, kinds: list[Any], value: str) -> str:
    choices = [str(choice) for each in kinds if isinstance(each, inspect.LiteralType) for choice in each.values]
    return f"{path} must be {join_with_or(choices)}, got {value}"


def _describe_wrong_type(path: str, kinds: list[Any], expected: str, actual: str) -> str:
    words = join_with_or([_KINDS.get(each, each) for each in expected.split(" | ") if each != "null"])
    got = "a fraction" if (expected, actual) == ("int", "float") else _KINDS.get(actual, actual)
    return f"{path or 'it'} must be {words}, not {got}"


def _describe_wrong_length(path: str, kinds: list[Any], expected: str, actual: str) -> str:
    return f"{path} must be a list of {expected}, got {actual}"


_SENTENCES: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = (
    (re.compile(r"Object contains unknown field `(.*)`"), _describe_unknown_field),
    (re.compile(r"Object missing required field `(.*)`"), _describe_missing_field),
    (re.compile(r"Invalid enum value (.*)"), _describe_wrong_choice),
    (re.compile(r"Expected `array` of length (.*), got (.*)"), _describe_wrong_length),
    (re.compile(r"Expected `(.*)`, got `(.*)`"), _describe_wrong_type),
)
"""The decoder's errors, each with the function that words it."""


def describe_unreadable(error: Exception, kind: Any) -> str:
    """One sentence about bytes that are not JSON of this kind, or not JSON at all."""
    match error:
        case msgspec.ValidationError():
            return describe_field_error(error, kind)
        case UnicodeDecodeError():
            return "it is not UTF-8"
    return "it is not JSON, or it is truncated"


def describe_schema_error(schema: Any, expected: Any, *, may_lack: Collection[str] = ()) -> str:
    """A text about the first column of a Parquet file that is missing or has the wrong type; empty if there is none."""
    for field in expected:
        if field.name not in schema.names:
            if field.name not in may_lack:
                return f"column {field.name!r} is missing"
        elif (kind := schema.field(field.name).type) != field.type:
            return f"column {field.name!r} must hold {_column_type_text(field.type)}, not {_column_type_text(kind)}"
    return ""


def join_with_or(words: Sequence[str]) -> str:
    """A list in words: "free or round-trip", "none, tight or free"."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def join_with_and(words: Sequence[str]) -> str:
    """A list in words: "mrst and spt-k", "none, tight and free"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def suggest_nearest(word: str, names: Sequence[str]) -> str:
    """The end of a sentence: ": did you mean X?" for the nearest name, or nothing."""
    close = get_close_matches(word, names, 1)
    return f": did you mean {close[0]}?" if close else ""


def _find_types(kind: Any, path: str) -> list[Any]:
    """The possible types at a path such as `neighbours[0].shape`."""
    at = [kind]
    for step in re.findall(r"[^.\[\]]+|\[[^\]]*\]", path):
        at = [inner for each in at for inner in _members(each)]
        if step.startswith("["):
            at = [each.item_type for each in at if hasattr(each, "item_type")]
        else:
            fields = [field for each in at if isinstance(each, inspect.StructType) for field in each.fields]
            at = [field.type for field in fields if field.encode_name == step]
    return [inner for each in at for inner in _members(each)]


def _column_type_text(kind: Any) -> str:
    """The type of a column, in words."""
    from pyarrow import types

    if types.is_integer(kind):
        return f"{'unsigned' if types.is_unsigned_integer(kind) else 'whole'} numbers of {kind.bit_width} bits"
    if types.is_floating(kind):
        return f"fractions of {kind.bit_width} bits"
    if types.is_list(kind):
        return f"lists of {_column_type_text(kind.value_type)}"
    return {"string": "texts", "bool": "truth values"}.get(str(kind), str(kind))


def _members(kind: Any) -> Sequence[Any]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)
