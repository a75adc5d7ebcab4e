"""A program that is not part of a run, and speaks the protocol of PyTorch's TCPStore (2.11)."""

import socket
import struct

VALIDATE, SET, GET, LIST_KEYS = 0, 1, 3, 17
MAGIC = 0x3C85F7CE


class Stranger:
    def __init__(self, address, port):
        self.socket = socket.create_connection((address, port), timeout=10)
        self.socket.sendall(struct.pack("<BI", VALIDATE, MAGIC))

    def close(self):
        self.socket.close()

    def read(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the store has closed the connection")
            data += part
        return data

    def read_bytes(self):
        return self.read(*struct.unpack("<Q", self.read(8)))

    def send(self, query, *texts):
        self.socket.sendall(bytes([query]) + b"".join(struct.pack("<Q", len(text)) + text for text in texts))

    def keys(self):
        """All keys in the form in which the store holds them: with a leading slash."""
        self.send(LIST_KEYS)
        count, = struct.unpack("<Q", self.read(8))
        return [self.read_bytes().decode() for _ in range(count)]

    def get(self, key):
        self.send(GET, key.encode())
        return self.read_bytes()

    def set(self, key, value):
        self.send(SET, key.encode(), value)
