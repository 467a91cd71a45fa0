"""The size of an event in bytes, by which queues and stores are bounded."""

import pytest

from wend.model.events import Attributes, Event, EventId, Headers, Range, event_bytes

ID = EventId(1, 1, 1)
EMPTY = event_bytes(Event(ID, {}))


@pytest.mark.parametrize(
    ("attributes", "payload", "headers", "holds"),
    [
        ({}, b"x" * 1000, {}, 1000),
        ({"n" * 500: 1}, b"", {}, 500),
        ({"a": "t" * 500}, b"", {}, 500),
        ({"a": Range("l" * 300, "m" * 200)}, b"", {}, 500),
        ({"a": Range(1, 2)}, b"", {}, 1),
        ({str(n): n for n in range(100)}, b"", {}, 1000),
        ({}, b"", {"h" * 300: "t" * 200}, 500),
    ],
)
def test_every_field_of_an_event_counts(attributes: Attributes, payload: bytes, headers: Headers, holds: int) -> None:
    more = event_bytes(Event(ID, attributes, payload, headers)) - EMPTY
    assert holds <= more <= 10 * holds + 200


def test_an_empty_event_counts_too() -> None:
    assert 100 <= EMPTY <= 1000
