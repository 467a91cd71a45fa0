"""Every decoder of strangers' bytes, against mutations of a small corpus. `python -m tests.security.fuzz` runs more."""

import pytest

from tests.security.fuzz import TARGETS, Accepted, fuzz, seeds

COUNTS = {"introduction": 300, "certificate": 2000}


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_of_strangers_are_accepted_or_end_a_peer(name: str) -> None:
    assert seeds()[name]
    fuzz(name, COUNTS.get(name, 5000))


def test_the_fuzzer_notices_what_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def gullible() -> object:
        def target(data: bytes) -> None:
            if data[:1] == b"w":
                raise Accepted(data.hex())

        return target

    monkeypatch.setitem(TARGETS, "session", gullible)  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        fuzz("session", 100)
