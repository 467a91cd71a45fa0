"""The version of the package, for those who may not import all of it."""

__version__ = "0.1.0"
