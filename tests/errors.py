"""Which error a test expects: its code, and if the sentence names something that matters, a part of the sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from wend.model.errors import ErrorCode, WendError


@contextmanager
def raises(code: ErrorCode, match: str | None = None) -> Iterator[pytest.ExceptionInfo[WendError]]:
    """Expect an error with this code. `match` is a regular expression that is found in its sentence."""
    with pytest.raises(WendError, match=match) as raised:
        yield raised
    assert raised.value.code == code, f"{raised.value.code}: {raised.value}"
