"""The filter language: for now one predicate, `topic = 'name'`.

This is the seam for content filters: the rest of Wend knows a filter only as text that `parse`
understands and as something that `matches` attributes.
"""

import re
from functools import lru_cache

import msgspec

from wend.model.errors import FilterError
from wend.model.events import Attributes

MAX_FILTER_CHARS = 1024
_TOPIC = re.compile(r"\s*topic\s*=\s*(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\s*")
_ESCAPED = re.compile(r"\\(.)")


class Filter(msgspec.Struct, frozen=True, gc=False):
    """Events whose `topic` equals this one."""

    topic: str

    def matches(self, attributes: Attributes) -> bool:
        return attributes.get("topic") == self.topic

    def intersects(self, other: "Filter") -> bool:
        """Whether some event could match both."""
        return self.topic == other.topic


def topic_filter(topic: str) -> str:
    """The filter text for one topic."""
    quoted = topic.replace("\\", "\\\\").replace("'", "\\'")
    return f"topic = '{quoted}'"


@lru_cache(maxsize=4096)
def parse(text: str) -> Filter:
    if len(text) > MAX_FILTER_CHARS:
        raise FilterError(f"a filter may have {MAX_FILTER_CHARS} characters, this one has {len(text)}")
    found = _TOPIC.fullmatch(text)
    if found is None:
        raise FilterError(f"cannot read the filter {text!r}: expected topic = 'name'")
    raw = found[1] if found[1] is not None else found[2]
    return Filter(_ESCAPED.sub(r"\1", raw))
