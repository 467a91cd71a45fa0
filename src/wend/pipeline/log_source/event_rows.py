"""Rows as events: what a row publishes, and its key.

The key of a row is made of the query, the batch, the partition and the row's content, with a number for rows of equal
content. So Spark may try a partition again, with its rows in another order, and each is still one event.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TEXTS: Final = "map<string,string>"
COLUMNS: Final = {
    "attributes": (_TEXTS,),
    "payload": ("binary", "string"),
    "headers": (_TEXTS,),
    "key": ("string",),
}
"""What is no attribute: the name of a column, with its types."""
ATTRIBUTES: Final = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double")
DIGEST_BYTES: Final = 12

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class EventRow(NamedTuple):
    """An event to publish."""

    attributes: dict[str, Any]
    payload: bytes
    headers: dict[str, str]
    key: str


def check_columns(schema: "StructType") -> None:
    """Raise `ConfigError` for columns that an event cannot have."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        kinds = COLUMNS.get(field.name, ATTRIBUTES)
        if kind not in kinds:
            what = f"column {field.name}" if field.name in COLUMNS else f"an attribute such as {field.name}"
            raise ConfigError(f"{what} is {' or '.join(kinds)}, got {kind}: cast or drop it")


class EventRows:
    """Makes events of the rows of one partition."""

    def __init__(self, run: str, partition: int) -> None:
        """`run` names the query and the batch."""
        self._prefix = f"spark:{run}:{partition}"
        self._seen: Counter[bytes] = Counter()

    def events(self, batches: Iterator[Any]) -> Iterator[EventRow]:
        """The events of Arrow batches."""
        for batch in batches:
            for row in batch.to_pylist():
                yield self._event(row)

    def _event(self, row: Mapping[str, Any]) -> EventRow:
        attributes = dict(row.get("attributes") or ())
        attributes |= {name: value for name, value in row.items() if name not in COLUMNS and value is not None}
        payload, headers = row.get("payload") or b"", dict(row.get("headers") or ())
        if isinstance(payload, str):
            payload = payload.encode()
        return EventRow(attributes, payload, headers, row.get("key") or self._key(attributes, payload, headers))

    def _key(self, attributes: dict[str, Any], payload: bytes, headers: dict[str, str]) -> str:
        digest = blake2b(_encode((attributes, payload, headers)), digest_size=DIGEST_BYTES).digest()
        self._seen[digest] += 1
        return f"{self._prefix}:{digest.hex()}:{self._seen[digest]}"
