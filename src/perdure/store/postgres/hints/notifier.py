"""Hints across processes: NOTIFY after the commit, debounced, and LISTEN.

A NOTIFY inside a transaction would serialise all commits of the database, so hints go out in transactions of their own, a few
milliseconds late at most. They may be lost: every listener also polls. Through a pooler hints are sent and none are received.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from perdure.store.hints import LocalHints
from perdure.store.postgres.engine.connections import (
    COMMON,
    AnyConnection,
    Connection,
    Pool,
    borrowed,
    close_quietly,
    connect,
)
from perdure.store.postgres.engine.driver_errors import CLIENT_LIBRARY_ERRORS
from perdure.store.postgres.engine.statements import STATEMENTS
from perdure.store.postgres.engine.url import read_url
from perdure.store.protocol import Listener, Topic

TOPICS: tuple[Topic, ...] = ("work", "news")
INTERVAL: dict[Topic, float] = {"work": 0.002, "news": 0.05}
"""Seconds between two notifications of a topic, which merge those of a burst: a worker waits for work, a person for news."""
_TOPIC_OF_CHANNEL: dict[str, Topic] = {f"perdure_{topic}": topic for topic in TOPICS}

log = structlog.get_logger("perdure.store")


class Notifier:
    """Notifies the listeners of a tenant, in this process at once and in others a moment later. One connection serves all
    tenants; it is opened for the first listener, and until then the pool sends. Used from one event loop."""

    def __init__(self, url: str, pool: Pool) -> None:
        self._url = url
        self._pool = pool
        self.hears_others = not read_url(url).pooler
        """Whether listeners are woken by other processes as well."""
        self._local = LocalHints()
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._next_at: dict[Topic, float] = dict.fromkeys(TOPICS, 0.0)
        self._pending: dict[Topic, set[str]] = {topic: set() for topic in TOPICS}  # tenants
        self._timers: dict[Topic, asyncio.TimerHandle] = {}
        self._due: set[Topic] = set()
        self._sending: asyncio.Task[None] | None = None
        self._wanted = False
        self._logged = False
        self._listening = False
        self._reconnecting: asyncio.Task[None] | None = None
        self._closed = False

    def notify(self, tenant_id: str, *topics: Topic) -> None:
        """Wake the tenant's listeners of these topics; call it after the commit."""
        for topic in topics:
            self._local.notify(topic, tenant_id)
            self._pending[topic].add(tenant_id)
            if topic not in self._timers and topic not in self._due and not self._closed:
                loop = asyncio.get_running_loop()
                wait = self._next_at[topic] - loop.time()
                if wait > 0:
                    self._timers[topic] = loop.call_later(wait, self._send_soon, topic)
                else:
                    self._send_soon(topic)

    @asynccontextmanager
    async def listen(self, topic: Topic, tenant_id: str) -> AsyncIterator[Listener]:
        """See `protocol.HintStore.listen`. Hints that come after the context was entered are heard."""
        if not self.hears_others and not self._logged:
            self._logged = True
            log.info("connected through a pooler, where LISTEN does not work: polling every second")
        if self.hears_others:
            self._wanted = True
            try:
                await self._connected()
            except CLIENT_LIBRARY_ERRORS as error:
                self._lost(error)
        async with self._local.listen(topic, tenant_id) as listener:
            yield listener

    async def close(self) -> None:
        """Send what is pending, then disconnect."""
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        for topic, timer in list(self._timers.items()):
            timer.cancel()
            self._send_soon(topic)
        if self._sending is not None:
            _, unfinished = await asyncio.wait({self._sending}, timeout=1)
            for task in unfinished:
                task.cancel()
        if self._connection is not None:
            self._connection.remove_termination_listener(self._on_termination)
            await close_quietly(self._connection)
            self._connection = None

    def _send_soon(self, topic: Topic) -> None:
        self._timers.pop(topic, None)
        self._due.add(topic)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._due:
                if self._wanted:
                    async with self._connecting:  # a listener may be about to use the connection as well
                        await self._send_due(await self._ready())
                else:
                    async with borrowed(self._pool, wait=1.0) as connection:
                        await self._send_due(connection)
        except CLIENT_LIBRARY_ERRORS as error:
            if self._connection is not None:  # it may be broken and not know it
                self._connection.terminate()
            self._lost(error)
        finally:
            self._take_due()  # after an error: others find out by polling
            self._sending = None

    async def _send_due(self, connection: AnyConnection) -> None:
        statement = STATEMENTS["notify"]
        channels, payloads = zip(*self._take_due(), strict=True)
        await connection.fetch(
            statement.sql, *statement.values({"channels": channels, "payloads": payloads}), timeout=5
        )

    def _take_due(self) -> list[tuple[str, str]]:
        """Channel and tenant of what is to be sent now."""
        hints = []
        now = asyncio.get_running_loop().time()
        for topic in self._due:
            hints += [(f"perdure_{topic}", tenant_id) for tenant_id in self._pending[topic]]
            self._pending[topic].clear()
            self._next_at[topic] = now + INTERVAL[topic]
        self._due.clear()
        return hints

    async def _connected(self) -> Connection:
        async with self._connecting:
            return await self._ready()

    async def _ready(self) -> Connection:
        """The connection; call it with the lock held."""
        connection = self._connection
        if self._closed and connection is None and self._sending is None:
            raise ConnectionError("the store is closed")
        if connection is None or connection.is_closed():
            connection = await connect(self._url, COMMON, command_timeout=5)
            if self._closed and self._sending is None:  # meanwhile: `close` has not seen this one
                connection.terminate()
                raise ConnectionError("the store is closed")
            connection.add_termination_listener(self._on_termination)
            self._connection = connection
            self._listening = False
        if self._wanted and not self._listening:
            for channel in _TOPIC_OF_CHANNEL:
                await connection.add_listener(channel, self._on_notification)
            self._listening = True
        return connection

    def _on_notification(self, _: object, pid: int, channel: str, payload: object) -> None:
        own = self._connection is not None and pid == self._connection.get_server_pid()
        if not own:  # its own listeners were woken at once
            self._local.notify(_TOPIC_OF_CHANNEL[channel], str(payload))

    def _on_termination(self, *_: Any) -> None:
        self._lost(None)

    def _lost(self, error: Exception | None) -> None:
        if self._closed or not self._wanted or self._reconnecting is not None:
            return
        log.info("hint connection lost, polling until it is back", error=str(error) if error else None)
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        delay = 0.05
        try:
            while not self._closed:
                await asyncio.sleep(delay)
                delay = min(delay * 2, 5.0)
                try:
                    await self._connected()
                except CLIENT_LIBRARY_ERRORS:
                    continue
                for topic in TOPICS:  # hints of the meantime were not received
                    self._local.notify_all(topic)
                return
        finally:
            self._reconnecting = None
