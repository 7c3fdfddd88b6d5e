"""What roles may do on PostgreSQL, with the rights of docs/rights.md, and what a hostile one cannot make others do."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg
import pytest

from perdure import App, Budget
from perdure.model.ids import uuid7
from perdure.model.jobs import JobFilter
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests import roles
from tests.conformance.healthy_jobs import fill, fsck
from tests.conformance.support import KINDS, S, case, claim, enqueue, new_approval, new_job, outcome, passed, run_to
from tests.postgres_server import PostgresServer, all_binaries, run_apart

Connection = asyncpg.Connection


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    store = await open_store(postgres_url)
    await store.schema.migrate()
    yield store
    await store.close()


@pytest.fixture
async def owner(store: Store, postgres_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Connection]:
    """The superuser who owns the schema, with the roles of the page; `acme`, with row-level security, for its test."""
    made = ["acme"] if "tenant" in request.node.name else [role for role in roles.ROLES if role != "acme"]
    connection = await asyncpg.connect(postgres_url)
    for block in dict.fromkeys(map(roles.make, made)):
        await connection.execute(block)
    try:
        yield connection
    finally:
        await connection.execute("reset role")
        for role in made:
            await connection.execute(roles.drop(role))
        await connection.close()


@asynccontextmanager
async def acting_as(connection: Connection, role: str) -> AsyncIterator[None]:
    await connection.execute(f"set role {role}")
    try:
        yield
    finally:
        await connection.execute("reset role")


# A role that only enqueues ------------------------------------------------------------------------------------------------

FORBIDDEN = [
    "select payload from perdure.jobs",
    "select result from perdure.jobs",
    "select error_message from perdure.jobs",
    "select status from perdure.jobs",
    "select * from perdure.jobs",
    "select * from perdure.job_events",
    "select * from perdure.job_history",
    "select * from perdure.job_runs",
    "select * from perdure.approvals",
    "select * from perdure.job_state",
    "select * from perdure.job_claims",
    "select * from perdure.workers",
    "update perdure.jobs set status = 'CANCELLED'",
    "update perdure.jobs set priority = 9",
    "delete from perdure.jobs",
    "truncate perdure.jobs",
    "insert into perdure.jobs (kind, lane) values ('echo', 'another')",
    "insert into perdure.jobs (kind, status) values ('echo', 'PENDING')",
    "insert into perdure.jobs (kind, created_at) values ('echo', now())",
    "insert into perdure.job_events (job_id, version, type) values (gen_random_uuid(), 1, 'job_created')",
    "insert into perdure.job_queue (job_id, lane, kind, priority, run_at) values (gen_random_uuid(), 'x', 'echo', 1, now())",
    (
        "insert into perdure.job_claims (job_id, attempt, version, worker_id, expires_at) "
        "values (gen_random_uuid(), 1, 1, 'x', now())"
    ),
    "insert into perdure.prune_batch (job_id) values (gen_random_uuid())",
    "insert into perdure.workers (id, host, pid, queues, kinds, concurrency) values ('x', 'x', 1, '{}', '{}', 1)",
    "delete from perdure.job_events",
    "delete from perdure.job_queue",
    "alter table perdure.jobs disable trigger all",
    "create function perdure.mine() returns int language sql as 'select 1'",
    "create or replace function perdure.db_now() returns timestamptz language sql as 'select now()'",
    "drop trigger jobs_born on perdure.jobs",
]


async def test_a_role_that_only_enqueues_can_do_that(store: Store, owner: Connection, postgres_url: str) -> None:
    async with acting_as(owner, "shop"):
        by_function = await owner.fetchval("select perdure.enqueue('echo', '1', idempotency_key => 'k')")
        assert await owner.fetchval("select perdure.enqueue('echo', ' 1 ', idempotency_key => 'k')") == by_function
        with pytest.raises(asyncpg.UniqueViolationError, match="another payload"):
            await owner.fetchval("select perdure.enqueue('echo', '2', idempotency_key => 'k')")
        by_insert = await owner.fetchval("insert into perdure.jobs (kind) values ('echo') returning id")
        app = App(postgres_url)
        async with owner.transaction():
            by_tx = await app.enqueue("echo", 3, tx=owner, idempotency_key="k3")
            assert (await app.enqueue("echo", 3, tx=owner, idempotency_key="k3")).id == by_tx.id
            bounded = await app.enqueue("echo", 4, tx=owner, budget=Budget(tokens=5))
        await app.close()
    assert [event.type for event in await store.jobs.list_events(bounded.id)] == ["job_created", "budget_set"]
    jobs = (await store.jobs.list_jobs(JobFilter())).items
    assert {job.id for job in jobs} == {by_function, by_insert, by_tx.id, bounded.id}
    for job in jobs:
        assert len(await store.jobs.list_events(job.id)) == (2 if job.id == bounded.id else 1)
        assert job.due_at is not None
    assert await fsck(store) == []


@pytest.mark.parametrize("statement", FORBIDDEN)
async def test_a_role_that_only_enqueues_can_do_nothing_else(store: Store, owner: Connection, statement: str) -> None:
    await run_to(store, S.COMPLETED)
    async with acting_as(owner, "shop"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await owner.execute(statement)


async def test_it_begins_the_logs_of_its_own_new_jobs_alone(store: Store, owner: Connection) -> None:
    others = str(await enqueue(store))

    def begin(job: str, type: str) -> str:
        events = json.dumps([{"job_id": job, "type": type, "payload": "{}"}])
        return f"select perdure.begin_logs('{events}')"

    async with acting_as(owner, "shop"):
        for job, type in ((others, "budget_set"), (str(uuid7()), "budget_set")):
            with pytest.raises(asyncpg.CheckViolationError, match="does not begin in this transaction"):
                await owner.execute(begin(job, type))
        async with owner.transaction():
            own = str(await owner.fetchval("insert into perdure.jobs (kind) values ('echo') returning id"))
            with pytest.raises(asyncpg.CheckViolationError, match="or not with such an event"):
                async with owner.transaction():
                    await owner.execute(begin(own, "node_finished"))
            await owner.execute(begin(own, "budget_set"))
            with pytest.raises(asyncpg.CheckViolationError, match="does not begin"):
                async with owner.transaction():
                    await owner.execute(begin(own, "budget_set"))
    assert [e.type for e in await store.jobs.list_events(UUID(own))] == ["job_created", "budget_set"]
    assert len(await store.jobs.list_events(UUID(others))) == 1
    assert await fsck(store) == []


async def test_it_starts_no_worker(store: Store, owner: Connection, postgres_url: str) -> None:
    await enqueue(store, queue="default")
    await owner.execute("alter role shop login password 'shop'")
    shop = await open_store(as_role(postgres_url, "shop"))
    try:
        with pytest.raises(Exception, match="permission denied"):
            await shop.leases.claim(worker_id="w", queue="default", kinds=KINDS, limit=1, ttl=30)
        with pytest.raises(Exception, match="permission denied"):
            await shop.jobs.list_jobs(JobFilter())
    finally:
        await shop.close()


async def test_a_reader_reads(store: Store, owner: Connection) -> None:
    await run_to(store, S.COMPLETED)
    async with acting_as(owner, "reader"):
        assert len(await owner.fetch("select * from perdure.job_history")) == 3
        for statement in ("update perdure.jobs set priority = 1", "select perdure.enqueue('echo')"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await owner.execute(statement)


# Rows of one tenant -------------------------------------------------------------------------------------------------------


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}:{role}@{parts.hostname}:{parts.port}"))


async def test_a_tenants_role_sees_its_tenant(store: Store, owner: Connection, postgres_url: str) -> None:
    others = await run_to(store, S.COMPLETED)
    await owner.execute("alter role acme login password 'acme'")
    acme = await open_store(as_role(postgres_url, "acme"), tenant="acme")
    try:
        job_id = await enqueue(acme, idempotency_key="k")
        assert not (await acme.jobs.enqueue(new_job(idempotency_key="k", queue="another"))).created
        lease = (await claim(acme, job_id)).lease
        asked = await acme.approvals.request_approval(lease, new_approval())
        await acme.leases.finish(lease, outcome(S.COMPLETED))
        job = await acme.jobs.get_job(job_id)
        assert (job.status, len(await acme.jobs.list_events(job_id)) >= 3) == (S.COMPLETED, True)
        assert (await acme.approvals.get_approval(asked.id)).status == "CANCELLED"
        assert len(await acme.jobs.list_runs(job_id)) == 1
        async with acting_as(owner, "acme"):
            for table in ("jobs", "job_events", "job_history", "job_runs", "approvals", "job_queue", "job_claims"):
                with case(table):
                    ids = {
                        row[0]
                        for row in await owner.fetch(
                            f"select {'id' if table == 'jobs' else 'job_id'} from perdure.{table}"
                        )
                    }
                    assert others not in ids
            assert await owner.execute("update perdure.jobs set priority = 1 where tenant_id = 'default'") == "UPDATE 0"
            for statement in (
                "insert into perdure.jobs (tenant_id, kind) values ('default', 'echo')",
                "select perdure.enqueue('echo')",
                f"insert into perdure.job_events (job_id, version, type) values ('{others}', 4, 'note')",
            ):
                with case(statement), pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                    await owner.execute(statement)
            assert await owner.fetchval("select perdure.enqueue('echo', tenant => 'acme')")
        await passed(acme, job.finished_at)
        assert await acme.retention.prune([job_id, others]) == 1
        assert (await store.jobs.get_job(others)).status is S.COMPLETED
        assert await fsck(store) == [], "nothing is left of what was pruned"
    finally:
        await acme.close()


# Hostile operators and functions ------------------------------------------------------------------------------------------

TYPES = ("text", "uuid", "timestamptz", "int", "smallint", "json", "text[]", "uuid[]", "boolean", "name")
EVIL = """
create table public.loot (who text, what text);
grant insert on public.loot to public;
create role mallory;
grant create, usage on schema public to mallory;
set role mallory;
"""


def evil_operators(*types: str) -> Iterator[str]:
    """Those that note as whom they run."""
    for number, type in enumerate(types):
        for name, operator in {"eq": "=", "ne": "<>", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}.items():
            function = f"public.evil_{name}_{number}"
            yield (
                f"create function {function}({type}, {type}) returns boolean language plpgsql as $$ begin "
                f"insert into public.loot values (current_user, '{operator} {type}'); return true; end $$"
            )
            yield f"create operator public.{operator} (leftarg = {type}, rightarg = {type}, function = {function})"


def evil_functions() -> Iterator[str]:
    """Those that note as whom they run."""
    for function, arguments, returns in (
        ("now", "", "timestamptz"),
        ("json_build_object", "text, name, text, text", "json"),
        ("json_build_object", "text, text", "json"),
        ("pg_current_xact_id", "", "xid8"),
        ("length", "text", "int"),
        ("set_config", "text, text, boolean", "text"),
    ):
        yield (
            f"create function public.{function}({arguments}) returns {returns} language plpgsql as $$ begin "
            f"insert into public.loot values (current_user, '{function}'); return null; end $$"
        )


SERVERS = [None, *all_binaries()[1:]]


@pytest.fixture(params=SERVERS, ids=lambda path: "tests" if path is None else path.parent.name)
def a_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The server of the tests, and every other PostgreSQL that is installed on this machine."""
    if request.param is None:
        yield request.getfixturevalue("postgres")
    else:
        with PostgresServer(own=True, binaries=request.param) as server:
            yield server


def test_a_hostile_role_runs_nothing_as_the_owner(a_server: PostgresServer) -> None:
    """Its operators stand first in the path of everything that does not set its own, before the schema exists and after."""
    url = a_server.create_database("perdure_hostile")
    try:
        assert run_apart(_attacked(url)) == []
    finally:
        a_server.drop_database("perdure_hostile")
        run_apart(_execute(a_server.url(), "drop role mallory"))


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def _attacked(url: str) -> list[str]:
    """What ran of a hostile role's, as whom."""
    await _execute(url, EVIL, f"set role mallory; {';'.join([*evil_operators(*TYPES), *evil_functions()])}")
    name = url.rpartition("/")[2]
    await _execute(url, f'alter database "{name}" set search_path = public, perdure, pg_catalog')
    store = await open_store(url)
    try:
        await store.schema.migrate()
        await _execute(
            url,
            "grant usage on schema perdure to mallory",
            f"set role mallory; {';'.join(evil_operators('perdure.job_status', 'perdure.job_status[]'))}".replace(
                "evil_", "worse_"
            ),
        )
        ids = await fill(url)
        await fsck(store, fix=True)
        await store.leases.reap(worker_id="w")
        await store.leases.expire()
        await store.jobs.cancel(ids["parked"], note="{}")
        done = (await store.jobs.get_job(ids["completed"])).finished_at
        await passed(store, done)
        await store.retention.prune([ids["completed"]])
        await store.retention.prune([ids["failed"]], keep_logs=True)
        await store.figures.snapshot()
        one = f"pg_catalog.uuid_eq(id, '{ids['asking']}')"
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(f"update perdure.jobs set status = 'FAILED', error_message = 'x' where {one}")
            await connection.fetchval("select perdure.enqueue('echo', '1', idempotency_key => 'k')")
            await connection.fetchval("select perdure.enqueue('echo', '1 ', idempotency_key => 'k')")
            app = App(url)
            for _ in range(2):
                async with connection.transaction():
                    await app.enqueue("echo", 1, tx=connection, idempotency_key="tx")
            await app.close()
            rows = await connection.fetch("select * from public.loot")
            return sorted({f"{row['what']} as {row['who']}" for row in rows})
        finally:
            await connection.close()
    finally:
        await store.close()


async def test_every_function_sets_its_path(store: Store, owner: Connection) -> None:
    rows = await owner.fetch(
        "select proname, proconfig from pg_proc where pronamespace = 'perdure'::regnamespace order by proname"
    )
    loose = [row["proname"] for row in rows if "search_path=pg_catalog, pg_temp" not in (row["proconfig"] or ())]
    assert loose == ["db_now"], "which names everything in full, and is inlined"
    definers = await owner.fetch(
        "select proname from pg_proc where pronamespace = 'perdure'::regnamespace and prosecdef order by proname"
    )
    assert [row["proname"] for row in definers] == [
        "agent_job_born",
        "agent_job_left",
        "agent_message_sent",
        "begin_logs",
        "jobs_born",
        "jobs_tagged",
        "jobs_unique",
        "limit_changed",
        "prune_complete",
        "rate_changed",
        "same_payload",
        "slot_freed",
        "unique_holder",
    ]
