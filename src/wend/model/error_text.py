"""Error texts about files and flags, in the terms of the user: fields by their names, lists of choices, the nearest
known name. The decoder's own errors have Python's types and paths that begin with `$`."""

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

_AT = re.compile(r" - at `(?:key in )?\$(.*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_CHOICE = re.compile(r"Invalid enum value (.*)")
_KIND = re.compile(r"Expected `(.*)`, got `(.*)`")
_LENGTH = re.compile(r"Expected `array` of length (.*), got (.*)")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_KINDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "array": "a list",
    "object": "a table", "null": "nothing", "datetime": "a date",
}  # fmt: skip


def reworded(error: msgspec.ValidationError, struct: Any) -> str:
    """One sentence about the field of `struct` that is invalid."""
    text = str(error)
    where = _AT.search(text)
    path = where[1].lstrip(".") if where else ""
    text = text[: where.start()] if where else text
    kind = _inside(inspect.type_info(struct), path)
    if found := _UNKNOWN.fullmatch(text):
        names = [field.encode_name for each in kind if isinstance(each, inspect.StructType) for field in each.fields]
        inside = f"{path} has" if path else "there is"
        return f"{inside} no field {found[1]!r}{nearest(found[1], names)}"
    if found := _MISSING.fullmatch(text):
        return f"{path or 'it'} lacks {found[1]!r}"
    if found := _CHOICE.fullmatch(text):
        values = [str(value) for each in kind if isinstance(each, inspect.LiteralType) for value in each.values]
        return f"{path} must be {either(values)}, got {found[1]}"
    if found := _KIND.fullmatch(text):
        wanted = either([_KINDS.get(each, each) for each in found[1].split(" | ") if each != "null"])
        got = "a fraction" if (found[1], found[2]) == ("int", "float") else _KINDS.get(found[2], found[2])
        return f"{path or 'it'} must be {wanted}, not {got}"
    if found := _LENGTH.fullmatch(text):
        return f"{path} must be a list of {found[1]}, got {found[2]}"
    return f"{path}: {text}" if path else text


def unreadable(error: Exception, kind: Any) -> str:
    """One sentence about bytes that are not JSON of this kind, or not JSON at all."""
    match error:
        case msgspec.ValidationError():
            return reworded(error, kind)
        case UnicodeDecodeError():
            return "it is not UTF-8"
    return "it is not JSON, or it is truncated"


def misfit(found: Any, wanted: Any, *, may_lack: Collection[str] = ()) -> str:
    """A text about the first column of a Parquet file that is missing or has the wrong type; empty if there is none."""
    for field in wanted:
        if field.name not in found.names:
            if field.name not in may_lack:
                return f"column {field.name!r} is missing"
        elif (kind := found.field(field.name).type) != field.type:
            return f"column {field.name!r} must hold {_plural(field.type)}, not {_plural(kind)}"
    return ""


def either(words: Sequence[str]) -> str:
    """A list in words: "free or round-trip", "none, tight or free"."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def listed(words: Sequence[str]) -> str:
    """A list in words: "mrst and spt-k", "none, tight and free"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def nearest(word: str, names: Sequence[str]) -> str:
    """The end of a sentence: ": did you mean X?" for the nearest name, or nothing."""
    found = get_close_matches(word, names, 1)
    return f": did you mean {found[0]}?" if found else ""


def _inside(kind: Any, path: str) -> list[Any]:
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


def _plural(kind: Any) -> str:
    """The type of a column, in words."""
    from pyarrow import types

    if types.is_integer(kind):
        return f"{'unsigned' if types.is_unsigned_integer(kind) else 'whole'} numbers of {kind.bit_width} bits"
    if types.is_floating(kind):
        return f"fractions of {kind.bit_width} bits"
    if types.is_list(kind):
        return f"lists of {_plural(kind.value_type)}"
    return {"string": "texts", "bool": "truth values"}.get(str(kind), str(kind))


def _members(kind: Any) -> Sequence[Any]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)
