"""`check` and `repair`: a healthy database gives nothing; every fault is found, reported in one line, and repaired where that is
promised."""

import itertools
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from perdure.model.fsck_faults import FAULTS, NOTES, OF_CONTENTS
from perdure.model.ids import uuid7
from perdure.model.jobs import DEFAULT_TENANT
from perdure.store.fsck import runner as checking
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.damage import HARMS, Harm
from tests.conformance.healthy_jobs import fill, fsck, report, stronger
from tests.conformance.sql_shell import dump, open_shell
from tests.conformance.support import HOUR
from tests.postgres_server import PostgresServer, run_apart

_numbers = itertools.count(1)
MISSING = uuid7()
"""An id of no job."""


@dataclass(frozen=True)
class Sick:
    """A copy of the healthy database, to be damaged."""

    url: str
    ids: dict[str, UUID]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def healthy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sick]:
    """It has no damage and no connections."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('healthy')}/perdure.db"
        yield Sick(url, run_apart(fill(url)))
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    template = request.getfixturevalue("postgres_template")
    name = f"{template}_healthy"
    url = server.create_database(name, template=template)
    yield Sick(url, run_apart(fill(url)))
    server.drop_database(name)


@pytest.fixture
def sick(healthy: Sick, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sick]:
    """A copy of one's own."""
    if healthy.url.startswith("sqlite:///"):
        shutil.copy(healthy.url.removeprefix("sqlite:///"), tmp_path / "perdure.db")
        yield Sick(f"sqlite:///{tmp_path}/perdure.db", healthy.ids)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    template = healthy.url.rpartition("/")[2]
    name = f"{template}_{next(_numbers)}"
    yield Sick(server.create_database(name, template=template), healthy.ids)
    server.drop_database(name)


@asynccontextmanager
async def opened(url: str, *, tenant: str = DEFAULT_TENANT) -> AsyncIterator[Store]:
    store = await open_store(url, tenant=tenant)
    try:
        yield store
    finally:
        await store.close()


async def harm(url: str, ids: dict[str, UUID], sql: str) -> None:
    """Run the SQL of a `Harm`, against which no trigger helps."""
    async with open_shell(url) as shell:
        words = {name: shell.id(id) for name, id in ids.items()}
        words |= {"missing": shell.id(MISSING), "another": shell.id(uuid7())}
        words |= {"ago": shell.ago(HOUR), "now": shell.ago(0), "ahead": shell.ago(-9 * HOUR)}
        words |= (
            {"beyond": "'290000-01-01'", "before": "'4000-01-01 BC'"}
            if shell.postgres
            else {"beyond": str(2**62), "before": str(-(2**62))}
        )
        async with stronger(shell):
            for statement in sql.format_map(words).split(";"):
                await shell.run(statement)


async def dumped(url: str) -> dict[str, str]:
    async with open_shell(url) as shell:
        return await dump(shell)


async def test_a_healthy_database_gives_nothing(healthy: Sick) -> None:
    async with opened(healthy.url) as store:
        assert await fsck(store) == []
        before = await dumped(healthy.url)
        assert await fsck(store, fix=True) == []
        assert await dumped(healthy.url) == before, "and nothing is repaired"


# Every fault ---------------------------------------------------------------------------------------------------------


def name_of(damage: Harm) -> str:
    return "+".join(sorted(damage.expected))


@pytest.mark.parametrize("damage", HARMS, ids=name_of)
async def test_damage_is_found_and_repaired_where_that_is_promised(
    sick: Sick, damage: Harm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "SECOND_CHECK_AFTER", 0)
    whole = await dumped(sick.url)
    await harm(sick.url, sick.ids, damage.sql)
    damaged = await dumped(sick.url)
    assert damaged != whole
    async with opened(sick.url) as store:
        found = await fsck(store)
        assert report(found, sick.ids) == damage.expected
        assert all("\n" not in f.text and len(f.text) < 200 and not f.fixed for f in found)
        assert {f.note for f in found} == {f.code in NOTES for f in found}
        assert await dumped(sick.url) == damaged, "looking changes nothing"
        repaired = await fsck(store, fix=True)
        assert report([f for f in repaired if not f.fixed], sick.ids) == damage.remains
        assert all(f.fixable for f in repaired if f.fixed)
        assert all(f.advice for f in repaired if not f.fixed), "there is something to do about the others"
        assert report(await fsck(store), sick.ids) == damage.remains, "what was repaired stays so"
    if damage.remains == damage.expected:
        assert await dumped(sick.url) == damaged, "what is not safe to repair is left alone"


def test_every_fault_is_tested() -> None:
    codes = {name.split()[0] for damage in HARMS for name in damage.expected}
    assert (
        set(FAULTS) - codes == {"schema-lost", "schema-changed", "schema-off", "row-shape", "row-id"} | OF_CONTENTS
    ), "tested below, and in test_bad_rows.py"
    assert codes <= set(FAULTS)
    assert all(kind.repair or kind.advice for kind in FAULTS.values())
    repaired = {name.split()[0] for damage in HARMS for name in damage.expected - damage.remains}
    assert repaired == {code for code, kind in FAULTS.items() if kind.repair}


async def test_fields_that_do_not_fit_the_status(sick: Sick) -> None:
    """PostgreSQL's own constraints must go first, and are reported as well."""
    postgres = sick.url.startswith("postgres")
    names = ("finished_at", "error", "next_retry_at", "result", "retry_count", "pruned_at") if postgres else ()
    sql = [f"alter table jobs drop constraint jobs_{name}" for name in names]
    sql += [
        "update jobs set finished_at = null where id = {completed}",
        "update jobs set error_message = 'x' where id = {parked}",
        "update jobs set next_retry_at = null where id = {retrying}",
        "update jobs set result = '1' where id = {running}",
        "update jobs set retry_count = 101 where id = {dead}",
        "update jobs set pruned_at = created_at where id = {asking}",
    ]
    await harm(sick.url, sick.ids, ";".join(sql))
    lost = {f"constraint jobs_{name} on jobs is gone" for name in names}
    async with opened(sick.url) as store:
        for fix in (False, True):
            found = await fsck(store, fix=fix)
            assert {f.text for f in found if f.job_id is None} == lost
            jobs = ("completed", "parked", "retrying", "running", "dead", "asking")
            expected = {f"row-shape {name}" for name in jobs} | {"row-retries dead"}
            assert report([f for f in found if f.job_id], sick.ids) == expected
            assert not any(f.fixable for f in found)


async def test_nothing_of_a_job_whose_row_or_log_is_damaged_is_repaired(sick: Sick) -> None:
    await harm(
        sick.url,
        sick.ids,
        "update jobs set version = version + 1 where id in ({pending}, {parked});"
        "delete from job_queue where job_id in ({pending}, {parked}, {retrying});"
        "delete from job_waits where job_id = {parked}",
    )
    async with opened(sick.url) as store:
        found = await fsck(store, fix=True)
        assert report([f for f in found if f.fixed], sick.ids) == {"queue-missing retrying"}
        left = {f"{code} {name}" for code in ("row-version", "queue-missing") for name in ("pending", "parked")}
        assert report([f for f in found if not f.fixed], sick.ids) == left | {"wait-missing parked"}
        assert not any(f.fixable for f in found if not f.fixed)


# The schema ----------------------------------------------------------------------------------------------------------------


async def test_what_is_gone_from_the_schema_is_named(sick: Sick) -> None:
    postgres = sick.url.startswith("postgres")
    async with open_shell(sick.url) as shell:
        for sql in (
            f"drop trigger {'jobs_b_guard on jobs' if postgres else 'jobs_guard'}",
            f"drop trigger job_events_dense{' on job_events' if postgres else ''}",
            "drop index job_queue_ready",
            "drop view job_history",
        ):
            await shell.run(sql)
    guard = "trigger jobs_b_guard on jobs" if postgres else "trigger jobs_guard"
    dense = "trigger job_events_dense" + (" on job_events" if postgres else "")
    index = "index job_queue_ready" + (" on job_queue" if postgres else "")
    async with opened(sick.url) as store:
        found = await fsck(store, fix=True)
        assert {f.text for f in found} == {f"{what} is gone" for what in (guard, dense, index, "view job_history")}
        assert {(f.code, f.job_id, f.fixable, f.fixed) for f in found} == {("schema-lost", None, False, False)}


async def test_without_a_table_no_job_is_examined(sick: Sick) -> None:
    await harm(sick.url, sick.ids, "delete from job_queue where job_id = {pending}; drop table job_failures")
    async with opened(sick.url) as store:
        for fix in (False, True):
            found = await fsck(store, fix=fix)
            assert "table job_failures is gone: no job was examined" in [f.text for f in found]
            assert {f.code for f in found} <= {"schema-lost"}


async def test_what_is_there_and_not_ours_any_more(sick: Sick) -> None:
    async with open_shell(sick.url) as shell:
        if shell.postgres:
            await shell.run(
                "create or replace function jobs_frozen() returns trigger language plpgsql as 'begin return null; end'"
            )
            await shell.run("create function mine() returns trigger language plpgsql as 'begin return null; end'")
            await shell.run("drop trigger jobs_no_truncate on jobs")
            await shell.run(
                "create trigger jobs_no_truncate before truncate on jobs for each statement execute function mine()"
            )
            await shell.run(
                "create or replace function db_now() returns timestamptz language sql stable as 'select now()  '"
            )
            expected = {"function jobs_frozen", "trigger jobs_no_truncate on jobs"}
        else:
            await shell.run("drop trigger jobs_no_delete")
            await shell.run("create trigger jobs_no_delete before delete on jobs begin select 1; end")
            [clock] = await shell.run("select now from clock")
            await shell.run("drop view clock")
            await shell.run(f"create table clock as select {clock['now']} as now")
            await shell.run("alter table workers add column colour text")
            expected = {"trigger jobs_no_delete", "table workers"}
    async with opened(sick.url) as store:
        found = await fsck(store)
        assert {f.text for f in found if not f.note} == {f"{what} is not what the migrations made" for what in expected}
        assert {f.code for f in found if not f.note} == {"schema-changed"}, "tests may replace the clock"


async def test_triggers_that_do_not_fire(sick: Sick) -> None:
    if not sick.url.startswith("postgres"):
        pytest.skip("SQLite's triggers cannot be switched off")
    async with open_shell(sick.url) as shell:
        await shell.run("alter table jobs disable trigger jobs_moved")
        await shell.run("alter table jobs enable replica trigger jobs_birth")
        await shell.run("alter table jobs enable always trigger jobs_b_guard")
        name = sick.url.rpartition("/")[2]
        await shell.run(f'alter database "{name}" set session_replication_role = replica')
    async with opened(sick.url) as store:
        found = await fsck(store, fix=True)
        assert {f.code for f in found} == {"schema-off"}
        assert {f.text for f in found} == {
            "trigger jobs_moved on jobs is there, and does not work",
            "trigger jobs_birth on jobs is there, and does not work",
            "session_replication_role is 'replica' here: no trigger fires",
        }
        assert not any(f.fixable for f in found)


async def test_rules_and_row_level_security(sick: Sick) -> None:
    """What makes statements of perdure's own do nothing, unseen by them."""
    if not sick.url.startswith("postgres"):
        pytest.skip("SQLite has neither")
    async with open_shell(sick.url) as shell:
        await shell.run("create rule quiet as on insert to job_waits do instead nothing")
        await shell.run("alter table job_state enable row level security, force row level security")
        await shell.run("alter table approvals enable row level security")
    async with opened(sick.url) as store:
        assert {f.text for f in await fsck(store) if f.job_id is None} == {
            "rule quiet on job_waits is not of the migrations: it may swallow what is written",
            "row-level security hides rows of job_state from the role that checks",
        }, "that of approvals hides nothing from the owner of the schema"
