"""The client: what a program does with jobs, and what it is refused."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    App,
    Backoff,
    BlockingContext,
    Client,
    Fail,
    JobCancelled,
    JobContext,
    JobFailed,
    Request,
    Status,
    WaitTimeout,
)
from perdure.model.errors import (
    AmbiguousId,
    ConfigError,
    DuplicateHandler,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    InvalidPriority,
    JobLeased,
    JobNotFound,
    MalformedUrl,
    NegativeDelay,
    NotJson,
    SchemaTooNew,
    StoreUnreachable,
    TooLarge,
    UnknownHandler,
    VersionMismatch,
)
from perdure.model.ids import uuid7
from perdure.model.jobs import MAX_JSON_BYTES
from tests.conformance.sql_shell import open_shell
from tests.runtime.support import LONG, NOW, PATIENCE, ended, only, reached, soon, types, working


@pytest.fixture
def echo(app: App) -> Any:
    """A handler that gives back what it got."""

    @app.job
    async def echo(ctx: JobContext, value: Any) -> Any:
        return value

    return echo


# -- results ----------------------------------------------------------------------------------------------------------------


async def test_a_result_is_waited_for(app: App, echo: Any) -> None:
    handle = await app.enqueue(echo, {"a": [1, "ä"]}, delay=0.1)
    async with working(app):
        assert await handle.result(PATIENCE) == {"a": [1, "ä"]}
        assert await handle.result(0) == {"a": [1, "ä"]}, "what is there already needs no time"
        assert await handle.status() is Status.COMPLETED
        assert await app.jobs.result(handle.id, timeout=PATIENCE) == {"a": [1, "ä"]}


async def test_a_timeout_does_not_touch_the_job(app: App, echo: Any) -> None:
    handle = await app.enqueue(echo, 1)
    before = await handle.get()
    with pytest.raises(WaitTimeout, match=r"still PENDING after 0\.05 s") as caught:
        await handle.result(0.05)
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(WaitTimeout):
        await app.jobs.wait(handle.id, timeout="50ms")
    assert await handle.get() == before
    async with working(app):
        assert await handle.result(PATIENCE) == 1


async def test_a_timeout_says_whether_a_worker_could_run_the_job(app: App, echo: Any) -> None:
    handle = await app.enqueue(echo, 1)
    with pytest.raises(WaitTimeout) as caught:
        await handle.result(0.05)
    assert "and no live worker serves queue 'default'. It is kept, not cancelled" in caught.value.message
    assert caught.value.hint == (
        "start a worker for queue 'default': perdure worker start --app module:attr\n"
        f"see why: perdure jobs explain {handle.id.hex[-8:]}"
    )
    late = await app.enqueue(echo, 1, delay="1h")
    slow = app.job(name="slow")(sleeps)
    async with working(app):
        assert await handle.result(PATIENCE) == 1
        with pytest.raises(WaitTimeout, match=r"PENDING after 0\.05 s\. It was enqueued to start at .*\. It is kept"):
            await late.result(0.05)
        held = await app.enqueue(slow)
        await reached(held, Status.RUNNING)
        with pytest.raises(WaitTimeout, match=r"still RUNNING after 0\.05 s\. It is kept, not cancelled"):
            await held.result(0.05)


async def sleeps(ctx: JobContext) -> None:
    await asyncio.sleep(60)


async def test_a_timeout_is_raised_also_if_it_cannot_be_explained(
    app: App, echo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(job_id: Any) -> None:
        raise StoreUnreachable("gone")

    handle = await app.enqueue(echo, 1)
    monkeypatch.setattr((await app.open()).jobs, "situation", fails)
    with pytest.raises(WaitTimeout, match=r"still PENDING after 0\.05 s\. It is kept, not cancelled"):
        await handle.result(0.05)


async def test_failures_are_raised(app: App) -> None:
    @app.job(max_retries=0)
    async def fails(ctx: JobContext, how: str) -> None:
        if how == "fail":
            raise Fail("no such customer")
        raise ValueError("a bug")

    async with working(app):
        with pytest.raises(JobFailed, match="no such customer") as failed:
            await (await app.enqueue(fails, "fail")).result(PATIENCE)
        assert (failed.value.kind, failed.value.job.status) == ("fatal", Status.FAILED)
        with pytest.raises(JobFailed) as dead:
            await (await app.enqueue(fails, "bug")).result(PATIENCE)
        assert (dead.value.kind, dead.value.job.status) == ("exhausted", Status.DEADLETTER)
    cancelled = await app.enqueue(fails, "x")
    await cancelled.cancel("not needed")
    with pytest.raises(JobCancelled, match="not needed"):
        await cancelled.result(PATIENCE)


async def test_waiting_may_be_given_up(app: App, echo: Any) -> None:
    handle = await app.enqueue(echo, 1)
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await handle.status() is Status.PENDING


# -- watching ---------------------------------------------------------------------------------------------------------------


async def test_watching_from_any_version(app: App) -> None:
    @app.job(backoff=NOW)
    async def steps(ctx: JobContext) -> None:
        for n in range(5):
            await ctx.step(f"step {n}", str, n)
        if ctx.attempt == 1:
            raise OSError("replay, please")

    async with working(app):
        handle = await app.enqueue(steps, delay=0.05)
        live = [e async for e in handle.watch()]
    log = await handle.events()
    assert live == log
    assert [e.version for e in log] == list(range(1, len(log) + 1))
    for version in (0, 1, 4, len(log) - 1, len(log), len(log) + 5):
        assert [e async for e in handle.watch(from_version=version)] == log[version:]
    assert await handle.events(after=4) == log[4:]


async def test_many_watch_at_once(app: App) -> None:
    @app.job
    async def steps(ctx: JobContext) -> None:
        for n in range(10):
            await ctx.emit("tick", n)

    async def watch(handle: Any) -> list[int]:
        return [e.payload async for e in handle.watch() if e.type == "tick"]

    handle = await app.enqueue(steps)
    watchers = [asyncio.create_task(watch(handle)) for _ in range(8)]
    async with working(app):
        assert await soon(asyncio.gather(*watchers)) == [list(range(10))] * 8


async def test_unknown_jobs(app: App) -> None:
    missing = uuid7()
    for call in (
        lambda: app.jobs.get(missing),
        lambda: app.jobs.events(missing),
        lambda: app.jobs.wait(missing, timeout=1),
        lambda: app.jobs.cancel(missing),
        lambda: app.jobs.retry_now(missing),
        lambda: app.jobs.rerun(missing),
        lambda: app.jobs.append(missing, 1, "note"),
        lambda: anext(app.jobs.watch(missing)),
        lambda: app.jobs.runs(missing),
    ):
        with pytest.raises(JobNotFound):
            await call()


async def test_ids_in_every_spelling(app: App, echo: Any) -> None:
    handle = await app.enqueue(echo, 1)
    for text in (str(handle.id), handle.id.hex, handle.id.hex.upper(), handle.id.hex[-8:], "…" + handle.id.hex[-6:]):
        assert (await app.jobs.get(text)).id == handle.id
    with pytest.raises(AmbiguousId):
        await app.jobs.get(handle.id.hex[-5:])
    with pytest.raises(InvalidInput):
        await app.jobs.get("no id at all")
    with pytest.raises(JobNotFound):
        await app.jobs.get("f" * 32)


# -- lists ------------------------------------------------------------------------------------------------------------------


async def test_lists_and_counts(app: App, echo: Any) -> None:
    @app.job(max_retries=0)
    async def fails(ctx: JobContext) -> None:
        raise Fail("the printer is on fire")

    async with working(app):
        done = [await app.enqueue(echo, n, goal=f"goal {n}") for n in range(5)]
        failed = await app.enqueue(fails, queue="default", idempotency_key="one")
        for handle in (*done, failed):
            await ended(app, handle)
    waiting = [await app.enqueue(echo, n, queue="other", goal="später") for n in range(3)]
    assert await app.jobs.count() == {"COMPLETED": 5, "FAILED": 1, "PENDING": 3}
    assert await app.jobs.count(by="queue") == {"default": 6, "other": 3}
    assert await app.jobs.count(by="kind", status=["COMPLETED", "failed"]) == {"echo": 5, "fails": 1}
    assert [j.id for j in (await app.jobs.list(status="pending")).items] == [h.id for h in reversed(waiting)]
    assert [j.id for j in (await app.jobs.list(status="queued", queue="other")).items] == [
        h.id for h in reversed(waiting)
    ]
    assert [j.id for j in (await app.jobs.list(kind="fails")).items] == [failed.id]
    assert [j.id for j in (await app.jobs.list(search="PRINTER")).items] == [failed.id]
    assert [j.id for j in (await app.jobs.list(search="goal 3")).items] == [done[3].id]
    assert len((await app.jobs.list(search="später")).items) == 3
    assert [j.id for j in (await app.jobs.list(idempotency_key="one")).items] == [failed.id]
    assert (await app.jobs.list(since=datetime.now(UTC) + timedelta(hours=1))).items == ()
    assert len((await app.jobs.list(until=datetime.now(UTC) + timedelta(hours=1))).items) == 9
    seen, cursor = [], None
    while True:
        page = await app.jobs.list(limit=4, cursor=cursor)
        seen += [j.id for j in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert seen == [h.id for h in reversed([*done, failed, *waiting])]
    for bad in ({"status": "asleep"}, {"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"since": datetime(2026, 1, 1)}):  # noqa: DTZ001  refused for that
        with pytest.raises(InvalidInput):
            await app.jobs.list(**bad)
    with pytest.raises(TypeError, match="stauts"):
        await app.jobs.count(stauts="PENDING")  # type: ignore[call-arg]  # refused for that


# -- enqueue ----------------------------------------------------------------------------------------------------------------


async def test_the_same_idempotency_key_is_the_same_job(app: App, echo: Any) -> None:
    handles = await asyncio.gather(*(app.enqueue(echo, {"n": 1}, idempotency_key="order:1") for _ in range(20)))
    assert len({h.id for h in handles}) == 1
    assert [h.created for h in handles].count(True) == 1
    with pytest.raises(IdempotencyConflict):
        await app.enqueue(echo, {"n": 2}, idempotency_key="order:1")
    assert await app.jobs.count() == {"PENDING": 1}
    async with working(app):
        assert await handles[7].result(PATIENCE) == {"n": 1}
    again = await app.enqueue(echo, {"n": 1}, idempotency_key="order:1")
    assert (again.id, again.created) == (handles[0].id, False)
    assert await again.result(PATIENCE) == {"n": 1}


async def test_several_jobs_are_stored_together_or_not_at_all(app: App, echo: Any) -> None:
    handles = await app.enqueue_many([Request(echo, n, {"priority": 3}) for n in range(50)])
    assert [(await h.get()).payload for h in handles[:3]] == [0, 1, 2]
    with pytest.raises(InvalidPriority):
        await app.enqueue_many([Request(echo, 1), Request(echo, 2, {"priority": 10})])
    await app.enqueue(echo, "other", idempotency_key="taken")
    with pytest.raises(IdempotencyConflict):
        await app.enqueue_many([Request(echo, 1), Request(echo, 2, {"idempotency_key": "taken"})])
    same = Request(echo, 1, {"idempotency_key": "k"})
    twins = await app.enqueue_many([same, same])
    assert twins[0].id == twins[1].id
    assert await app.enqueue_many([]) == []
    assert await app.jobs.count() == {"PENDING": 52}


async def test_options_come_from_the_policy_unless_given(app: App) -> None:
    @app.job(name="named", queue="slow", priority=8, max_retries=7)
    async def one(ctx: JobContext) -> None: ...

    job = await (await app.enqueue(one)).get()
    assert (job.kind, job.queue, job.priority, job.max_retries) == ("named", "slow", 8, None)
    moment = datetime.now(UTC).astimezone() + timedelta(hours=1)
    job = await (
        await app.enqueue(
            one, queue="fast", priority=1, max_retries=0, run_at=moment, deadline=moment + timedelta(hours=1), goal="g"
        )
    ).get()
    assert (job.queue, job.priority, job.max_retries, job.goal) == ("fast", 1, 0, "g")
    assert abs((job.run_at - moment).total_seconds()) < 0.001
    assert job.deadline is not None
    assert abs((job.deadline - moment).total_seconds() - 3600) < 0.001
    assert job.note == {"actor": app.client.actor, "via": "python"}


BAD: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (InvalidPriority, "echo", {"priority": 0}),
    (InvalidPriority, "echo", {"priority": 10}),
    (InvalidPriority, "echo", {"priority": 5.0}),
    (InvalidPriority, "echo", {"priority": True}),
    (InvalidPriority, "echo", {"priority": "9"}),
    (NegativeDelay, "echo", {"delay": -1}),
    (NegativeDelay, "echo", {"delay": "-5s"}),
    (NegativeDelay, "echo", {"delay": timedelta(seconds=-1)}),
    (InvalidInput, "echo", {"delay": "soon"}),
    (InvalidInput, "echo", {"delay": float("nan")}),
    (InvalidInput, "echo", {"delay": 1e12}),
    (InvalidInput, "echo", {"delay": None}),
    (InvalidInput, "echo", {"delay": True}),
    (InvalidInput, "echo", {"run_at": datetime(2030, 1, 1)}),  # noqa: DTZ001  refused for that
    (InvalidInput, "echo", {"run_at": "tomorrow"}),
    (InvalidInput, "echo", {"deadline": datetime(2030, 1, 1)}),  # noqa: DTZ001  refused for that
    (InvalidInput, "echo", {"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5}),
    (InvalidInput, "echo", {"max_retries": -1}),
    (InvalidInput, "echo", {"max_retries": 101}),
    (InvalidInput, "echo", {"max_retries": 1.0}),
    (InvalidInput, "echo", {"queue": ""}),
    (InvalidInput, "echo", {"queue": "a:b"}),
    (InvalidInput, "echo", {"queue": "a b"}),
    (InvalidInput, "echo", {"queue": "x" * 101}),
    (InvalidInput, "echo", {"queue": "a\n"}),
    (InvalidInput, "echo", {"idempotency_key": ""}),
    (InvalidInput, "echo", {"idempotency_key": "x" * 501}),
    (InvalidInput, "echo", {"idempotency_key": "a\x00"}),
    (InvalidInput, "echo", {"goal": "x" * 2001}),
    (InvalidInput, "echo", {"goal": "a\x00"}),
    (InvalidInput, "echo", {"goal": "\ud800"}),
    (UnknownHandler, "ehco", {}),
    (InvalidInput, "", {"elsewhere": True}),
    (InvalidInput, "x" * 201, {"elsewhere": True}),
    (InvalidInput, "a\x00", {"elsewhere": True}),
]


async def test_what_makes_no_sense_is_refused_and_nothing_written(app: App, echo: Any) -> None:
    for error, kind, options in BAD:
        with pytest.raises(error, match=r".{10}"):
            await app.enqueue(kind, 1, **options)
    assert (await app.jobs.list()).items == ()


async def test_payloads_that_cannot_be_stored_are_refused(app: App, echo: Any) -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    for payload in (object(), float("nan"), {"a": float("inf")}, "\ud800", circle, {1, object()}, deep, b"\xff"):
        with pytest.raises(NotJson):
            await app.enqueue(echo, payload)
    with pytest.raises(TooLarge, match=r"1,048,577 bytes of JSON; the limit is 1,048,576"):
        await app.enqueue(echo, "x" * (MAX_JSON_BYTES - 1))
    with pytest.raises(TooLarge):
        await app.enqueue(echo, "ä" * (MAX_JSON_BYTES // 2))
    assert (await app.jobs.list()).items == ()
    assert (await app.enqueue(echo, "x" * (MAX_JSON_BYTES - 2))).created


async def test_an_unknown_handler_names_the_nearest(app: App, echo: Any) -> None:
    with pytest.raises(UnknownHandler, match="did you mean 'echo'") as caught:
        await app.enqueue("ehco")
    assert "elsewhere=True" in (caught.value.hint or "")
    handle = await app.enqueue("ehco", elsewhere=True)
    assert (await handle.get()).kind == "ehco"


async def test_input_for_a_handler_that_takes_none(app: App) -> None:
    @app.job
    async def none(ctx: JobContext) -> str:
        return "done"

    with pytest.raises(InvalidInput, match="takes no input"):
        await app.enqueue("none", 1)
    async with working(app):
        assert await (await app.enqueue("none")).result(PATIENCE) == "done"


async def test_an_input_with_a_default_may_be_left_out(app: App) -> None:
    @app.job
    async def sweep(ctx: JobContext, days: int = 30) -> int:
        return days

    @app.job
    def plain(ctx: BlockingContext, name: str | None = "nobody") -> str | None:
        return name

    with pytest.raises(InvalidInput, match="valid integer"):
        await app.enqueue("sweep", "x")
    async with working(app):
        first = await app.enqueue(sweep)
        assert await first.result(PATIENCE) == 30
        assert await (await app.enqueue(sweep, 7)).result(PATIENCE) == 7
        assert await (await app.jobs.rerun(first.id)).result(PATIENCE) == 30
        assert await (await app.jobs.fork(first.id)).result(PATIENCE) == 30
        assert await (await app.enqueue(plain)).result(PATIENCE) == "nobody"
        assert await (await app.enqueue(plain, None)).result(PATIENCE) == "nobody"
        assert await (await app.enqueue("sweep")).result(PATIENCE) == 30


async def test_handlers_are_checked_when_they_are_registered(app: App) -> None:
    @app.job
    async def first(ctx: JobContext) -> None: ...

    anything: Any = app  # mypy refuses most of this before it runs
    with pytest.raises(DuplicateHandler, match="first"):
        app.job(name="first")(lambda ctx: None)
    with pytest.raises(InvalidInput, match=r"\(ctx\) or \(ctx, input\)"):
        anything.job(lambda: None)
    with pytest.raises(InvalidInput):
        anything.job(lambda ctx, a, b: None)
    refused: list[Callable[[], Any]] = [
        lambda: app.job(priority=10),
        lambda: app.job(max_retries=101),
        lambda: app.job(queue="a:b"),
        lambda: app.job(timeout=-1),
        lambda: app.job(timeout="soon"),
        lambda: anything.job(backoff=30),
        lambda: anything.job(backoff=0),
        lambda: app.job(name="x" * 201)(lambda ctx: None),
        lambda: Backoff(base=10, cap=5),
        lambda: Backoff(multiplier=0.5),
        lambda: Backoff(jitter=2),
        lambda: Backoff(base="soon"),
    ]
    for call in refused:
        with pytest.raises(ValueError):  # noqa: PT011  every one of them is a ValueError; the words are tested elsewhere
            call()
    with pytest.raises(TypeError):
        anything.job(max_retry=3)
    assert await first(None) is None, "a handler can still be called"


async def test_plain_handlers_can_be_registered_by_calling_job(app: App) -> None:
    def plain(ctx: BlockingContext, n: int) -> int:
        return n + 1

    handler = app.job(plain)

    def shout(ctx: BlockingContext, text: str) -> str:
        return text.upper()

    louder = app.job(name="louder")(shout)
    async with working(app):
        assert await (await app.enqueue(handler, 1)).result(PATIENCE) == 2
        assert await (await app.enqueue(louder, "a")).result(PATIENCE) == "A"


# -- control ----------------------------------------------------------------------------------------------------------------


async def test_rerun_makes_a_linked_twin(app: App) -> None:
    @app.job(max_retries=2, priority=7)
    async def fails_once(ctx: JobContext, given: dict[str, int]) -> dict[str, int]:
        if not allowed:
            raise Fail("not yet")
        return given

    allowed: list[int] = []
    async with working(app):
        handle = await app.enqueue(fails_once, {"a": 1}, goal="g", idempotency_key="k", queue="default")
        old = await ended(app, handle)
        assert old.status is Status.FAILED
        allowed.append(1)
        twin = await app.jobs.rerun(handle.id, "mended")
        assert await twin.result(PATIENCE) == {"a": 1}
    new = await twin.get()
    assert new.id != old.id
    assert (new.origin_id, new.origin_kind) == (old.id, "rerun")
    assert (new.kind, new.goal, new.priority, new.max_retries) == ("fails_once", "g", 7, 2)
    assert new.idempotency_key == "k", "a rerun takes the key of a dead job over"
    assert only(await twin.events(), "job_created").payload["reason"] == "mended"
    assert await handle.get() == replace(old, idempotency_key=None), "terminal is terminal"


async def test_retry_now(app: App, echo: Any) -> None:
    @app.job(backoff=Backoff(base=3600, cap=3600, jitter=0))
    async def flaky(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            raise OSError("later")
        return "done"

    async with working(app):
        handle = await app.enqueue(flaky)
        await reached(handle, Status.RETRY)
        await app.jobs.retry_now(handle.id, "it is up again")
        assert await handle.result(PATIENCE) == "done"
        report = only(await handle.events(), "made_due").payload
        assert (report["reason"], report["actor"]) == ("it is up again", app.client.actor)
        with pytest.raises(IllegalTransition, match="only a job in RETRY"):
            await app.jobs.retry_now(handle.id)


async def test_append_is_a_compare_and_swap(app: App, echo: Any) -> None:
    handle = await app.enqueue(echo, 1)
    same = uuid7()
    assert await app.jobs.append(handle.id, 1, "note", {"a": 1}) == 2
    assert await app.jobs.append(handle.id, 2, "note", event_id=same) == 3
    assert await app.jobs.append(handle.id, 2, "note", event_id=same) == 3
    with pytest.raises(VersionMismatch) as caught:
        await app.jobs.append(handle.id, 2, "note")
    assert (caught.value.expected, caught.value.actual) == (2, 3)
    for bad in ("job_created", "node_finished", "", "a b"):
        with pytest.raises(InvalidInput):
            await app.jobs.append(handle.id, 3, bad)
    with pytest.raises(NotJson):
        await app.jobs.append(handle.id, 3, "note", object())
    winners = await asyncio.gather(
        *(app.jobs.append(handle.id, 3, "race", n) for n in range(10)), return_exceptions=True
    )
    assert [w for w in winners if not isinstance(w, VersionMismatch)] == [4]
    async with working(app):
        assert await handle.result(PATIENCE) == 1
    with pytest.raises(IllegalTransition):
        await app.jobs.append(handle.id, (await handle.get()).version, "note")


async def test_a_leased_job_takes_no_events_from_others(app: App) -> None:
    @app.job
    async def waits(ctx: JobContext) -> None:
        await asyncio.sleep(PATIENCE * 2)

    async with working(app):
        handle = await app.enqueue(waits)
        await reached(handle, Status.RUNNING)
        with pytest.raises(JobLeased):
            await app.jobs.append(handle.id, (await handle.get()).version, "note")
        await handle.cancel()
        await ended(app, handle)


async def test_events_appended_to_a_parked_job_are_kept(app: App) -> None:
    @app.job
    async def nap(ctx: JobContext) -> int:
        await ctx.sleep("nap", LONG if not awake else 0)
        return ctx.attempt

    awake: list[int] = []
    async with working(app):
        handle = await app.enqueue(nap)
        job = await reached(handle, Status.PARKED)
        await app.jobs.append(handle.id, job.version, "note", "from outside")
        await handle.cancel()
    assert types(await handle.events())[-2:] == ["note", "job_cancelled"]


# -- the app ----------------------------------------------------------------------------------------------------------------


async def test_a_client_of_its_own(app: App, echo: Any) -> None:
    client = Client(await app.open(), via="test", actor="ann")
    handle = await client.enqueue("echo", 1)
    assert (await handle.get()).note == {"actor": "ann", "via": "test"}
    async with working(app):
        assert await handle.result(PATIENCE) == 1
    with pytest.raises(ConfigError):
        await Client(None).jobs.get(handle.id)


async def test_an_app_is_opened_at_first_use_and_may_be_used_again(file_store_url: str) -> None:
    app = App(file_store_url, migrate=True)

    @app.job
    async def echo(ctx: JobContext, n: int) -> int:
        return n

    opened = await asyncio.gather(*(app.open() for _ in range(5)))
    assert len({id(s) for s in opened}) == 1
    handle = await app.enqueue(echo, 1)
    await app.close()
    await app.close()
    async with working(app):
        assert await handle.result(PATIENCE) == 1
    with pytest.raises(ConfigError):
        app.configure(app.settings)
    await app.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_the_database_of_an_app(kind: str, fresh_store_url: Callable[[str], str], tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/new.db" if kind == "sqlite" else fresh_store_url(kind))
    before = await app.database.schema_status()
    applied = await app.database.migrate()
    assert (before.current == 0) == bool(applied) == (kind == "sqlite"), "PostgreSQL's comes migrated"
    assert (await app.database.schema_status()).current == before.needed
    assert await app.database.migrate() == []
    assert abs(await app.database.now() - datetime.now(UTC)) < timedelta(minutes=1)
    assert {t.name for t in (await app.database.sizes()).tables} >= {"jobs", "job_events"}
    await app.close()


async def test_an_app_whose_schema_does_not_fit_can_still_be_asked(file_store_url: str) -> None:
    async with App(file_store_url, migrate=True) as app:
        await app.jobs.count()
    async with open_shell(file_store_url) as shell:
        moment = "now()" if shell.postgres else "0"
        await shell.run(f"insert into schema_migrations values (99, 'future', 'x', {moment})")
    app = App(file_store_url)
    assert (await app.database.schema_status()).current == 99
    refused = await asyncio.gather(
        app.database.now(), app.jobs.count(), app.database.sizes(), app.database.migrate(), return_exceptions=True
    )
    assert [type(error) for error in refused] == [SchemaTooNew] * 4
    assert (await app.database.schema_status()).current == 99
    await app.close()


def test_an_app_in_one_event_loop_after_the_other(file_store_url: str) -> None:
    app = App(file_store_url, migrate=True)

    @app.job
    async def echo(ctx: JobContext, n: int) -> int:
        return n

    async def ask() -> Any:
        async with app:
            return await app.enqueue(echo, 1)

    async def answer() -> int:
        async with app, working(app):
            result: int = await app.jobs.result(handle.id, timeout=PATIENCE)
            return result

    handle = asyncio.run(ask())
    assert asyncio.run(answer()) == 1


def test_an_app_in_memory_lives_in_one_event_loop() -> None:
    app = App("memory:")

    async def use() -> dict[str, int]:
        return await app.jobs.count()

    assert asyncio.run(use()) == {}
    with pytest.raises(ConfigError, match="another"):
        asyncio.run(use())


async def test_wrong_urls(tmp_path: Any) -> None:
    for url in ("", "mysql://x", "sqlite://x", "postgresql:", "memory:x"):
        with pytest.raises((MalformedUrl, ConfigError)):
            await App(url or "x").open()


async def test_the_client_survives_many_callers(app: App, echo: Any) -> None:
    async with working(app, concurrency=20):

        async def one(n: int) -> int:
            handle = await app.enqueue(echo, n)
            result = await handle.result(PATIENCE)
            assert [e.version for e in await handle.events()] == [1, 2, 3]
            return int(result)

        assert await soon(asyncio.gather(*(one(n) for n in range(150)))) == list(range(150))


FAR = [
    datetime.max.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=9))),
]


@pytest.mark.parametrize("moment", FAR, ids=str)
async def test_moments_that_no_store_can_hold(app: App, moment: datetime) -> None:
    """PostgreSQL would make `infinity` of the first and the last, which no program reads."""
    for call in (
        lambda: app.enqueue("echo", run_at=moment),
        lambda: app.enqueue("echo", deadline=moment),
        lambda: app.jobs.list(since=moment),
        lambda: app.jobs.count(until=moment),
    ):
        with pytest.raises(InvalidInput, match="years 2 to 9998"):
            await call()
    assert await app.jobs.count() == {}
