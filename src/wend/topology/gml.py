"""GML as the Topology Zoo writes it: keys, numbers, quoted texts, and lists in brackets."""

import re
from pathlib import Path
from typing import Any

from wend.model.errors import ConfigError

Pairs = list[tuple[str, Any]]

_TOKEN = re.compile(r"""\s*(?:\#[^\n]*|(?P<open>\[)|(?P<close>\])|"(?P<text>[^"]*)"|(?P<word>[^\s\[\]"]+))""")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_ENTITIES = {"&quot;": '"', "&apos;": "'", "&lt;": "<", "&gt;": ">", "&amp;": "&"}
_CODE = re.compile(r"&#(\d{1,7});")
_DEEPEST = 50


def parse(text: str, where: str) -> Pairs:
    """The key-value pairs at the top level of a file, in its order. A list is again pairs."""
    stack: list[Pairs] = [[]]
    key: str | None = None
    at = 0
    text = text.rstrip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _make_error(text, at, where, "is not GML")
        at = token.end()
        if token["open"]:
            if key is None or len(stack) > _DEEPEST:
                raise _make_error(
                    text, token.start("open"), where, "opens a list that has no key or is nested too deeply"
                )
            inner: Pairs = []
            stack[-1].append((key, inner))
            stack.append(inner)
            key = None
        elif token["close"]:
            if key is not None or len(stack) == 1:
                raise _make_error(
                    text, token.start("close"), where, "closes no open list, or follows a key without a value"
                )
            stack.pop()
        elif token["text"] is not None:
            if key is None:
                raise _make_error(text, token.start("text"), where, "is a text without a key")
            stack[-1].append((key, unescape(token["text"])))
            key = None
        elif token["word"] is not None:
            if key is None:
                key = token["word"]
            else:
                stack[-1].append((key, _parse_word(token["word"])))
                key = None
    if len(stack) > 1 or key is not None:
        raise ConfigError(f"{where} ends in the middle of a list or a pair")
    return stack[0]


def read(path: Path) -> tuple[list[dict[str, Any]], list[tuple[int, int, dict[str, Any]]], bool]:
    """The nodes and edges of the first graph of a file, and whether it is directed."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", code="unreadable") from None
    graphs = _find_lists(parse(text, str(path)), "graph")
    if not graphs:
        raise ConfigError(f"{path} is not a GML file: it has no graph", code="unreadable")
    graph = graphs[0]
    nodes = [dict(node) for node in _find_lists(graph, "node")]
    place = {node.get("id"): i for i, node in enumerate(nodes)}
    if None in place or len(place) < len(nodes):
        raise ConfigError(f"{path}: every node needs an id, and no two the same")
    edges = []
    for data in map(dict[str, Any], _find_lists(graph, "edge")):
        a, b = (place.get(data.get(end)) for end in ("source", "target"))
        if a is None or b is None:
            ends = f"{data.get('source')} to {data.get('target')}"
            raise ConfigError(f"{path}: an edge leads from {ends}, and one of them is not a node")
        edges.append((a, b, data))
    return nodes, edges, dict(graph).get("directed") == 1


def _find_lists(pairs: Pairs, key: str) -> list[Pairs]:
    """The lists with a key, in order."""
    return [value for name, value in pairs if name == key and isinstance(value, list)]


def quote(text: str) -> str:
    """A text in GML: ASCII, with other characters as codes."""
    safe = text.replace("&", "&amp;").replace('"', "&quot;")
    return '"' + "".join(c if " " <= c <= "~" else f"&#{ord(c)};" for c in safe) + '"'


def unescape(text: str) -> str:
    def letter(match: "re.Match[str]") -> str:
        code = int(match[1])
        return chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else match[0]  # a surrogate is no character

    return re.sub("|".join(_ENTITIES), lambda match: _ENTITIES[match[0]], _CODE.sub(letter, text))


def _parse_word(word: str) -> int | float | str:
    if _NUMBER.fullmatch(word) is None:
        return word
    try:
        return int(word)
    except ValueError:
        return float(word)


def _make_error(text: str, at: int, where: str, what: str) -> ConfigError:
    return ConfigError(f"{where}, line {text.count(chr(10), 0, at) + 1}: {text[at : at + 20].strip()!r} {what}")
