"""The program and its workers through a real PgBouncer in transaction mode: everything a user does, also what a crash leaves."""

import itertools
import os
import signal
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Perdure, line_of, spawned
from tests.cli.test_worker import APP, alive, until
from tests.pgbouncer_server import PgBouncer
from tests.postgres_server import PostgresServer

numbers = itertools.count(1)


@pytest.fixture
def server_url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database."""
    name = f"perdure_test_{os.getpid()}_pooled_{next(numbers)}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def pooled(perdure: Perdure, pgbouncer: PgBouncer, server_url: str, monkeypatch: pytest.MonkeyPatch) -> Perdure:
    """The command line on that database, through PgBouncer, migrated."""
    monkeypatch.setenv("PERDURE_DATABASE_URL", pgbouncer.url(server_url))
    assert "core" in perdure("db", "migrate").out
    assert "core" not in perdure("db", "migrate").out, "it is there already"
    return perdure


def status_of(perdure: Perdure, id: str) -> str:
    status: str = perdure("jobs", "get", id, "--json").only["status"]
    return status


def test_a_job_whose_worker_was_killed_is_taken_over(pooled: Perdure) -> None:
    done, taken_over = pooled.start("greet", "--input", '"ann"'), pooled.start("hangs")
    with spawned("worker", "start", *APP, "--lease", "2s") as first:
        assert "hanging" in line_of(first.stdout)
        until(lambda: status_of(pooled, done) == "COMPLETED")
        first.send_signal(signal.SIGKILL)
    with spawned("worker", "start", *APP, "--lease", "2s") as second:
        assert "hanging" in line_of(second.stdout), "the second attempt"
        pooled("jobs", "cancel", taken_over)
        until(lambda: status_of(pooled, taken_over) == "CANCELLED")
        assert alive(pooled)
        pooled("worker", "stop", "--all")
        _, log = second.communicate(timeout=20)
        assert second.returncode == 0
    assert "through a pooler" in log, "a worker tells why it starts jobs later"
    assert pooled("fsck").code == 0


def test_a_job_asks_and_goes_on(pooled: Perdure) -> None:
    id = pooled.start("asks", "--input", '"draft 1"')
    with spawned("worker", "start", *APP):
        until(lambda: status_of(pooled, id) == "WAITING_FOR_APPROVAL")
        pooled("approvals", "approve", id)
        pooled("jobs", "watch", id)
    assert pooled("jobs", "get", id, "--json").only["result"] == "published draft 1"


def test_the_doctor_says_that_nothing_listens(pooled: Perdure) -> None:
    assert "through a pooler, without LISTEN" in pooled("doctor", code=None).out
    assert "through a pooler, without LISTEN" in pooled("db", "status").out
