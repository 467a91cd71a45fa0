"""Shared: who is linked to whom, flooded by every peer."""
