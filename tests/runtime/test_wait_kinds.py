"""A kind of wait that is registered by a test: one file (`tests/flag_wait.py`), and everything treats it like the others."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import App, Handle, Job, JobContext, Status
from perdure.model.explanation import Why
from perdure.model.waits import kind_of, register
from perdure.runtime.context.waits import wait_once
from tests.conformance.sql_shell import Shell, open_shell
from tests.conformance.support import S
from tests.flag_wait import FLAG, FlagWait
from tests.runtime.support import LONG, PATIENCE, ended, keys, only, pending, reached, types, until, working


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    """The kind is registered for the time of a test."""
    forget = register(FLAG)
    yield
    forget()


@pytest.fixture
async def shell(file_app: App, file_store_url: str) -> AsyncIterator[Shell]:
    """Plain SQL on the database of `file_app`."""
    await file_app.open()
    async with open_shell(file_store_url) as shell:
        yield shell


async def flag(ctx: JobContext, key: str = "paid", **more: Any) -> str | None:
    """What a verb of the context would be."""
    return await wait_once(ctx._run, FLAG, key, subject_id="invoice-7", **more)


async def send(shell: Shell, handle: Handle[Any], seconds_ago: float = 0) -> None:
    """What would answer it."""
    await shell.run(
        f"update job_waits set answered_at = {shell.ago(seconds_ago)} "
        f"where job_id = {shell.id(handle.id)} and subject_id = 'invoice-7'"
    )


async def waits_for(handle: Handle[Any], key: str) -> bool:
    return key in {wait.key for wait in (await handle.get()).waits}


@pytest.mark.parametrize("status", [S.PARKED, S.WAITING_FOR_APPROVAL])
async def test_it_suspends_wakes_and_is_read(
    file_app: App, shell: Shell, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FLAG, "status", status)
    replays: list[int] = []

    @file_app.job
    async def sell(ctx: JobContext) -> list[str | None]:
        replays.append(ctx.attempt)
        first = await flag(ctx)
        await ctx.sleep("rest", 1)
        return [first, await flag(ctx, "again", duration=0)]

    async with working(file_app):
        handle = await file_app.enqueue(sell)
        asleep = await reached(handle, status)
        [wait] = asleep.waits
        assert (wait.key, wait.kind, wait.subject_id, wait.until, wait.answered_at) == (
            "paid",
            "flag",
            "invoice-7",
            None,
            None,
        )
        assert (asleep.lease, asleep.due_at) == (None, None)
        report = await file_app.jobs.explain(handle.id)
        assert (report.code, report.sentence) == (Why.WAITING, "It waits: flag 'invoice-7' is to come.")
        assert report.details["flags"] == [{"name": "invoice-7"}]
        assert report.moves[0].command == f"perdure jobs flag {asleep.short_id} invoice-7"
        await send(shell, handle)
        assert await handle.result(PATIENCE) == ["invoice-7 came", None]
    log = await handle.events()
    assert types(log)[2:4] == ["wait_started", f"job_{status.lower()}"]
    assert [(e.payload["key"], e.payload.get("answer")) for e in log if e.type == "wait_completed"] == [
        ("paid", "invoice-7 came"),
        ("rest", None),
        ("again", None),
    ]
    assert replays == [1, 2, 3]
    assert (await handle.get()).retry_count == 0


async def test_a_job_that_is_due_says_what_woke_it(file_app: App, shell: Shell) -> None:
    @file_app.job
    async def sell(ctx: JobContext) -> str | None:
        return await flag(ctx)

    async with working(file_app):
        handle = await file_app.enqueue(sell)
        await reached(handle, S.PARKED)
    await send(shell, handle)
    job = await handle.get()
    assert job.waits[0].answered_at is not None
    assert job.due_at is not None
    assert (await file_app.jobs.explain(handle.id)).sentence.startswith(
        "Flag 'invoice-7' came, and no live worker serves queue"
    )
    async with working(file_app):
        assert await handle.result(PATIENCE) == "invoice-7 came"


async def test_the_worker_ends_between_the_suspension_and_the_answer(file_app: App, shell: Shell) -> None:
    @file_app.job
    async def sell(ctx: JobContext) -> str | None:
        return await flag(ctx)

    async with working(file_app):
        handle = await file_app.enqueue(sell)
        await reached(handle, S.PARKED)
    await send(shell, handle)
    await send(shell, handle)  # a second time, which changes nothing
    async with working(file_app):
        assert await handle.result(PATIENCE) == "invoice-7 came"
    assert keys(await handle.events(), "wait_started") == keys(await handle.events(), "wait_completed") == ["paid"]


async def test_an_answer_while_the_attempt_goes_on_is_read_without_a_suspension(file_app: App, shell: Shell) -> None:
    release = asyncio.Event()

    @file_app.job
    async def sell(ctx: JobContext) -> Any:
        return await asyncio.gather(flag(ctx), ctx.step("work", release.wait))

    async with working(file_app):
        handle = await file_app.enqueue(sell)
        await until(lambda: waits_for(handle, "paid"))
        await send(shell, handle)
        await until(lambda: answered_in_log(handle))
        assert (await handle.get()).status is S.RUNNING
        release.set()
        assert await handle.result(PATIENCE) == ["invoice-7 came", True]
    assert (await handle.get()).attempt == 1


async def answered_in_log(handle: Handle[Any]) -> bool:
    return bool(keys(await handle.events(), "wait_completed"))


async def test_an_answer_that_comes_before_the_suspension_wakes_at_once(file_app: App, shell: Shell) -> None:
    """The answer to one branch comes while another branch keeps the attempt from reading it, and then all wait."""

    @file_app.job
    async def sell(ctx: JobContext) -> str | None:
        if ctx.attempt == 1:
            waiting = asyncio.create_task(flag(ctx))

            async def pay() -> None:
                await until(lambda: waits_for(handle, "paid"))
                waiting.cancel()
                await send(shell, handle)

            await ctx.step("pay", pay)
            await ctx.sleep("night", LONG)
        return await flag(ctx)

    handle = await file_app.enqueue(sell)
    async with working(file_app):
        assert await handle.result(PATIENCE) == "invoice-7 came"
    log = types(await handle.events())
    assert log.count("job_parked") == 1
    assert log.count("run_started") == 2


async def test_its_time_may_end_it(file_app: App) -> None:
    @file_app.job
    async def sell(ctx: JobContext) -> Any:
        return [await flag(ctx, duration=2), ctx.attempt]

    async with working(file_app, linger=5):
        handle = await file_app.enqueue(sell)
        await reached(handle, S.WAITING)
        report = await file_app.jobs.explain(handle.id)
        assert report.sentence.startswith("It waits: flag 'invoice-7' is to come; worker ")
        assert (report.code, report.details["flags"]) == (Why.WAITING, [{"name": "invoice-7"}])
        assert await handle.result(PATIENCE) == [None, 1]  # its worker kept the lease
    assert types(await handle.events())[2:5] == ["wait_started", "job_waiting", "job_resumed"]
    async with working(file_app):
        handle = await file_app.enqueue(sell)
        parked = await reached(handle, S.PARKED)
        assert parked.due_at == parked.waits[0].until
        assert await handle.result(PATIENCE) == [None, 2]


async def test_fsck_asks_the_kind(file_app: App, shell: Shell) -> None:
    @file_app.job
    async def sell(ctx: JobContext) -> str | None:
        return await flag(ctx)

    async with working(file_app):
        handle = await file_app.enqueue(sell)
        await reached(handle, S.PARKED)
    await send(shell, handle, seconds_ago=-3600)
    [found] = [f async for f in file_app.database.fsck()]
    assert (found.code, found.job_id) == ("wait-answer", handle.id)
    assert "flag 'invoice-7' comes from the future" in found.text
    [repaired] = [f async for f in file_app.database.fsck(fix=True)]
    assert repaired.fixed
    assert [f async for f in file_app.database.fsck()] == []
    async with working(file_app):
        assert await handle.result(PATIENCE) == "invoice-7 came"


async def test_a_wait_whose_row_was_deleted_is_opened_again(file_app: App, shell: Shell) -> None:
    @file_app.job
    async def sell(ctx: JobContext) -> Any:
        return [await flag(ctx), (await ctx.approve("ok", title="?")).by]

    async def lose(key: str) -> Job:
        await shell.run(f"delete from job_waits where job_id = {shell.id(handle.id)} and key = '{key}'")
        await make_due()
        attempt = (await handle.get()).attempt
        async with working(file_app):
            job: Job = await until(lambda: again(attempt))
            return job

    async def make_due() -> None:
        await shell.run(
            "insert into job_queue (job_id, lane, kind, priority, run_at) "
            f"select id, lane, kind, priority, created_at from jobs where id = {shell.id(handle.id)}"
        )

    async def again(attempt: int) -> Job | None:
        job = await handle.get()
        return job if job.attempt > attempt and not job.status.leased else None

    async with working(file_app):
        handle = await file_app.enqueue(sell)
        await reached(handle, S.PARKED)
    assert [w.subject_id for w in (await lose("paid")).waits] == ["invoice-7"]
    await send(shell, handle)
    async with working(file_app):
        await reached(handle, S.WAITING_FOR_APPROVAL)
    asked = await pending(file_app, handle)
    assert [w.subject_id for w in (await lose("ok")).waits] == [str(asked.id)]
    await shell.run(f"delete from job_waits where job_id = {shell.id(handle.id)}")
    await file_app.approve(asked.id, by="ann")  # wakes nothing: the row is gone
    assert (await handle.get()).due_at is None
    await make_due()
    async with working(file_app):
        assert await handle.result(PATIENCE) == ["invoice-7 came", "ann"]


async def test_sql_ends_a_sleep_early(file_app: App, shell: Shell) -> None:
    @file_app.job
    async def nap(ctx: JobContext) -> int:
        await ctx.sleep("nap", LONG)
        return ctx.attempt

    async with working(file_app):
        handle = await file_app.enqueue(nap)
        await reached(handle, S.PARKED)
        began = time.monotonic()
        await shell.run(f"update job_waits set answered_at = {shell.ago(0)} where job_id = {shell.id(handle.id)}")
        assert await handle.result(PATIENCE) == 2
        assert time.monotonic() - began < PATIENCE
    assert keys(await handle.events(), "wait_completed") == ["nap"]


async def test_a_process_that_does_not_know_the_kind(file_app: App) -> None:
    other = FlagWait()
    other.name = "later"
    forget = register(other)

    @file_app.job
    async def sell(ctx: JobContext) -> Any:
        return await wait_once(ctx._run, other, "paid", duration=LONG, subject_id="x")

    async with working(file_app):
        handle = await file_app.enqueue(sell)
        await reached(handle, S.PARKED)
    forget()
    assert kind_of("later").status is S.PARKED
    report = await file_app.jobs.explain(handle.id)
    assert (report.code, "later 'paid' is to be answered before at" in report.sentence) == (Why.WAITING, True)
    assert [f async for f in file_app.database.fsck()] == []
    assert await handle.cancel() is S.CANCELLED


async def test_a_name_is_of_one_kind(file_app: App) -> None:
    with pytest.raises(ValueError, match="already"):
        register(FLAG)

    @file_app.job(on_change="fail")
    async def changed(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            await flag(ctx, "x", duration=0)
            raise OSError("replay")
        await ctx.sleep("x", 0)

    async with working(file_app):
        job = await ended(file_app, await file_app.enqueue(changed))
    assert job.status is S.FAILED
    assert "'x' was recorded as a flag and is called as a sleep now" in (job.error_message or "")


async def test_a_fork_keeps_the_answer(file_app: App, shell: Shell) -> None:
    @file_app.job
    async def sell(ctx: JobContext) -> Any:
        return [await flag(ctx), await ctx.step("ship", int, 1)]

    async with working(file_app):
        handle = await file_app.enqueue(sell)
        await reached(handle, S.PARKED)
        await send(shell, handle)
        await handle.result(PATIENCE)
        forked = await file_app.jobs.fork(handle.id, from_step="ship")
        assert await forked.result(PATIENCE) == ["invoice-7 came", 1]
    assert only(await forked.events(), "wait_completed").payload["answer"] == "invoice-7 came"
    assert (await forked.get()).created_at > (await handle.get()).created_at + timedelta(0)
