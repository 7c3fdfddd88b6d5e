"""A job as it was, and two jobs compared."""

import asyncio
import contextlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import App, Backoff, Event, Fail, Job, JobContext, Retry, Snooze, Status
from perdure.model.errors import Conflict, InvalidInput, JobNotFound
from perdure.model.fold import fold, job_at
from perdure.model.ids import uuid7
from perdure.model.jobs import JobState
from perdure.runtime.client import queries as looking
from tests.runtime.support import LONG, NOW, PATIENCE, QUICK, ended, pending, reached, until, working

# -- at a version ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def story(app: App) -> Any:
    @app.job(max_retries=2, backoff=NOW)
    async def story(ctx: JobContext, n: int) -> Any:
        await ctx.step("first", str, n)
        await ctx.checkpoint({"at": "first"})
        await ctx.usage(tokens=5, cost=0.5)
        await ctx.progress(0.5, "half")
        if ctx.attempt == 1:
            raise OSError("once")
        await ctx.approve("ok", title="Ok?", assignees=["ann"])
        return await ctx.step("second", str, n + 1)

    return story


async def test_every_version_of_a_job(app: App, story: Any) -> None:
    job = await app.enqueue(story, 1, goal="g")
    async with working(app):
        await reached(job, Status.WAITING_FOR_APPROVAL)
        await app.approve((await pending(app, job)).id, by="ann")
        now = await ended(app, job)
    log = await job.events()
    past = [await app.jobs.get(job.id, at=e.version) for e in log]
    assert [p.version for p in past] == [e.version for e in log]
    statuses = [p.status for p in past]
    assert statuses[0] is Status.PENDING
    assert {Status.RUNNING, Status.RETRY, Status.WAITING_FOR_APPROVAL} < set(statuses)
    for event, then in zip(log, past, strict=True):
        assert (then.id, then.kind, then.payload, then.goal, then.created_at) == (
            now.id,
            "story",
            1,
            "g",
            now.created_at,
        )
        assert (then.lease, then.due_at, then.state.progress, then.state.progress_text) == (None, None, None, None)
        assert (then.result is None) == (event.version < len(log))
        assert then.status is (event.new_status or statuses[event.version - 2])
    retrying = past[statuses.index(Status.RETRY)]
    assert (retrying.attempt, retrying.retry_count, retrying.state.cursor) == (1, 1, "first")
    assert (retrying.state.checkpoint, retrying.state.tokens, retrying.state.cost) == (
        {"at": "first"},
        5,
        Decimal("0.5"),
    )
    assert retrying.next_retry_at is not None
    assert "OSError: once" in retrying.note["error"]
    asking = past[statuses.index(Status.WAITING_FOR_APPROVAL)]
    assert [(w.key, w.kind, w.subject_id is not None) for w in asking.waits] == [("ok", "approval", True)]
    assert past[0].started_at is None
    assert past[0].state == JobState()
    running = past[statuses.index(Status.RUNNING)]
    assert running.note["worker"].startswith("w-"), "who held it"
    assert past[-1].result == now.result == "2"
    assert (past[-1].finished_at, past[-1].updated_at) == (now.finished_at, now.updated_at)
    assert await app.jobs.get(job.id) == now


async def test_versions_that_are_not_there(app: App, story: Any) -> None:
    job = await app.enqueue(story, 1)
    assert (await app.jobs.get(job.id, at=1)).status is Status.PENDING
    for version in (0, -1, 2, 10**12, True, 1.0, "1"):
        with pytest.raises(InvalidInput, match=r"has no version .*: its log goes from 1 to 1"):
            await app.jobs.get(job.id, at=version)  # type: ignore[arg-type]  # refused for that
    with pytest.raises(JobNotFound):
        await app.jobs.get(uuid7(), at=1)


async def test_a_job_that_goes_on_meanwhile(app: App) -> None:
    go_on = asyncio.Event()

    @app.job
    async def works(ctx: JobContext) -> None:
        await ctx.step("first", str, 1)
        await go_on.wait()

    job = await app.enqueue(works)
    async with working(app):

        async def begun() -> bool:
            return (await job.get()).version == 3

        await until(begun)
        then = await app.jobs.get(job.id, at=3)
        go_on.set()
        await ended(app, job)
    assert (then.status, then.state.cursor) == (Status.RUNNING, "first")
    assert await app.jobs.get(job.id, at=3) == then, "the past does not change"


async def test_a_log_of_many_pages(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_PAGE", 7)

    @app.job
    async def long(ctx: JobContext) -> None:
        for n in range(30):
            await ctx.usage(tokens=n)

    job = await app.enqueue(long)
    async with working(app):
        await ended(app, job)
    for version in (2, 7, 8, 14, 31, 33):
        assert (await app.jobs.get(job.id, at=version)).state.tokens == sum(range(min(version - 2, 30)))


# -- the row is the fold of the log ------------------------------------------------------------------------------------------

FOLDED = (
    *("version", "status", "attempt", "retry_count", "next_retry_at", "error_message", "error_kind", "note"),
    *("created_at", "updated_at", "started_at", "finished_at"),
)

acts = st.lists(
    st.sampled_from(
        [
            "step",
            "tool",
            "checkpoint",
            "usage",
            "emit",
            "nap",
            "ask",
            "retry",
            "break",
            "snooze",
            "fail",
            "append",
            "progress",
        ]
    ),
    max_size=12,
)


def same(job: Job, events: list[Event]) -> None:
    """The row that was seen is the fold of the events up to its version."""
    folded = fold(events[: job.version])
    for name in FOLDED:
        assert getattr(folded, name) == getattr(job, name), name
    assert {(w.kind, w.key): w for w in job.waits} == folded.waits
    state = job.state
    assert (folded.cursor, folded.checkpoint, folded.tokens) == (state.cursor, state.checkpoint, state.tokens)
    assert folded.cost == state.cost
    assert job_at(job, folded).status is job.status


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=acts)
def test_every_row_seen_is_the_fold_of_the_log_so_far(program: list[str]) -> None:
    async def live() -> None:
        async with App("memory:") as app:

            @app.job(max_retries=2, backoff=Backoff(base=0, cap=0))
            async def anything(ctx: JobContext) -> int:
                for n, act in enumerate(program):
                    await perform(ctx, act, n)
                return len(program)

            job = await app.enqueue(anything)
            seen: list[Job] = [await job.get()]
            async with working(app, **QUICK | {"linger": 0.005}):
                async with asyncio.timeout(PATIENCE):
                    while not seen[-1].status.terminal:
                        for approval in (await app.approvals.list(job_id=job.id)).items:
                            await app.approve(approval.id, by="ann")
                        if "append" in program and seen[-1].status is Status.RETRY:
                            await try_to_append(app, seen[-1])
                        await asyncio.sleep(0.001)
                        seen.append(await job.get())
            events = await job.events()
            for one in seen:
                same(one, events)
            assert seen[-1].version == len(events)

    asyncio.run(live())


async def perform(ctx: JobContext, act: str, n: int) -> None:
    match act:
        case "step":
            await ctx.step(f"step {n}", str, n)
        case "tool":
            await ctx.tool(f"tool {n}", str, n)
        case "checkpoint":
            await ctx.checkpoint({"n": n, "attempt": ctx.attempt})
        case "usage":
            await ctx.usage(tokens=n + 1, cost=0.1)
        case "emit":
            await ctx.emit("note", {"key": n})
        case "progress":
            await ctx.progress(0.5, "half")
        case "nap":
            await ctx.sleep(f"nap {n}", 0.01)
        case "ask":
            await ctx.approve(f"ask {n}", title="Go on?", expires_in=LONG)
        case "retry" if ctx.retry_count == 0:
            raise Retry("later", after=0.01)
        case "break" if ctx.retry_count < 2:
            raise OSError("broken")
        case "snooze" if ctx.attempt < 3:
            raise Snooze(0.01)
        case "fail" if ctx.attempt > 2:
            raise Fail("for good")
        case _:
            pass


async def try_to_append(app: App, job: Job) -> None:
    with contextlib.suppress(Conflict):
        await app.jobs.append(job.id, job.version, "note", {"by": "another program"})


# -- two jobs ----------------------------------------------------------------------------------------------------------------


async def test_two_jobs_compared(app: App) -> None:
    @app.job(max_retries=0)
    async def report(ctx: JobContext, brief: dict[str, Any]) -> Any:
        await ctx.step("search", str, brief["topic"])
        await ctx.step("write", lambda: brief.get("tone"))
        if brief.get("broken"):
            raise Fail("the printer is on fire")
        await ctx.step("print", str, 1)
        return {"pages": 3, "tone": brief.get("tone")}

    async with working(app):
        one = await app.enqueue(report, {"topic": "tea", "tone": "long", "limit": 1})
        other = await app.enqueue(report, {"topic": "coffee", "tone": "short"})
        broken = await app.enqueue(report, {"topic": "tea", "tone": "long", "limit": 1, "broken": True})
        for job in (one, other, broken):
            await ended(app, job)
    itself = await app.jobs.diff(one.id, one.id)
    assert itself.equal
    assert [(s.key, s.change) for s in itself.steps] == [("search", "same"), ("write", "same"), ("print", "same")]
    found = await app.jobs.diff(one.id, other.id)
    assert not found.equal
    assert (found.a, found.b) == (await one.get(), await other.get())
    assert [(c.path, c.change, c.a, c.b) for c in found.input] == [
        ("topic", "changed", "tea", "coffee"),
        ("tone", "changed", "long", "short"),
        ("limit", "only_a", 1, None),
    ]
    assert [(s.key, s.what) for s in found.steps] == [
        ("search", ("arguments", "result")),
        ("write", ("result",)),
        ("print", ()),
    ]
    assert [(c.path, c.a, c.b) for c in found.result] == [("tone", "long", "short")]
    assert found.outcome == ()
    found = await app.jobs.diff(one.id, broken.id)
    assert [(s.key, s.change) for s in found.steps] == [("search", "same"), ("write", "same"), ("print", "only_a")]
    assert found.steps[2].a is not None
    assert found.steps[2].b is None
    assert [(c.path, c.a, c.b) for c in found.outcome] == [
        ("status", "COMPLETED", "FAILED"),
        ("error_message", None, "the printer is on fire"),
        ("error_kind", None, "fatal"),
    ]
    back = await app.jobs.diff(broken.id, one.id)
    assert [s.change for s in back.steps] == ["same", "same", "only_b"]


async def test_a_job_and_its_fork_are_compared(app: App) -> None:
    tone = "long"

    @app.job
    async def asks(ctx: JobContext) -> Any:
        await ctx.step("search", str, 1)
        await ctx.approve("ok", title="Ok?")
        return await ctx.step("write", lambda: tone)

    job = await app.enqueue(asks)
    async with working(app):
        await app.approve((await pending(app, job)).id, by="ann")
        await ended(app, job)
        tone = "short"
        again = await app.jobs.fork(job.id, "write")
        await ended(app, again)
    found = await app.jobs.diff(job.id, again.id)
    assert [(s.key, s.change, s.what) for s in found.steps] == [
        ("search", "same", ()),
        ("ok", "same", ()),
        ("write", "changed", ("result",)),
    ]
    assert [s.b.kept for s in found.steps if s.b] == [True, True, False]
    assert [(c.path, c.a, c.b) for c in found.result] == [("", "long", "short")]


async def test_jobs_that_are_still_there_and_jobs_that_are_not(app: App) -> None:
    @app.job
    async def naps(ctx: JobContext) -> None:
        await ctx.sleep("nap", LONG)

    one, other = await app.enqueue(naps), await app.enqueue(naps, delay="1h")
    async with working(app):
        await reached(one, Status.PARKED)
        found = await app.jobs.diff(one.id, other.id)
    assert [(s.key, s.change) for s in found.steps] == [("nap", "only_a")]
    assert [(c.path, c.a, c.b) for c in found.outcome] == [("status", "PARKED", "PENDING")]
    for pair in ((one.id, uuid7()), (uuid7(), one.id)):
        with pytest.raises(JobNotFound):
            await app.jobs.diff(*pair)
