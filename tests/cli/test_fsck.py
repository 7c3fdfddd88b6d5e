"""`perdure fsck`: one line per fault, repairs where asked, and exit codes that a script can go by."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.store.open import open_store
from tests.cli.conftest import Perdure, program
from tests.conformance.healthy_jobs import stronger
from tests.conformance.sql_shell import open_shell
from tests.postgres_server import run_apart


async def damage(url: str, *statements: str) -> None:
    async with open_shell(url) as shell, stronger(shell):
        for statement in statements:
            await shell.run(statement)


@pytest.fixture
def hurt(anywhere: Perdure, file_store_url: str) -> tuple[str, str]:
    """A job that is not in the queue, and one whose row is not what its log says."""
    queued = anywhere.start("greet", "--input", '"ann"', "--delay", "1h")
    ended = anywhere.ran("dies")
    run_apart(damage(file_store_url, "delete from job_queue", "update jobs set version = 9 where kind = 'dies'"))
    return queued, ended


def test_a_database_in_order(anywhere: Perdure) -> None:
    anywhere("db", "migrate")
    for kind in ("greet", "naps", "asks"):
        anywhere.ran(kind, *(["--input", '"ann"'] if kind != "naps" else []))
    done = anywhere("fsck")
    assert done.out == ""
    assert "3 jobs examined: no faults" in done.err
    assert anywhere("fsck", "--fix", "-q").err == ""
    assert anywhere("fsck", "--json").json == {"ok": True, "jobs": 3, "faults": 0, "fixed": 0, "items": []}
    assert anywhere("fsck", "-o", "jsonl").out == anywhere("fsck", "-o", "id").out == ""


def test_each_fault_is_one_line(anywhere: Perdure, hurt: tuple[str, str]) -> None:
    queued, ended = hurt
    done = anywhere("fsck", code=1)
    assert done.lines == [
        f"fault queue-missing    {queued[-8:]}  it is PENDING and not in the queue: it would never start",
        f"fault row-version      {ended[-8:]}  the row is at version 9, its log at 3",
    ]
    assert "2 jobs examined: 2 faults, 0 fixed" in done.err
    assert "1 can be fixed: perdure fsck --fix" in done.err
    assert re.search(r"row-version: Nothing of this job is changed.*perdure jobs events ID", done.err)
    assert "queue-missing: " not in done.err, "that one is repaired"


def test_what_is_safe_is_repaired(anywhere: Perdure, hurt: tuple[str, str]) -> None:
    queued, ended = hurt
    done = anywhere("fsck", "--fix", code=1)
    assert [line[:37] for line in done.lines] == [
        f"fixed queue-missing    {queued[-8:]}  it is"[:37],
        f"fault row-version      {ended[-8:]}  the "[:37],
    ]
    assert "2 faults, 1 fixed" in done.err
    assert "can be repaired" not in done.err
    assert anywhere("fsck", code=1).lines == done.lines[1:]
    anywhere("jobs", "retry-now", queued)
    anywhere.work()
    assert anywhere("jobs", "get", queued, "--json").only["status"] == "COMPLETED"


def test_all_repaired_is_all_well(anywhere: Perdure, file_store_url: str) -> None:
    anywhere.start("naps")
    run_apart(damage(file_store_url, "delete from job_queue"))
    assert anywhere("fsck", code=1).code == 1
    assert anywhere("fsck", "--fix").lines[0].startswith("fixed queue-missing")
    assert anywhere("fsck").out == ""


def test_for_programs(anywhere: Perdure, hurt: tuple[str, str]) -> None:
    queued, ended = hurt
    lines = [json.loads(line) for line in anywhere("fsck", "-o", "jsonl", code=1).lines]
    assert lines[0] == {
        "code": "queue-missing",
        "job_id": queued,
        "text": "it is PENDING and not in the queue: it would never start",
        "fixable": True,
        "fixed": False,
        "note": False,
    }
    assert anywhere("fsck", "-o", "jsonl", "--fields", "code,fixed", code=1).lines[1] == (
        '{"code": "row-version", "fixed": false}'
    )
    assert anywhere("fsck", "-o", "id", code=1).lines == [queued, ended]
    assert anywhere("fsck", "-o", "none", code=1).out == ""
    facts = anywhere("fsck", "--fix", "-o", "json", code=1).json
    assert [(item["code"], item["fixed"]) for item in facts.pop("items")] == [
        ("queue-missing", True),
        ("row-version", False),
    ]
    assert facts == {"ok": False, "jobs": 2, "faults": 2, "fixed": 1}


def test_a_note_is_no_fault(anywhere: Perdure, file_store_url: str) -> None:
    id = anywhere.start("naps")
    run_apart(hold(file_store_url))
    done = anywhere("fsck")
    assert re.fullmatch(rf"note  lease-overdue    {id[-8:]}  the lease of gone ran out .* UTC\n", done.out)
    assert "lease-overdue: Start a worker" in done.err
    assert "1 job examined: no faults" in done.err
    assert anywhere("fsck", "--json").json["ok"] is True


async def hold(url: str) -> None:
    """A worker that went away an hour ago."""
    store = await open_store(url)
    await store.leases.claim(worker_id="gone", queue="default", kinds={"naps": 3}, limit=1, ttl=60)
    await store.close()
    async with open_shell(url) as shell:
        await shell.run(f"update job_claims set expires_at = {shell.ago(3600)}")


def test_no_stored_text_can_control_the_terminal(perdure: Perdure) -> None:
    id = perdure.start("naps")
    perdure.work()
    evil = "'x\x1b[2J' || char(10) || 'y'"
    statement = f"update job_waits set key = {evil}"
    run_apart(damage("sqlite:///perdure.db", statement))
    done = perdure("fsck", code=1)
    assert all(line.startswith("fault wait-") and id[-8:] in line for line in done.lines)
    assert "\x1b" not in done.out
    assert r"'x\x1b[2J y'" in done.out


class TestPlaces:
    """For databases that are not perdure's it says so, and does not change them."""

    def test_no_file(self, perdure: Perdure, place: Path) -> None:
        done = perdure("fsck", "--fix", code=10)
        assert "there is no database at" in done.err
        assert not (place / "perdure.db").exists()

    def test_a_file_of_another_program(self, perdure: Perdure, place: Path) -> None:
        with closing(sqlite3.connect("theirs.db")) as connection:
            connection.execute("create table orders (id integer)")
        before = (place / "theirs.db").read_bytes()
        for more in ((), ("--app", "agents:app")):
            done = perdure("fsck", "--fix", "--db", "sqlite:///theirs.db", *more, code=1)
            assert "is not perdure's: it has tables (orders), and no perdure schema" in done.err
            assert "[perdure help foreign-database]" in done.err
        assert (place / "theirs.db").read_bytes() == before
        assert [path.name for path in place.glob("theirs*")] == ["theirs.db"]

    def test_no_schema(self, perdure: Perdure, place: Path) -> None:
        (place / "empty.db").touch()
        assert "[perdure help schema-missing]" in perdure("fsck", "--db", "sqlite:///empty.db", code=1).err
        assert (place / "empty.db").read_bytes() == b""

    def test_a_newer_schema(self, anywhere: Perdure, file_store_url: str) -> None:
        anywhere("db", "migrate")
        newer = (
            "insert into schema_migrations (number, name, checksum, applied_at) select 999, name, checksum, applied_at"
        )
        run_apart(damage(file_store_url, f"{newer} from schema_migrations where number = 1"))
        assert "[perdure help schema-too-new]" in anywhere("fsck", "--fix", code=1).err

    def test_the_database_does_not_answer(self, perdure: Perdure) -> None:
        assert perdure("fsck", "--db", "postgresql://nobody@127.0.0.1:1/x", code=10).out == ""

    def test_the_real_program(self, perdure: Perdure) -> None:
        for _ in range(3):
            perdure.start("naps")
        run_apart(damage("sqlite:///perdure.db", "delete from job_queue"))
        done = program("fsck", "-o", "jsonl")
        assert (done.code, len(done.lines)) == (1, 3)
