"""Shared: the table of a peer's own subscriptions and of those that other peers announce."""
