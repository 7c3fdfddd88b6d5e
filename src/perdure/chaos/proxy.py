"""A network that fails: a small TCP proxy on the loopback, whose connections can be cut at the worst of moments."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlsplit, urlunsplit

_KEY_DATA = b"K\x00\x00\x00\x0c"
"""How PostgreSQL's message begins that tells a client its backend's process id."""
_GREETING = 8192
_MESSAGES = b"BCDEFHPQSXcdfp"
"""What a message to PostgreSQL begins with, once a connection is greeted; anything else is encrypted, or the rest of one."""
_CHANGES = re.compile(rb"\b(insert|update|delete)\b", re.IGNORECASE)
_HIGH_WATER = 256 * 1024


def reachable(url: str) -> tuple[str, int] | None:
    """Host and port of a URL that one proxy can stand in front of; None for sockets, several hosts and checked names."""
    parts = urlsplit(url)
    more = parse_qs(parts.query)
    checked = more.get("sslmode", [""])[0] == "verify-full"
    try:
        host, port = parts.hostname, parts.port or 5432
    except ValueError:  # several hosts
        return None
    if not host or "," in parts.netloc or checked or not {"host", "port"}.isdisjoint(more):
        return None
    return host, port


class Line:
    """One connection through the proxy."""

    def __init__(self) -> None:
        self.pid: int | None = None
        """The process id of the server's backend, if it could be read (no TLS)."""
        self.lost = 0
        """Answers that were swallowed: at most one."""
        self.writes = 0.0
        """About how many requests went through lately that may have changed something."""
        self._greeting = b""
        self._near: asyncio.Transport | None = None
        self._far: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._changing: set[bytes] = set()
        self._swallowing = self._asked = False

    @property
    def open(self) -> bool:
        """Whether both ends are connected."""
        return self._near is not None and self._far is not None

    def cut(self) -> None:
        """The network breaks: whatever is on its way is gone, and neither side is told why."""
        for end in (self._near, self._far):
            if end is not None:
                end.abort()

    def swallow(self) -> None:
        """Let the next request through that changes something, and cut where its answer should come: was it done or not?"""
        self._swallowing = True

    # -- the ends ---------------------------------------------------------------------------------------------------------

    def join(self, transport: asyncio.Transport, *, near: bool) -> None:
        """An end is connected."""
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        if near:
            self._near = transport
            return
        if self._near is None:  # it has gone meanwhile
            transport.abort()
            return
        self._far = transport
        for data in self._early:
            transport.write(data)
        self._early.clear()

    def carry(self, data: bytes, *, near: bool) -> None:
        """Pass on what one end sent."""
        if near:
            if self._changes(data):
                self.writes += 1
                self._asked = self._swallowing
            if self._far is None:
                self._early.append(data)
            else:
                self._far.write(data)
            return
        if self._asked:
            self.lost += 1
            self.cut()
            return
        if self.pid is None and len(self._greeting) < _GREETING:
            self._read_greeting(data)
        if self._near is not None:
            self._near.write(data)

    def _changes(self, data: bytes) -> bool:
        """Whether a request runs a statement that changes something, or commits. True where it cannot be read (TLS)."""
        if self.pid is None:
            return True
        found = False
        while len(data) >= 5 and data[0] in _MESSAGES:
            end = 1 + int.from_bytes(data[1:5])
            kind, body = data[:1], data[5:end]
            first, _, rest = body.partition(b"\0")
            if kind == b"P" and _CHANGES.search(rest):  # a statement is prepared: its name and its text
                self._changing.add(first)
            elif kind == b"B":  # it is run: the portal's name and the statement's
                found = found or rest.partition(b"\0")[0] in self._changing
            elif kind == b"Q":
                found = found or b"COMMIT" in body
            data = data[end:]
        return found

    def _read_greeting(self, data: bytes) -> None:
        self._greeting += data
        at = self._greeting.find(_KEY_DATA)
        number = self._greeting[at + 5 : at + 9]
        if at >= 0 and len(number) == 4:
            self.pid = int.from_bytes(number)

    def hold(self, on: bool, *, near: bool) -> None:
        """One end takes no more for now: the other need not send."""
        other = self._far if near else self._near
        if other is not None and not other.is_closing():
            other.pause_reading() if on else other.resume_reading()

    def leave(self, *, near: bool) -> None:
        """An end has gone: what it had sent is delivered, then the other goes as well."""
        other = self._far if near else self._near
        if near:
            self._near = None
        else:
            self._far = None
        if other is not None:
            other.close()


class _End(asyncio.Protocol):
    def __init__(self, line: Line, *, near: bool) -> None:
        self.line = line
        self._near = near

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.line.join(cast("asyncio.Transport", transport), near=self._near)

    def data_received(self, data: bytes) -> None:
        self.line.carry(data, near=self._near)

    def pause_writing(self) -> None:
        self.line.hold(True, near=self._near)

    def resume_writing(self) -> None:
        self.line.hold(False, near=self._near)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self.line.leave(near=self._near)


class Proxy:
    """A loopback port that leads to the server of `url`; a context."""

    def __init__(self, url: str, host: str, port: int) -> None:
        self._given = url
        self._host = host
        self._port = port
        self._lines: set[Line] = set()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._lost = 0
        self.readable = False
        """Whether connections are not encrypted: then it is known which session each of them belongs to."""
        self.url = url

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accepted, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(self._given)
        who, at, _ = parts.netloc.rpartition("@")
        self.url = urlunsplit(parts._replace(netloc=f"{who}{at}127.0.0.1:{port}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connecting:
            task.cancel()
        for line in self._lines:
            line.cut()

    def lines(self) -> list[Line]:
        """The connections that are open."""
        for line in [line for line in self._lines if not line.open]:
            self._lines.discard(line)
            self._lost += line.lost
        self.readable = self.readable or any(line.pid is not None for line in self._lines)
        return list(self._lines)

    def busy_line(self, choice: float) -> Line | None:
        """One of the connections that write, the more likely the more it wrote lately; choice: 0 to 1."""
        lines = self.lines()
        left = choice * sum(line.writes for line in lines)
        found = None
        for line in lines:
            left -= line.writes
            line.writes /= 2
            if found is None and left < 0:
                found = line
        return found

    @property
    def answers_lost(self) -> int:
        """Requests that went through and whose answers did not."""
        return self._lost + sum(line.lost for line in self._lines)

    def _accepted(self) -> asyncio.Protocol:
        line = Line()
        task = asyncio.get_running_loop().create_task(self._connect(line))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return _End(line, near=True)

    async def _connect(self, line: Line) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: _End(line, near=False), self._host, self._port)
        except OSError:
            line.cut()
            return
        self._lines.add(line)
