"""A worker's own small HTTP server: /metrics, /healthz (the process answers) and /readyz (it claims jobs). GET and HEAD, one
request per connection; only the address is configurable."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import structlog
from prometheus_client.exposition import choose_encoder

from perdure.model.errors import ConfigError, PerdureError, PortTaken
from perdure.observe.metrics import Metrics
from perdure.runtime.worker import Worker
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.metrics")

READY_WITHIN = 2.0
"""Seconds within which the database has to answer a readiness probe."""
STARVED_AFTER = 10.0
"""Seconds that plain functions may wait for a thread in a worker that is ready."""
CLIENT_TIMEOUT = 10.0
"""Seconds that a client may take to send its request, and again to receive the answer."""
MOST_HEAD = 16 * 1024
MOST_CONNECTIONS = 64

_TEXT = "text/plain; charset=utf-8"


class StatusServer:
    """Its port is bound when it is made, so that a taken port is found early. It answers within `serving`."""

    def __init__(self, host: str, port: int) -> None:
        """port 0: any free one. Raises PortTaken, and ConfigError for an address that this machine does not have."""
        self._socket = _bound(host, port)
        self._connections: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        """Those whose request has not arrived yet, the oldest first."""

    @property
    def url(self) -> str:
        """The URL of the server."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Release the port."""
        self._socket.close()

    @asynccontextmanager
    async def serving(self, worker: Worker, store: Store, metrics: Metrics) -> AsyncIterator[None]:
        """Answer while the context is open; its end releases the port. Raises PerdureError."""
        self._worker, self._store, self._metrics = worker, store, metrics
        metrics.watch(worker)
        try:
            await metrics.snapshot.begin(store)
            server = await asyncio.start_server(self._connected, sock=self._socket, limit=MOST_HEAD)
        except BaseException:
            self.close()
            raise
        log.info("metrics are served", worker=worker.id, url=f"{self.url}/metrics")
        try:
            yield
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MOST_CONNECTIONS:
            if not self._silent:
                writer.close()
                return
            # of the silent ones the oldest is closed: a probe must find a free connection
            self._silent.pop(next(iter(self._silent))).transport.abort()
        self._connections.add(task)
        self._silent[task] = writer
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
            self._silent.pop(task, None)
            answer = await self._answer(head.decode("latin-1"))
            writer.write(answer)
            async with asyncio.timeout(CLIENT_TIMEOUT):
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b""))
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            pass  # the client closed the connection, or sends nothing
        finally:
            self._connections.discard(task)
            self._silent.pop(task, None)
            with suppress(ConnectionError):
                writer.close()

    async def _answer(self, head: str) -> bytes:
        request, *lines = head.split("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, b"")
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"", "Allow: GET, HEAD")
        status, body, type = HTTPStatus.OK, b"ok\n", _TEXT
        match path:
            case "/metrics":
                await self._metrics.snapshot.refresh(self._store)
                encode, type = choose_encoder(_header(lines, "accept"))
                body = encode(self._metrics.registry)
            case "/healthz":
                pass  # it answers: that is all this probe asks
            case "/readyz":
                if reason := await self._unready():
                    status, body = HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}\n".encode()
            case _:
                status, body = HTTPStatus.NOT_FOUND, b"there are /metrics, /healthz and /readyz\n"
        return _response(status, body, f"Content-Type: {type}", head_only=method == "HEAD")

    async def _unready(self) -> str | None:
        if self._worker.stopping or not self._worker.working:
            return "the worker claims no jobs"
        if (waited := self._worker.starved) > STARVED_AFTER:
            return f"no thread is free: plain functions have waited for one for {waited:.0f} s"
        try:
            async with asyncio.timeout(READY_WITHIN):
                await self._store.now()
        except (PerdureError, TimeoutError):
            return "the database does not answer"
        return None


def _response(status: HTTPStatus, body: bytes, *headers: str, head_only: bool = False) -> bytes:
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        *headers,
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + (b"" if head_only else body)


def _header(lines: list[str], name: str) -> str:
    values = (line.partition(":") for line in lines)
    return ",".join(value.strip() for key, _, value in values if key.strip().lower() == name)


def _bound(host: str, port: int) -> socket.socket:
    if port > 65535:
        raise ConfigError(f"metrics cannot be served on port {port}: ports end at 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address[:2], family=family, dualstack_ipv6=both)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise ConfigError(f"metrics_host {host} is not an address: {error.strerror}") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(
                f"metrics cannot be served on {host}: this machine has no such address",
                hint="give one of this machine's with --metrics-host; 0.0.0.0 means all of them, 127.0.0.1 only this machine",
            ) from None
        raise PortTaken(
            f"metrics cannot be served on {host}:{port}: {error.strerror}",
            hint="choose another with --metrics-port, or 0 for any free one",
        ) from None
