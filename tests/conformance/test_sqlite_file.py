"""The files of a SQLite database among other programs, which may read, lock, copy, delete or replace them."""

import asyncio
import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from perdure.model.errors import FileReplaced, StoreUnreachable
from perdure.store.open import open_store
from perdure.store.protocol import Store
from perdure.store.sqlite.engine import file_lock, writer
from tests.conformance.support import new_job

BOUND = 1.0
"""Seconds to wait for the lock file; the default of five would make the tests slow."""
MARGIN = 5.0
"""Seconds that a busy machine may take longer."""

HOLDER = """
import fcntl, os, sys, time
file = os.open(sys.argv[1] + "-lock", os.O_RDWR)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""

WRITER = """
import sqlite3, sys, time
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("begin immediate")
print("held", flush=True)
time.sleep(600)
"""

OTHER = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1])
print(conn.execute("select count(*) from jobs").fetchone()[0])
conn.close()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[Store]:
    async with opened(file) as store:
        yield store


@asynccontextmanager
async def opened(file: Path) -> AsyncIterator[Store]:
    store = await open_store(f"sqlite:///{file}")
    await store.schema.migrate()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def process(program: str, file: Path) -> Iterator["subprocess.Popen[str]"]:
    child = subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]  # see above


def count(file: Path) -> int:
    """Jobs, as another process finds them: it opens the file and closes it again."""
    return int(
        subprocess.run([sys.executable, "-c", OTHER, str(file)], capture_output=True, text=True, check=True).stdout
    )


async def seconds_of_an_enqueue(store: Store) -> float:
    began = time.monotonic()
    await store.jobs.enqueue(new_job())
    return time.monotonic() - began


# --- who holds the lock file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_lock_file_that_is_held_for_long_is_done_without(
    store: Store, file: Path, stopped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(file_lock, "LONGEST_WAIT", BOUND)
    with process(HOLDER, file) as holder:
        if stopped:
            holder.send_signal(signal.SIGSTOP)
        assert BOUND / 2 < await seconds_of_an_enqueue(store) < BOUND + MARGIN
        assert await seconds_of_an_enqueue(store) < BOUND, "the first caller has waited for all"
        printed = capsys.readouterr().out
        if sys.platform == "linux":
            assert f"process {holder.pid} (" in printed
            assert ("stopped)" in printed) is stopped
    await asyncio.sleep(0.1)
    assert await seconds_of_an_enqueue(store) < BOUND
    assert "free again" in capsys.readouterr().out
    assert count(file) == 3


async def test_a_process_that_opens_the_file_meanwhile_does_without_too(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "LONGEST_WAIT", BOUND)
    with process(HOLDER, file):
        async with opened(file) as other:
            assert await seconds_of_an_enqueue(other) < BOUND + MARGIN
        assert await seconds_of_an_enqueue(store) < BOUND + MARGIN
    assert count(file) == 2


async def test_closing_does_not_wait_for_a_lock_that_is_held(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "LONGEST_WAIT", BOUND)
    async with opened(file) as store:
        with process(HOLDER, file):
            written = asyncio.ensure_future(store.jobs.enqueue(new_job()))
            await asyncio.sleep(0)
            await asyncio.wait_for(store.close(), BOUND + MARGIN)
            assert (await written).created
    assert count(file) == 1


async def test_a_child_does_not_inherit_the_lock(store: Store, file: Path) -> None:
    await store.jobs.enqueue(new_job())
    child = multiprocessing.get_context("fork").Process(target=_held_by_a_child, args=(str(file),))
    child.start()
    child.join()
    assert child.exitcode == 0


def _held_by_a_child(path: str) -> None:
    """Ends with 1 if this process, forked from one that has the database open, has a descriptor of its lock file."""
    wanted = Path(path + "-lock").stat().st_ino
    found = []
    for descriptor in range(256):
        try:
            found.append(os.fstat(descriptor).st_ino == wanted)
        except OSError:
            continue
    os._exit(int(any(found)))


async def test_who_keeps_the_database_locked_is_named(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUSY_SECONDS", BOUND)
    with process(WRITER, file) as holder, pytest.raises(StoreUnreachable) as refused:
        await store.jobs.enqueue(new_job())
    assert "is locked by" in refused.value.message
    if sys.platform == "linux":
        assert f"process {holder.pid} (" in refused.value.message


async def test_a_file_system_without_locks_is_used_without(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    async with opened(file) as store:
        await store.jobs.enqueue(new_job())
        await store.jobs.enqueue(new_job())
    assert capsys.readouterr().out.count("gives no lock") == 1
    assert count(file) == 2


# --- who may read them ---------------------------------------------------------------------------------------------------


def modes(file: Path) -> dict[str, int]:
    return {found.name: stat.S_IMODE(found.stat().st_mode) for found in file.parent.iterdir()}


async def test_a_new_database_is_private(file: Path) -> None:
    before = os.umask(0)
    try:
        async with opened(file) as store:
            await store.jobs.enqueue(new_job())
            found = modes(file)
    finally:
        os.umask(before)
    assert found == dict.fromkeys(["perdure.db", "perdure.db-lock", "perdure.db-shm", "perdure.db-wal"], 0o600)


async def test_the_rights_of_the_database_are_those_of_its_other_files(store: Store, file: Path) -> None:
    file.chmod(0o660)
    async with opened(file) as other:
        await other.jobs.enqueue(new_job())
        assert set(modes(file).values()) == {0o660}


# --- who copies, deletes or replaces them --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["perdure.db", "perdure.db-wal", "perdure.db-shm"])
async def test_a_copy_made_in_the_process_loses_no_job(store: Store, file: Path, tmp_path: Path, name: str) -> None:
    number = 0
    for turn in range(3):
        await store.jobs.enqueue(new_job())
        shutil.copy(file.with_name(name), tmp_path / f"copy-{turn}")  # opens and closes it: its POSIX locks are gone
        number += 1
        assert count(file) == number, "a process that closes the database"
        await store.jobs.enqueue(new_job())
        number += 1
        assert count(file) == number, "what was acknowledged after that"


@pytest.mark.parametrize("change", ["delete", "delete wal", "replace", "move"])
async def test_a_file_that_is_gone_is_noticed_by_the_next_write(file: Path, tmp_path: Path, change: str) -> None:
    async with opened(file) as store:
        await store.jobs.enqueue(new_job())
        if change == "delete":
            file.unlink()
        elif change == "delete wal":
            file.with_name(file.name + "-wal").unlink()
        elif change == "move":
            file.rename(tmp_path / "elsewhere")
        else:
            with closing(sqlite3.connect(file)) as source:
                source.execute("vacuum into ?", (str(tmp_path / "copy"),))
            (tmp_path / "copy").replace(file)
        for _ in range(2):
            with pytest.raises(FileReplaced, match=r"perdure\.db"):
                await store.jobs.enqueue(new_job())


async def test_the_log_file_is_removed_by_the_last_to_close(file: Path) -> None:
    async with opened(file) as store, opened(file) as other:
        await store.jobs.enqueue(new_job())
        await other.jobs.enqueue(new_job())
    assert sorted(modes(file)) == ["perdure.db", "perdure.db-lock"]
    assert count(file) == 2


async def test_no_descriptor_is_left_open(file: Path) -> None:
    async def once() -> int:
        async with opened(file) as store:
            await store.jobs.enqueue(new_job())
        return len(list(Path("/dev/fd").iterdir()))

    assert await once() == await once()
