"""Shared: every peer floods its subscriptions to all others."""
