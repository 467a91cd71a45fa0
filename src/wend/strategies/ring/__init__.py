"""Shared: a Pastry ring, key-based routing on it, and the group strategies Scribe and Hermes."""
