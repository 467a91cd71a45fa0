"""The parser: filter text to a tree, with errors that show the position.

    filter     = term {"or" term}
    term       = factor {"and" factor}
    factor     = "not" factor | "(" filter ")" | "true" | "false" | predicate
    predicate  = name sign (value | [number "*"] name)
               | name "in" (("[" | "]") value "," value ("]" | "[") | "{" value {"," value} "}")
               | name "prefix" text | name "exists" | name "absent"
    sign       = "=" | "!=" | "<" | "<=" | ">" | ">="

The parser applies each `not` to the predicates below it, so the tree has only `and` and `or`. It makes one pass, and
limits the length, the number of predicates and the nesting, so that no filter from the network can overload a peer.
"""

import math
import re
from typing import NamedTuple, NoReturn

from wend.matching.conjunctions import OUTCOMES, Binding, make_binding
from wend.matching.printer import MAX_SET, NUMBERS_NOT_NAMES, WORDS
from wend.matching.values import (
    ABSENT,
    PRESENT,
    Number,
    Values,
    beginning_with,
    compare_values,
    complement,
    equal_to,
    kind_name,
    normal_number,
    not_beginning_with,
    values_between,
    values_outside,
)
from wend.model.errors import FilterError
from wend.model.events import Scalar

MAX_FILTER_CHARS = 16_384
MAX_PREDICATES = 512
MAX_DEPTH = 64
MAX_NUMBER_CHARS = 400
COLUMNS = 70

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<name>[A-Za-z_][\w.-]*)
    | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<ticked>`(?:[^`\\]|\\.)*`)
    | (?P<sign>!=|<=|>=|[=<>])
    | (?P<mark>[][(){},*])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_QUOTES = "'\"`\\"
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_SLIPS = {"==": "one = is enough", "<>": "it is written !=", "=<": "it is written <=", "=>": "it is written >="}
_OTHER_WORDS = {"&&": "`and`", "||": "`or`", "&": "`and`", "|": "`or`", "!": "`not`"}


class Leaf(NamedTuple):
    """One predicate: the attribute may have one of these sets of values."""

    name: str
    alternatives: tuple[Values, ...]


class Node(NamedTuple):
    """`and` (all) or `or` of the children. Without children, `and` is true and `or` is false."""

    all: bool
    children: "tuple[Tree, ...]"


Tree = Leaf | Binding | Node


class Token(NamedTuple):
    kind: str
    text: str
    place: int

    @property
    def shown(self) -> str:
        if self.kind == "end":
            return "the end"
        return self.text if len(self.text) <= 20 else f"{self.text[:19]}…"


def make_error_at(text: str, place: int, reason: str) -> FilterError:
    """An error with the reason, the text around the position, and a caret below it."""
    first = 0 if len(text) <= COLUMNS else max(0, min(place - COLUMNS // 2, len(text) - COLUMNS + 1))
    window = text[first : first + COLUMNS]
    before = "…" if first else ""
    after = "…" if first + COLUMNS < len(text) else ""
    line = "".join(c if c.isprintable() else " " for c in window)
    indent = " " * (len(before) + place - first)
    return FilterError(f"cannot read the filter: {reason}\n  {before}{line}{after}\n  {indent}^")


class Parser:
    """A recursive-descent parser of one filter."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.predicates = 0
        self.depth = 0
        self.equated: list[tuple[str, str, str]] = []
        """Attribute, sign and attribute of each `=` and `!=` whose right side has no quotes of any kind."""
        self.token = self._read_token(0)

    # ---- tokens

    def _read_token(self, at: int) -> Token:
        match = _TOKEN.match(self.text, at)
        if match is not None and match.lastgroup is not None:
            self._after = match.end()
            return Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
        while self.text[at].isspace():
            at += 1
        if self.text[at] in _QUOTES[:3]:
            self.fail(at, f"this {self.text[at]} is never closed")
        for wrong, right in _OTHER_WORDS.items():
            if self.text.startswith(wrong, at):
                self.fail(at, f"{wrong} is not known here; write {right}")
        self.fail(at, f"{self.text[at]!r} means nothing here")

    def advance(self) -> Token:
        token = self.token
        self.token = self._read_token(self._after) if token.kind != "end" else token
        return token

    def is_at(self, *texts: str) -> bool:
        return self.token.kind in ("name", "mark", "sign") and self.token.text in texts

    def expect(self, *texts: str) -> Token:
        if not self.is_at(*texts):
            self.fail_expecting(" or ".join(texts))
        return self.advance()

    def fail(self, place: int, reason: str) -> NoReturn:
        raise make_error_at(self.text, place, reason)

    def fail_expecting(self, what: str) -> NoReturn:
        self.fail(self.token.place, f"expected {what}, got {self.token.shown}")

    # ---- the grammar

    def parse_filter(self) -> Tree:
        tree = self.parse_disjunction(False)
        if self.token.kind != "end":
            self.fail_expecting("`and`, `or` or the end")
        return tree

    def parse_disjunction(self, negated: bool) -> Tree:
        children = [self.parse_conjunction(negated)]
        while self.is_at("or"):
            self.advance()
            children.append(self.parse_conjunction(negated))
        return children[0] if len(children) == 1 else Node(negated, tuple(children))

    def parse_conjunction(self, negated: bool) -> Tree:
        children = [self.parse_factor(negated)]
        while self.is_at("and"):
            self.advance()
            children.append(self.parse_factor(negated))
        return children[0] if len(children) == 1 else Node(not negated, tuple(children))

    def parse_factor(self, negated: bool) -> Tree:
        depth = self.depth
        while self.is_at("not"):
            self.enter_nested()
            negated = not negated
        if self.is_at("("):
            self.enter_nested()
            tree = self.parse_disjunction(negated)
            if not self.is_at(")"):
                self.fail_expecting("`and`, `or` or )")
            self.advance()
        elif self.is_at("true", "false"):
            tree = Node((self.advance().text == "true") != negated, ())
        else:
            tree = self.parse_predicate(negated)
        self.depth = depth
        return tree

    def enter_nested(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(self.token.place, f"parentheses and `not` may be nested {MAX_DEPTH} deep, here they are deeper")
        self.advance()

    def parse_predicate(self, negated: bool) -> Tree:
        self.predicates += 1
        if self.predicates > MAX_PREDICATES:
            self.fail(self.token.place, f"a filter may have {MAX_PREDICATES} predicates, this one has more")
        name = self.parse_name("an attribute, `not` or (")
        if self.token.kind == "sign":
            return self.parse_comparison(name, negated)
        if self.is_at("in"):
            self.advance()
            return Leaf(name, self.parse_members(negated))
        if self.is_at("prefix"):
            self.advance()
            if self.token.kind != "text":
                self.fail_expecting("a quoted text after prefix")
            prefix = self.unquote(self.advance())
            return Leaf(name, not_beginning_with(prefix) if negated else (beginning_with(prefix),))
        if self.is_at("exists", "absent"):
            return Leaf(name, (PRESENT if (self.advance().text == "exists") != negated else ABSENT,))
        self.fail_expecting(f"one of = != < <= > >= in prefix exists absent after {shorten(name)}")

    def parse_comparison(self, name: str, negated: bool) -> Tree:
        token = self.advance()
        sign = _OPPOSITE[token.text] if negated else token.text
        if self.token.kind == "sign":
            slip = _SLIPS.get(token.text + self.token.text)
            self.fail_expecting("a value or an attribute" if slip is None else f"a value ({slip})")
        if self.token.kind == "number":
            number = self.parse_number()
            if not self.is_at("*"):
                return Leaf(name, tuple(filter(None, (compare_values(sign, number),))))
            self.advance()
            return self.parse_binding(name, sign, number)
        if self.is_name() and not self.is_at("true", "false"):
            if self.token.kind == "name" and token.text in ("=", "!="):
                self.equated.append((name, token.text, self.token.text))
            return self.parse_binding(name, sign, 1)
        value = self.parse_value("a value or an attribute")
        return Leaf(name, tuple(filter(None, (compare_values(sign, value),))))

    def parse_binding(self, left: str, sign: str, factor: Number) -> Binding:
        place, bare = self.token.place, self.token.kind == "name"
        right = self.parse_name("an attribute")
        if bare and right.lower() in NUMBERS_NOT_NAMES:
            self.fail(place, f"{right} is not a value here; an attribute of that name is written `{right}`")
        if left == right:
            self.fail(place, f"an attribute cannot be bound to itself, and this is {shorten(left)} again")
        return make_binding(left, OUTCOMES[sign], factor, right)

    def parse_members(self, negated: bool) -> tuple[Values, ...]:
        if self.is_at("{"):
            values = equal_to(self.parse_set())
            return complement(values) if negated else (values,)
        if not self.is_at("[", "]"):
            self.fail_expecting("[, ] or { after in")
        low_open = self.advance().text == "]"
        low = self.parse_value("the low end")
        self.expect(",")
        place = self.token.place
        high = self.parse_value("the high end")
        high_open = self.expect("]", "[").text == "["
        if kind_name(low) != kind_name(high):
            self.fail(place, f"both ends must be of one kind, not a {kind_name(low)} and a {kind_name(high)}")
        if low > high:  # type: ignore[operator]
            self.fail(place, "the low end is above this high end")
        if negated:
            return values_outside(low, high, low_open, high_open)
        return tuple(filter(None, (values_between(low, high, low_open, high_open),)))

    def parse_set(self) -> list[Scalar]:
        scalars: list[Scalar] = []
        while not scalars or self.is_at(","):
            self.advance()
            place = self.token.place
            scalars.append(self.parse_value("a value"))
            if kind_name(scalars[0]) != kind_name(scalars[-1]):
                first, last = kind_name(scalars[0]), kind_name(scalars[-1])
                self.fail(place, f"a set holds values of one kind, not a {first} and a {last}")
            if len(scalars) > MAX_SET:
                self.fail(place, f"a set may have {MAX_SET} values, this one has more")
        self.expect("}", ",")
        return scalars

    # ---- names and values

    def is_name(self) -> bool:
        return self.token.kind in ("name", "ticked")

    def parse_name(self, what: str) -> str:
        if self.token.kind == "ticked":
            place, name = self.token.place, self.unquote(self.advance())
            if not name:
                self.fail(place, "an attribute has a name")
            return name
        if self.token.kind != "name":
            self.fail_expecting(what)
        if self.token.text in WORDS:
            self.fail_expecting(f"{what} (an attribute of this name is written `{self.token.text}`)")
        return self.advance().text

    def parse_value(self, what: str) -> Scalar:
        if self.token.kind == "number":
            return self.parse_number()
        if self.token.kind == "text":
            return self.unquote(self.advance())
        if self.is_at("true", "false"):
            return self.advance().text == "true"
        self.fail_expecting(f"{what} (a number, a quoted text, true or false)")

    def parse_number(self) -> Number:
        token = self.advance()
        if len(token.text) > MAX_NUMBER_CHARS:
            self.fail(token.place, f"a number may have {MAX_NUMBER_CHARS} characters, this one has {len(token.text)}")
        if token.text.lstrip("+-").isdigit():
            return int(token.text)
        number = float(token.text)
        if math.isinf(number):
            self.fail(token.place, "this number is too large for a double; whole ones can be written as digits")
        return normal_number(number)

    def unquote(self, token: Token) -> str:
        inner = token.text[1:-1]
        if "\\" not in inner:
            return inner

        def meant(escape: re.Match[str]) -> str:
            code, letter = escape.groups()
            if code is not None and int(code, 16) <= 0x10FFFF:
                return chr(int(code, 16))
            if letter is not None and (letter in _QUOTES or letter in _ESCAPED):
                return _ESCAPED.get(letter, letter)
            self.fail(token.place + 1 + escape.start(), "a backslash goes before a quote, \\, n, t, r or u{hex}")

        return _ESCAPE.sub(meant, inner)


def shorten(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:39]}…"


def parse_tree(text: str) -> Tree:
    if not text.strip():
        raise make_error_at(text, len(text), "expected a predicate like x = 1, got nothing")
    return Parser(text).parse_filter()
