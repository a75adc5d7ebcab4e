"""Ports for tests."""

import contextlib
import random
import socket


def free_port():
    """A free port below the range from which the system assigns ports to connections, which other tests open at the same time."""
    while True:
        port = random.randrange(15000, 32000)
        with contextlib.closing(socket.socket()) as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
