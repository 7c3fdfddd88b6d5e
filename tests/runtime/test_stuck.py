"""A job that makes no progress while it runs: nudged, tried again, failed, in bounds and once."""

import asyncio
from typing import Any

import pytest

from perdure import App, InvalidInput, JobContext, Status, Stuck, StuckJob
from perdure.testing import TestApp
from tests.runtime.support import NOW, PATIENCE, ended, reached, types, until, working

SHORT = Stuck(after=0.05, repair_attempts=1)


async def actions(handle: Any) -> list[str]:
    return [e.payload["action"] for e in await handle.events() if e.type == "stuck_noticed"]


async def test_a_job_without_progress_is_nudged_then_tried_again_then_fails_with_one_notification(
    app: App,
) -> None:
    notified: list[StuckJob] = []

    @app.job(stuck=SHORT, on_stuck=notified.append, backoff=NOW, max_retries=0)
    async def agent(ctx: JobContext) -> None:
        await ctx.step("begin", lambda: None)
        await asyncio.Event().wait()

    handle = await app.enqueue(agent)
    async with working(app):
        job = await ended(app, handle)
    assert (job.status, job.error_kind, job.attempt, job.retry_count) == (Status.FAILED, "stuck", 2, 0)
    assert "it made no progress for" in str(job.error_message)
    assert await actions(handle) == ["nudge", "retry", "nudge", "fail"]
    assert types(await handle.events()).count("node_finished") == 1
    [failed] = notified
    assert (failed.id, failed.kind, failed.repairs, failed.why) == (job.id, "agent", 1, job.error_message)


async def test_a_job_that_is_enqueued_with_it_may_see_the_nudge_and_go_on(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> int:
        while not ctx.nudges:
            await asyncio.sleep(0.01)
        await ctx.emit("another.way")
        return ctx.nudges

    handle = await app.enqueue(agent, stuck=SHORT)
    async with working(app):
        assert await handle.result(PATIENCE) == 1
    assert await actions(handle) == ["nudge"]
    again = await app.jobs.rerun(handle.id)
    assert "stuck_set" in types(await again.events())
    await app.jobs.cancel(again.id)


@pytest.mark.parametrize("how", ["usage", "emit", "checkpoint", "step", "progress"])
async def test_what_goes_on_is_not_stuck_however_long_it_takes(app: App, how: str) -> None:
    @app.job(stuck=Stuck(after=0.3, repair_attempts=0))
    async def agent(ctx: JobContext) -> None:
        for n in range(8):
            await asyncio.sleep(0.1)
            match how:
                case "usage":
                    await ctx.usage(tokens=1)
                case "emit":
                    await ctx.emit("alive")
                case "checkpoint":
                    await ctx.checkpoint(n)
                case "step":
                    await ctx.step("go", lambda: None)
                case _:
                    await ctx.progress(n / 8)

    handle = await app.enqueue(agent)
    async with working(app):
        await ended(app, handle)
    assert "fail" not in await actions(handle)


async def test_a_job_that_sleeps_waits_or_is_parked_is_not_stuck(timed_app: TestApp) -> None:
    app = timed_app

    @app.job(stuck=Stuck(after="10m", repair_attempts=0))
    async def agent(ctx: JobContext) -> str:
        async def inside() -> None:
            await ctx.sleep("inside of a step", "1h")

        await ctx.step("wait", inside)
        return str(await ctx.wait_signal("go"))

    async def pass_time() -> None:
        for _ in range(2):
            await asyncio.sleep(0.25)  # the worker looks ten times a second
            app.clock.advance(3000)

    handle = await app.enqueue(agent)

    async def began() -> bool:
        return "wait_started" in types(await handle.events())

    async with working(app):
        await until(began, what="the sleep")
        await pass_time()
        await reached(handle, Status.PARKED)
        await pass_time()
        await app.jobs.signal(handle.id, "go", "on")
        assert await handle.result(PATIENCE) == "on"
    assert await actions(handle) == []


async def test_a_tool_that_is_called_again_and_again_with_the_same_outcome_is_no_progress(app: App) -> None:
    @app.job(stuck=Stuck(after="1h", repair_attempts=0, repeats=3))
    async def agent(ctx: JobContext) -> None:
        n = 0
        while True:
            n += 1
            await ctx.step("ask the model", iter([n]).__next__)
            await ctx.tool("search", "nothing".strip, "g")
            await asyncio.sleep(0.05)

    handle = await app.enqueue(agent)
    async with working(app):
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.FAILED, "stuck")
    assert "it called 'search'" in str(job.error_message)
    assert await actions(handle) == ["nudge", "fail"]


async def test_other_arguments_or_outcomes_are_progress(app: App) -> None:
    @app.job(stuck=Stuck(after="1h", repair_attempts=0, repeats=2))
    async def agent(ctx: JobContext) -> None:
        for n in range(8):
            await ctx.tool("search", "nothing".strip, str(n))
            await ctx.tool("poll", iter([n]).__next__)
            await asyncio.sleep(0.03)

    handle = await app.enqueue(agent)
    async with working(app):
        await handle.result(PATIENCE)
    assert await actions(handle) == []


async def test_what_was_done_is_counted_across_crashes_and_a_job_that_is_to_fail_does_not_run_again() -> None:
    began = [0]

    async with TestApp(lease="5s") as app:

        @app.job(stuck=Stuck(after=0.1, repair_attempts=2), backoff=NOW, max_retries=50)
        async def agent(ctx: JobContext) -> None:
            began[0] += 1
            await asyncio.Event().wait()

        class Crash:
            """Cuts the worker off right after the first retry and the failure are in the log, and before it acts."""

            noticed = 0

            def reached(self, job_id: object, type: str, key: str | None) -> bool:
                self.noticed += type == "stuck_noticed"
                return type == "stuck_noticed" and self.noticed in (2, 6)

        app.kill_rule = Crash()
        handle = await app.enqueue(agent)

        async def go_on() -> None:
            while True:
                await asyncio.sleep(0.02)
                app.clock.advance(0.2)

        ticking = asyncio.create_task(go_on())
        try:
            async with asyncio.timeout(PATIENCE):
                await app.run_until_idle(advance=True)
        finally:
            ticking.cancel()
        job = await handle.get()
        done = await actions(handle)
        assert (job.status, job.error_kind) == (Status.FAILED, "stuck")
        assert done == ["nudge", "retry", "nudge", "retry", "nudge", "fail"]
        assert (began[0], job.attempt) == (3, 4)  # the last one found in the log that it is to fail


@pytest.mark.parametrize(
    "wrong", [{"after": 0}, {"after": "soon"}, {"repair_attempts": -1}, {"repeats": 1}, {"repeats": True}]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Stuck(**wrong)


async def test_a_stuck_that_is_none_is_refused(timed_app: TestApp) -> None:
    with pytest.raises(InvalidInput, match="stuck is a Stuck"):
        await timed_app.enqueue("agent", stuck="10m", elsewhere=True)  # type: ignore[call-overload]


async def test_every_failure_keeps_what_the_job_had(app: App) -> None:
    @app.job(max_retries=0)
    async def agent(ctx: JobContext) -> None:
        await ctx.step("plan", lambda: {"parts": 3})
        await ctx.usage(tokens=1200, cost="0.5")
        await ctx.tool("search", lambda: 1 / 0)

    handle = await app.enqueue(agent)
    async with working(app):
        job = await ended(app, handle)
    partial = await app.jobs.partial_result(handle.id)
    assert (job.status, partial.failure_reason) == (Status.DEADLETTER, job.error_message)
    assert (partial.partial, partial.tokens, str(partial.cost)) == ({"parts": 3}, 1200, "0.5")
    assert partial.action_stats == {"done": 1, "failed": 1}
    assert partial.last_action is not None
    assert (partial.last_action.key, partial.last_action.success) == ("search", False)
    assert "ZeroDivisionError" in partial.last_action.preview
    explained = await app.jobs.explain(handle.id)
    assert explained.details["partial"].startswith(
        "1 done, 1 failed; last tool 'search' (failed); 1,200 tokens, cost 0.5; "
    )


async def test_a_stuck_job_says_so_while_it_runs(app: App) -> None:
    @app.job(stuck=Stuck(after=0.05, repair_attempts=100))
    async def agent(ctx: JobContext) -> None:
        await ctx.checkpoint({"page": 7})
        await asyncio.Event().wait()

    handle = await app.enqueue(agent)
    async with working(app):
        async with asyncio.timeout(PATIENCE):
            while "retry" not in await actions(handle):
                await asyncio.sleep(0.02)
        explained = await app.jobs.explain(handle.id)
        partial = await app.jobs.partial_result(handle.id)
        await app.jobs.cancel(handle.id)
        await ended(app, handle)
    assert "stuck" in explained.sentence or "nudged" in explained.sentence
    assert partial.partial == {"page": 7}
    assert partial.repair_attempts >= 1
