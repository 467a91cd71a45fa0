"""Shared: every peer tells all others what it wants."""
