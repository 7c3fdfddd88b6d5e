"""The one writer of a process: a thread that puts everything that waits into one transaction and commits it once.

There is no timer: while one commit is on its way to the disk, the next batch gathers. Callers are answered after the commit,
never before; where the next transaction is short, during its way to the disk: that is when the event loop has the interpreter
for itself. Processes that share the file queue up at a lock file. While another program, which does not use the lock file, has
the database, all of them wait for it at once, each for its own callers: the lock file is released between two attempts. While a
process keeps the lock file for seconds, the others write without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from perdure.model.errors import FileReplaced, PerdureError, StoreUnreachable
from perdure.model.timing import SettableClock
from perdure.store.group_commit.limits import MOST_ITEMS, MOST_TEXT
from perdure.store.sqlite.engine.batch import NOTHING, Item, Many, One, answer, groups_of, perform
from perdure.store.sqlite.engine.connection import check_writable, connect, pauses, use_clock
from perdure.store.sqlite.engine.driver_errors import BUSY_SECONDS, DRIVER_ERRORS, is_busy, translated
from perdure.store.sqlite.engine.existing_file import make_private
from perdure.store.sqlite.engine.file_lock import FileLock, GivenUp
from perdure.store.sqlite.engine.held_files import HeldFiles
from perdure.store.sqlite.engine.threads import run_in_thread

T = TypeVar("T")
A = TypeVar("A")

CONTENDED_ITEMS = 64
"""Items of a transaction, and jobs of a claim, while other processes wait for the file: a few milliseconds. After more rows than
that a process pauses."""

SHORT_TEXT = 64 * 1024
"""Characters that a short transaction brings at most."""


class Writer:
    """Runs callers' statements in the order they came, several callers to a commit.

    path: the database file, None for one in memory. committed: called in the loop that made the writer after each commit that
    changed something, with the topics of that commit. clock: database time, None for the machine's.
    """

    def __init__(self, path: str | None, committed: Callable[[int], None], clock: SettableClock | None = None) -> None:
        self._path = path
        self._clock = clock
        self._where = path or "the database in memory"
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Item[Any] | None] = SimpleQueue()
        self._closed = False
        self._file_lock = FileLock(path, self._continue_elsewhere)
        self._files = HeldFiles()
        self._replaced: FileReplaced | None = None
        self._blocked_since: float | None = None  # when another program was found to have the database, if it still has
        self._done: list[Item[Any]] = []  # committed or failed, and their callers do not know yet
        self._done_topics = NOTHING
        self._conn: sqlite3.Connection | None = None
        self._current: tuple[list[Item[Any]], bool] | None = None  # what `_gather` gave last
        self._serving = False
        self._ended = threading.Event()

    async def open(self) -> None:
        """Open the database and start. Raises StoreUnreachable."""
        await run_in_thread(self._open)
        self._serving = True
        self._start_thread()

    def run(self, one: One[T], topics: int = NOTHING) -> asyncio.Future[T]:
        """Run `one` in a transaction that is committed when this is done; if it raises, it has changed nothing."""
        item: Item[T] = Item(asyncio.get_running_loop(), topics)
        item.one = one
        return self._put(item)

    def batch(self, many: Many[A, T], argument: A, topics: int = NOTHING, size: int = 0) -> asyncio.Future[T]:
        """As `run`, for calls that are cheaper together: all that wait with the same `many` become one call of it.

        size: about how many characters of text it brings.
        """
        item: Item[T] = Item(asyncio.get_running_loop(), topics)
        item.many = many
        item.argument = argument
        item.size = size
        return self._put(item)

    async def close(self) -> None:
        """Finish what was submitted, then close the connection. Calling it twice is fine."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
        if self._serving:
            await run_in_thread(self._wait_for_end)

    def _put(self, item: Item[T]) -> asyncio.Future[T]:
        if self._closed:
            raise StoreUnreachable("the store is closed")
        self._inbox.put(item)
        return item.future

    def share(self, wanted: int) -> int:
        """How many of so many rows one transaction should take: few while other processes wait for the file."""
        return min(wanted, CONTENDED_ITEMS) if self._file_lock.contended else wanted

    def _wait_for_end(self) -> None:
        self._ended.wait()

    def _start_thread(self, current: tuple[list[Item[Any]], bool] | None = None) -> None:
        threading.Thread(target=self._serve, args=(current,), name="perdure-sqlite-write", daemon=True).start()

    def _continue_elsewhere(self) -> None:
        """The thread waits for the lock file, and nothing can interrupt it: another one goes on with what it was to write."""
        self._start_thread(self._current)

    # --- in the thread ---------------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            if self._path is not None:
                make_private(self._path)
            self._file_lock.open()
            self._conn = connect(self._path, writes=True, lock=self._locked)
            if self._path is not None:
                check_writable(self._conn)
                self._files.hold(self._path)
            elif self._clock is not None:
                use_clock(self._conn, self._clock)
        except (OSError, sqlite3.Error, StoreUnreachable) as error:
            self._release()
            if isinstance(error, StoreUnreachable):
                raise
            if isinstance(error, sqlite3.Error):
                raise translated(error, self._where) from error
            raise StoreUnreachable(
                f"{self._where} cannot be written: {error.strerror}",
                hint="check the rights of the file and its directory",
            ) from error

    def _release(self) -> None:
        self._files.release()
        if self._conn is not None:
            self._conn.close()
            self._conn = None
        self._file_lock.close()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._file_lock.acquire_soon(self._answer_done)
        try:
            yield
        finally:
            self._file_lock.release()

    def _serve(self, current: tuple[list[Item[Any]], bool] | None) -> None:
        given_up = False
        try:
            self._write_until_closed(current)
        except GivenUp:  # another thread goes on
            given_up = True
        finally:
            if not given_up:
                self._closed = True
                self._answer_done()
                self._release()
                self._refuse_rest()
                self._ended.set()

    def _write_until_closed(self, current: tuple[list[Item[Any]], bool] | None) -> None:
        assert self._conn is not None
        going = True
        while going:
            self._current = batch, going = current or self._gather()
            current = None
            if batch:
                before = self._conn.total_changes
                if not _short(batch):
                    self._answer_done()
                self._commit(self._conn, batch)
                if going and self._conn.total_changes - before > CONTENDED_ITEMS:
                    self._let_others_write()

    def _let_others_write(self) -> None:
        pause = self._file_lock.pause
        if pause:
            self._answer_done()
            time.sleep(pause)

    def _refuse_rest(self) -> None:
        """Fail the items that were queued during the shutdown."""
        late: list[Item[Any]] = []
        with contextlib.suppress(Empty):
            while True:
                item = self._inbox.get_nowait()
                if item is not None:
                    late.append(item)
        self._fail(late, StoreUnreachable("the store is closed"))
        self._deliver(late, NOTHING)

    def _gather(self) -> tuple[list[Item[Any]], bool]:
        """What waits now, at least one item; and whether to go on after it.

        Number and size are bounded: that long must readers of fresh results and other processes wait.
        """
        batch: list[Item[Any]] = []
        text = 0
        if self._inbox.empty():
            self._answer_done()
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

    def _commit(self, conn: sqlite3.Connection, batch: list[Item[Any]]) -> None:
        """Run a batch while other processes wait."""
        if self._replaced is not None:
            self._finish(batch, NOTHING, self._replaced)
            return
        try:
            self._file_lock.acquire(self._answer_done)
        except OSError as error:
            self._finish(batch, NOTHING, StoreUnreachable(f"{self._where}-lock cannot be locked: {error.strerror}"))
            return
        try:
            self._transact(conn, batch)
        finally:
            self._file_lock.release()

    def _transact(self, conn: sqlite3.Connection, batch: list[Item[Any]]) -> BaseException | None:
        """Run a batch in one transaction, or in halves if that fails, so that in the end a failing item is alone.

        Returns the error if the database is out of reach: then the rest of the batch fails with it.
        """
        try:
            self._begin(conn, batch)
        except BaseException as error:  # noqa: BLE001  callers must be answered, whatever happens
            self._finish(batch, NOTHING, error)
            return error
        if not batch:
            return None
        try:
            topics = self._run(conn, batch)
            self._answer_done()
            conn.execute("commit")
        except BaseException as error:  # noqa: BLE001  it belongs to the callers
            if conn.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # then the next begin says so
                    conn.execute("rollback")
            if len(batch) == 1:
                self._finish(batch, NOTHING, error)
                return None
        else:
            self._replaced = self._find_replaced()
            self._finish(batch, topics, self._replaced)
            return self._replaced
        half = len(batch) // 2
        lost = self._transact(conn, batch[:half])
        if lost is None:
            return self._transact(conn, batch[half:])
        self._finish(batch[half:], NOTHING, lost)
        return lost

    def _begin(self, conn: sqlite3.Connection, batch: list[Item[Any]]) -> None:
        """Begin for those items that remain in the batch; if none does, there is no transaction."""
        for pause in pauses():
            error = self._try_begin(conn)
            if error is None:
                return
            self._drop_late(batch, error)
            if not batch:
                return
            self._file_lock.release()
            self._answer_done()
            time.sleep(pause)
            self._file_lock.acquire_soon(self._answer_done)

    def _find_replaced(self) -> FileReplaced | None:
        """Whether others find what was just committed; it is not acknowledged before."""
        try:
            self._files.check()
        except FileReplaced as error:
            return error
        return None

    def _try_begin(self, conn: sqlite3.Connection) -> sqlite3.Error | None:
        """None, or SQLite's error if another program is writing."""
        try:
            conn.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if self._blocked_since is None:
                self._blocked_since = time.monotonic()
            return error
        self._blocked_since = None
        return None

    def _drop_late(self, batch: list[Item[Any]], error: sqlite3.Error) -> None:
        """Take out the items that were cancelled, and fail those that have waited for the other program long enough, which is not
        the same moment for all of them. Waiting for other processes of perdure's is not bounded."""
        assert self._blocked_since is not None
        blocked_since, latest = self._blocked_since, time.monotonic() - BUSY_SECONDS
        late = [item for item in batch if max(item.since, blocked_since) <= latest]
        self._finish(late, NOTHING, error)
        batch[:] = [item for item in batch if max(item.since, blocked_since) > latest and not item.future.cancelled()]

    def _finish(self, batch: list[Item[Any]], topics: int, error: BaseException | None = None) -> None:
        """Committed or failed: their callers are answered at the next opportunity."""
        if error is not None:
            self._fail(batch, error)
        self._done += batch
        self._done_topics |= topics

    def _fail(self, batch: list[Item[Any]], error: BaseException) -> None:
        for item in batch:
            item.error = translated(error, self._where) if isinstance(error, DRIVER_ERRORS) else error

    def _run(self, conn: sqlite3.Connection, batch: list[Item[Any]]) -> int:
        now = _now(conn)
        topics = NOTHING
        for group in groups_of(batch):
            before = conn.total_changes
            try:
                perform(conn, now, group)
            except PerdureError as error:
                if len(group) > 1 or conn.total_changes != before or not conn.in_transaction:
                    raise
                self._fail(group, error)  # it has changed no row
            if conn.total_changes != before:
                for each in group:
                    topics |= each.topics
        return topics

    def _answer_done(self) -> None:
        """Answer the callers whose items are committed or failed."""
        if self._done:
            done, topics = self._done, self._done_topics
            self._done, self._done_topics = [], NOTHING
            self._deliver(done, topics)

    def _deliver(self, batch: list[Item[Any]], topics: int) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[Item[Any]]] = {}
        for item in batch:
            loops.setdefault(item.loop, []).append(item)
        for loop, items in loops.items():
            _call(loop, answer, items)
        if topics:
            _call(self._loop, self._committed, topics)


def _short(batch: list[Item[Any]]) -> bool:
    """Whether its statements take a millisecond or two: then callers of the former one may be answered after them."""
    return (
        len(batch) <= CONTENDED_ITEMS
        and all(item.many is not None for item in batch)
        and sum(item.size for item in batch) <= SHORT_TEXT
    )


def _now(conn: sqlite3.Connection) -> int:
    try:
        now: int = conn.execute("select now from clock").fetchone()[0]
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return time.time_ns() // 1000  # no schema yet: only a migration gets any further
    return now


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[Any], None], argument: Any) -> None:
    with contextlib.suppress(RuntimeError):  # that loop is closed: nothing waits there any more
        loop.call_soon_threadsafe(callback, argument)
