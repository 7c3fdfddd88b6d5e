"""`perdure db backup`."""

import os
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Perdure, spawned
from tests.cli.test_worker import APP, until
from tests.postgres_server import find_binaries

COPY = "sqlite:///copy.db"


def test_a_copy_is_whole_and_private(perdure: Perdure, place: Path) -> None:
    ids = [perdure.start("greet", "--input", '"ann"') for _ in range(3)]
    before = os.umask(0)
    try:
        assert perdure("db", "backup", "copy.db").out.startswith("wrote copy.db, ")
    finally:
        os.umask(before)
    assert Path("copy.db").stat().st_mode & 0o777 == 0o600
    assert [p.name for p in place.iterdir() if "copy" in p.name] == ["copy.db"]
    perdure("worker", "start", *APP, "--once")
    assert perdure("jobs", "ls", "--db", COPY, "--status", "pending", "-o", "id").lines == ids[::-1]
    perdure("fsck", "--db", COPY)
    perdure("worker", "start", *APP, "--once", "--db", COPY)
    assert perdure("jobs", "count", "--db", COPY, "--json").json == {"COMPLETED": 3}


def test_while_workers_write(perdure: Perdure) -> None:
    perdure("jobs", "start", "naps", "--delay", "1h")
    with spawned("worker", "start", *APP):
        until(lambda: perdure("worker", "status", "-o", "id").lines)
        for number in range(5):
            for _ in range(5):
                perdure.start("greet", "--input", '"ann"')
            perdure("db", "backup", f"copy{number}.db")
            perdure("fsck", "--db", f"sqlite:///copy{number}.db")
            counted = perdure("jobs", "count", "--db", f"sqlite:///copy{number}.db", "--json").json
            assert sum(counted.values()) == 1 + 5 * (number + 1), "all that was acknowledged before"


def test_a_file_that_is_there_stays(perdure: Perdure, place: Path) -> None:
    perdure.start("naps")
    Path("copy.db").write_text("mine")
    done = perdure("db", "backup", "copy.db", code=2)
    assert "copy.db exists already" in done.err
    assert Path("copy.db").read_text() == "mine"
    shown = perdure("db", "backup", "copy.db", "--overwrite", "--json").json
    assert shown == {"file": "copy.db", "bytes": Path("copy.db").stat().st_size}
    assert len(perdure("jobs", "ls", "--db", COPY, "-o", "id").lines) == 1


@pytest.mark.parametrize("target", ["perdure.db", "./perdure.db", "link.db", "perdure.db-lock", "perdure.db-wal"])
def test_the_database_itself_is_not_overwritten(perdure: Perdure, place: Path, target: str) -> None:
    perdure.start("naps")
    Path("link.db").symlink_to("perdure.db")
    with closing(sqlite3.connect("perdure.db")) as conn:
        conn.execute("select count(*) from jobs").fetchone()  # so that there is a perdure.db-wal
        done = perdure("db", "backup", target, "--overwrite", code=2)
    assert "is the database itself, or a part of it" in done.err
    assert len(perdure("jobs", "ls", "-o", "id").lines) == 1


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nowhere/copy.db", "cannot be written to"),
        (".", "is a directory"),
        ("/dev/null", "or a device"),
        ("old.db", "old.db-wal exists"),
        ("", "FILE is empty"),
    ],
)
def test_places_that_cannot_be(perdure: Perdure, place: Path, target: str, says: str) -> None:
    perdure.start("naps")
    Path("old.db-wal").write_text("of another database")
    assert says in perdure("db", "backup", target, "--overwrite", code=None).err
    assert not list(place.glob(".*partial*"))
    assert Path("/dev/null").is_char_device()


def test_where_there_is_no_database(perdure: Perdure, place: Path) -> None:
    assert "there is no database at perdure.db" in perdure("db", "backup", "copy.db", code=10).err
    assert not list(place.glob("*.db"))


def test_a_database_of_another_version(perdure: Perdure) -> None:
    """A backup is what is asked for before an upgrade, maybe by the newer perdure."""
    perdure.start("naps")
    with closing(sqlite3.connect("perdure.db")) as conn, conn:
        conn.execute("update schema_migrations set checksum = 'other'")
    assert "migration-changed" in perdure("jobs", "ls", code=1).err
    perdure("db", "backup", "copy.db")
    with closing(sqlite3.connect("copy.db")) as conn:
        assert conn.execute("select count(*) from jobs").fetchone() == (1,)


def test_for_postgres_it_names_pg_dump(perdure: Perdure, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that it names makes a backup."""
    perdure("db", "migrate", "--db", postgres_url)
    done = perdure("db", "backup", "my copy", "--db", postgres_url, code=2)
    [command] = re.findall(r"pg_dump .*?(?=  \[)", done.err)
    assert "postgresql:" not in command, "the URL has a password"
    monkeypatch.setenv("PERDURE_DATABASE_URL", postgres_url)
    monkeypatch.setenv("PATH", f"{find_binaries()}:{os.environ['PATH']}")
    subprocess.run(["/bin/sh", "-c", command], check=True, timeout=60)
    assert Path("my copy").stat().st_size > 1000
