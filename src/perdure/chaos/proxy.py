"""A small TCP proxy on the loopback, whose connections can be cut, also between a request and its answer."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlsplit, urlunsplit

_KEY_DATA = b"K\x00\x00\x00\x0c"
"""How PostgreSQL's message begins that has the process id of the client's backend."""
_STARTUP_BYTES = 8192
_MESSAGES = b"BCDEFHPQSXcdfp"
"""What a message to PostgreSQL begins with after the startup; anything else is encrypted, or the rest of one."""
_CHANGES = re.compile(rb"\b(insert|update|delete)\b", re.IGNORECASE)
_HIGH_WATER = 256 * 1024


def reachable(url: str) -> tuple[str, int] | None:
    """Host and port of a URL, if one proxy can replace them; None for sockets, several hosts and checked host names."""
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


class Connection:
    """One connection through the proxy."""

    def __init__(self) -> None:
        self.pid: int | None = None
        """The process id of the server's backend, if it could be read (no TLS)."""
        self.lost = 0
        """Answers that were dropped: at most one."""
        self.writes = 0.0
        """A recent number of requests that may have changed something."""
        self._startup = b""
        self._client_end: asyncio.Transport | None = None
        self._server_end: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._changing: set[bytes] = set()
        self._dropping = self._asked = False

    @property
    def open(self) -> bool:
        """Whether both ends are connected."""
        return self._client_end is not None and self._server_end is not None

    def cut(self) -> None:
        """Abort both ends: data in transit is lost, and neither side gets a reason."""
        for end in (self._client_end, self._server_end):
            if end is not None:
                end.abort()

    def drop_answer(self) -> None:
        """Forward the next request that changes something, and cut the connection in place of its answer."""
        self._dropping = True

    # -- the ends ---------------------------------------------------------------------------------------------------------

    def join(self, transport: asyncio.Transport, *, from_client: bool) -> None:
        """An end is connected."""
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        if from_client:
            self._client_end = transport
            return
        if self._client_end is None:  # the client has closed it meanwhile
            transport.abort()
            return
        self._server_end = transport
        for data in self._unsent:
            transport.write(data)
        self._unsent.clear()

    def carry(self, data: bytes, *, from_client: bool) -> None:
        """Forward what one end sent."""
        if from_client:
            if self._changes(data):
                self.writes += 1
                self._asked = self._dropping
            if self._server_end is None:
                self._unsent.append(data)
            else:
                self._server_end.write(data)
            return
        if self._asked:
            self.lost += 1
            self.cut()
            return
        if self.pid is None and len(self._startup) < _STARTUP_BYTES:
            self._read_startup(data)
        if self._client_end is not None:
            self._client_end.write(data)

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

    def _read_startup(self, data: bytes) -> None:
        self._startup += data
        at = self._startup.find(_KEY_DATA)
        number = self._startup[at + 5 : at + 9]
        if at >= 0 and len(number) == 4:
            self.pid = int.from_bytes(number)

    def hold(self, on: bool, *, from_client: bool) -> None:
        """One end takes no more for now: pause the other."""
        other = self._server_end if from_client else self._client_end
        if other is not None and not other.is_closing():
            other.pause_reading() if on else other.resume_reading()

    def leave(self, *, from_client: bool) -> None:
        """One end was closed: what it had sent is delivered, then the other is closed too."""
        other = self._server_end if from_client else self._client_end
        if from_client:
            self._client_end = None
        else:
            self._server_end = None
        if other is not None:
            other.close()


class _End(asyncio.Protocol):
    def __init__(self, connection: Connection, *, from_client: bool) -> None:
        self.connection = connection
        self._from_client = from_client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connection.join(cast("asyncio.Transport", transport), from_client=self._from_client)

    def data_received(self, data: bytes) -> None:
        self.connection.carry(data, from_client=self._from_client)

    def pause_writing(self) -> None:
        self.connection.hold(True, from_client=self._from_client)

    def resume_writing(self) -> None:
        self.connection.hold(False, from_client=self._from_client)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self.connection.leave(from_client=self._from_client)


class Proxy:
    """A loopback port that leads to the server of `url`; a context."""

    def __init__(self, url: str, host: str, port: int) -> None:
        self._given = url
        self._host = host
        self._port = port
        self._connections: set[Connection] = set()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._lost = 0
        self.readable = False
        """Whether connections are not encrypted, so that the session of each is known."""
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
        for connection in self._connections:
            connection.cut()

    def connections(self) -> list[Connection]:
        """The connections that are open."""
        for connection in [connection for connection in self._connections if not connection.open]:
            self._connections.discard(connection)
            self._lost += connection.lost
        self.readable = self.readable or any(connection.pid is not None for connection in self._connections)
        return list(self._connections)

    def busy_connection(self, choice: float) -> Connection | None:
        """One of the connections that write, chosen by how much it wrote recently; choice: 0 to 1."""
        connections = self.connections()
        left = choice * sum(connection.writes for connection in connections)
        found = None
        for connection in connections:
            left -= connection.writes
            connection.writes /= 2
            if found is None and left < 0:
                found = connection
        return found

    @property
    def answers_lost(self) -> int:
        """Requests that went through and whose answers did not."""
        return self._lost + sum(connection.lost for connection in self._connections)

    def _accepted(self) -> asyncio.Protocol:
        connection = Connection()
        task = asyncio.get_running_loop().create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return _End(connection, from_client=True)

    async def _connect(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: _End(connection, from_client=False), self._host, self._port)
        except OSError:
            connection.cut()
            return
        self._connections.add(connection)
