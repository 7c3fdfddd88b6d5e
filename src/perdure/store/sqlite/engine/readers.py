"""Connections that only read."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from perdure.model.errors import StoreUnreachable
from perdure.store.sqlite.engine.connection import connect
from perdure.store.sqlite.engine.driver_errors import DRIVER_ERRORS, translated

T = TypeVar("T")

_READERS = 3


class Readers:
    """A few connections that only read, each with a thread of its own: they never wait for the writer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="perdure-sqlite-read")

    async def run(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Call `fn` with a connection, in another thread. Raises what `fn` raises, SQLite's errors translated."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._call, fn)
        except RuntimeError as error:
            if "shutdown" in str(error):
                raise StoreUnreachable("the store is closed") from None
            raise

    def _call(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        try:
            conn: sqlite3.Connection | None = getattr(self._local, "conn", None)
            if conn is None:
                conn = self._local.conn = connect(self._path, writes=False)
                self._connections.append(conn)
            conn.execute("begin")  # one snapshot, also for several statements
            try:
                return fn(conn)
            finally:
                conn.execute("rollback")
        except DRIVER_ERRORS as error:
            raise translated(error, self._path) from error

    def close(self) -> None:
        """Finish what runs, then close every connection; blocks."""
        self._pool.shutdown(wait=True)
        for conn in self._connections:
            conn.close()
        self._connections.clear()
