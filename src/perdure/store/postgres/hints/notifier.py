"""Hints across processes: NOTIFY after the commit, debounced, and LISTEN.

A NOTIFY inside a transaction would serialise all commits of the database, so hints go out on a connection of their own, a few
milliseconds late at most. They may be lost: everybody who listens also polls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import structlog

from perdure.store.hints import LocalHints
from perdure.store.postgres.engine.connections import NOTIFYING, Connection, close_quietly, connect
from perdure.store.postgres.engine.driver_errors import CLIENT_LIBRARY_ERRORS
from perdure.store.protocol import Listener, Topic

TOPICS: tuple[Topic, ...] = ("work", "news")
INTERVAL: dict[Topic, float] = {"work": 0.005, "news": 0.05}
"""Seconds between two notifications of a topic: late enough to merge a burst, early enough for a person."""

log = structlog.get_logger("perdure.store")


class Bell:
    """Rings for one tenant, in this process at once and in others a moment later. Used from one event loop."""

    def __init__(self, url: str, statement: str, tenant: str) -> None:
        self._url = url
        self._statement = statement
        self._tenant = tenant
        self._local = LocalHints()
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._due: dict[Topic, float] = dict.fromkeys(TOPICS, 0.0)
        self._rung: set[Topic] = set()
        self._sending: asyncio.Task[None] | None = None
        self._wanted = False
        self._listening = False
        self._reconnecting: asyncio.Task[None] | None = None
        self._closed = False
        self._hurry = asyncio.Event()  # set by close: what is rung goes out at once

    def ring(self, *topics: Topic) -> None:
        """Wake the listeners of these topics; call it after the commit."""
        for topic in topics:
            self._local.ring(topic)
        self._rung.update(topics)
        if self._sending is None and not self._closed:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    def listen(self, topic: Topic) -> AbstractAsyncContextManager[Listener]:
        """See `protocol.HintStore.listen`. Hints that come after the context was entered are heard."""
        return self._listen(topic)

    @asynccontextmanager
    async def _listen(self, topic: Topic) -> AsyncIterator[Listener]:
        self._wanted = True
        try:
            await self._connected()
        except CLIENT_LIBRARY_ERRORS as error:
            self._lost(error)
        async with self._local.listen(topic) as listener:
            yield listener

    async def close(self) -> None:
        """Send what was rung, then disconnect."""
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._hurry.set()
        if self._sending is not None:
            _, unfinished = await asyncio.wait({self._sending}, timeout=1)
            for task in unfinished:
                task.cancel()
        if self._connection is not None:
            self._connection.remove_termination_listener(self._on_termination)
            await close_quietly(self._connection)
            self._connection = None

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._rung:
                now = loop.time()
                ready = {topic for topic in self._rung if self._due[topic] <= now or self._closed}
                if not ready:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(min(self._due[topic] for topic in self._rung) - now):
                            await self._hurry.wait()
                    continue
                self._rung -= ready
                for topic in ready:
                    self._due[topic] = now + INTERVAL[topic]
                async with self._connecting:  # a listener may be about to use the connection as well
                    connection = await self._ready()
                    await connection.execute(self._statement, [f"perdure_{topic}" for topic in ready], self._tenant)
        except CLIENT_LIBRARY_ERRORS as error:
            if self._connection is not None:  # it may be silent and not know it
                self._connection.terminate()
            self._rung.clear()  # others find out by polling
            self._lost(error)
        finally:
            self._sending = None

    async def _connected(self) -> Connection:
        async with self._connecting:
            return await self._ready()

    async def _ready(self) -> Connection:
        """The connection, by whoever has it for himself."""
        connection = self._connection
        if self._closed and connection is None and not self._rung:
            raise ConnectionError("the store is closed")
        if connection is None or connection.is_closed():
            connection = await connect(self._url, NOTIFYING, command_timeout=5)
            connection.add_termination_listener(self._on_termination)
            self._connection = connection
            self._listening = False
        if self._wanted and not self._listening:
            for topic in TOPICS:
                await connection.add_listener(f"perdure_{topic}", self._hear)
            self._listening = True
        return connection

    def _hear(self, _: object, pid: int, channel: str, payload: object) -> None:
        own = self._connection is not None and pid == self._connection.get_server_pid()
        if payload == self._tenant and not own:  # our own were rung locally
            self._local.ring("work" if channel == "perdure_work" else "news")

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
                for topic in TOPICS:  # what was rung meanwhile went unheard
                    self._local.ring(topic)
                return
        finally:
            self._reconnecting = None
