"""Ports for peers of tests."""

import random
import socket

_chosen: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses, and that no test of this process got before.

    They lie below the ports that the kernel hands out by itself. So no connection takes one while its peer is not
    started yet, or restarts.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        if port not in _chosen and _is_free(port):
            _chosen.add(port)
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
