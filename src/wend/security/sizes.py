"""Sizes of keys and handshake messages. They stand apart from the ciphers, which only peers with keys import."""

KEY_BYTES = 32
TAG_BYTES = 16
FIRST_BYTES = KEY_BYTES + KEY_BYTES + TAG_BYTES + TAG_BYTES
"""The size of the first message without its payload: e, the encrypted s, and the tag of the payload."""
SECOND_BYTES = KEY_BYTES + TAG_BYTES
"""The size of the second message without its payload."""
