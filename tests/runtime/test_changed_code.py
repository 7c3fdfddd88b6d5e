"""Code that does not fit what is recorded suspends the job: until other code comes, or a person says so."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from perdure import App, BlockingContext, Handle, JobContext, Status
from perdure.model.approvals import Approval
from perdure.model.errors import IllegalTransition, StepChanged
from perdure.model.explanation import Why
from perdure.model.steps import steps_of
from tests.runtime.conftest import Place
from tests.runtime.support import NOW, PATIENCE, ended, pending, reached, types, until, working

QUICK = {"chores": 0.05, "linger": 0.0}


class Code:
    """Three versions of a program on one database; `calls` counts what they do."""

    def __init__(self, place: Place) -> None:
        self.old, self.new, self.third = (
            App(place.url, tenant=place.tenant, migrate=True, version=version) for version in ("1", "2", "3")
        )
        self.calls: Counter[str] = Counter()

    def do(self, name: str, value: Any = None) -> Any:
        self.calls[name] += 1
        return value


@pytest.fixture
async def code(place: Place, app: App) -> AsyncIterator[Code]:
    code = Code(place)
    if place.url == "memory:":
        code.new.backend = code.third.backend = code.old.backend = app.backend
    yield code
    if place.url != "memory:":
        for one in (code.old, code.new, code.third):
            await one.close()


def reports(code: Code) -> None:
    """A handler whose step has another argument from version 2 on, and the first one again in version 3."""

    def make(app: App, value: int) -> None:
        @app.job
        async def report(ctx: JobContext) -> int:
            found: int = await ctx.step("search", code.do, "search", value)
            await ctx.approve("go", title="Go on?")
            return found

    for app, value in ((code.old, 1), (code.new, 2), (code.third, 1)):
        make(app, value)


async def asks_to_go(code: Code, handle: Handle[Any]) -> Approval | None:
    """The question whether to go on, once the job is suspended on it."""
    asked = [a for a in (await code.old.approvals.list(job_id=handle.id)).items if a.key == "go"]
    return asked[0] if asked and await handle.status() is Status.WAITING_FOR_APPROVAL else None


async def parked_by_old(code: Code, kind: str = "report") -> Handle[Any]:
    """A job that the old code ran until it asked whether to go on, and that is due again."""
    async with working(code.old, linger=0.0):
        handle = await code.old.enqueue(kind)
        asked = await until(lambda: asks_to_go(code, handle), what="the question")
    await code.old.approve(asked.id)
    return handle


async def waits_for_code(handle: Handle[Any]) -> bool:
    job = await handle.get()
    return job.status is Status.PARKED and any(wait.kind == "code" and wait.answered_at is None for wait in job.waits)


async def test_a_changed_step_suspends_the_job_and_says_why(code: Code) -> None:
    reports(code)
    handle = await parked_by_old(code)
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle), what="the code wait")
        attempts = (await handle.get()).attempt
        await asyncio.sleep(0.4)
        job = await handle.get()
        assert (job.attempt, job.retry_count, job.status) == (attempts, 0, Status.PARKED), "it is left alone"
    assert "step 'search' was recorded with other arguments" in job.note["reason"]
    reason = await code.new.jobs.explain(handle.id)
    assert reason.code is Why.CODE
    assert "step 'search'" in reason.sentence
    assert "version 2" in reason.sentence
    assert any("retry-now" in move.command for move in reason.moves)
    opened = [e for e in await handle.events() if e.type == "wait_started" and e.payload["kind"] == "code"]
    assert [(e.payload["step"], e.payload["version"]) for e in opened] == [("search", "2")]
    assert [s.key for s in steps_of(await handle.events())] == ["search", "go"]
    started = [e.payload.get("version") for e in await handle.events() if e.type == "run_started"]
    assert started[0] == "1"
    assert started[-1] == "2"
    async with working(code.third, **QUICK):
        assert await handle.result(PATIENCE) == 1
    assert code.calls == {"search": 1}
    assert (await handle.get()).waits == ()


async def test_two_versions_that_do_not_fit_leave_it_alone(code: Code) -> None:
    reports(code)

    @code.third.job(name="strange")
    async def strange(ctx: JobContext) -> None: ...

    handle = await parked_by_old(code)
    fourth = code.third
    fourth.registry._handlers["report"] = code.new.registry.get("report")
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle))
    async with working(fourth, **QUICK):

        async def both() -> bool:
            waits = (await handle.get()).waits
            return {w.key for w in waits if w.kind == "code" and w.answered_at is None} == {"code:2", "code:3"}

        await until(both, what="both versions")
    async with working(code.new, **QUICK), working(fourth, **QUICK):
        attempts = (await handle.get()).attempt
        await asyncio.sleep(0.4)
        assert (await handle.get()).attempt == attempts
        assert "version 2 and 3" in (await code.new.jobs.explain(handle.id)).sentence
    async with working(code.old, **QUICK):
        assert await handle.result(PATIENCE) == 1


async def test_a_version_that_writes_before_it_meets_the_difference_ends_no_other_wait(code: Code) -> None:
    """Its first write ends the wait of the version before; as it does not fit either, both wait again, also in the log."""

    def make(app: App, value: int) -> None:
        @app.job(name="report")
        async def report(ctx: JobContext) -> int:
            await ctx.checkpoint({"value": value})
            found: int = await ctx.step("search", code.do, "search", value)
            await ctx.approve("go", title="Go on?")
            return found

    for app, value in ((code.old, 1), (code.new, 2), (code.third, 3)):
        make(app, value)
    handle = await parked_by_old(code)
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle))
    async with working(code.third, **QUICK):

        async def both() -> bool:
            job = await handle.get()
            open_waits = {w.key for w in job.waits if w.kind == "code" and w.answered_at is None}
            return job.status is Status.PARKED and open_waits == {"code:2", "code:3"}

        await until(both, what="both versions")
    log: Counter[str] = Counter()
    for event in await handle.events():
        if event.payload.get("kind") == "code":
            log[event.payload["key"]] += {"wait_started": 1, "wait_completed": -1}[event.type]
    assert log == {"code:2": 1, "code:3": 1}


async def test_the_code_that_does_not_fit_claims_it_ever_more_seldom(code: Code) -> None:
    """The worker that wakes it has no free slot, and the other one has."""
    reports(code)

    @code.old.job
    async def long(ctx: JobContext) -> None:
        await ctx.step("wait", gate.wait)

    gate = asyncio.Event()
    handle = await parked_by_old(code)
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle))
        busy = await code.old.enqueue("long")
        async with working(code.old, concurrency=1, **QUICK):
            await reached(busy, Status.RUNNING)
            before = (await handle.get()).attempt
            await asyncio.sleep(2)  # forty rounds
            assert 0 < (await handle.get()).attempt - before < 16
            gate.set()
            assert await handle.result(PATIENCE) == 1


async def test_retry_now_tries_the_code_of_today(code: Code) -> None:
    reports(code)
    handle = await parked_by_old(code)
    fits = False

    def make(app: App) -> None:
        @app.job
        async def other(ctx: JobContext) -> int:
            found: int = await ctx.step("search", code.do, "search", 1 if fits else 2)
            return found

    make(code.new)
    code.new.registry._handlers["report"] = code.new.registry.get("other")
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle))
        await code.new.jobs.retry_now(handle.id)
        await until(lambda: waits_for_code(handle))
        fits = True
        await code.new.jobs.retry_now(handle.id, "repaired")
        assert await handle.result(PATIENCE) == 1
    assert types(await handle.events()).count("made_due") == 2
    with pytest.raises(IllegalTransition):
        await code.new.jobs.retry_now(handle.id)


@pytest.mark.parametrize("where", ["handler", "options"])
async def test_fail_stays_a_policy(code: Code, where: str) -> None:
    @code.old.job
    async def report(ctx: JobContext) -> None:
        await ctx.step("search", code.do, "search", 1)
        await ctx.approve("go", title="Go on?")

    @code.new.job(name="report", on_change="fail" if where == "handler" else "wait")
    async def changed(ctx: JobContext) -> str | None:
        caught = None
        try:
            calls = ctx if where == "handler" else ctx.options(on_change="fail")
            await calls.step("search", code.do, "search", 2)
        except StepChanged as error:
            caught = error.message
        return caught

    handle = await parked_by_old(code)
    async with working(code.new, **QUICK):
        assert "step 'search'" in await handle.result(PATIENCE)


async def test_an_approval_whose_payload_changed(code: Code) -> None:
    def make(app: App, payload: str) -> None:
        @app.job
        async def report(ctx: JobContext) -> str:
            return (await ctx.approve("ok", title="Ok?", payload=payload)).payload

    make(code.old, "a")
    make(code.new, "b")
    make(code.third, "a")
    async with working(code.old, linger=0.0):
        handle = await code.old.enqueue("report")
        await reached(handle, Status.WAITING_FOR_APPROVAL)
    await code.old.approve((await pending(code.old, handle)).id)
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle))
    async with working(code.third, **QUICK):
        assert await handle.result(PATIENCE) == "a"


async def test_a_plain_handler_is_suspended_as_well(code: Code) -> None:
    def make(app: App, value: int) -> None:
        @app.job
        def report(ctx: BlockingContext) -> int:
            found: int = ctx.step("search", code.do, "search", value)
            ctx.approve("go", title="Go on?")
            return found

    make(code.old, 1)
    make(code.new, 2)
    handle = await parked_by_old(code)
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle))
    async with working(code.old, **QUICK):
        assert await handle.result(PATIENCE) == 1
    assert code.calls == {"search": 1}


async def test_another_wait_that_ends_does_not_wake_it(code: Code) -> None:
    def make(app: App, value: int) -> None:
        @app.job
        async def report(ctx: JobContext) -> None:
            await ctx.step("search", code.do, "search", value)
            await asyncio.gather(ctx.approve("go", title="Go on?"), ctx.approve("ok", title="Ok?"))

    make(code.old, 1)
    make(code.new, 2)
    handle = await parked_by_old(code)
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle))
        attempts = (await handle.get()).attempt
        await code.old.approve((await pending(code.old, handle)).id)
        await asyncio.sleep(0.5)
        assert (await handle.get()).attempt == attempts
    async with working(code.old, **QUICK):
        await handle.result(PATIENCE)


async def test_it_is_cancelled_and_its_deadline_ends_it(code: Code) -> None:
    reports(code)
    async with working(code.old, linger=0.0):
        mine = await code.old.enqueue("report")
        late = await code.old.enqueue("report", deadline=datetime.now(UTC) + timedelta(seconds=8))
        asked = [await until(partial(asks_to_go, code, job)) for job in (mine, late)]
    for question in asked:
        await code.old.approve(question.id)
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(mine))
        await until(lambda: waits_for_code(late))
        assert await code.new.jobs.cancel(mine.id) is Status.CANCELLED
        assert (await ended(code.new, late)).status is Status.FAILED
    assert (await mine.get()).waits == ()


async def test_a_fork_of_it_does_not_wait(code: Code) -> None:
    reports(code)
    handle = await parked_by_old(code)
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle))
        fork = await code.new.jobs.fork(handle.id, from_step="search")
        await code.new.approve((await until(lambda: asks_to_go(code, fork))).id)
        assert await fork.result(PATIENCE) == 2
    async with working(code.old, **QUICK):
        await handle.result(PATIENCE)


# -- kinds ---------------------------------------------------------------------------------------------------------------------


async def test_each_kind_has_keys_of_its_own(app: App) -> None:
    calls: Counter[str] = Counter()

    @app.job
    async def publish(ctx: JobContext) -> None:
        await asyncio.gather(ctx.sleep("publish", 0.05), ctx.approve("publish", title="Publish?"))
        await ctx.step("publish", calls.update, ["step"])
        await ctx.tool("publish", calls.update, ["tool"])
        await ctx.sleep("publish", 0.05)
        assert ctx.idempotency_key("publish") != ctx.idempotency_key("publish", kind="step")

    async with working(app, linger=0.0):
        handle = await app.enqueue(publish)
        await app.approve((await pending(app, handle)).id)
        await handle.result(PATIENCE)
    assert calls == {"step": 1, "tool": 1}
    found = sorted((s.kind, s.key) for s in steps_of(await handle.events()))
    assert found == [
        ("approval", "publish"),
        ("step", "publish"),
        ("timer", "publish"),
        ("timer", "publish#2"),
        ("tool", "publish"),
    ]


async def test_a_tool_keeps_its_record_when_the_approval_before_it_is_removed(code: Code) -> None:
    def make(app: App, asks: bool) -> None:
        @app.job
        async def report(ctx: JobContext) -> None:
            if asks:
                await ctx.approve("publish", title="Publish?")
            await ctx.tool("publish", code.do, "publish")
            await ctx.approve("go", title="Go on?")

    make(code.old, True)
    make(code.new, False)
    async with working(code.old, linger=0.0):
        handle = await code.old.enqueue("report")
        await code.old.approve((await pending(code.old, handle)).id)
        asked = await until(lambda: asks_to_go(code, handle))
    await code.old.approve(asked.id)
    async with working(code.new, **QUICK):
        await handle.result(PATIENCE)
    assert code.calls == {"publish": 1}


@pytest.mark.parametrize(("was", "now"), [("step", "tool"), ("tool", "step"), ("sleep", "tool"), ("approve", "step")])
async def test_a_recorded_call_of_another_kind_is_refused(code: Code, was: str, now: str) -> None:
    async def call(ctx: JobContext, kind: str) -> None:
        match kind:
            case "step":
                await ctx.step("x", code.do, kind)
            case "tool":
                await ctx.tool("x", code.do, kind)
            case "sleep":
                await ctx.sleep("x", 0.05)
            case _:
                await ctx.approve("x", title="x?")

    def make(app: App, kind: str) -> None:
        @app.job
        async def report(ctx: JobContext) -> None:
            await call(ctx, kind)
            await ctx.approve("go", title="Go on?")

    make(code.old, was)
    make(code.new, now)
    async with working(code.old, linger=0.0):
        handle = await code.old.enqueue("report")
        if was == "approve":
            await code.old.approve((await pending(code.old, handle)).id)

        asked = await until(lambda: asks_to_go(code, handle))
    await code.old.approve(asked.id)
    async with working(code.new, **QUICK):
        await until(lambda: waits_for_code(handle))
    assert code.calls[now] == 0
    assert f"and is called as a {now} now" in (await handle.get()).note["reason"]
    async with working(code.old, **QUICK):
        await handle.result(PATIENCE)


# -- answers -------------------------------------------------------------------------------------------------------------------


async def test_a_fork_keeps_an_answer_that_the_job_had_not_read(app: App) -> None:
    @app.job
    async def publish(ctx: JobContext) -> Any:
        await ctx.step("draft", int)
        decision = await ctx.approve("ok", title="Ok?", payload={"a": 1})
        return [decision.payload, decision.by, decision.comment]

    async with working(app, linger=0.0):
        handle = await app.enqueue(publish)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
    await app.approve((await pending(app, handle)).id, by="ann", comment="fine", edited={"a": 2})
    fork = await app.jobs.fork(handle.id)
    again = await app.jobs.fork(fork.id)
    early = await app.jobs.fork(handle.id, from_step="ok")
    async with working(app):
        assert await fork.result(PATIENCE) == [{"a": 2}, "ann", "fine"]
        assert await again.result(PATIENCE) == [{"a": 2}, "ann", "fine"]
        assert await handle.result(PATIENCE) == [{"a": 2}, "ann", "fine"]
        assert (await pending(app, early)).payload == {"a": 1}, "from the question on it is asked again"
        await app.deny((await pending(app, early)).id)
        assert (await ended(app, early)).error_kind == "denied"
    assert (await app.approvals.list(status=(), job_id=fork.id)).items == ()


async def test_a_fork_keeps_an_answer_about_a_tool_that_was_cut_off(app: App) -> None:
    calls: Counter[str] = Counter()

    def charge() -> str:
        calls["charge"] += 1
        raise TimeoutError

    @app.job(backoff=NOW)
    async def pay(ctx: JobContext) -> str:
        return await ctx.tool("charge", charge)

    async with working(app, linger=0.0):
        handle = await app.enqueue(pay)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
    await app.approve((await pending(app, handle)).id, edited={"outcome": "happened", "result": "paid"})
    fork = await app.jobs.fork(handle.id)
    async with working(app):
        assert await fork.result(PATIENCE) == "paid"
        assert await handle.result(PATIENCE) == "paid"
    assert calls == {"charge": 1}


async def test_workers_show_the_version_of_their_code(code: Code) -> None:
    reports(code)
    async with working(code.old), working(code.new):

        async def shown() -> bool:
            return sorted(w.version or "" for w in await code.old.workers.list()) == ["1", "2"]

        await until(shown)


# -- waits that the code does not ask for any more ------------------------------------------------------------------------------


@pytest.mark.parametrize("was", ["sleep", "approve"])
async def test_a_wait_that_is_over_and_not_asked_for_does_not_wake_the_job(code: Code, was: str) -> None:
    """The old code waited for what the new one does not have; the new code asks a person, and is left alone until the answer. The
    old code, when it comes back, finds its answer."""

    @code.old.job(name="report")
    async def old(ctx: JobContext) -> Any:
        if was == "sleep":
            await ctx.sleep("before", 1.0)
            return "slept"
        return (await ctx.approve("before", title="Before?", payload="a")).payload

    @code.new.job(name="report")
    async def new(ctx: JobContext) -> Any:
        await ctx.step("search", code.do, "search", 1)
        return (await ctx.approve("go", title="Go on?", payload="b")).payload

    async with working(code.old, linger=0.0):
        handle = await code.old.enqueue("report")
        await reached(handle, Status.PARKED if was == "sleep" else Status.WAITING_FOR_APPROVAL)
    if was == "approve":
        await code.old.approve((await pending(code.old, handle)).id, edited="A")
    fork = None
    async with working(code.new, **QUICK):
        asked = await until(lambda: asks_to_go(code, handle), what="the question")
        await until(lambda: is_calm(handle), what="the job to be left alone")
        assert (await handle.get()).attempt <= 3
        fork = await code.old.jobs.fork(handle.id)
        await until(lambda: asks_to_go(code, fork))
    async with working(code.old, linger=0.0):
        await code.old.approve((await asks_to_go(code, fork) or asked).id)
        assert await fork.result(PATIENCE) == ("slept" if was == "sleep" else "A")
    async with working(code.new, **QUICK):
        await code.new.approve(asked.id)
        assert await handle.result(PATIENCE) == "b"
    assert [finding async for finding in code.new.database.fsck() if not finding.note] == []


async def is_calm(handle: Handle[Any]) -> bool:
    """Whether no attempt begins for a while."""
    attempt = (await handle.get()).attempt
    await asyncio.sleep(0.5)
    return (await handle.get()).attempt == attempt
