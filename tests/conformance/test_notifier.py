"""How processes that share a database notify each other, and what is left of it on SQLite when they are gone."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.store.open import open_store
from perdure.store.postgres.hints import notifier as postgres_notifier
from perdure.store.protocol import Store
from perdure.store.sqlite.hints import notifier as sqlite_notifier
from tests.conformance.support import new_job

COMES_AND_GOES = """
import asyncio, glob, os, sys, tempfile
from perdure.store.sqlite.hints.notifier import Notifier

async def main():
    for _ in range(500):
        notifier = Notifier(sys.argv[1], lambda topic: None)
        notifier.start_listening()
        assert glob.glob(f"{tempfile.gettempdir()}/perdure-*/*/{os.getpid()}-*"), "no process can send a hint here"
        notifier.close()

asyncio.run(main())
"""

STAYS = """
import asyncio, sys
from perdure.store.open import open_store

async def main():
    store = await open_store(sys.argv[1])
    await store.schema.migrate()
    async with store.hints.listen("work"):
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files with a short name, as sockets need; for child processes too."""
    place = Path(tempfile.mkdtemp())
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    yield place
    shutil.rmtree(place)


def left(place: Path) -> list[Path]:
    """Directories and sockets."""
    return list(place.glob("perdure-*/*")) + list(place.glob("perdure-*/*/*"))


async def start(program: str, argument: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", program, argument, stdout=subprocess.PIPE)


async def test_nothing_is_left_of_a_store_that_listened(place: Path, tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/perdure.db")
    async with store.hints.listen("work"), store.hints.listen("news"):
        directory, socket = left(place)
        assert socket.is_socket()
    await store.close()
    assert left(place) == []
    assert directory.parent.is_dir(), "which is for all files"


async def test_a_store_that_stays_is_notified_by_one_that_came_and_went(place: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/perdure.db"
    one = await open_store(url)
    await one.schema.migrate()
    async with one.hints.listen("work") as listener:
        other = await open_store(url)
        async with other.hints.listen("work"):
            pass
        await other.jobs.enqueue(new_job())
        assert await listener.wait(10)
        await other.close()
        assert len(left(place)) == 2
    await one.close()
    assert left(place) == []


async def test_processes_that_come_while_others_go_find_a_directory(place: Path, tmp_path: Path) -> None:
    processes = [await start(COMES_AND_GOES, f"{tmp_path}/perdure.db") for _ in range(4)]
    assert [await process.wait() for process in processes] == [0] * 4
    assert left(place) == []


async def test_what_a_killed_process_leaves_is_removed_by_the_next_that_writes(place: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/perdure.db"
    process = await start(STAYS, url)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    assert len(left(place)) == 2
    store = await open_store(url)
    await store.jobs.enqueue(new_job())
    await store.close()
    assert left(place) == []


async def test_a_hint_of_work_does_not_wait_for_one_of_news(
    monkeypatch: pytest.MonkeyPatch, file_store: Store, twin: Store
) -> None:
    for intervals in (postgres_notifier.INTERVAL, sqlite_notifier.INTERVAL):
        monkeypatch.setitem(intervals, "news", 60.0)
    async with twin.hints.listen("work") as work:
        for _ in range(20):  # each is a hint of work and one of news, which waits from the second one on
            await file_store.jobs.enqueue(new_job())
            assert await work.wait(10), "within seconds, though no hint of news is sent for a minute"
