"""Which calls share a write, and which writes are in flight together. What a write does is tested with the stores."""

import asyncio
import fcntl
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perdure.model.errors import LeaseLost, PerdureError, StoreUnreachable
from perdure.store.group_commit import batcher as batching
from perdure.store.group_commit.batcher import SECOND_WRITE_ITEMS, Batcher
from perdure.store.group_commit.limits import MOST_ITEMS, MOST_TEXT
from perdure.store.group_commit.retry import Failure, Writer
from perdure.store.open import open_store
from perdure.store.sqlite.engine.file_lock import LONGEST_PAUSE
from perdure.store.sqlite.engine.writer import CONTENDED_ITEMS
from perdure.store.sqlite.engine.writer import Writer as SqliteWriter
from tests.conformance.support import new_job


class Item(NamedTuple):
    """What is written: something of a subject, this long."""

    subject: Hashable
    size: int = 1


class Slow(Writer[Item, Item]):
    """Remembers what was written together."""

    connected = True

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.writes: list[list[Item]] = []
        self.subjects: set[Hashable] = set()
        self.seconds = seconds
        self.error = error

    async def write(self, items: Sequence[Item]) -> Sequence[Item]:
        self.writes.append(list(items))
        self.subjects = {item.subject for item in items}
        assert len(self.subjects) == len(items)
        await asyncio.sleep(self.seconds)
        self.subjects = set()
        if self.error is not None:
            raise self.error
        return items

    async def find_written(self, items: Sequence[Item]) -> Sequence[Item]:
        raise AssertionError(items)

    async def write_separately(self, item: Item) -> Item:
        raise AssertionError(item)

    def subject(self, item: Item) -> Hashable:
        return item.subject

    def size(self, item: Item) -> int:
        return item.size

    def failure(self, error: Exception) -> Failure:
        return Failure.OTHER

    def refusal(self, error: Exception) -> Exception:
        return error


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether writes pass for swift, whatever they take here."""

    def says(they_are: bool) -> None:
        monkeypatch.setattr(batching, "FAST_ITEM", 60.0 if they_are else -1.0)

    return says


async def in_step(batcher: Batcher[Item, Item], tasks: int, times: int) -> None:
    """So many tasks, each of which writes one item after the other."""

    async def one(subject: int) -> None:
        for _ in range(times):
            item = Item(subject)
            assert await batcher.submit(item) is item

    await asyncio.gather(*map(one, range(tasks)))


async def test_what_is_written_together_is_bounded_by_its_text() -> None:
    writer = Slow()
    batcher = Batcher(writer)
    items = [Item(n, size) for n, size in enumerate([1, MOST_TEXT * 2, *[MOST_TEXT // 3] * 7, 1, 1])]
    assert await asyncio.gather(*map(batcher.submit, items)) == items
    assert [item for write in writer.writes for item in write] == items, "in their order"
    assert all(len(write) == 1 or sum(item.size for item in write) <= MOST_TEXT for write in writer.writes)
    assert len(writer.writes) == 5


async def test_items_that_come_together_are_written_in_portions_of_limited_size() -> None:
    writer = Slow()
    batcher = Batcher(writer)
    items = [Item(n, MOST_TEXT // 3) for n in range(7)]
    assert await batcher.submit_many(items) == items
    assert len(writer.writes) > 1
    assert all(sum(item.size for item in write) <= MOST_TEXT for write in writer.writes)
    small = [Item(n) for n in range(7)]
    assert await batcher.submit_many(small) == small
    assert writer.writes[-1] == small


async def test_what_is_written_together_is_bounded_by_its_number() -> None:
    writer = Slow()
    batcher = Batcher(writer, limit=10)
    await in_step(batcher, 25, 1)
    assert [len(write) for write in writer.writes] == [10, 10, 5]


async def test_a_crowd_that_goes_in_step_keeps_two_writers_busy(swift: Callable[[bool], None]) -> None:
    swift(True)
    writers = Slow(0.001), Slow(0.001)
    await in_step(Batcher(*writers), 2 * SECOND_WRITE_ITEMS, 50)
    first, second = ([len(write) for write in writer.writes] for writer in writers)
    assert len(first) > 25
    assert len(second) > 25
    assert sum(first) + sum(second) == 2 * SECOND_WRITE_ITEMS * 50
    assert max(second) <= 2 * SECOND_WRITE_ITEMS - 1, "they share"


async def test_a_few_share_one_write(swift: Callable[[bool], None]) -> None:
    swift(True)
    writers = Slow(), Slow()
    await in_step(Batcher(*writers), SECOND_WRITE_ITEMS - 1, 20)
    assert [len(write) for write in writers[0].writes] == [SECOND_WRITE_ITEMS - 1] * 20
    assert writers[1].writes == []


async def test_slow_writes_are_not_split(swift: Callable[[bool], None]) -> None:
    """Where a commit takes long, two of half the size take twice as long."""
    swift(False)
    writers = Slow(0.001), Slow(0.001)
    await in_step(Batcher(*writers), 4 * SECOND_WRITE_ITEMS, 5)
    assert [len(write) for write in writers[0].writes] == [4 * SECOND_WRITE_ITEMS] * 5
    assert writers[1].writes == []


async def test_one_subject_is_in_flight_once(swift: Callable[[bool], None]) -> None:
    swift(True)
    one: list[Slow] = []

    class Watched(Slow):
        async def write(self, items: Sequence[Item]) -> Sequence[Item]:
            for other in one:
                assert other is self or not other.subjects & {item.subject for item in items}
            return await super().write(items)

    one += Watched(0.001), Watched(0.0005)
    batcher = Batcher(*one)
    await in_step(batcher, SECOND_WRITE_ITEMS, 2)  # both have taken off
    items = [Item(n % 20) for n in range(400)]
    assert await asyncio.gather(*map(batcher.submit, items)) == items
    assert sum(len(write) for writer in one for write in writer.writes) == 400 + 2 * SECOND_WRITE_ITEMS
    assert all(writer.writes for writer in one)


async def test_a_second_writer_that_fails_costs_its_own_callers_only(swift: Callable[[bool], None]) -> None:
    swift(True)
    first, second = Slow(0.001), Slow(0.001, StoreUnreachable("gone"))
    batcher = Batcher(first, second)
    await in_step(batcher, SECOND_WRITE_ITEMS, 1)
    answers = await asyncio.gather(
        *(batcher.submit(Item(n)) for n in range(2 * SECOND_WRITE_ITEMS)), return_exceptions=True
    )
    assert {type(answer) for answer in answers} == {Item, StoreUnreachable}
    await batcher.close()
    written = {item for write in first.writes[1:] for item in write}
    assert {answer for answer in answers if isinstance(answer, Item)} == written
    assert [len(write) for write in second.writes] == [SECOND_WRITE_ITEMS, 1]


async def test_no_caller_waits_for_the_second_connection(
    swift: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    swift(True)
    first, second = Slow(0.001), Slow(0.001)
    monkeypatch.setattr(Slow, "ready", property(lambda self: self.connected))
    second.connected = False
    asked: list[str] = []

    async def refused() -> None:
        asked.append("refused")
        raise ConnectionError("too many connections")

    async def connected() -> None:
        asked.append("connected")
        second.connected = True

    batcher = Batcher(first, second)
    monkeypatch.setattr(second, "connect", refused)
    await in_step(batcher, 2 * SECOND_WRITE_ITEMS, 20)
    assert asked == ["refused"], "not again and again"
    assert second.writes == []
    monkeypatch.setattr(second, "connect", connected)
    batcher = Batcher(first, second)
    await in_step(batcher, 2 * SECOND_WRITE_ITEMS, 20)
    assert asked == ["refused", "connected"]
    assert second.writes


async def test_a_disk_that_becomes_slow_grounds_the_second_writer(swift: Callable[[bool], None]) -> None:
    swift(True)
    writers = Slow(0.001), Slow(0.001)
    batcher = Batcher(*writers)
    await in_step(batcher, 4 * SECOND_WRITE_ITEMS, 5)
    before = len(writers[1].writes)
    assert before
    swift(False)
    await in_step(batcher, 4 * SECOND_WRITE_ITEMS, 20)
    assert len(writers[1].writes) <= before + 1


async def test_a_cancelled_write_leaves_no_caller_waiting() -> None:
    batcher = Batcher(Slow(60))
    callers = [asyncio.create_task(batcher.submit(Item(n % 2))) for n in range(4)]
    await asyncio.sleep(0.01)
    for task in list(batcher._writes.values()):
        task.cancel()
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*callers[:2], return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnreachable] * 2
    for caller in callers:
        caller.cancel()


async def test_a_write_that_is_cancelled_before_it_begins_does_not_keep_the_batcher_open() -> None:
    batcher = Batcher(Slow(60))
    caller = asyncio.create_task(batcher.submit(Item(1)))
    while not batcher._writes:
        await asyncio.sleep(0)
    for task in batcher._writes.values():
        task.cancel()
    async with asyncio.timeout(5):
        await batcher.close()
        with pytest.raises(StoreUnreachable):
            await caller


async def test_a_caller_that_is_gone_takes_back_what_is_not_in_flight() -> None:
    writer = Slow(0.001)
    batcher = Batcher(writer)
    first = asyncio.create_task(batcher.submit(Item("first")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.create_task(batcher.submit(Item("second")))
    await asyncio.sleep(0)
    second.cancel()
    await first
    await batcher.close()
    assert writer.writes == [[Item("first")]]


async def test_closing_writes_what_was_taken_on() -> None:
    writer = Slow(0.001)
    batcher = Batcher(writer, limit=2)
    tasks = [asyncio.create_task(batcher.submit(Item(n))) for n in range(5)]
    await asyncio.sleep(0)
    await batcher.close()
    assert [task.result() for task in tasks] == [Item(n) for n in range(5)]
    with pytest.raises(StoreUnreachable, match="closed"):
        await batcher.submit(Item("late"))


# The writer of a SQLite file ---------------------------------------------------------------------------------------------


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[SqliteWriter]:
    """One with a table of notes."""
    writer = SqliteWriter(str(tmp_path / "notes.db"), lambda topics: None)
    await writer.open()
    await writer.run(lambda conn, now: conn.execute("create table notes (text text)"))
    yield writer
    await writer.close()


@contextmanager
def held(writer: SqliteWriter) -> Iterator[None]:
    """Keeps the writer busy, so that what comes meanwhile goes into one transaction."""
    going, done = threading.Event(), threading.Event()

    def wait(conn: sqlite3.Connection, now: int) -> None:
        going.set()
        assert done.wait(10)

    writer.run(wait)
    assert going.wait(10)
    yield
    done.set()


def note(conn: sqlite3.Connection, now: int, texts: Sequence[str]) -> list[str]:
    """One row each; one that is empty spoils it for all."""
    for text in texts:
        conn.execute("insert into notes values (?)", (text,))
    if "" in texts:
        raise ValueError("empty")
    return list(texts)


def mark(conn: sqlite3.Connection, now: int) -> None:
    conn.execute("insert into notes values ('mark')")


def spoil(conn: sqlite3.Connection, now: int) -> None:
    mark(conn, now)
    raise LeaseLost("after it has written")


async def notes(writer: SqliteWriter) -> list[str]:
    return await writer.run(lambda conn, now: [row[0] for row in conn.execute("select text from notes order by rowid")])


async def test_a_call_that_fails_in_a_shared_transaction_fails_alone(writer: SqliteWriter) -> None:
    with held(writer):
        calls: list[asyncio.Future[Any]] = [
            writer.batch(note, "a"),
            writer.run(spoil),
            writer.batch(note, ""),
            writer.run(mark),
            writer.batch(note, "b"),
        ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [str, LeaseLost, ValueError, type(None), str]
    assert sorted(await notes(writer)) == ["a", "b", "mark"], "each once, and nothing of those that failed"


async def test_a_refusal_that_changed_nothing_costs_the_others_nothing(writer: SqliteWriter) -> None:
    runs: list[str] = []

    def counted(conn: sqlite3.Connection, now: int) -> None:
        runs.append("counted")
        mark(conn, now)

    def refused(conn: sqlite3.Connection, now: int) -> None:
        raise LeaseLost("seen before anything was written")

    with held(writer):
        calls = [writer.run(counted), writer.run(refused), writer.run(counted)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), LeaseLost, type(None)]
    assert runs == ["counted", "counted"], "nothing was done twice"


async def test_one_culprit_is_found_in_few_transactions(writer: SqliteWriter) -> None:
    begun: list[str] = []
    await writer.run(lambda conn, now: conn.set_trace_callback(begun.append))
    with held(writer):
        calls = [writer.batch(note, "" if n == 123 else str(n)) for n in range(256)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [n for n, result in enumerate(results) if not isinstance(result, str)] == [123]
    assert len(await notes(writer)) == 255
    assert begun.count("begin immediate") < 25, "not one for each"


async def test_a_database_out_of_reach_ends_the_search_for_a_culprit(
    writer: SqliteWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0
    begin = writer._begin

    def begin_twice(conn: sqlite3.Connection, batch: list[Any]) -> None:
        nonlocal begun
        begun += 1
        if begun > 2:
            raise sqlite3.OperationalError("disk I/O error")
        begin(conn, batch)

    with held(writer):
        monkeypatch.setattr(writer, "_begin", begin_twice)
        calls = [writer.batch(note, text) for text in ("a", "b", "", "c")]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results[:2] == ["a", "b"]
    assert all(isinstance(result, PerdureError) for result in results[2:])
    assert begun == 3, "no other caller waited for it"
    monkeypatch.undo()
    assert await notes(writer) == ["a", "b"]


async def test_an_answer_does_not_wait_for_a_lock_of_another_program(
    writer: SqliteWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_program = sqlite3.connect(tmp_path / "notes.db", isolation_level=None, check_same_thread=False)
    turns = 0
    lock = writer._file_lock.acquire

    def lock_and_lose(before_waiting: Callable[[], None]) -> None:
        nonlocal turns
        lock(before_waiting)
        turns += 1
        if turns == 2:
            other_program.execute("begin immediate")

    with held(writer):
        monkeypatch.setattr(writer._file_lock, "acquire", lock_and_lose)
        first = [writer.batch(note, str(n)) for n in range(MOST_ITEMS)]  # fills one
        second = writer.batch(note, "second")
    async with asyncio.timeout(3):
        await asyncio.gather(*first)
    assert not second.done()
    other_program.execute("rollback")
    other_program.close()
    assert await second == "second"


async def test_an_answer_does_not_wait_for_a_long_call_of_another(writer: SqliteWriter) -> None:
    done = threading.Event()

    def long(conn: sqlite3.Connection, now: int) -> None:
        assert done.wait(10)

    with held(writer):
        first = [writer.batch(note, str(n)) for n in range(MOST_ITEMS)]  # fills one
        second = writer.run(long)
    await asyncio.gather(*first)
    assert not second.done()
    done.set()
    await second


async def test_an_answer_comes_though_the_next_transaction_fails(writer: SqliteWriter) -> None:
    with held(writer):
        first = [writer.batch(note, str(n)) for n in range(MOST_ITEMS)]  # fills one
        second = writer.batch(note, "")
    assert await asyncio.gather(*first) == [str(n) for n in range(MOST_ITEMS)]
    with pytest.raises(ValueError, match="empty"):
        await second


# Several processes on one SQLite file -----------------------------------------------------------------------------------


async def test_who_wrote_a_lot_after_waiting_gives_way(
    fresh_store_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process gets the lock, so the one with little to write would lose to the others again and again."""
    url = fresh_store_url("sqlite")
    away: list[float] = []
    monkeypatch.setattr("perdure.store.sqlite.engine.writer.time.sleep", away.append)
    store = await open_store(url)
    try:
        await store.schema.migrate()
        with Path(url.removeprefix("sqlite:///") + "-lock").open() as lock:

            async def stored_after_others(jobs: int) -> None:
                fcntl.flock(lock, fcntl.LOCK_EX)  # another process has it
                async with asyncio.TaskGroup() as group:
                    writing = group.create_task(store.jobs.enqueue_many([new_job() for _ in range(jobs)]))
                    await asyncio.sleep(0.05)
                    assert not writing.done()
                    fcntl.flock(lock, fcntl.LOCK_UN)
                await store.jobs.enqueue(new_job())  # the writer is through with the former

            await stored_after_others(1)
            assert away == []
            await stored_after_others(CONTENDED_ITEMS)
            assert len(away) == 1
            assert 0 < away[0] <= LONGEST_PAUSE
            await store.jobs.enqueue_many([new_job() for _ in range(CONTENDED_ITEMS)])
            assert sum(away[1:]) == 0, "no other process had the lock"
    finally:
        await store.close()
