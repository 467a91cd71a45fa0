"""Distributed matching in multicast: content spaces on a ring, as printed."""
