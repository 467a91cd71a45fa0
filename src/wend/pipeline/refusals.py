"""What a task refused on purpose, in its own words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from wend.model.errors import ConfigError, WendError

_OURS = re.compile(r"wend\.model\.errors\.(\w+): (.+)")


@contextmanager
def reworded() -> Iterator[None]:
    """What a task refused on purpose comes out of Spark within a stack trace of two languages: find the sentence."""
    try:
        yield
    except WendError:
        raise
    except Exception as error:
        ours = _OURS.search(str(error))
        if ours is not None:
            raise ConfigError(ours[2].strip()) from None
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WendError(f"Spark gave up: {first}") from error
