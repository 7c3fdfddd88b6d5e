"""The hot path stays hot: with history and delayed jobs around, nothing that workers do scans a table."""

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from perdure import Client
from perdure.model.jobs import JobFilter
from perdure.model.states import Status
from perdure.operations.selection import JobSelection
from perdure.operations.tasks import list_tasks
from perdure.store.open import open_store
from perdure.store.postgres.engine.connections import POOLED
from perdure.store.postgres.engine.statements import STATEMENTS
from perdure.store.protocol import Store
from perdure.store.statements import load_statements
from tests.conformance.sql_shell import Shell, open_shell
from tests.conformance.support import HOUR, KINDS, NOTE, S, claim, enqueue, event, new_job, outcome, run_to, started
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

DELAYED, UNKNOWN, FINISHED = 20_000, 20_000, 2_000
HISTORY = 20_000
BIG = ("jobs", "job_events", "job_queue")


async def fill(url: str, *, delayed: int, finished: int, unknown: int = 0) -> None:
    """Delayed jobs of all priorities, due ones that no worker knows, and a history, in the one queue that is claimed from;
    housekept, not yet analyzed."""
    store = await open_store(url)
    await store.schema.migrate()
    await store.jobs.enqueue_many([new_job(delay=HOUR, priority=1 + n % 9) for n in range(delayed)])
    await store.jobs.enqueue_many([new_job(kind=f"unknown {n % 3}", priority=9) for n in range(unknown)])
    await store.jobs.enqueue_many([new_job(kind="history") for _ in range(finished)])
    async with open_shell(url) as shell:
        await shell.run("update jobs set status = 'CANCELLED' where kind = 'history'")
        await shell.run("vacuum")
    await store.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('plans')}/perdure.db"
    await fill(url, delayed=DELAYED, finished=FINISHED, unknown=UNKNOWN)
    return url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full_postgres_url(postgres: PostgresServer, postgres_template: str) -> AsyncIterator[str]:
    name = f"{postgres_template}_plans"
    url = postgres.create_database(name, template=postgres_template)
    await fill(url, delayed=DELAYED, finished=FINISHED, unknown=UNKNOWN)
    yield url
    postgres.drop_database(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def old_postgres_url(postgres: PostgresServer, postgres_template: str) -> AsyncIterator[str]:
    name = f"{postgres_template}_history"
    url = postgres.create_database(name, template=postgres_template)
    await fill(url, delayed=30, finished=HISTORY)
    yield url
    postgres.drop_database(name)


async def postgres_scans(url: str) -> dict[str, int]:
    """How many rows of each big table were read by scanning it, ever, and how often the ready index was used."""
    async with open_shell(url) as shell:
        await shell.run("select pg_stat_clear_snapshot()")
        tables = await shell.run("select relname as name, seq_tup_read as n from pg_stat_user_tables")
        indexes = await shell.run(
            "select indexrelname as name, idx_scan as n, idx_tup_read as rows from pg_stat_user_indexes "
            "where indexrelname = 'job_queue_ready'"
        )
    found = {str(row["name"]): int(row["n"]) for row in tables if row["name"] in BIG}
    return {**found, "ready": int(indexes[0]["n"]), "ready_rows": int(indexes[0]["rows"])}


Act = Callable[[Store], Coroutine[Any, Any, object]]


async def claim_some(store: Store) -> None:
    await store.jobs.enqueue_many([new_job(priority=5) for _ in range(10)])
    assert len(await store.leases.claim(worker_id="w", queue="default", kinds=KINDS, limit=10, ttl=30)) == 10


async def claim_nothing(store: Store) -> None:
    assert await store.leases.claim(worker_id="w", queue="default", kinds=KINDS, limit=10, ttl=30) == []


async def claim_absent(store: Store) -> None:
    """Of a kind of which no job waits, by a worker that has no other."""
    for _ in range(3):
        assert await store.leases.claim(worker_id="w", queue="default", kinds={"absent": 3}, limit=10, ttl=30) == []
    assert await store.leases.next_due(["default"], {"absent": 3}) is None


async def write(store: Store) -> None:
    lease = await started(store)
    await store.leases.record(lease, [event(), event()])
    await store.leases.heartbeat([lease], ttl=30)
    await store.leases.finish(lease, outcome(S.COMPLETED))


async def suspend(store: Store) -> None:
    job_id = await run_to(store, S.WAITING_FOR_APPROVAL)
    [asked] = (await store.approvals.list_approvals(job_id=job_id)).items
    await store.jobs.cancel(asked.job_id, note=NOTE)


async def look(store: Store) -> None:
    job_id = await enqueue(store)
    await store.jobs.get_job(job_id)
    await store.jobs.list_events(job_id)
    await store.jobs.list_runs(job_id)
    await claim(store, job_id)


async def explain(store: Store) -> None:
    last = [await enqueue(store, queue="default", priority=priority) for priority in (9, 5, 5, 1)][-1]
    seen = await store.jobs.situation(last)
    assert seen.ahead == 3
    parked = await run_to(store, S.WAITING_FOR_APPROVAL)
    assert len((await store.jobs.situation(parked)).approvals) == 1
    held = await started(store)
    assert (await store.jobs.situation(held.job_id)).claimed_at is not None


async def housekeep(store: Store) -> None:
    await store.leases.reap(worker_id="w")
    await store.leases.expire()
    await store.leases.cancel_requests("w")


async def show_figures(store: Store) -> None:
    await store.figures.snapshot()
    await store.figures.decided(await store.now() - timedelta(minutes=1))


async def cost(url: str, act: Act) -> dict[str, int]:
    """What an act reads by scanning, and through the ready index, on connections of its own."""
    before = await postgres_scans(url)
    store = await open_store(url)
    await act(store)
    await store.close()  # a session reports what it read when it ends
    async with open_shell(url) as shell:
        if await before_15(shell):
            await asyncio.sleep(1)
    after = await postgres_scans(url)
    return {name: after[name] - before[name] for name in after}


@pytest.mark.parametrize("act", [claim_some, claim_nothing, claim_absent, write], ids=lambda act: act.__name__)
async def test_postgres_needs_no_statistics_for_the_hot_path(full_postgres_url: str, act: Act) -> None:
    read = await cost(full_postgres_url, act)
    assert {name: read[name] for name in BIG} == dict.fromkeys(BIG, 0)
    if act is claim_some:
        assert read["ready"] > 0, "the claim goes by the ready index"
    if act is not write:
        assert read["ready_rows"] < 200, "it reads about what it takes"


@pytest.mark.parametrize(
    "act", [claim_some, claim_nothing, write, suspend, look, explain, housekeep], ids=lambda act: act.__name__
)
async def test_postgres_reads_no_big_table_from_end_to_end(full_postgres_url: str, act: Act) -> None:
    async with open_shell(full_postgres_url) as shell:
        await shell.run("analyze")
    read = await cost(full_postgres_url, act)
    assert {name: read[name] for name in BIG} == dict.fromkeys(BIG, 0)


LISTS = {
    "running": JobFilter(statuses=(S.RUNNING,)),
    "pending": JobFilter(statuses=(S.PENDING,)),
    "failed": JobFilter(statuses=(S.FAILED, S.DEADLETTER)),
    "cancelled": JobFilter(statuses=(S.CANCELLED,)),
    "newest": JobFilter(),
    "tagged": JobFilter(tags=("some",)),
    "tagged with one of several": JobFilter(tags=("some", "few")),
}


@pytest.mark.parametrize("name", LISTS)
async def test_postgres_lists_without_reading_history(old_postgres_url: str, name: str) -> None:
    async with open_shell(old_postgres_url) as shell:
        await shell.run("analyze")
    read = await cost(old_postgres_url, lambda store: store.jobs.list_jobs(LISTS[name], limit=20))
    assert read["jobs"] == 0


async def rows_read(url: str, act: Act, *tables: str) -> int:
    """How many rows of these tables an act reads, by scanning or through their indexes."""
    names = ", ".join(f"'{table}'" for table in tables)
    sql = (
        "select coalesce(sum(t.seq_tup_read + coalesce(i.n, 0)), 0)::int as n from pg_stat_user_tables t left join "
        "(select relid, sum(idx_tup_read) as n from pg_stat_user_indexes group by relid) i using (relid) "
        f"where t.schemaname = 'perdure' and t.relname in ({names})"
    )
    figures = []
    for step in (None, act):
        if step is not None:
            store = await open_store(url)
            await step(store)
            await store.close()
        async with open_shell(url) as shell:
            await asyncio.sleep(1 if await before_15(shell) else 0)
            await shell.run("select pg_stat_clear_snapshot()")
            figures.append(int((await shell.run(sql))[0]["n"]))
    return figures[1] - figures[0]


TASK_LISTS: dict[str, dict[str, Any]] = {
    "all": {},
    "a tool": {"tools": ["codex"]},
    "two tools": {"tools": ["codex", "claude"]},
    **{
        name: {"which": JobSelection(status=(name,))}
        for name in ("queued", "leased", "succeeded", "failed", "deadletter")
    },
    "status and tool": {"which": JobSelection(status=("failed", "queued")), "tools": ["codex"]},
    "since": {"which": JobSelection(since=datetime(2020, 1, 1, tzinfo=UTC))},
    "until": {"which": JobSelection(until=datetime(2100, 1, 1, tzinfo=UTC))},
}
"""What `tasks ls` may be asked for."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def old_url_with_tasks(old_postgres_url: str) -> str:
    """A history of other jobs, and a task in each state."""
    store = await open_store(old_postgres_url)
    for status in (S.PENDING, S.RUNNING, S.RETRY, S.COMPLETED, S.FAILED, S.DEADLETTER):
        await run_to(store, status, kind="cli.codex")
    await store.jobs.cancel(await enqueue(store, kind="cli.codex"), note=NOTE)
    await store.close()
    async with open_shell(old_postgres_url) as shell:
        await shell.run("analyze")
    return old_postgres_url


def listed(wanted: dict[str, Any]) -> Act:
    """The tasks that `tasks ls` shows."""

    async def act(store: Store) -> None:
        assert (await list_tasks(Client(store), limit=20, **wanted)).items

    return act


@pytest.mark.parametrize("name", TASK_LISTS)
async def test_postgres_lists_tasks_without_reading_history(old_url_with_tasks: str, name: str) -> None:
    read = await rows_read(old_url_with_tasks, listed(TASK_LISTS[name]), "jobs")
    assert read <= 200, "of 20,000"


async def test_postgres_lists_cancelled_tasks_without_reading_other_ends(old_url_with_tasks: str) -> None:
    wanted = {"which": JobSelection(status=("canceled",)), "tools": ["codex"]}
    assert (await cost(old_url_with_tasks, listed(wanted)))["jobs"] == 0


async def test_sqlite_lists_tasks_by_indexes(sqlite_url: str) -> None:
    """Those of a status; lists without one are of a kind, see below."""
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    names = ("list_some_jobs", "leased_ids", "queued_ids", "live_ids", "failed_ids")
    try:
        connection.create_function("fold", 1, str.casefold)
        steps = [step for name in names for step in plan(connection, load_statements("perdure.store.sqlite")[name])]
    finally:
        connection.close()
    read = [step for step in steps if re.search(r"\b(j|jobs|e|job_events)\b", step.partition(" USING")[0])]
    assert read, steps
    assert [step for step in read if not step.startswith("SEARCH")] == []


async def test_postgres_drains_a_kind_in_linear_time(postgres: PostgresServer, postgres_template: str) -> None:
    """A claim that was planned while the tables were empty reads about what it takes, however many jobs of the kind exist."""
    jobs, name = 2_000, f"{postgres_template}_linear"
    url = postgres.create_database(name, template=postgres_template)

    async def drain(store: Store) -> None:
        for _ in range(6):  # PostgreSQL keeps a generic plan from the sixth execution on
            await claim_nothing(store)
        await store.jobs.enqueue_many([new_job() for _ in range(jobs)])
        taken = 0
        while claimed := await store.leases.claim(worker_id="w", queue="default", kinds=KINDS, limit=100, ttl=30):
            taken += len(claimed)
        assert taken == jobs

    try:
        assert await rows_read(url, drain, "jobs", "job_queue") < 30 * jobs
    finally:
        postgres.drop_database(name)


async def test_postgres_finds_reruns_by_an_index(old_postgres_url: str) -> None:
    store = await open_store(old_postgres_url)
    ids = [job.id for job in (await store.jobs.list_jobs(JobFilter(), limit=100)).items]
    await store.close()
    assert await rows_read(old_postgres_url, lambda store: store.jobs.rerun_of(ids), "jobs") == 0


async def test_sqlite_finds_reruns_by_an_index(sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        steps = plan(connection, load_statements("perdure.store.sqlite")["rerun_of"])
    finally:
        connection.close()
    assert any("INDEX jobs_rerun (origin_id=?)" in step for step in steps), steps


async def test_postgres_finds_heads_by_an_index(old_postgres_url: str) -> None:
    store = await open_store(old_postgres_url)
    ids = [job.id for job in (await store.jobs.list_jobs(JobFilter(), limit=100)).items]
    await store.close()
    assert await rows_read(old_postgres_url, lambda store: store.jobs.heads(ids), "jobs", "job_claims") <= 2 * len(ids)


async def test_sqlite_finds_heads_by_an_index(sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        steps = plan(connection, load_statements("perdure.store.sqlite")["heads"])
    finally:
        connection.close()
    assert not [step for step in steps if step.startswith(("SCAN j", "SCAN k")) and "json" not in step], steps
    assert any(step.startswith("SEARCH j ") and "(id=?)" in step for step in steps), steps


async def test_postgres_reads_no_job_of_a_paused_queue(full_postgres_url: str) -> None:
    """However many are due at its head."""
    store = await open_store(full_postgres_url)
    await store.queues.pause_queue("default", by="ann")

    async def claim_paused(store: Store) -> None:
        for _ in range(7):  # PostgreSQL keeps a generic plan from the sixth execution on
            kinds = {f"unknown {n}": 3 for n in range(3)}
            assert await store.leases.claim(worker_id="w", queue="default", kinds=kinds, limit=10, ttl=30) == []
            assert await store.leases.next_due(["default"], kinds) is None

    try:
        assert await rows_read(full_postgres_url, claim_paused, "jobs", "job_queue") == 0
    finally:
        await store.queues.resume_queue("default", by="ann")
        await store.close()


async def before_15(shell: Shell) -> bool:
    """PostgreSQL 14 hands out figures that may be half a second old."""
    return int((await shell.run("select current_setting('server_version_num') as v"))[0]["v"]) < 150_000


@pytest.mark.parametrize("status", [S.FAILED, S.DEADLETTER, S.CANCELLED])
async def test_postgres_lists_a_rare_end_without_reading_the_others(old_postgres_url: str, status: Status) -> None:
    """Of 20,000 finished jobs, of which all but a few were cancelled."""
    async with open_shell(old_postgres_url) as shell:
        await shell.run("analyze")
    filter = JobFilter(statuses=(status,))
    read = await rows_read(old_postgres_url, lambda s: s.jobs.list_jobs(filter, limit=20), "jobs", "job_failures")
    assert read <= 100


async def test_postgres_lists_a_tag_by_its_index(old_postgres_url: str) -> None:
    """Of 20,000 jobs, of which a few have the tag: it reads about those."""
    store = await open_store(old_postgres_url)
    await store.jobs.enqueue_many([new_job(tags='["rare"]') for _ in range(5)])
    await store.close()
    filter = JobFilter(tags=("rare",))
    read = await rows_read(old_postgres_url, lambda s: s.jobs.list_jobs(filter, limit=20), "jobs", "job_tags")
    assert read <= 50
    assert await rows_read(old_postgres_url, lambda s: s.jobs.count_jobs(filter, by="kind"), "jobs", "job_tags") <= 50


@pytest.mark.parametrize("name", ["tagged_ids", "any_tagged_ids"])
async def test_sqlite_lists_tags_by_their_index(sqlite_url: str, name: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        steps = plan(connection, load_statements("perdure.store.sqlite")[name])
    finally:
        connection.close()
    assert any("SEARCH job_tags USING PRIMARY KEY (tenant_id=? AND tag=? AND job_id<?)" in step for step in steps), (
        steps
    )


async def test_sqlite_lists_ends_by_an_index(sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        steps = plan(connection, load_statements("perdure.store.sqlite")["failed_ids"])
    finally:
        connection.close()
    searched = [step for step in steps if "job_failures" in step]
    assert len(searched) == 3, steps
    assert all(step.endswith("INDEX job_failures_status (status=? AND job_id<?)") for step in searched), steps


@pytest.mark.parametrize("name", [name for name in LISTS if LISTS[name] != JobFilter()])
async def test_postgres_counts_without_reading_history(old_postgres_url: str, name: str) -> None:
    async with open_shell(old_postgres_url) as shell:
        await shell.run("analyze")
    read = await cost(old_postgres_url, lambda store: store.jobs.count_jobs(LISTS[name], by="status"))
    assert read["jobs"] == 0


ANY_JOB: dict[str, Any] = {
    "tenant_id": "default",
    **dict.fromkeys(("statuses", "kinds", "queues", "since", "until", "search", "key", "tags", "agent", "session")),
}


async def test_postgres_needs_no_statistics_to_count_a_backlog(full_postgres_url: str) -> None:
    values = {**ANY_JOB, "by": "status", "statuses": ["PENDING"], "sources": ["queue"]}
    connection = await asyncpg.connect(full_postgres_url, server_settings=POOLED)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("delete from pg_statistic where starelid::regclass::text like 'perdure.%'")
        statement = STATEMENTS["count_some_jobs"]
        steps = [row[0] for row in await connection.fetch(f"explain {statement.sql}", *statement.values(values))]
        await transaction.rollback()
    finally:
        await connection.close()
    assert any("Index Scan using jobs_pkey on jobs" in step for step in steps), steps
    assert not [step for step in steps if "Scan on jobs" in step], steps


async def test_postgres_lists_a_kind_by_its_index(old_postgres_url: str) -> None:
    values = {**ANY_JOB, "kinds": ["history"], "before": None, "limit": 21, "sources": ["kind"]}
    connection = await asyncpg.connect(old_postgres_url, server_settings=POOLED)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("delete from pg_statistic where starelid = 'perdure.jobs'::regclass")
        await connection.fetch(STATEMENTS["by_index"].sql)
        statement = STATEMENTS["list_jobs"]
        steps = [row[0] for row in await connection.fetch(f"explain {statement.sql}", *statement.values(values))]
        await transaction.rollback()
    finally:
        await connection.close()
    assert any("Backward using jobs_kind on jobs " in step for step in steps), steps
    assert not [step for step in steps if "Bitmap" in step or "Materialize" in step], steps


async def test_postgres_reads_no_history_for_figures(old_postgres_url: str) -> None:
    async with open_shell(old_postgres_url) as shell:
        await shell.run("analyze")
    read = await cost(old_postgres_url, show_figures)
    assert (read["jobs"], read["job_events"]) == (0, 0)
    assert read["job_queue"] <= 2 * 30 + 20, "what is unfinished"


async def test_postgres_needs_no_statistics_for_figures(full_postgres_url: str) -> None:
    read = await cost(full_postgres_url, show_figures)
    assert (read["jobs"], read["job_events"]) == (0, 0)


FIGURES = ("live_jobs", "pending_approvals", "decided_approvals")


async def test_sqlite_reads_no_history_for_figures(sqlite_url: str) -> None:
    statements = load_statements("perdure.store.sqlite")
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        steps = [line for name in FIGURES for line in plan(connection, statements[name])]
    finally:
        connection.close()
    scanned = {step.split()[1] for step in steps if step.startswith("SCAN")}
    assert not scanned & {"jobs", "j", "approvals", "a", "job_events"}, steps
    assert {"SEARCH j", "SEARCH a"} <= {" ".join(step.split()[:2]) for step in steps}, steps
    assert any("approvals_latest" in step for step in steps), steps


async def test_postgres_names_the_kinds_without_reading_history(old_postgres_url: str) -> None:
    async with open_shell(old_postgres_url) as shell:
        await shell.run("analyze")
    read = await cost(old_postgres_url, lambda store: store.schema.kinds())
    assert read["jobs"] == 0


def plan(connection: sqlite3.Connection, sql: str, *, top: bool = False) -> list[str]:
    """The query plan of a statement, whatever its parameters are called. top: without its subqueries."""

    class Anything(dict[str, None]):
        def __missing__(self, name: str) -> None:
            return None

    explain = f"explain query plan {sql}"
    guesses: list[Any] = [Anything(), *([None] * n for n in range(40))]
    for parameters in guesses:
        try:
            return [row[3] for row in connection.execute(explain, parameters) if not (top and row[1])]
        except sqlite3.ProgrammingError:
            continue
    raise AssertionError(sql)


async def test_sqlite_claims_by_the_ready_index(sqlite_url: str) -> None:
    statements = load_statements("perdure.store.sqlite")
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        steps = [line for name in statements if name.startswith("claim") for line in plan(connection, statements[name])]
    finally:
        connection.close()
    ranges = [step.partition("(")[2] for step in steps if step.startswith("SEARCH") and "job_queue_ready" in step]
    one_for_each_priority = ["lane=? AND kind=? AND priority=? AND run_at<?)"] * 9
    of_several_kinds = ["lane=? AND kind=? AND priority=? AND run_at<?)"]
    the_next_of_one = ["lane=? AND kind=? AND priority=? AND (run_at,job_id)>(?,?) AND run_at<?)"]
    any_at_all = ["lane=? AND kind=?)"]
    assert sorted(ranges) == sorted(one_for_each_priority + of_several_kinds + the_next_of_one + any_at_all), steps
    # the rest is read through: the answer itself, at most as many rows as were asked for, and the kinds and priorities
    answer = re.compile(r"SCAN (f|e|m|k|p|r|merged|json_each|CONSTANT ROW|\(subquery-\d+\)).*")
    assert not [step for step in steps if step.startswith("SCAN") and not answer.fullmatch(step)], steps


@pytest.mark.parametrize("kinds", [["echo"], KINDS])
async def test_sqlite_reads_nothing_of_unknown_kinds(sqlite_url: str, kinds: list[str]) -> None:
    statements = load_statements("perdure.store.sqlite")
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    steps: list[None] = []
    try:
        connection.set_progress_handler(lambda: steps.append(None), 1)
        place = {"lane": "default", "kinds": json.dumps([*kinds])}
        [(number, kind, waiting)] = connection.execute(statements["claim_kinds"], place).fetchall()
        assert (number, kind) == (1, "echo"), "the delayed ones"
        values = {"tenant_id": "default", "lane": "default", "kind": None, "kinds": waiting, "keys": None}
        values |= {"now": 0, "limit": 100}
        connection.execute(statements["claim"], values).fetchall()
        connection.execute(statements["next_due"], {"lanes": '["default"]', "kinds": json.dumps([*kinds])}).fetchall()
    finally:
        connection.close()
    assert len(steps) < 3000, "instructions of SQLite: a fraction of the rows that wait"


async def test_sqlite_explains_by_indexes(sqlite_url: str) -> None:
    statements = load_statements("perdure.store.sqlite")
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        names = ("get_job", "place_in_queue", "jobs_ahead", "approvals_awaited", "list_events")
        steps = [line for name in names for line in plan(connection, statements[name])]
    finally:
        connection.close()
    ahead = [step for step in steps if "job_queue_ready" in step]
    assert [step.partition("(")[2] for step in ahead] == [
        "lane=? AND kind=? AND priority=? AND run_at<?)",
        "lane=? AND kind=? AND priority=? AND (run_at,job_id)<(?,?))",
    ]
    no_table = re.compile(r"SCAN (w|clock|CONSTANT ROW|\(subquery-\d+\)|json_each VIRTUAL TABLE.*)")
    assert not [step for step in steps if step.startswith("SCAN") and not no_table.fullmatch(step)], steps


async def test_sqlite_lists_a_kind_by_its_index(sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        connection.create_function("fold", 1, str.casefold)
        steps = plan(connection, load_statements("perdure.store.sqlite")["list_jobs_of_kind"], top=True)
    finally:
        connection.close()
    assert steps[0] == "SEARCH j USING INDEX jobs_kind (kind=? AND id<?)", steps
    assert not [step for step in steps if "TEMP B-TREE" in step], steps


async def test_sqlite_counts_what_small_tables_name_without_reading_history(sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        connection.create_function("fold", 1, str.casefold)
        steps = plan(connection, load_statements("perdure.store.sqlite")["count_some_jobs"])
    finally:
        connection.close()
    assert [step for step in steps if step.startswith("SEARCH j USING INDEX")], steps
    assert not [step for step in steps if re.match(r"SCAN (j|jobs)\b", step)], steps


async def test_sqlite_names_the_kinds_by_their_index(sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        steps = plan(connection, load_statements("perdure.store.sqlite")["list_kinds"])
    finally:
        connection.close()
    looks = [step for step in steps if "jobs" in step]
    assert looks, steps
    assert [look for look in looks if not look.startswith("SEARCH") or "COVERING INDEX jobs_kind" not in look] == []
