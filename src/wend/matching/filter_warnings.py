"""Warnings about filters that are valid, but probably not what their author means.

The commands print them for the filters that people type. A peer accepts such filters silently.
"""

from collections.abc import Iterator

from wend.matching.filters import parse
from wend.matching.printer import name_text, quote
from wend.matching.syntax import Leaf, Node, Parser, Tree
from wend.matching.values import ANYTHING, NOTHING, Values


def filter_warnings(text: str) -> list[str]:
    """One sentence for each doubt. Raises FilterError if `parse` does."""
    if not parse(text).conjunctions:
        return [f"no event can match this filter{_find_contradiction(Parser(text).parse_filter())}"]
    parser = Parser(text)
    names = {leaf.name for leaf in _leaves(parser.parse_filter())}
    return [
        f"this filter compares two attributes, {name_text(left)} and {name_text(right)}; "
        f"a text has quotes: {name_text(left)} {sign} {quote(right)}"
        for left, sign, right in dict.fromkeys(parser.equated)
        if right not in names
    ]


def _leaves(tree: Tree) -> Iterator[Leaf]:
    if isinstance(tree, Leaf):
        yield tree
    elif isinstance(tree, Node):
        for child in tree.children:
            yield from _leaves(child)


def _find_contradiction(tree: Tree) -> str:
    """The end of the sentence: the attribute whose conditions exclude each other, if they are joined by `and`."""
    allowed: dict[str, Values] = {}
    for leaf in tree.children if isinstance(tree, Node) and tree.all else (tree,):
        if isinstance(leaf, Leaf):
            either = NOTHING
            for one in leaf.alternatives:
                either = either | one
            allowed[leaf.name] = allowed.get(leaf.name, ANYTHING) & either
    names = [name for name, values in allowed.items() if not values]
    return f": no value of {name_text(names[0])} meets all its conditions" if names else ""
