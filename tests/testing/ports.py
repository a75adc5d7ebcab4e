"""What several tests need of the network."""

import contextlib
import random
import socket


def free_port():
    """Below the range from which the system gives ports to connections, which other tests make meanwhile."""
    while True:
        port = random.randrange(15000, 32000)
        with contextlib.closing(socket.socket()) as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
