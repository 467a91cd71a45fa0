"""For all tests: machines are shared and noisy, so nothing fails because it took long."""

from hypothesis import settings

settings.register_profile("wend", deadline=None)
settings.load_profile("wend")
