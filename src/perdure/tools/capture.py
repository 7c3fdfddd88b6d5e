"""What is kept of a stream: its head and its tail, and its lines one by one, all in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model.tooling import Captured

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes; a longer line is left out."""


def storable(data: bytes | str) -> str:
    """Text that every store takes: what is not UTF-8, a lone surrogate or a NUL character is replaced."""
    if isinstance(data, str):
        data = data.encode(errors="replace")
    return data.decode(errors="replace").replace("\0", "\ufffd")


class Capture:
    """The first and the last bytes of a stream."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """The next piece."""
        self._total += len(data)
        room = self._size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._size :]
            if len(self._tail) > 4 * self._size:
                del self._tail[: -self._size]

    def tail(self, size: int) -> str:
        """The last bytes as text."""
        return storable(bytes(self._head + self._tail)[-size:])

    def result(self) -> Captured:
        """Head and tail as text; what is not UTF-8 is replaced."""
        tail = bytes(self._tail[-self._size :])
        head = bytes(self._head)
        return Captured(storable(head), storable(tail), self._total)


class Lines:
    """A stream cut into lines."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._length = 0
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that end in this piece."""
        *ended, rest = data.split(b"\n")
        for line in ended:
            self._add(line)
            yield from self.end()
        self._add(rest)

    def end(self) -> Iterator[str]:
        """The line that has begun, if there is one."""
        if not self._skipping and self._length:
            yield b"".join(self._parts).decode(errors="replace").rstrip("\r")
        self._parts, self._length, self._skipping = [], 0, False

    def _add(self, data: bytes) -> None:
        self._length += len(data)
        if self._length > self._longest:
            self._skipping = True
            self._parts = []
        elif data and not self._skipping:
            self._parts.append(data)
