from typing import Any

import pytest

from tests.spark import shared_session


@pytest.fixture(scope="session")
def spark() -> Any:
    return shared_session()
