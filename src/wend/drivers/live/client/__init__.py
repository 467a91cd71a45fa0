"""The Python client of a running peer: its connection, its requests, its streams of events."""
