"""tx=: a job that is enqueued by the caller's own transaction, with every kind of connection there is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import App, ApprovalContext, Budget, JobContext, Request, Status, Stuck
from perdure.model.errors import IdempotencyConflict, InvalidInput, JobNotFound
from perdure.runtime.client.enqueue import EnqueueOptions
from tests.conformance.support import near
from tests.runtime.support import PATIENCE, check_every_job, until, working
from tests.tx_callers import EVERY, Caller, make_orders, names

KEYED: Any = {"idempotency_key": "order:42"}
FEW = pytest.mark.parametrize("kind", ["psycopg", "asyncpg", "sqlite3", "aiosqlite"])


@pytest.fixture(params=EVERY)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of a kind of connection; the test runs with each."""
    return str(request.param)


@pytest.fixture
async def app(kind: str, fresh_store_url: Callable[[str], str]) -> AsyncIterator[App]:
    """An App with a handler, in a database that the caller shares."""
    app = App(fresh_store_url(EVERY[kind][0]), migrate=True, tenant="shop")

    @app.job(queue="orders", priority=7)
    async def ship(ctx: JobContext, name: str) -> str:
        return await ctx.step("ship", str.upper, name)

    async with app:
        await make_orders(url_of(app))
        yield app
        await check_every_job(app)


@pytest.fixture
async def caller(kind: str, app: App) -> AsyncIterator[Caller]:
    """A program with a connection of this kind to the App's database."""
    async with EVERY[kind][1](url_of(app)) as caller:
        yield caller


def url_of(app: App) -> str:
    url: str = app.settings["database_url"]
    return url


async def everything(app: App) -> int:
    return sum((await app.jobs.count()).values())


async def test_committed_means_enqueued(app: App, caller: Caller) -> None:
    await caller.order("tea")
    handle = await app.enqueue(
        "ship", "tea", tx=caller.tx, goal="ship tea 茶", deadline=datetime.now(UTC) + timedelta(hours=1)
    )
    assert handle.created
    assert await everything(app) == 0, "it is not visible before the commit"
    with pytest.raises(JobNotFound):
        await handle.get()
    await caller.commit()
    job = await handle.get()
    assert (job.kind, job.payload, job.queue, job.priority, job.goal) == ("ship", "tea", "orders", 7, "ship tea 茶")
    assert (job.status, job.version, job.tenant_id, job.max_retries) == (Status.PENDING, 1, "shop", None)
    [born] = await handle.events()
    assert born.payload == {"actor": app.client.actor, "via": "python"}
    assert near(job.created_at, datetime.now(UTC), within=PATIENCE)
    assert near(job.due_at, datetime.now(UTC), within=PATIENCE)
    assert job.deadline is not None
    async with working(app, queues=["orders"]):
        assert await handle.result(PATIENCE) == "TEA"
    assert await names(url_of(app)) == ["tea"]


async def test_rolled_back_means_never_enqueued(app: App, caller: Caller) -> None:
    await caller.order("tea")
    handle = await app.enqueue("ship", "tea", tx=caller.tx, **KEYED)
    await caller.rollback()
    assert await everything(app) == 0
    assert await names(url_of(app)) == []
    with pytest.raises(JobNotFound):
        await handle.get()
    assert (await app.enqueue("ship", "coffee", **KEYED)).created, "and its key is free"


async def test_it_needs_nothing_before_it(app: App, caller: Caller) -> None:
    """Where the driver begins a transaction by itself, the enqueue may be the first thing in it."""
    handle = await app.enqueue("ship", "tea", tx=caller.tx)
    assert await everything(app) == 0
    await caller.order("tea")
    await caller.commit()
    assert (await handle.get()).payload == "tea"
    assert await names(url_of(app)) == ["tea"]


async def test_a_savepoint_takes_its_jobs_along(app: App, caller: Caller) -> None:
    await caller.order("tea")
    kept = await app.enqueue("ship", "tea", tx=caller.tx)
    await caller.run("savepoint here")
    dropped = await app.enqueue("ship", "coffee", tx=caller.tx)
    await app.enqueue_many([Request("ship", "cocoa"), Request("ship", "mate")], tx=caller.tx)
    await caller.run("rollback to savepoint here")
    await caller.run("release savepoint here")
    after = await app.enqueue("ship", "milk", tx=caller.tx)
    await caller.commit()
    assert {j.id for j in (await app.jobs.list()).items} == {kept.id, after.id}
    with pytest.raises(JobNotFound):
        await dropped.get()


async def test_what_a_job_is_enqueued_with_joins_the_transaction(app: App, caller: Caller) -> None:
    given: EnqueueOptions = {
        "budget": Budget(tokens=500),
        "user_id": "ann 茶",
        "extra_env": {"STAGE": "test"},
        "approval_context": ApprovalContext({"deploy": "always"}),
        "stuck": Stuck(after="10m"),
    }
    await caller.order("tea")
    one = await app.enqueue("ship", "tea", tx=caller.tx, **given, **KEYED)
    again = await app.enqueue("ship", "tea", tx=caller.tx, budget=Budget(tokens=1), **KEYED)
    many = [Request("ship", "plain"), Request("ship", "milk", given), Request("ship", "tea", {**KEYED, **given})]
    plain, milk, known = await app.enqueue_many(many, tx=caller.tx)
    await caller.run("savepoint here")
    dropped = await app.enqueue("ship", "cocoa", tx=caller.tx, **given)
    await caller.run("rollback to savepoint here")
    with pytest.raises(InvalidInput):
        await app.enqueue("ship", "mate", tx=caller.tx, timezone="Nowhere/Town")
    await caller.commit()
    assert again.id == known.id == one.id
    whole = ["job_created", "fields_set", "budget_set", "stuck_set", "approval_context_set"]
    for handle, types in ((one, whole), (milk, whole), (plain, whole[:1])):
        events = await handle.events()
        assert [event.type for event in events] == types
        assert (await handle.get()).version == len(types)
    twin = await app.enqueue("ship", "tea", **given)
    assert [e.payload for e in (await one.events())[1:]] == [e.payload for e in (await twin.events())[1:]]
    with pytest.raises(JobNotFound):
        await dropped.get()
    async with working(app, queues=["orders"]):
        assert await one.result(PATIENCE) == "TEA"


async def test_times(app: App, caller: Caller) -> None:
    await caller.order("tea")
    when = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    delayed = await app.enqueue("ship", "a", tx=caller.tx, delay="1h")
    dated = await app.enqueue("ship", "b", tx=caller.tx, run_at=when)
    await caller.commit()
    assert near((await delayed.get()).run_at, datetime.now(UTC) + timedelta(hours=1), within=PATIENCE)
    assert (await dated.get()).due_at == when


async def test_the_same_key_and_payload_is_the_same_job(app: App, caller: Caller) -> None:
    before = await app.enqueue("ship", "tea", **KEYED)
    await caller.order("tea")
    again = await app.enqueue("ship", "tea", tx=caller.tx, priority=1, **KEYED)
    assert (again.id, again.created) == (before.id, False)
    new = await app.enqueue("ship", "tea", tx=caller.tx, idempotency_key="order:43")
    twice = await app.enqueue("ship", "tea", tx=caller.tx, idempotency_key="order:43")
    assert (new.created, twice.id, twice.created) == (True, new.id, False)
    await caller.commit()
    after = await app.enqueue("ship", "tea", idempotency_key="order:43")
    assert (after.id, after.created) == (new.id, False)
    assert await everything(app) == 2
    assert (await before.get()).priority == 7


async def test_a_conflict_leaves_the_transaction_as_it_was(app: App, caller: Caller) -> None:
    await app.enqueue("ship", "tea", **KEYED)
    await caller.order("coffee")
    with pytest.raises(IdempotencyConflict, match="order:42"):
        await app.enqueue("ship", "coffee", tx=caller.tx, **KEYED)
    many = [Request("ship", "milk"), Request("ship", "coffee", KEYED), Request("ship", "cocoa")]
    with pytest.raises(IdempotencyConflict):
        await app.enqueue_many(many, tx=caller.tx)
    last = await app.enqueue("ship", "mate", tx=caller.tx)
    await caller.commit()
    assert await names(url_of(app)) == ["coffee"]
    assert await everything(app) == 2
    assert (await last.get()).payload == "mate"


async def test_many_in_order_all_or_none(app: App, caller: Caller) -> None:
    known = await app.enqueue("ship", "known", **KEYED)
    requests = [Request("ship", str(n)) for n in range(20)]
    requests.insert(7, Request("ship", "known", KEYED))
    await caller.order("all")
    handles = await app.enqueue_many(requests, tx=caller.tx)
    assert [h.created for h in handles].count(False) == 1
    assert handles[7].id == known.id
    assert await app.enqueue_many([], tx=caller.tx) == []
    await caller.commit()
    assert [(await h.get()).payload for h in handles] == [r.input for r in requests]


async def test_payloads_arrive_as_they_are(app: App, caller: Caller) -> None:
    await caller.order("all")
    values: list[Any] = [
        None,
        1.0,
        10**30,
        "茶 \x00 \U0001f375 'quoted' %s $1 :a ?",
        {"b": [1, {"a": "\\"}], "a": None},
        "x" * 300_000,
    ]
    handles = await app.enqueue_many([Request("other", v, {"elsewhere": True}) for v in values], tx=caller.tx)
    await caller.commit()
    assert [(await h.get()).payload for h in handles] == values
    for handle, value in zip(handles, values, strict=True):
        assert type((await handle.get()).payload) is type(value)


@FEW
async def test_bad_input_is_refused_before_anything_is_touched(app: App, caller: Caller) -> None:
    wrongs: list[Any] = [{"priority": 0}, {"delay": -1}, {"tx_": 1}]
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            await app.enqueue("ship", "tea", tx=caller.tx, **wrong)
    misplaced: Any = {"tx": caller.tx}
    with pytest.raises(InvalidInput, match=r"unknown options.*tx"):
        await app.enqueue_many([Request("ship", "tea", misplaced)])
    await caller.order("tea")
    await caller.commit()
    assert await everything(app) == 0


@FEW
async def test_an_open_transaction_holds_up_only_its_own_key(app: App, caller: Caller, kind: str) -> None:
    await caller.order("tea")
    mine = await app.enqueue("ship", "tea", tx=caller.tx, **KEYED)
    theirs = asyncio.create_task(app.enqueue("ship", "tea", **KEYED))
    if EVERY[kind][0] == "postgres":  # SQLite has one writer: there every writer waits for the commit
        for n in range(20):
            assert (await app.enqueue("ship", str(n))).created
        assert not theirs.done()
    await caller.commit()
    async with asyncio.timeout(PATIENCE):
        same = await theirs
    assert (same.id, same.created) == (mine.id, False)


async def test_a_worker_finds_it_by_itself(app: App, caller: Caller) -> None:
    """There is no hint of a caller's commit: the poll finds it."""
    async with working(app, queues=["orders"]):
        done = await app.enqueue("ship", "first")
        await done.result(PATIENCE)
        await caller.order("tea")
        handle = await app.enqueue("ship", "tea", tx=caller.tx)
        await caller.commit()
        await until(lambda: _completed(app, handle.id))


async def _completed(app: App, job_id: Any) -> bool:
    return (await app.jobs.get(job_id)).status is Status.COMPLETED
