"""Runs a program in a pseudo-terminal and shows what it leaves on the screen."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import unicodedata

ERASE = "\r\x1b[K"


class Screen:
    """A terminal of `columns` columns and any number of lines that supports line breaks, returns, colours and "erase to the end of the
    line"."""

    def __init__(self, columns):
        self.columns = columns
        self.rows = [""]
        self.column = 0
        self.wrapped = []  # rows that were too long for one line

    def write(self, text):
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|.", text, re.DOTALL):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.new_row()
            elif part == "\x1b[K":
                self.rows[-1] = self.rows[-1][: self.column]
            elif part.startswith("\x1b[") and part.endswith("m"):
                pass
            elif unicodedata.category(part) == "Cc":
                raise AssertionError(f"the program wrote {part!r} to the terminal")
            else:
                self.put(part)

    def put(self, character):
        if self.column == self.columns:
            self.wrapped.append(self.rows[-1])
            self.new_row()
            self.column = 0
        row = self.rows[-1].ljust(self.column)
        self.rows[-1] = row[: self.column] + character + row[self.column + 1 :]
        self.column += 1

    def new_row(self):
        self.rows.append("")

    def lines(self):
        return [row.rstrip() for row in self.rows if row.strip()]


def run(command, columns=80, term="xterm", interrupt_at=None, **options):
    """Runs the command on a terminal of its own; returns its exit code and its output there. `interrupt_at`: the output after which SIGINT
    is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "TERM": term}
    process = subprocess.Popen([str(word) for word in command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, **options)
    os.close(theirs)
    data = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # no process has the other side open
            break
        if not part:
            break
        data += part
        if interrupt_at is not None and interrupt_at in data:
            process.send_signal(signal.SIGINT)
            interrupt_at = None
    os.close(ours)
    return process.wait(), data.decode()


def show(text, columns):
    screen = Screen(columns)
    screen.write(text)
    return screen
