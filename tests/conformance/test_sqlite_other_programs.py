"""Another program writes to the SQLite file: with a connection of its own, and without perdure's lock file."""

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.model.errors import PerdureError, StoreUnreachable
from perdure.model.jobs import JobFilter, NewJob
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.support import new_job

SHORT = 1.0
"""Seconds to wait; the default of five would make the test slow."""

MOST_ITEMS = 20
"""What one write holds in a test of several; as many callers as it takes by default would keep a busy machine occupied."""

MARGIN = 3.5
"""Seconds that a busy machine may take longer than it should; callers that wait one after another would take longer."""

CALLER = """
import sys, time
from perdure.model.errors import StoreUnreachable
from perdure.sync import Client
with Client(sys.argv[1]) as client:
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.monotonic()
        try:
            client.enqueue("ship", line.strip())
        except StoreUnreachable:
            print("refused", time.monotonic() - began, flush=True)
        else:
            print("enqueued", time.monotonic() - began, flush=True)
"""


class Caller:
    """A process that enqueues a job for each line it is sent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str) -> "Caller":
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", CALLER, url, stdin=pipe, stdout=pipe)
        caller = cls(process)
        assert await caller._line() == "ready"
        return caller

    async def enqueue(self, payload: str) -> tuple[str, float]:
        """What became of it, and after how many seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{payload}\n".encode())
        word, seconds = (await self._line()).split()
        return word, float(seconds)

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await self._process.wait() == 0

    async def _line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[Store]:
    store = await open_store(f"sqlite:///{file}")
    await store.schema.migrate()
    yield store
    await store.close()


@pytest.fixture
def other_program(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file, isolation_level=None)) as other_program:
        yield other_program


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("connection", "driver_errors", "existing_file", "writer"):
        monkeypatch.setattr(f"perdure.store.sqlite.engine.{module}.BUSY_SECONDS", SHORT)


@pytest.fixture
def small_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.store.sqlite.engine.writer.MOST_ITEMS", MOST_ITEMS)


async def seconds_of(store: Store, job: NewJob) -> float:
    """How long it takes until this is refused."""
    began = time.monotonic()
    with pytest.raises(StoreUnreachable, match="locked by another program for more than"):
        await store.jobs.enqueue(job)
    return time.monotonic() - began


async def payloads(store: Store) -> list[object]:
    return sorted([job.payload for job in (await store.jobs.list_jobs(JobFilter(), limit=100)).items])


async def test_several_processes_wait_for_it_at_once(
    file: Path, store: Store, other_program: sqlite3.Connection
) -> None:
    callers = [await Caller.start(f"sqlite:///{file}") for _ in range(3)]
    other_program.execute("begin immediate")
    answers = await asyncio.gather(*(caller.enqueue(f"never {n}") for n, caller in enumerate(callers)))
    assert [word for word, _ in answers] == ["refused"] * 3
    assert all(4.5 < seconds < 5 + 2 * MARGIN for _, seconds in answers), answers

    waiting = [asyncio.create_task(caller.enqueue(f"{n}")) for n, caller in enumerate(callers)]
    await asyncio.sleep(1)
    assert not any(task.done() for task in waiting)
    other_program.execute("rollback")
    assert [word for word, _ in await asyncio.gather(*waiting)] == ["enqueued"] * 3
    assert await payloads(store) == ["0", "1", "2"], "once each, and nothing that was refused"
    await asyncio.gather(*(caller.end() for caller in callers))


@pytest.mark.usefixtures("short_timeout", "small_writes")
async def test_each_caller_has_a_timeout_of_its_own(store: Store, other_program: sqlite3.Connection) -> None:
    other_program.execute("begin immediate")
    took = []
    for _ in range(6):
        took += [asyncio.create_task(seconds_of(store, new_job())) for _ in range(MOST_ITEMS)]
        await asyncio.sleep(SHORT / 6)
    seconds = await asyncio.gather(*took)
    assert min(seconds) >= SHORT
    assert max(seconds) < SHORT + MARGIN, "no call first waits for those before it"
    other_program.execute("rollback")
    await store.jobs.enqueue(new_job())
    assert len(await payloads(store)) == 1


@pytest.mark.usefixtures("short_timeout")
async def test_a_caller_with_time_left_is_written_when_the_lock_is_free(
    store: Store, other_program: sqlite3.Connection
) -> None:
    other_program.execute("begin immediate")
    early = [asyncio.create_task(store.jobs.enqueue(new_job(payload=f"{n}"))) for n in range(3)]
    await asyncio.sleep(SHORT * 0.8)
    late = [asyncio.create_task(store.jobs.enqueue(new_job(payload=f"{n}"))) for n in range(3, 6)]
    refused = await asyncio.gather(*early, return_exceptions=True)
    assert all(isinstance(error, StoreUnreachable) for error in refused)
    other_program.execute("rollback")
    await asyncio.gather(*late)
    assert await payloads(store) == [3, 4, 5]


async def test_a_caller_that_is_cancelled_meanwhile_is_not_written(
    store: Store, other_program: sqlite3.Connection
) -> None:
    other_program.execute("begin immediate")
    waiting = [asyncio.create_task(store.jobs.enqueue(new_job(payload=f"{n}"))) for n in range(3)]
    await asyncio.sleep(0.2)
    waiting[1].cancel()
    await asyncio.sleep(0.2)
    other_program.execute("rollback")
    await asyncio.gather(waiting[0], waiting[2])
    assert await payloads(store) == [0, 2]


@pytest.mark.usefixtures("short_timeout", "small_writes")
async def test_closing_waits_no_longer_than_the_callers(store: Store, other_program: sqlite3.Connection) -> None:
    other_program.execute("begin immediate")
    waiting = [asyncio.create_task(store.jobs.enqueue(new_job())) for _ in range(MOST_ITEMS * 5)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(SHORT + MARGIN):
        await store.close()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(answer, PerdureError) for answer in answers)


@pytest.mark.usefixtures("short_timeout")
@pytest.mark.parametrize("lock", ["immediate", "exclusive"])
async def test_a_file_that_is_not_yet_shared_is_waited_for_too(
    file: Path, other_program: sqlite3.Connection, lock: str
) -> None:
    other_program.execute("create table his (own)")
    other_program.execute(f"begin {lock}")

    async def seconds() -> float:
        began = time.monotonic()
        with pytest.raises(StoreUnreachable, match="locked by another program"):
            await open_store(f"sqlite:///{file}")
        return time.monotonic() - began

    assert all(SHORT <= took < SHORT + MARGIN for took in await asyncio.gather(seconds(), seconds(), seconds()))
    opening = [asyncio.create_task(open_store(f"sqlite:///{file}")) for _ in range(3)]
    await asyncio.sleep(SHORT / 4)
    other_program.execute("rollback")
    for store in await asyncio.gather(*opening):
        await store.close()
