"""perdure.enqueue(...): a job from SQL, in any language, is the job that the client would have made."""

import asyncio
import unicodedata
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from psycopg.types.json import Json, Jsonb

from perdure import App, JobContext
from perdure.model.errors import IdempotencyConflict
from perdure.model.events import Event
from perdure.model.ids import hash_json
from perdure.model.jobs import MAX_JSON_BYTES, Job
from tests.conformance.support import checked_log, near
from tests.runtime.support import PATIENCE, check_every_job, working


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[App]:
    """An App over the database that the SQL runs in."""
    async with App(postgres_url) as app:
        yield app
        await check_every_job(app)


class Sql:
    """A session of another language: every statement its own transaction."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection

    async def value(self, sql: str, *arguments: Any) -> Any:
        """The one value a statement gives."""
        cursor = await self.connection.execute(sql, arguments or None)
        row = await cursor.fetchone()
        assert row is not None
        return row[0]

    async def run(self, sql: str) -> None:
        await self.connection.execute(sql)


@pytest.fixture
async def sql(postgres_url: str, app: App) -> AsyncIterator[Sql]:
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        yield Sql(connection)


async def stored(app: App, id: UUID) -> tuple[Job, list[Event]]:
    return await app.jobs.get(id), await checked_log(await app.open(), id)


async def test_a_kind_is_enough(app: App, sql: Sql) -> None:
    id = await sql.value("select perdure.enqueue('echo')")
    job, [born] = await stored(app, id)
    assert (job.kind, job.payload, job.queue, job.priority, job.max_retries) == ("echo", None, "default", 5, None)
    assert (job.tenant_id, job.goal, job.idempotency_key, job.deadline) == ("default", None, None, None)
    assert near(job.due_at, datetime.now(UTC), within=PATIENCE)
    assert born.payload == {"actor": await sql.value("select session_user"), "via": "sql"}
    assert id.version == 7


async def test_everything_that_can_be_said(app: App, sql: Sql) -> None:
    id = await sql.value(
        """select perdure.enqueue(kind => 'research', payload => '{"topic": "茶"}', queue => 'deep', priority => 9,
             run_at => '2030-01-02 03:04:05.678901+00', deadline => '2031-01-01 00:00+00', idempotency_key => 'k',
             max_retries => 0, goal => 'find out')"""
    )
    job, _ = await stored(app, id)
    assert (job.payload, job.queue, job.priority, job.max_retries, job.goal) == (
        {"topic": "茶"},
        "deep",
        9,
        0,
        "find out",
    )
    assert job.run_at == job.due_at == datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert job.deadline == datetime(2031, 1, 1, tzinfo=UTC)
    assert job.idempotency_key == "k"


async def test_what_is_null_was_not_given(app: App, sql: Sql) -> None:
    id = await sql.value("select perdure.enqueue('echo', null, null, null, null, null, null, null, null, null, null)")
    assert (await app.jobs.get(id)).max_retries is None


@pytest.mark.parametrize(
    "payload",
    ["'{\"a\": 1}'", "'{\"a\": 1}'::json", "'{\"a\": 1}'::jsonb", "json_build_object('a', 1)", "'{\"a\": 1}'::text"],
)
async def test_text_json_and_jsonb(app: App, sql: Sql, payload: str) -> None:
    for call in (
        f"select perdure.enqueue('echo', {payload})",
        f"select perdure.enqueue(payload => {payload}, kind => 'echo')",
    ):
        assert (await app.jobs.get(await sql.value(call))).payload == {"a": 1}


async def test_parameters_of_drivers(app: App, sql: Sql, postgres_url: str) -> None:
    values = [
        await sql.value("select perdure.enqueue(%s, %s)", "echo", '{"a": 1}'),
        await sql.value("select perdure.enqueue(%s, %s)", "echo", Json({"a": 1})),
        await sql.value("select perdure.enqueue(%s, %s)", "echo", Jsonb({"a": 1})),
    ]
    connection = await asyncpg.connect(postgres_url)
    call = "select perdure.enqueue($1, $2, delay => $3)"
    values.append(await connection.fetchval(call, "echo", '{"a": 1}', timedelta(0)))
    await connection.close()
    assert [(await app.jobs.get(id)).payload for id in values] == [{"a": 1}] * 4


async def test_a_delay_counts_from_database_time(app: App, sql: Sql) -> None:
    id = await sql.value("select perdure.enqueue('echo', delay => '90 minutes')")
    job = await app.jobs.get(id)
    assert near(job.due_at, job.created_at + timedelta(minutes=90), within=0.001)


async def test_a_worker_runs_it(app: App, sql: Sql) -> None:
    @app.job
    async def echo(ctx: JobContext, value: str) -> str:
        return value

    id = await sql.value("select perdure.enqueue('echo', to_json('hello'::text))")
    async with working(app):
        assert await app.jobs.result(id, timeout=PATIENCE) == "hello"


@pytest.mark.parametrize(
    ("arguments", "state", "says"),
    [
        ("null", "22023", "handler's name"),
        ("''", "22023", "handler's name"),
        ("repeat('x', 201)", "22023", "handler's name"),
        (r"E'a\nb'", "22023", "handler's name"),
        ("'echo', queue => ''", "22023", "queue's name"),
        ("'echo', queue => 'a b'", "22023", "queue's name"),
        ("'echo', queue => 'a:b'", "22023", "queue's name"),
        ("'echo', queue => repeat('x', 101)", "22023", "queue's name"),
        ("'echo', priority => 0", "22023", "priority must be a whole number from 1 to 9"),
        ("'echo', priority => 10", "22023", "priority must be a whole number from 1 to 9"),
        ("'echo', max_retries => -1", "22023", "max_retries"),
        ("'echo', max_retries => 101", "22023", "max_retries"),
        ("'echo', delay => '-1 second'", "22023", "delay cannot be negative"),
        ("'echo', delay => '101 years'", "22023", "100 years"),
        ("'echo', delay => '1 hour', run_at => now()", "22023", "not both"),
        ("'echo', run_at => 'infinity'", "22023", "run_at"),
        ("'echo', deadline => '-infinity'", "22023", "deadline"),
        ("'echo', idempotency_key => ''", "22023", "idempotency_key"),
        ("'echo', idempotency_key => repeat('x', 501)", "22023", "idempotency_key"),
        ("'echo', goal => repeat('x', 2001)", "22023", "goal"),
        ("'echo', tenant => ''", "22023", "tenant's name"),
        ("'echo', tenant => 'a b'", "22023", "tenant's name"),
        ("'echo', tenant => 'a:b'", "22023", "tenant's name"),
        ("'echo', tenant => repeat('x', 101)", "22023", "tenant's name"),
        ("'echo', 'tea'", "22P02", "json"),
        ("'echo', ''", "22P02", "json"),
        (f"'echo', to_json(repeat('x', {MAX_JSON_BYTES - 1}))", "54000", "the limit is 1048576"),
        (f"'echo', to_json(repeat('茶', {MAX_JSON_BYTES // 3}))", "54000", "the limit is 1048576"),
    ],
)
async def test_what_the_client_refuses_is_refused(app: App, sql: Sql, arguments: str, state: str, says: str) -> None:
    with pytest.raises(psycopg.Error, match=says) as refused:
        await sql.value(f"select perdure.enqueue({arguments})")
    assert refused.value.sqlstate == state
    assert await app.jobs.count() == {}


async def test_the_largest_of_everything(app: App, sql: Sql) -> None:
    id = await sql.value(
        f"""select perdure.enqueue(repeat('茶', 200), to_json(repeat('x', {MAX_JSON_BYTES - 2})), repeat('q', 100), 9,
             delay => '100 years' - interval '25 days', idempotency_key => repeat('k', 500), max_retries => 100,
             goal => repeat('g', 2000))"""
    )
    job, _ = await stored(app, id)
    assert len(job.payload) == MAX_JSON_BYTES - 2


async def test_names_are_printable_as_python_means_it(app: App, sql: Sql) -> None:
    """Every character that cannot be shown, and a few of each sort that can."""
    dark = {"Cc", "Cf", "Zs", "Zl", "Zp"}
    hidden = [chr(n) for n in range(1, 0x110000) if unicodedata.category(chr(n)) in dark and not chr(n).isprintable()]
    hidden += ["\ue000", "\uf8ff", "\U000f0000", "\U0010fffd"]
    shown = [*"aZ09 -_.:/é茶\U0001f375\u0301\u2010\u2030\ufe0f\U000e0100"]
    assert len(hidden) > 150
    refused = []
    for character in hidden + shown:
        try:
            await sql.value("select perdure.enqueue(%s)", f"a{character}b")
        except psycopg.errors.InvalidParameterValue:
            refused.append(character)
    assert refused == hidden


async def test_the_same_key_and_payload_is_the_same_job(app: App, sql: Sql) -> None:
    call = "select perdure.enqueue('echo', %s, idempotency_key => 'k')"
    first = await sql.value(call, '{"a": [1, 2]}')
    assert await sql.value(call, '{ "a" : [1, 2.0] }') == first, "however it is spelled"
    with pytest.raises(psycopg.errors.UniqueViolation, match="already belongs to job") as refused:
        await sql.value(call, '{"a": [2, 1]}')
    assert refused.value.diag.constraint_name == "jobs_idempotency"
    assert refused.value.diag.message_hint
    for other in ("'other'", "'echo', tenant => 'neighbour'"):
        assert await sql.value(f"select perdure.enqueue({other}, idempotency_key => 'k')") != first
    assert await app.jobs.count() == {"PENDING": 2}, "and one of the neighbour's"


async def test_many_at_once_make_one_job(app: App, postgres_url: str) -> None:
    pool = asyncpg.create_pool(postgres_url, min_size=8, max_size=8)
    async with pool:
        calls = (pool.fetchval("select perdure.enqueue('echo', '1', idempotency_key => 'k')") for _ in range(40))
        assert len(set(await asyncio.gather(*calls))) == 1
    assert await app.jobs.count() == {"PENDING": 1}


PAYLOADS: list[Any] = [
    None,
    {"b": 1, "a": {"d": [1, 2.5, -0.0], "c": True}},
    "茶 \U0001f375 \x00 \\u0041",
    10**40,
    [],
    1e300,
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
async def test_both_languages_know_each_others_jobs(app: App, sql: Sql, payload: Any) -> None:
    """One key, whether SQL or Python comes first: json as Python formats it or jsonb as PostgreSQL does."""
    ours = await app.enqueue("echo", payload, idempotency_key="ours", elsewhere=True)
    text = await sql.value("select payload::text from perdure.jobs where id = %s", ours.id)
    spellings = [text, f" {text} \n"]
    if "\\u0000" not in text:  # jsonb cannot hold it
        spellings.append(await sql.value("select %s::jsonb::text", text))
    for n, spelling in enumerate(spellings):
        call = "select perdure.enqueue('echo', %s, idempotency_key => %s)"
        if "\\u0000" not in text or n == 0:  # what jsonb cannot hold is compared as text
            assert await sql.value(call, spelling, "ours") == ours.id
        theirs = await sql.value(call, spelling, f"theirs {n}")
        again = await app.enqueue("echo", payload, idempotency_key=f"theirs {n}", elsewhere=True)
        assert (again.id, again.created) == (theirs, False)
        with pytest.raises(IdempotencyConflict):
            await app.enqueue("echo", [payload], idempotency_key=f"theirs {n}", elsewhere=True)
    with pytest.raises(psycopg.errors.UniqueViolation):
        await sql.value("select perdure.enqueue('echo', '[\"other\"]', idempotency_key => 'ours')")
    assert await app.jobs.count() == {"PENDING": 1 + len(spellings)}


async def test_the_hash_is_that_of_the_client(app: App, sql: Sql) -> None:
    """Where both spell a payload alike, no text is compared at all. Without a key there is nothing to compare."""
    text = '{"a":"茶"}'
    keyed = await sql.value("select perdure.enqueue('echo', %s, idempotency_key => 'k')", text)
    plain = await sql.value("select perdure.enqueue('echo', %s)", text)
    assert await sql.value("select payload_hash from perdure.jobs where id = %s", keyed) == hash_json(text)
    assert await sql.value("select payload_hash from perdure.jobs where id = %s", plain) is None


async def test_rolled_back_means_never_enqueued(app: App, sql: Sql) -> None:
    async with sql.connection.transaction(force_rollback=True):
        await sql.value("select perdure.enqueue('echo', idempotency_key => 'k')")
    assert await app.jobs.count() == {}
    assert (await app.enqueue("echo", 1, idempotency_key="k", elsewhere=True)).created


async def test_ids_are_of_version_seven_and_in_order_of_time(sql: Sql) -> None:
    ids = [await sql.value("select perdure.uuid7()") for _ in range(50)]
    assert len(set(ids)) == 50
    assert all(id.version == 7 and id.variant == "specified in RFC 4122" for id in ids)
    stamps = [id.int >> 80 for id in ids]
    assert stamps == sorted(stamps)
    assert abs(stamps[-1] - datetime.now(UTC).timestamp() * 1000) < PATIENCE * 1000


async def test_a_hostile_search_path_changes_nothing(app: App, sql: Sql) -> None:
    await sql.run("create schema evil")
    await sql.run("create function evil.length(text) returns int language sql as 'select 1 / 0'")
    await sql.run("create function evil.now() returns timestamptz language sql as $$select '1999-01-01'::timestamptz$$")
    await sql.run("create function evil.eq(text, text) returns boolean language sql as 'select true'")
    await sql.run("create operator evil.= (leftarg = text, rightarg = text, function = evil.eq)")
    await sql.run("create domain evil.uuid as text check (false)")
    await sql.run("set search_path = evil, pg_catalog")
    id = await sql.value("select perdure.enqueue('echo', '1'::pg_catalog.jsonb, idempotency_key => 'k')")
    assert await sql.value("select perdure.enqueue('echo', '1', idempotency_key => 'k')") == id
    with pytest.raises(psycopg.errors.UniqueViolation):
        await sql.value("select perdure.enqueue('echo', '2', idempotency_key => 'k')")
    assert near((await app.jobs.get(id)).created_at, datetime.now(UTC), within=PATIENCE)


async def test_it_runs_with_the_rights_of_its_caller(app: App, sql: Sql) -> None:
    await sql.run("create role guest")
    try:
        await sql.run("grant usage on schema perdure to guest")
        await sql.run("set role guest")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await sql.value("select perdure.enqueue('echo')")
    finally:
        await sql.run("reset role")
        await sql.run("drop owned by guest")
        await sql.run("drop role guest")
    assert await app.jobs.count() == {}
