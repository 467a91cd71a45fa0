"""Errors of Spark tasks, as one sentence."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from wend.model.errors import ConfigError, WendError

_OURS = re.compile(r"wend\.model\.errors\.(\w+): (.+)")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn Spark's errors into ours. Spark wraps the `WendError` of a task in Python and Java stack traces; this finds
    the sentence in them."""
    try:
        yield
    except WendError:
        raise
    except Exception as error:
        ours = _OURS.search(str(error))
        if ours is not None:
            raise ConfigError(ours[2].strip()) from None
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WendError(f"the Spark job failed: {first}") from error
