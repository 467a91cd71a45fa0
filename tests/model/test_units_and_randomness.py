"""Units of time, and named random streams."""

import pytest

from wend.model.errors import ConfigError
from wend.model.events import EventId
from wend.model.random_stream import peer_stream
from wend.model.randomness import stream
from wend.model.units import HOUR, MINUTE, MS, SECOND, US, duration_text, millis, parse_bytes, parse_duration, seconds


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("200ms", 200 * MS), ("1.5s", 1500 * MS), ("10min", 10 * MINUTE), ("2h", 2 * HOUR), ("3", 3 * SECOND),
        (".5 s", 500 * MS), ("7us", 7 * US), ("9ns", 9), ("1e-3s", 1 * MS),
    ],
)  # fmt: skip
def test_durations(text: str, nanos: int) -> None:
    assert parse_duration(text) == nanos


@pytest.mark.parametrize("text", ["", "soon", "-3s", "3 parsecs", "1..2s", "nan", "inf"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a duration looks like"):
        parse_duration(text)


def test_units_are_whole_nanoseconds() -> None:
    assert (seconds(0.1), millis(0.1)) == (100 * MS, 100 * US)


def test_a_stream_depends_on_its_seed_and_names_alone() -> None:
    again = stream(7, "topology", "delays").random(4).tolist()
    stream(7, "other").random(100)
    assert stream(7, "topology", "delays").random(4).tolist() == again
    others = [(8, "topology", "delays"), (7, "topology"), (7, "delays", "topology"), (-7, "topology", "delays")]
    assert all(stream(*o).random(4).tolist() != again for o in others)
    # the first draw of this stream, on every machine
    assert stream(1, "topology", "delays").integers(1000) == stream(1, "topology", "delays").integers(1000)


def test_a_stream_of_a_peer_depends_on_its_seed_and_names_alone() -> None:
    first = peer_stream(7, "overlay", 3)
    again = [first.random() for _ in range(4)]
    peer_stream(7, "other").random()
    assert [each.random() for each in [peer_stream(7, "overlay", 3)] for _ in range(4)] == again
    others = [(8, "overlay", 3), (7, "overlay"), (7, 3, "overlay"), (-7, "overlay", 3)]
    assert all(peer_stream(*names).random() != again[0] for names in others)
    assert again[0] == 0.06695724692732052  # on every machine


def test_an_event_has_a_short_name() -> None:
    assert str(EventId(3, 1, 7)) == "3.1.7"


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (400_000, "0.4 ms"),
        (160 * MS, "160 ms"),
        (2_140 * MS, "2.1 s"),
        (192 * SECOND, "3 min 12 s"),
        (2 * HOUR, "2 h"),
        (124 * HOUR, "5 d 4 h"),
    ],
)
def test_a_duration_for_people_has_two_units_at_most(duration: int, text: str) -> None:
    assert duration_text(duration) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("1kB", 1000), ("1 KiB", 1024), ("1.5MB", 1_500_000), ("20GiB", 20 << 30), ("2tb", 2 * 10**12)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 apple", "1e9", "0x10", "1" * 16])
def test_wrong_sizes(text: str) -> None:
    with pytest.raises(ConfigError, match="as a number of bytes"):
        parse_bytes(text)


def test_a_day() -> None:
    assert parse_duration("7d") == 7 * 24 * HOUR
