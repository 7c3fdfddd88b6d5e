"""The one writer of a process: a thread that puts everything that waits into one transaction and commits it once.

There is no timer: while one commit is on its way to the disk, the next batch gathers. Callers are answered after the
commit, never before; where the next one is short, during its way to the disk: that is when the event loop has the interpreter
for itself. Processes that share the file queue up at a lock file, because SQLite's own lock starves them. Nobody stays at its
head while a stranger, who knows nothing of it, has the database: all of them wait for him at once, each for its own callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from perdure.model.errors import PerdureError, StoreUnreachable
from perdure.model.timing import SettableClock
from perdure.store.group_commit.limits import MOST_ITEMS, MOST_TEXT
from perdure.store.sqlite.engine.database import (
    PATIENCE,
    REFUSALS,
    apart,
    connect,
    is_busy,
    keep_time,
    meaning,
    naps,
    probe,
)

T = TypeVar("T")
A = TypeVar("A")

One = Callable[[sqlite3.Connection, int], T]
"""A few statements of one caller: the connection, and database time in microseconds. It is called again, later, if somebody
fails who shares its transaction: what it did is undone by then, and it must remember nothing of it."""

Many = Callable[[sqlite3.Connection, int, Sequence[A]], Sequence[T | PerdureError]]
"""The same operation for several callers at once: one answer for each, in order; a PerdureError is raised to its caller."""

CROWD_ITEMS = 64
"""Items of a transaction, and jobs of a claim, while other processes wait for the file: a few milliseconds. Whoever writes more
rows than that wrote a lot."""

SHORT_TEXT = 64 * 1024
"""Characters that a short transaction brings at most."""

MOST_AWAY = 0.02
"""Seconds a process gives way to others at most."""

CROWD_SECONDS = 1.0
"""For how long a process that had to wait for the file reckons with others."""

NOTHING, WORK, NEWS = 0, 1, 2
"""What a commit may be worth telling: bits of `topics`."""


class _Item(Generic[T]):
    """One call on its way through the writer."""

    __slots__ = ("argument", "error", "future", "loop", "many", "one", "result", "since", "size", "topics")

    def __init__(self, loop: asyncio.AbstractEventLoop, topics: int) -> None:
        self.loop = loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.topics = topics
        self.since = time.monotonic()
        self.size = 0
        self.one: One[T] | None = None
        self.many: Many[Any, T] | None = None
        self.argument: Any = None
        self.result: T | None = None
        self.error: BaseException | None = None


class Writer:
    """Runs callers' statements in the order they came, several callers to a commit.

    path: the database file, None for one in memory. told: called in the loop that made the writer after each commit that
    changed something, with the topics of that commit. clock: database time, None for the machine's.
    """

    def __init__(self, path: str | None, told: Callable[[int], None], clock: SettableClock | None = None) -> None:
        self._path = path
        self._clock = clock
        self._where = path or "the database in memory"
        self._told = told
        self._home = asyncio.get_running_loop()
        self._inbox: SimpleQueue[_Item[Any] | None] = SimpleQueue()
        self._closed = False
        self._lock_file = -1
        self._crowded_until = 0.0
        self._waited = 0.0
        self._met: float | None = None  # when a stranger was met who has the database still
        self._landed: list[_Item[Any]] = []  # committed, and their callers do not know yet
        self._landed_topics = NOTHING
        self._conn: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._serve, name="perdure-sqlite-write", daemon=True)

    async def open(self) -> None:
        """Open the database and start. Raises StoreUnreachable."""
        await apart(self._open)
        self._thread.start()

    def run(self, one: One[T], topics: int = NOTHING) -> asyncio.Future[T]:
        """Run `one` in a transaction that is committed when this is done; if it raises, it has changed nothing."""
        item: _Item[T] = _Item(asyncio.get_running_loop(), topics)
        item.one = one
        return self._put(item)

    def join(self, many: Many[A, T], argument: A, topics: int = NOTHING, size: int = 0) -> asyncio.Future[T]:
        """As `run`, for calls that are cheaper together: all that wait with the same `many` become one call of it.

        size: about how many characters of text it brings.
        """
        item: _Item[T] = _Item(asyncio.get_running_loop(), topics)
        item.many = many
        item.argument = argument
        item.size = size
        return self._put(item)

    async def close(self) -> None:
        """Finish what was taken on, then close the connection. Calling it twice is fine."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
        if self._thread.is_alive():
            await apart(self._thread.join)

    def _put(self, item: _Item[T]) -> asyncio.Future[T]:
        if self._closed:
            raise StoreUnreachable("the store is closed")
        self._inbox.put(item)
        return item.future

    def share(self, wanted: int) -> int:
        """How many of so many rows one transaction should take: few while other processes wait for the file."""
        return min(wanted, CROWD_ITEMS) if time.monotonic() < self._crowded_until else wanted

    # --- in the thread ---------------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            if self._path is None:
                self._conn = connect(None, writes=True)
                if self._clock is not None:
                    keep_time(self._conn, self._clock)
                return
            self._lock_file = os.open(self._path + "-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._conn = connect(self._path, writes=True, turn=self._turn)
            probe(self._conn)
        except (OSError, sqlite3.Error, StoreUnreachable) as error:
            self._release()
            if isinstance(error, StoreUnreachable):
                raise
            if isinstance(error, sqlite3.Error):
                raise meaning(error, self._where) from error
            raise StoreUnreachable(
                f"{self._where} cannot be written: {error.strerror}",
                hint="check the rights of the file and its directory",
            ) from error

    def _release(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def _lock(self) -> None:
        if self._lock_file < 0:
            return
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._waited = 0.0
        except BlockingIOError:
            self._tell()
            began = time.monotonic()
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            now = time.monotonic()
            self._waited = now - began
            self._crowded_until = now + CROWD_SECONDS

    def _unlock(self) -> None:
        if self._lock_file >= 0:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        self._lock()
        try:
            yield
        finally:
            self._unlock()

    def _serve(self) -> None:
        assert self._conn is not None
        try:
            going = True
            while going:
                batch, going = self._gather()
                if batch:
                    before = self._conn.total_changes
                    if not _short(batch):
                        self._tell()
                    self._commit(self._conn, batch)
                    if going and self._conn.total_changes - before > CROWD_ITEMS:
                        self._give_way()
        finally:
            self._closed = True
            self._tell()
            self._release()
            self._turn_away()

    def _give_way(self) -> None:
        """Who wrote a lot after waiting for others stays away as long as it waited. The lock goes to whoever happens to be
        first: so somebody with little to write would lose to a crowd of these again and again."""
        if self._waited:
            self._tell()
            time.sleep(min(self._waited, MOST_AWAY))

    def _turn_away(self) -> None:
        """Answer what came in while the door closed."""
        late: list[_Item[Any]] = []
        with contextlib.suppress(Empty):
            while True:
                item = self._inbox.get_nowait()
                if item is not None:
                    late.append(item)
        self._fail(late, StoreUnreachable("the store is closed"))
        self._deliver(late, NOTHING)

    def _gather(self) -> tuple[list[_Item[Any]], bool]:
        """What waits now, at least one; and whether to go on after it.

        Number and size are bounded: so long must readers of fresh results and other processes wait.
        """
        batch: list[_Item[Any]] = []
        text = 0
        if self._inbox.empty():
            self._tell()
        item = self._inbox.get()
        most = self.share(MOST_ITEMS)
        while item is not None:
            if not item.future.cancelled():
                batch.append(item)
                text += item.size
            if len(batch) >= most or text >= MOST_TEXT:
                return batch, True
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    def _commit(self, conn: sqlite3.Connection, batch: list[_Item[Any]]) -> None:
        """Run a batch while other processes wait."""
        try:
            self._lock()
        except OSError as error:
            self._land(batch, NOTHING, error)
            return
        try:
            self._carry_out(conn, batch)
        finally:
            self._unlock()

    def _carry_out(self, conn: sqlite3.Connection, batch: list[_Item[Any]]) -> BaseException | None:
        """Run a batch in one transaction, or in halves if that fails, so that in the end whoever is to blame is alone.

        Returns the error if the database is out of reach: then nobody's turn will come.
        """
        try:
            self._begin(conn, batch)
        except BaseException as error:  # noqa: BLE001  callers must be answered, whatever happens
            self._land(batch, NOTHING, error)
            return error
        if not batch:
            return None
        try:
            topics = self._run(conn, batch)
            self._tell()
            conn.execute("commit")
        except BaseException as error:  # noqa: BLE001  it belongs to the callers
            if conn.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # then the next begin says so
                    conn.execute("rollback")
            if len(batch) == 1:
                self._land(batch, NOTHING, error)
                return None
        else:
            self._land(batch, topics)
            return None
        half = len(batch) // 2
        lost = self._carry_out(conn, batch[:half])
        if lost is None:
            return self._carry_out(conn, batch[half:])
        self._land(batch[half:], NOTHING, lost)
        return lost

    def _begin(self, conn: sqlite3.Connection, batch: list[_Item[Any]]) -> None:
        """Begin for those of the batch who stay in it; if nobody does, there is no transaction."""
        for nap in naps():
            error = self._try_begin(conn)
            if error is None:
                return
            self._lose_patience(batch, error)
            if not batch:
                return
            self._unlock()
            self._tell()
            time.sleep(nap)
            self._lock()

    def _try_begin(self, conn: sqlite3.Connection) -> sqlite3.Error | None:
        """None, or what SQLite says of a stranger who is writing."""
        try:
            conn.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if self._met is None:
                self._met = time.monotonic()
            return error
        self._met = None
        return None

    def _lose_patience(self, batch: list[_Item[Any]], error: sqlite3.Error) -> None:
        """Take out whoever was cancelled, and whoever has waited for the stranger long enough, which is not the same moment
        for all of them. Waiting for other processes of ours is another matter, and has no end."""
        assert self._met is not None
        latest = time.monotonic() - PATIENCE
        late = [item for item in batch if max(item.since, self._met) <= latest]
        self._land(late, NOTHING, error)
        batch[:] = [item for item in batch if max(item.since, self._met) > latest and not item.future.cancelled()]

    def _land(self, batch: list[_Item[Any]], topics: int, error: BaseException | None = None) -> None:
        """These are through, and are told at the next opportunity."""
        if error is not None:
            self._fail(batch, error)
        self._landed += batch
        self._landed_topics |= topics

    def _fail(self, batch: list[_Item[Any]], error: BaseException) -> None:
        for item in batch:
            item.error = meaning(error, self._where) if isinstance(error, REFUSALS) else error

    def _run(self, conn: sqlite3.Connection, batch: list[_Item[Any]]) -> int:
        now = _now(conn)
        topics = NOTHING
        for group in _groups(batch):
            before = conn.total_changes
            try:
                _perform(conn, now, group)
            except PerdureError as error:
                if len(group) > 1 or conn.total_changes != before or not conn.in_transaction:
                    raise
                self._fail(group, error)  # it has changed no row
            if conn.total_changes != before:
                for each in group:
                    topics |= each.topics
        return topics

    def _tell(self) -> None:
        """Answer those whose items are committed."""
        if self._landed:
            landed, topics = self._landed, self._landed_topics
            self._landed, self._landed_topics = [], NOTHING
            self._deliver(landed, topics)

    def _deliver(self, batch: list[_Item[Any]], topics: int) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[_Item[Any]]] = {}
        for item in batch:
            loops.setdefault(item.loop, []).append(item)
        for loop, items in loops.items():
            _call(loop, _answer, items)
        if topics:
            _call(self._home, self._told, topics)


def _short(batch: list[_Item[Any]]) -> bool:
    """Whether its statements take a millisecond or two: then those who are committed may be answered after them."""
    return (
        len(batch) <= CROWD_ITEMS
        and all(item.many is not None for item in batch)
        and sum(item.size for item in batch) <= SHORT_TEXT
    )


def _groups(batch: list[_Item[Any]]) -> list[list[_Item[Any]]]:
    """What runs as one: calls of one operation together, where the first of them stands."""
    groups: list[list[_Item[Any]]] = []
    together: dict[Any, list[_Item[Any]]] = {}
    for item in batch:
        if item.many is None:
            groups.append([item])
        elif (group := together.get(item.many)) is not None:
            group.append(item)
        else:
            together[item.many] = [item]
            groups.append(together[item.many])
    return groups


def _perform(conn: sqlite3.Connection, now: int, group: list[_Item[Any]]) -> None:
    """Run one call, or several of one operation as one."""
    first = group[0]
    for item in group:
        item.error = None
    if first.one is not None:
        first.result = first.one(conn, now)
        return
    assert first.many is not None
    results = first.many(conn, now, [item.argument for item in group])
    for item, result in zip(group, results, strict=True):
        if isinstance(result, PerdureError):
            item.error = result
        else:
            item.result = result


def _now(conn: sqlite3.Connection) -> int:
    try:
        now: int = conn.execute("select now from clock").fetchone()[0]
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return time.time_ns() // 1000  # no schema yet: only a migration gets any further
    return now


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[Any], None], argument: Any) -> None:
    with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits there any more
        loop.call_soon_threadsafe(callback, argument)


def _answer(items: list[_Item[Any]]) -> None:
    for item in items:
        if item.future.done():  # its caller was cancelled meanwhile
            continue
        if item.error is not None:
            item.future.set_exception(item.error)
        else:
            item.future.set_result(item.result)
