"""Delivery: what the application is promised, and what the peer stores to keep it."""
