"""Logs: events on disk in the order in which they came, to be read again."""
