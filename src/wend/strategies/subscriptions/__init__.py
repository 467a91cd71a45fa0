"""Shared: the table of a peer's own subscriptions and of those that it learns from others."""
