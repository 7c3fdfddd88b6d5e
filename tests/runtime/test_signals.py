"""Signals as handlers and clients see them: early, late, many, unfit, and across restarts, replays and forks."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    App,
    BlockingContext,
    Handle,
    InvalidInput,
    JobContext,
    JobFailed,
    JobNotFound,
    SignalConflict,
    SignalTimeout,
    SignalTooLate,
    TooLarge,
)
from perdure.model.explanation import Why
from tests.conformance.support import S
from tests.runtime.support import LONG, PATIENCE, ended, keys, only, reached, types, until, working


@dataclass
class Payment:
    amount: int
    by: str = "card"


async def order(ctx: JobContext) -> Any:
    payment = await ctx.wait_signal("paid", Payment)
    return [payment.amount, payment.by, ctx.attempt]


async def waits(handle: Handle[Any]) -> list[str]:
    return [wait.key for wait in (await handle.get()).waits]


async def test_it_is_typed_and_wakes_a_parked_job(file_app: App) -> None:
    file_app.job(order)
    async with working(file_app):
        handle = await file_app.enqueue("order")
        job = await reached(handle, S.PARKED)
        assert [(w.kind, w.key, w.subject_id, w.until) for w in job.waits] == [("signal", "paid", "paid", None)]
        assert job.due_at is None
        sent = await handle.signal("paid", {"amount": 3})
        assert (sent.wait_key, sent.pending) == ("paid", False)
        assert await handle.result(PATIENCE) == [3, "card", 2]
    log = await handle.events()
    done = only(log, "wait_completed").payload
    assert (done["signal"], done["answer"]) == (str(sent.id), {"amount": 3})
    assert types(log)[2:6] == ["wait_started", "job_parked", "signal_received", "run_started"]
    assert (await handle.get()).retry_count == 0


async def test_early_ones_are_taken_in_order_without_a_pause(file_app: App) -> None:
    @file_app.job
    async def collect(ctx: JobContext) -> list[Any]:
        return [await ctx.wait_signal("item") for _ in range(3)] + [ctx.attempt]

    handle = await file_app.enqueue(collect)
    for n in range(4):
        assert (await file_app.signal(handle, "item", n)).pending
    async with working(file_app):
        assert await handle.result(PATIENCE) == [0, 1, 2, 1]
    assert [(s.payload, s.wait_key) for s in await file_app.jobs.signals(handle)] == [
        (0, "item"),
        (1, "item#2"),
        (2, "item#3"),
        (3, None),
    ]
    assert [s.payload for s in await file_app.jobs.signals(handle.id, pending=True)] == [3]


async def test_one_that_comes_while_the_attempt_goes_on_is_taken_by_it(file_app: App) -> None:
    release = asyncio.Event()

    @file_app.job
    async def both(ctx: JobContext) -> Any:
        return [await asyncio.gather(ctx.wait_signal("go"), ctx.step("work", release.wait)), ctx.attempt]

    async with working(file_app):
        handle = await file_app.enqueue(both)
        await until(lambda: waits(handle))
        await handle.signal("go", "now")

        async def taken() -> bool:
            return keys(await handle.events(), "wait_completed") == ["go"]

        await until(taken)
        release.set()
        assert await handle.result(PATIENCE) == [["now", True], 1]


async def test_a_wait_that_times_out_says_so_again_in_each_replay(file_app: App) -> None:
    @file_app.job
    async def order(ctx: JobContext) -> Any:
        with pytest.raises(SignalTimeout) as caught:
            await ctx.wait_signal("paid", timeout=0.05)
        await ctx.sleep("night", LINGERING)
        return [str(caught.value), ctx.attempt, await ctx.wait_signal("paid", timeout=0)]

    async with working(file_app):
        handle = await file_app.enqueue(order)
        job = await reached(handle, S.PARKED)
        assert [w.kind for w in job.waits] == ["timer"]
        assert (await handle.signal("paid", "late")).pending
        assert await handle.result(PATIENCE) == ["no signal 'paid' came in time", 2, "late"]
    assert keys(await handle.events(), "wait_completed") == ["paid", "night", "paid#2"]


LINGERING = 1.0


async def test_a_timeout_that_is_not_caught_fails_the_job(file_app: App) -> None:
    @file_app.job(max_retries=5)
    async def order(ctx: JobContext) -> None:
        await ctx.wait_signal("paid", timeout=0)

    async with working(file_app):
        job = await ended(file_app, await file_app.enqueue(order))
    assert (job.status, job.error_kind, job.retry_count) == (S.FAILED, "timeout", 0)
    assert job.error_message == "no signal 'paid' came in time"


async def test_a_parked_wait_ends_with_its_time(file_app: App) -> None:
    @file_app.job
    async def order(ctx: JobContext) -> Any:
        with pytest.raises(SignalTimeout):
            await ctx.wait_signal("paid", timeout=1.2)
        return ctx.attempt

    async with working(file_app):
        handle = await file_app.enqueue(order)
        job = await reached(handle, S.PARKED)
        assert job.due_at == job.waits[0].until
        assert await handle.result(PATIENCE) == 2


async def test_one_that_does_not_fit_is_set_aside_and_the_wait_goes_on(file_app: App) -> None:
    file_app.job(order)
    handle = await file_app.enqueue("order")
    await handle.signal("paid", {"amount": "much"})
    await handle.signal("paid", "3 euros")
    async with working(file_app):
        parked = await reached(handle, S.PARKED)
        assert parked.retry_count == 0
        await handle.signal("paid", [])
        await until(lambda: refused(handle, 3))
        await handle.signal("paid", {"amount": 3, "by": "cash"})
        assert (await handle.result(PATIENCE))[:2] == [3, "cash"]
    said = [e.payload["error"] for e in await handle.events() if e.type == "signal_refused"]
    assert (
        said[0] == "the payload of signal 'paid' does not fit Payment: amount: Input should be a valid integer, "
        "unable to parse string as an integer"
    )
    found = await file_app.jobs.signals(handle)
    assert [(s.refused, s.wait_key) for s in found] == [*((error, None) for error in said), (None, "paid")]
    assert [f async for f in file_app.database.fsck()] == []


async def refused(handle: Handle[Any], count: int) -> bool:
    return types(await handle.events()).count("signal_refused") == count


async def test_a_wait_for_one_that_did_not_fit_still_ends_with_its_time(file_app: App) -> None:
    @file_app.job
    async def order(ctx: JobContext) -> str:
        try:
            await ctx.wait_signal("paid", Payment, timeout=2.5)
        except SignalTimeout:
            return "never"
        return "paid"

    handle = await file_app.enqueue(order)
    await handle.signal("paid", {})
    async with working(file_app):
        job = await reached(handle, S.PARKED)
        started = [e.payload for e in await handle.events() if e.type == "wait_started"]
        assert {e["until"] for e in started} == {job.waits[0].until.isoformat()}  # type: ignore[union-attr]
        assert await handle.result(PATIENCE) == "never"


async def test_parallel_waits_take_one_each(file_app: App) -> None:
    @file_app.job
    async def both(ctx: JobContext) -> Any:
        return await asyncio.gather(*(ctx.options(key=key).wait_signal("vote") for key in "ab"))

    async with working(file_app):
        handle = await file_app.enqueue(both)
        await reached(handle, S.PARKED)
        await handle.signal("vote", 1)
        await until(lambda: one_left(handle))
        await handle.signal("vote", 2)
        assert await handle.result(PATIENCE) == [1, 2]


async def one_left(handle: Handle[Any]) -> bool:
    return await waits(handle) == ["vote[b]"]


async def test_a_plain_handler_waits_as_well(file_app: App) -> None:
    @file_app.job
    def order(ctx: BlockingContext) -> int:
        with pytest.raises(SignalTimeout):
            ctx.wait_signal("other", timeout=0)
        return ctx.wait_signal("paid", Payment, timeout=LONG).amount

    async with working(file_app):
        handle = await file_app.enqueue(order)
        await reached(handle, S.PARKED)
        await handle.signal("paid", Payment(5))
        assert await handle.result(PATIENCE) == 5


async def test_a_fork_keeps_what_was_taken_and_a_rerun_has_none(file_app: App) -> None:
    @file_app.job
    async def order(ctx: JobContext) -> Any:
        payment = await ctx.wait_signal("paid", Payment)
        return await ctx.step("ship", int, payment.amount)

    async with working(file_app):
        handle = await file_app.enqueue(order)
        await handle.signal("paid", {"amount": 3})
        assert await handle.result(PATIENCE) == 3
        forked = await file_app.jobs.fork(handle.id, from_step="ship")
        assert await forked.result(PATIENCE) == 3
        assert await file_app.jobs.signals(forked) == []
        again = await file_app.jobs.rerun(handle.id)
        await reached(again, S.PARKED)
        assert [f async for f in file_app.database.fsck()] == []


async def test_explain_names_it_and_what_answers_it(file_app: App) -> None:
    @file_app.job
    async def order(ctx: JobContext) -> Any:
        return await ctx.wait_signal("it is paid", timeout=LONG)

    async with working(file_app):
        handle = await file_app.enqueue(order)
        job = await reached(handle, S.PARKED)
    report = await file_app.jobs.explain(handle.id)
    assert (report.code, report.sentence[:55]) == (
        Why.WAITING,
        "It waits: signal 'it is paid' is to come; its time ends",
    )
    assert report.moves[0].command == f"perdure jobs signal {job.short_id} 'it is paid' PAYLOAD"
    assert report.details["signals"] == [{"key": "it is paid", "wait": "it is paid", "until": job.waits[0].until}]
    await handle.signal("it is paid")
    assert (await file_app.jobs.explain(handle.id)).sentence.startswith("Signal 'it is paid' came ")


async def test_what_is_refused(file_app: App) -> None:
    @file_app.job
    async def wrong(ctx: JobContext) -> Any:
        for call in (
            ctx.wait_signal(""),
            ctx.wait_signal("k" * 201),
            ctx.wait_signal("k", timeout=-1),
            ctx.wait_signal("k", asyncio.Event),
        ):
            with pytest.raises(InvalidInput):
                await call
        return "none"

    async with working(file_app):
        handle = await file_app.enqueue(wrong)
        for arguments in (("",), (7,), ("k" * 201,), ("a\nb",)):
            with pytest.raises(InvalidInput):
                await handle.signal(*arguments)
        with pytest.raises(InvalidInput):
            await handle.signal("paid", id="")
        with pytest.raises(TooLarge):
            await handle.signal("paid", "x" * 2**20)
        assert await handle.result(PATIENCE) == "none"
        with pytest.raises(SignalTooLate, match="takes no more signals: it is already COMPLETED"):
            await handle.signal("paid")
    with pytest.raises(JobNotFound):
        await file_app.signal("aaaaaaaa", "paid")
    with pytest.raises(JobNotFound):
        await file_app.acting(tenant="other").signal(handle, "paid")
    with pytest.raises(JobNotFound):
        await file_app.acting(tenant="other").jobs.signals(handle)
    assert await file_app.jobs.signals(handle) == []


async def test_one_id_is_one_signal(file_app: App) -> None:
    file_app.job(order)
    handle = await file_app.enqueue("order")
    first = await handle.signal("paid", {"amount": 3}, id="t-1")
    assert await handle.signal("paid", {"amount": 3}, id="t-1") == first
    with pytest.raises(SignalConflict):
        await handle.signal("paid", {"amount": 4}, id="t-1")
    async with working(file_app):
        assert await handle.result(PATIENCE) == [3, "card", 1]
    assert (await handle.signal("paid", {"amount": 3}, id="t-1")).id == first.id
    assert len(await file_app.jobs.signals(handle)) == 1


async def test_a_retry_gets_what_was_taken(file_app: App) -> None:
    @file_app.job(max_retries=2)
    async def order(ctx: JobContext) -> Any:
        paid = await ctx.wait_signal("paid")
        if ctx.retry_count == 0:
            raise OSError("once")
        return paid

    async with working(file_app):
        handle = await file_app.enqueue(order)
        await handle.signal("paid", 1)
        await handle.signal("paid", 2)
        assert await handle.result(PATIENCE) == 1


async def test_code_that_no_longer_asks_records_what_was_taken(file_app: App) -> None:
    @file_app.job
    async def order(ctx: JobContext) -> Any:
        if ctx.attempt == 1:
            await ctx.wait_signal("paid")
        await ctx.sleep("night", 1)
        return ctx.attempt

    async with working(file_app):
        handle = await file_app.enqueue(order)
        await reached(handle, S.PARKED)
        await handle.signal("paid", 1)
        assert await handle.result(PATIENCE) == 3
    done = {e.payload["key"]: e.payload for e in await handle.events() if e.type == "wait_completed"}
    assert done["paid"]["answer"] == 1
    assert [f async for f in file_app.database.fsck()] == []


async def test_signals_at_the_very_moment_at_which_the_time_ends(file_app: App) -> None:
    """Each is taken by one wait or stays pending, whichever was first."""

    @file_app.job
    async def collect(ctx: JobContext) -> Any:
        found = []
        for n in range(30):
            try:
                found.append(await ctx.wait_signal("tick", timeout=0.004 * (n % 5)))
            except SignalTimeout:
                continue
        return found

    async with working(file_app):
        handles = [await file_app.enqueue(collect) for _ in range(3)]
        sent: list[int] = [0] * len(handles)

        async def send(place: int) -> None:
            while True:
                try:
                    await handles[place].signal("tick", sent[place])
                except SignalTooLate:
                    return
                sent[place] += 1
                await asyncio.sleep(0.003)

        await asyncio.gather(*(send(place) for place in range(len(handles))))
        for place, handle in enumerate(handles):
            found = await handle.result(PATIENCE)
            pending = [s.payload for s in await file_app.jobs.signals(handle, pending=True)]
            assert found
            assert found + pending == list(range(sent[place]))
    assert [f async for f in file_app.database.fsck()] == []


async def test_the_time_of_a_wait_does_not_matter_to_what_comes_first(file_app: App) -> None:
    """A job without a worker when both the signal and the end of the time come: the wait has taken it."""

    @file_app.job
    async def order(ctx: JobContext) -> Any:
        return await ctx.wait_signal("paid", timeout=3)

    async with working(file_app, linger=0):
        handle = await file_app.enqueue(order)
        job = await reached(handle, S.PARKED)
    await handle.signal("paid", "in time")
    store = await file_app.open()
    limit = job.waits[0].until
    assert limit is not None

    async def over() -> bool:
        return await store.now() > limit + timedelta(seconds=0.1)

    await until(over)
    async with working(file_app):
        assert await handle.result(PATIENCE) == "in time"


async def test_a_job_that_fails_meanwhile_keeps_its_signals_until_it_is_pruned(file_app: App) -> None:
    @file_app.job
    async def order(ctx: JobContext) -> Any:
        raise ValueError("no")

    handle = await file_app.enqueue(order, max_retries=0)
    await handle.signal("paid", 1)
    async with working(file_app):
        with pytest.raises(JobFailed):
            await handle.result(PATIENCE)
    assert [s.payload for s in await file_app.jobs.signals(handle)] == [1]
    store = await file_app.open()
    assert await store.retention.prune([handle.id]) == 1
    assert await store.signals.list_signals(handle.id) == []


async def test_a_fork_that_has_not_begun_takes_signals_as_well(file_app: App) -> None:
    @file_app.job
    async def work(ctx: JobContext) -> str:
        return await ctx.step("first", str, 1) + str(await ctx.wait_signal("go"))

    async with working(file_app):
        handle = await file_app.enqueue(work)
        await file_app.jobs.signal(handle.id, "go", 1)
        assert await handle.result(PATIENCE) == "11"
    fork = await file_app.jobs.fork(handle.id, from_step="first")
    await file_app.jobs.signal(fork.id, "go", 2)
    assert [finding async for finding in file_app.database.fsck()] == []
    async with working(file_app):
        assert await fork.result(PATIENCE) == "12"
    assert [finding async for finding in file_app.database.fsck()] == []
