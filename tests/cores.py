"""Tests that open or change objects of the core: the compiled core has no attributes to replace or walk."""

import pytest

from wend.model.version import core_build

pure_only = pytest.mark.skipif(core_build() == "compiled", reason="opens or changes objects of the pure core")
