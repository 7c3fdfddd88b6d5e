"""`perdure db`, `config` and `doctor`."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from perdure.model.ids import uuid7
from tests.cli.conftest import Perdure, spawned
from tests.cli.test_worker import until
from tests.postgres_server import PostgresServer, run_apart

APP = ("--app", "agents:app")


@pytest.fixture
def bare_url(postgres: PostgresServer) -> str:
    """A PostgreSQL database without our schema."""
    name = "perdure_doors_bare"
    postgres.drop_database(name)
    return postgres.create_database(name)


async def execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


class TestStatus:
    """db status."""

    def test_a_schema_that_fits(self, anywhere: Perdure) -> None:
        anywhere("db", "migrate")
        done = anywhere("db", "status")
        assert "✓ ok" in done.out
        assert "0001 core  applied" in done.out
        facts = anywhere("db", "status", "--json").json
        assert facts["verdict"] == "ok"
        assert facts["schema"] == facts["needed"] == len(facts["migrations"])

    def test_the_room_that_tables_take(self, anywhere: Perdure) -> None:
        anywhere.ran("greet", "--input", '"ann"')
        page = anywhere("db", "status").out
        assert re.search(r"^size +\d+\.\d [KM]iB", page, re.MULTILINE)
        assert re.search(r"^jobs +~?\d+ ", page, re.MULTILINE)
        assert "jobs_kind" not in page
        assert "└ jobs_kind" in anywhere("db", "status", "-o", "wide").out
        sizes = anywhere("db", "status", "--json").json["sizes"]
        jobs = next(t for t in sizes["tables"] if t["name"] == "jobs")
        assert jobs["bytes"] > 0
        assert jobs["index_bytes"] == sum(i["bytes"] for i in jobs["indexes"]) > 0
        assert sizes["total_bytes"] >= sum(t["bytes"] + t["index_bytes"] for t in sizes["tables"])

    def test_no_database_yet(self, perdure: Perdure, place: Path) -> None:
        done = perdure("db", "status", code=1)
        assert "there is no database at perdure.db yet" in done.err
        assert "✕ missing" in done.out
        assert not (place / "perdure.db").exists()

    def test_no_schema_yet(self, perdure: Perdure, bare_url: str) -> None:
        assert perdure("db", "status", "--db", bare_url, "--json", code=1).json["verdict"] == "missing"
        done = perdure("jobs", "ls", "--db", bare_url, code=1)
        assert "[perdure help schema-missing]" in done.err
        assert "perdure db migrate" in done.err

    def test_a_password_is_not_shown(self, perdure: Perdure) -> None:
        url = "postgresql://ann:s3cret@127.0.0.1:1/x"
        assert "s3cret" not in perdure("db", "status", "--db", url, code=10).err
        assert "ann:***@" in perdure("config", "get", "database_url", "--db", url).out
        assert "s3cret" not in perdure("config", "ls", "--db", url, "--json").out
        assert "s3cret" not in perdure("doctor", "--db", url, code=1).out


class TestMigrate:
    """db migrate."""

    def test_once_is_enough(self, perdure: Perdure, bare_url: str) -> None:
        for url in ("sqlite:///new.db", bare_url):
            assert "applied 0001 core" in perdure("db", "migrate", "--db", url).out
            done = perdure("db", "migrate", "--db", url)
            assert done.out == ""
            assert "nothing to do" in done.err
            assert perdure("db", "migrate", "--db", url, "--json").json["items"] == []

    def test_dumping_needs_no_database(self, perdure: Perdure, place: Path) -> None:
        assert (
            "-- migration 0001 core"
            in perdure("db", "migrate", "--dump-sql", "--db", "postgresql://x@127.0.0.1:1/x").out
        )
        assert "-- migration 0001 core" in perdure("db", "migrate", "--dump-sql").out
        assert not (place / "perdure.db").exists()
        items = perdure("db", "migrate", "--dump-sql", "--db", "postgresql://", "--json").json["items"]
        assert items[0]["name"] == "core"
        assert "is no kind of database" in perdure("db", "migrate", "--dump-sql", "--db", "mysql://", code=2).err

    def test_the_dump_does_what_migrate_does(self, perdure: Perdure, bare_url: str) -> None:
        with closing(sqlite3.connect("dumped.db")) as connection:
            connection.executescript(perdure("db", "migrate", "--dump-sql").out)
        run_apart(execute(bare_url, perdure("db", "migrate", "--dump-sql", "--db", bare_url).out))
        for url in ("sqlite:///dumped.db", bare_url):
            assert perdure("db", "status", "--db", url, "--json").json["verdict"] == "ok"
            assert perdure("db", "migrate", "--db", url).out == ""
            perdure("jobs", "start", "x", "--db", url)


class TestPrune:
    """db prune."""

    def test_old_ends_are_deleted(self, anywhere: Perdure) -> None:
        done_id = anywhere.ran("greet", "--input", '"ann"')
        failed = anywhere.ran("fails")
        live = anywhere.start("naps")
        assert anywhere("db", "prune", "--older-than", "30d").out == (
            "nothing to prune: no job that matches ended more than 30d ago\n"
        )
        assert anywhere("db", "prune", "--older-than", "0s", "--dry-run").out == "2 jobs would be deleted\n"
        assert "Delete 2 jobs" in anywhere("db", "prune", "--older-than", "0s", code=2).err
        assert "add --yes" in anywhere("db", "prune", "--older-than", "0s", "--no-input", code=2).err
        assert anywhere("db", "prune", "--older-than", "0s", "--status", "failed", "-y").out == "1 job deleted\n"
        anywhere("jobs", "get", failed, code=3)
        anywhere("jobs", "get", done_id)
        facts = anywhere("db", "prune", "--older-than", "0s", "-y", "--json").json
        assert facts == {"matching": 1, "deleted": 1, "dry_run": False, "keep_logs": False}
        assert anywhere("jobs", "ls", "-o", "id").lines == [live]

    def test_some_kinds_and_queues(self, anywhere: Perdure) -> None:
        anywhere.ran("greet", "--input", '"ann"')
        anywhere.ran("dies")
        prune = ("db", "prune", "--older-than", "0s", "--dry-run", "-o", "json")
        assert anywhere(*prune, "--kind", "greet").json["matching"] == 1
        assert anywhere(*prune, "--kind", "greet,dies").json["matching"] == 2
        assert anywhere(*prune, "--queue", "slow").json["matching"] == 0

    def test_jobs_are_exported_first(self, anywhere: Perdure, place: Path) -> None:
        id = anywhere.ran("greet", "--input", '"ann"')
        anywhere.ran("greet", "--input", '"bob"')
        done = anywhere("db", "prune", "--older-than", "0s", "--export", "old.jsonl", "-y")
        assert done.out == "2 jobs deleted, all of them in old.jsonl\n"
        records = [json.loads(line) for line in (place / "old.jsonl").read_text().splitlines()]
        assert [r["record"] for r in records] == ["job", "run", *["event"] * 4, "end"] * 2
        assert (records[0]["job_id"], records[0]["payload"], records[0]["result"]) == (id, "ann", "hello ann")
        anywhere.ran("greet", "--input", '"eve"')
        anywhere("db", "prune", "--older-than", "0s", "--export", "old.jsonl", "-y")
        assert len((place / "old.jsonl").read_text().splitlines()) == 21
        anywhere.ran("greet", "--input", '"zoe"')
        done = anywhere("db", "prune", "--older-than", "0s", "--export", "agents.py", "-y", code=2)
        assert "agents.py exists and does not hold exported jobs" in done.err
        assert anywhere("jobs", "count", "--json").json == {"COMPLETED": 1}

    def test_logs_stay(self, anywhere: Perdure) -> None:
        id = anywhere.ran("greet", "--input", '"ann"')
        prune = ("db", "prune", "--older-than", "0s", "--keep-logs")
        assert (
            anywhere(*prune, "--dry-run").out
            == "1 job would lose payload, result and checkpoint, and keep their logs\n"
        )
        assert "Delete payload, result and checkpoint of 1 job" in anywhere(*prune, code=2).err
        assert anywhere(*prune, "-y").out == "1 job pruned, their logs kept\n"
        assert anywhere(*prune, "-y").out.startswith("nothing to prune")
        page = anywhere("jobs", "get", id).out
        assert "pruned" in page
        assert "hello ann" not in page.split("Events")[0]
        assert len(anywhere("jobs", "events", id, "-o", "jsonl").lines) == 4
        assert "[perdure help job-pruned]" in anywhere("jobs", "rerun", id, code=5).err

    def test_a_stop_tells_how_far_it_came(self, perdure: Perdure, place: Path) -> None:
        jobs = 1500
        perdure("db", "migrate")
        with closing(sqlite3.connect("perdure.db")) as connection, connection:
            connection.executescript("pragma synchronous = off")
            ids = [(str(uuid7()),) for _ in range(jobs)]
            connection.executemany("insert into jobs (id, kind) values (?, 'x')", ids)
            connection.execute("update jobs set status = 'CANCELLED'")
        file = place / "old.jsonl"
        prune = ("db", "prune", "--older-than", "0s", "--batch-size", "1", "--export", "old.jsonl", "-y")
        with spawned(*prune) as running:
            while not (file.exists() and file.stat().st_size):
                assert running.poll() is None
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
        assert (running.returncode, out) == (130, "")
        report = re.search(rf"stopped: (\d+) of {jobs} jobs deleted; run it again to continue", err)
        assert report is not None, err
        assert "Traceback" not in err
        left = perdure("jobs", "count", "--json").json["CANCELLED"]
        assert left == jobs - int(report[1]) > 0
        assert perdure(*prune[:4], "-y").out == f"{left} jobs deleted\n"

    def test_what_makes_no_sense(self, perdure: Perdure) -> None:
        assert "--older-than" in perdure("db", "prune", code=2).err
        assert "'soon' is not a duration" in perdure("db", "prune", "--older-than", "soon", code=2).err
        for more, says in (
            (("--status", "running"), "RUNNING is not a final status"),
            (("--status", "nope"), "unknown status"),
            (("--batch-size", "0"), "--batch-size"),
            (("--export", "-"), "--export needs a file"),
            (("--batch-size", "many"), "--batch-size"),
        ):
            assert says in perdure("db", "prune", "--older-than", "1d", *more, code=2).err
        assert "nothing to prune" in perdure("db", "prune", "--older-than", "1d").err


class TestConfig:
    """config ls, get, path."""

    def test_every_setting_and_its_origin(self, perdure: Perdure, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (place / "perdure.toml").write_text('lease = "1m"\n')
        monkeypatch.setenv("PERDURE_CONCURRENCY", "7")
        items = {i["name"]: i for i in perdure("config", "ls", "--tenant", "acme", "--json").json["items"]}
        assert (items["tenant"]["value"], items["tenant"]["origin"]) == ("acme", "flag")
        assert (items["concurrency"]["value"], items["concurrency"]["origin"]) == ("7", "env PERDURE_CONCURRENCY")
        assert (items["lease"]["value"], items["lease"]["origin"]) == ("60.0", str(place / "perdure.toml"))
        assert items["queues"]["origin"] == "default"
        assert "ORIGIN" in perdure("config", "ls", "--origin").lines[0]
        assert "ORIGIN" not in perdure("config", "ls").lines[0]
        assert "PERDURE_LEASE" in perdure("config", "ls", "-o", "wide").out

    def test_one(self, perdure: Perdure) -> None:
        assert perdure("config", "get", "log-level").out == "info\n"
        assert perdure("config", "get", "PERDURE_TENANT").out == "default\n"
        assert "did you mean 'tenant'?" in perdure("config", "get", "tennant", code=2).err

    def test_where(self, perdure: Perdure, place: Path) -> None:
        (place / "perdure.toml").write_text("")
        assert perdure("config", "path").lines[0] == str(place / "perdure.toml")
        assert perdure("config", "path").lines[1].endswith("perdure/config.toml  (not there)")
        assert [f["exists"] for f in perdure("config", "path", "--json").json["items"]] == [True, False]

    def test_a_broken_file(self, perdure: Perdure, place: Path) -> None:
        (place / "perdure.toml").write_text("colour = 1\n")
        assert "unknown settings: colour" in perdure("config", "ls", code=2).err

    def test_a_directory_in_its_place(self, perdure: Perdure, place: Path) -> None:
        (place / "perdure.toml").mkdir()
        assert f"{place / 'perdure.toml'} cannot be read" in perdure("config", "ls", code=2).err
        assert perdure("config", "path").lines[0] == str(place / "perdure.toml")

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("concurrency = true", "must be a whole number, got true"),
            ("concurrency = 1.5", "must be a whole number, got 1.5"),
            ("concurrency = [1]", "'[1]' is no whole number"),
            ("metrics_port = false", "must be a whole number, got false"),
            ("database_url = 5", "must be text, not int"),
            ("app = ['agents:app']", "must be text, not list"),
            ("metrics_host = {}", "must be text, not dict"),
            ("lease = [1]", "a duration is a number of seconds or text such as '90s', not a list"),
            ("linger = 2026-01-01", "a duration is a number of seconds or text such as '90s', not a date"),
            ("drain_timeout = true", "a duration is a number of seconds or text such as '90s', not a bool"),
            ("queues = 5", 'must be names: "a,b" or ["a", "b"]'),
            ("queues = [5]", 'must be names: "a,b" or ["a", "b"]'),
            ("queues = {a = 1}", 'must be names: "a,b" or ["a", "b"]'),
            ("queues = ['a', 'a:b']", "a queue's name is 1 to 100 characters without ':' or blanks, got 'a:b'"),
            ("retention_status = 5", 'must be names: "a,b" or ["a", "b"]'),
            ("tenant = 5", "a tenant's name is 1 to 100 characters without ':' or blanks, got 5"),
        ],
    )
    def test_a_value_that_makes_no_sense(self, perdure: Perdure, place: Path, line: str, says: str) -> None:
        (place / "perdure.toml").write_text(line)
        report = " ".join(perdure("config", "ls", code=2).err.split())
        assert f"{line.split(maxsplit=1)[0]} ({place / 'perdure.toml'}) is invalid: {says}" in report
        assert "[perdure help malformed-setting]" in report

    @pytest.mark.parametrize(
        ("name", "value"),
        [("queues", "a b"), ("queues", "a,b:c"), ("tenant", "a:b"), ("tenant", "a b"), ("tenant", "0af" * 2000)],
        ids=lambda v: v[:6],
    )
    def test_a_name_that_is_none(
        self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        monkeypatch.setenv(f"PERDURE_{name.upper()}", value)
        report = perdure("config", "ls", code=2).err
        assert f"{name} (env PERDURE_{name.upper()}) is invalid: a {name.removesuffix('s')}'s name is 1 to" in report
        assert len(report) < 600


class TestDoctor:
    """doctor."""

    def test_a_healthy_place(self, anywhere: Perdure) -> None:
        anywhere("db", "migrate")
        with spawned("worker", "start", *APP) as worker:
            assert worker.stderr is not None
            worker.stderr.readline()
            done = anywhere("doctor", *APP)
            assert "no problems" in done.out
            for name in ("perdure", "python", "app", "database", "server", "schema", "clock", "workers", "jobs"):
                assert f"✓ {name} " in done.out
            facts = anywhere("doctor", "--json").json
        assert facts["ok"] is True
        assert {c["status"] for c in facts["checks"]} == {"ok"}

    def test_nothing_there_yet_is_no_fault(self, perdure: Perdure) -> None:
        said = perdure("doctor").out
        assert "! database  there is no file perdure.db yet" in said
        assert "there is no database yet" in said
        assert "no problems" not in said

    def test_who_keeps_the_others_from_writing(self, perdure: Perdure) -> None:
        perdure("db", "migrate")
        program = "import fcntl, time; file = open('perdure.db-lock'); fcntl.flock(file, 2); print(flush=True); time.sleep(600)"
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            done = perdure("doctor", code=1)
            holder.kill()
        assert "✕ lock      the lock file of the database is held by" in done.out
        if sys.platform == "linux":
            assert f"process {holder.pid} (" in done.out
        assert "lock file" not in perdure("doctor").out

    def test_the_database_does_not_answer(self, perdure: Perdure) -> None:
        done = perdure("doctor", "--db", "postgresql://nobody@127.0.0.1:1/x", code=1)
        assert "✕ database" in done.out
        assert "1 thing wrong" in done.out

    def test_no_schema(self, perdure: Perdure, bare_url: str) -> None:
        assert "✕ schema" in perdure("doctor", "--db", bare_url, code=1).out

    def test_settings_and_apps_that_do_not_load(self, perdure: Perdure, place: Path) -> None:
        done = perdure("doctor", "--app", "nowhere:app", code=1)
        assert "✕ app" in done.out
        assert "! database" in done.out, "the rest is looked at all the same"
        (place / "empty.py").write_text("from perdure import App\napp = App()\n")
        assert "empty:app has no handlers" in perdure("doctor", "--app", "empty:app", code=1).out

    def test_jobs_that_no_worker_will_claim(self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
        perdure("jobs", "start", "x", "--queue", "slow")
        assert perdure("doctor").code == 0
        monkeypatch.setattr("perdure.operations.diagnose.STUCK_AFTER", -1.0)
        done = perdure("doctor", code=1)
        assert "no worker serves queue 'slow'; jobs of kind 'x' that wait: 1, some are due" in done.out
        assert "--queues slow" in done.out
        assert [c["name"] for c in perdure("doctor", "--json", code=1).json["checks"] if c["status"] == "wrong"] == [
            "stuck"
        ]

    def test_kinds_that_no_worker_knows(self, anywhere: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many others were enqueued after them, and though none is due yet."""
        for more in ((), ("--delay", "1h")):
            anywhere("jobs", "start", "unheard-of", *more)
        anywhere.start("greet", "--input", '"ann"', "--delay", "1h")
        monkeypatch.setattr("perdure.operations.diagnose.MOST_JOBS_LOOKED_AT", 1)
        with spawned("worker", "start", *APP):
            until(lambda: anywhere("worker", "status", "-o", "id").lines)
            checks = [c for c in anywhere("doctor", "--json").json["checks"] if c["name"] == "stuck"]
            assert [(c["status"], c["detail"].partition(",")[0]) for c in checks] == [
                (
                    "warning",
                    "no worker on queue 'default' has handler 'unheard-of'; jobs of kind 'unheard-of' that wait: 2",
                )
            ]
            monkeypatch.setattr("perdure.operations.diagnose.STUCK_AFTER", -1.0)
            [check] = [c for c in anywhere("doctor", "--json", code=1).json["checks"] if c["name"] == "stuck"]
            assert check["status"] == "wrong"

    def test_jobs_of_a_dead_worker(self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
        perdure.start("hangs")
        with spawned("worker", "start", *APP, "--lease", "60s") as worker:
            assert worker.stdout is not None
            worker.stdout.readline()
        monkeypatch.setattr("perdure.operations.diagnose.STUCK_AFTER", -100.0)
        assert (
            "jobs that are held by workers that are gone, and that no worker takes over: 1"
            in perdure("doctor", code=1).out
        )

    def test_a_clock_that_is_wrong(self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
        perdure("jobs", "start", "x")
        monkeypatch.setattr("perdure.operations.diagnose.MOST_SKEW", -100.0)
        checks = {c["name"]: c for c in json.loads(perdure("doctor", "--json").out)["checks"]}
        assert checks["clock"]["status"] in {"ok", "warning"}
