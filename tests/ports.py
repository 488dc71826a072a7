"""Loopback ports for servers that tests start."""

from __future__ import annotations

import socket
from random import SystemRandom

_RANGE = range(17_000, 32_000)
"""Below those that the kernel gives to outgoing connections, which could take one before a server listens on it."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now, all different."""
    draw = SystemRandom()
    found: list[int] = []
    while len(found) < count:
        port = draw.choice(_RANGE)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
