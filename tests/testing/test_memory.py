"""TestApp: jobs run when the test says so, on a clock that moves everything at once."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import structlog

from perdure import (
    App,
    Backoff,
    BlockingContext,
    Denied,
    JobContext,
    JobFailed,
    Retry,
    Snooze,
    Status,
    WaitTimeout,
)
from perdure.model.errors import ApprovalExpired, ConfigError, DuplicateHandler, UnknownHandler
from perdure.store.sqlite.leases.leases import SqliteLeases
from perdure.sync import Client as SyncClient
from perdure.testing import ManualClock, TestApp
from perdure.testing import memory as memory_module
from tests.testing.support import at_once

NOWHERE = "postgresql://nobody@127.0.0.1:1/nowhere"
HOUR = timedelta(hours=1)
log = structlog.get_logger("a handler's")


@dataclass
class Report:
    text: str


@pytest.fixture
async def t() -> AsyncIterator[TestApp]:
    with at_once():
        async with TestApp() as t:
            yield t


# -- running ----------------------------------------------------------------------------------------------------------------


async def test_jobs_run_when_the_test_says_so(t: TestApp) -> None:
    @t.job
    async def double(ctx: JobContext, number: int) -> int:
        return await ctx.step("double", lambda: 2 * number)

    handles = [await t.enqueue(double, n) for n in range(5)]
    await asyncio.sleep(0.05)
    assert {await h.status() for h in handles} == {Status.PENDING}
    assert await t.run_until_idle() == 5
    assert [(await h.get()).result for h in handles] == [0, 2, 4, 6, 8]
    assert await t.run_until_idle() == 0


async def test_every_queue_is_served_also_one_that_comes_up_on_the_way(t: TestApp) -> None:
    @t.job(queue="slow")
    async def parent(ctx: JobContext) -> str:
        return await ctx.step("start", start)

    async def start() -> str:
        return str((await t.enqueue(leaf, queue="unheard-of")).id)

    @t.job
    async def leaf(ctx: JobContext) -> None:
        pass

    await t.enqueue(parent)
    await t.enqueue(leaf, queue="another")
    assert await t.run_until_idle() == 3
    assert await t.jobs.count() == {"COMPLETED": 3}


async def test_a_job_of_an_unknown_kind_does_not_keep_it_busy(t: TestApp) -> None:
    handle = await t.enqueue("elsewhere", elsewhere=True)
    assert await t.run_until_idle(advance=True) == 0
    assert await handle.status() is Status.PENDING


async def test_a_handler_cannot_run_a_worker(t: TestApp) -> None:
    @t.job
    async def nested(ctx: JobContext) -> None:
        await t.run_until_idle()

    handle = await t.enqueue(nested, max_retries=0)
    await t.run_until_idle()
    assert "cannot run another one" in str((await handle.get()).error_message)


async def test_a_job_that_never_comes_to_rest_is_reported(t: TestApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "MOST_ATTEMPTS", 20)

    @t.job
    async def restless(ctx: JobContext) -> None:
        raise Snooze(0)

    @t.job
    async def sleepy(ctx: JobContext) -> None:
        raise Snooze("1h")

    handle = await t.enqueue(sleepy)
    with pytest.raises(AssertionError, match="20 turns and no end"):
        await t.run_until_idle(advance=True)
    await handle.cancel()
    await t.enqueue(restless)
    with pytest.raises(AssertionError, match="20 turns and no end"):
        await t.run_until_idle()


async def test_a_run_that_is_cut_off_leaves_the_job_to_the_next(t: TestApp) -> None:
    stuck = asyncio.Event()
    ran = 0

    async def work() -> str:
        nonlocal ran
        ran += 1
        if ran == 1:
            stuck.set()
            await asyncio.Event().wait()
        return "done"

    @t.job
    async def slow(ctx: JobContext) -> str:
        return await ctx.step("work", work)

    handle = await t.enqueue(slow)
    running = asyncio.create_task(t.run_until_idle())
    await stuck.wait()
    running.cancel()
    assert isinstance((await asyncio.gather(running, return_exceptions=True))[0], asyncio.CancelledError)
    assert await handle.status() is Status.RUNNING  # as a dead worker leaves it
    assert await handle.result() == "done"
    assert (await handle.get()).attempt == 2


# -- time -------------------------------------------------------------------------------------------------------------------


async def test_sleeps_pass_as_the_clock_is_moved(t: TestApp) -> None:
    woken: list[timedelta] = []
    began = t.clock.now()

    @t.job
    async def sleeper(ctx: JobContext) -> None:
        for hours in (1, 24, 720):
            await ctx.sleep("nap", f"{hours}h")
            await ctx.step("woken", lambda: woken.append(t.clock.now() - began))

    handle = await t.enqueue(sleeper)
    await t.run_until_idle()
    job = await handle.get()
    assert job.status is Status.PARKED
    assert job.due_at == t.clock.now() + HOUR
    t.clock.advance(HOUR - timedelta(milliseconds=1))
    assert await t.run_until_idle() == 0
    t.clock.advance("1ms")
    assert await t.run_until_idle() == 1
    assert woken == [HOUR]
    await t.run_until_idle(advance=True)
    assert woken == [HOUR, 25 * HOUR, 745 * HOUR]
    assert (await handle.get()).finished_at == began + 745 * HOUR


async def test_a_short_sleep_is_no_different(t: TestApp) -> None:
    @t.job
    async def nap(ctx: JobContext) -> None:
        await ctx.sleep("nap", 0.5)

    handle = await t.enqueue(nap)
    await t.run_until_idle()
    assert await handle.status() is Status.PARKED
    t.clock.advance(0.5)
    await t.run_until_idle()
    assert await handle.status() is Status.COMPLETED


async def test_an_hour_can_pass_moment_by_moment(t: TestApp) -> None:
    ticks: list[timedelta] = []
    began = t.clock.now()

    @t.job
    async def ticker(ctx: JobContext) -> None:
        while True:
            await ctx.sleep("tick", "25m")
            await ctx.step("tick", lambda: ticks.append(t.clock.now() - began))

    await t.enqueue(ticker)
    await t.run_until_idle(advance="1h")
    assert ticks == [timedelta(minutes=25), timedelta(minutes=50)]
    assert t.clock.now() == began + HOUR
    await t.run_until_idle(advance="15m")
    assert ticks[2:] == [timedelta(minutes=75)]
    assert t.clock.now() == began + timedelta(minutes=75)


async def test_retries_wait_for_the_clock(t: TestApp) -> None:
    tried: list[timedelta] = []
    began = t.clock.now()

    @t.job(max_retries=3, backoff=Backoff(base="10m", cap="5h", multiplier=3, jitter=0))
    async def flaky(ctx: JobContext) -> int:
        tried.append(t.clock.now() - began)
        if len(tried) == 3:
            raise Retry(after="1d")
        if len(tried) < 4:
            raise OSError("not now")
        return len(tried)

    handle = await t.enqueue(flaky)
    assert await t.run_until_idle() == 1
    assert await handle.status() is Status.RETRY
    assert await t.run_until_idle(advance=True) == 3
    minutes = [0, 10, 40, 40 + 24 * 60]
    assert tried == [timedelta(minutes=m) for m in minutes]
    assert (await handle.get()).result == 4
    runs = await t.jobs.runs(handle.id)
    assert [r.started_at for r in runs] == [r.finished_at for r in runs] == [began + each for each in tried]


async def test_delayed_jobs_wait_for_the_clock(t: TestApp) -> None:
    @t.job
    async def hello(ctx: JobContext) -> None:
        pass

    later = await t.enqueue(hello, delay="2d")
    at = await t.enqueue(hello, run_at=t.clock.now() + HOUR)
    assert await t.run_until_idle() == 0
    t.clock.advance(HOUR)
    assert await t.run_until_idle() == 1
    assert (await at.status(), await later.status()) == (Status.COMPLETED, Status.PENDING)
    assert await t.run_until_idle(advance=True) == 1


async def test_approvals_expire_by_the_clock(t: TestApp) -> None:
    @t.job
    async def ask(ctx: JobContext, on_expiry: Any) -> bool:
        return (await ctx.approve("ok", title="ok?", expires_in="1d", on_expiry=on_expiry)).approved

    fails, goes_on = await t.enqueue(ask, "fail"), await t.enqueue(ask, "continue")
    await t.run_until_idle()
    [pending] = (await t.approvals.list(job_id=fails.id)).items
    t.clock.advance("1d")
    with pytest.raises(ApprovalExpired):
        await t.approve(pending.id)
    await t.run_until_idle()
    assert (await fails.get()).error_kind == "expired"
    assert (await goes_on.get()).result is False


async def test_expiry_is_a_moment_to_move_on_to(t: TestApp) -> None:
    @t.job
    async def ask(ctx: JobContext) -> bool:
        return (await ctx.approve("ok", title="ok?", expires_in="30d", on_expiry="continue")).approved

    began = t.clock.now()
    handle = await t.enqueue(ask)
    await t.run_until_idle(advance=True)
    assert (await handle.get()).result is False
    assert t.clock.now() == began + timedelta(days=30)


async def test_deadlines_come_by_the_clock_waiting_or_running(t: TestApp) -> None:
    @t.job
    async def waits(ctx: JobContext) -> None:
        await ctx.approve("ok", title="ok?")

    @t.job
    async def works(ctx: JobContext) -> None:
        await ctx.step("work", t.clock.sleep, 7200)

    deadline = t.clock.now() + HOUR
    waiting = await t.enqueue(waits, deadline=deadline)
    await t.run_until_idle(advance=True)
    assert (await waiting.get()).error_kind == "timeout"
    assert t.clock.now() == deadline
    working = await t.enqueue(works, deadline=deadline + HOUR)
    await t.run_until_idle()
    assert (await working.get()).error_kind == "timeout"
    assert t.clock.now() == deadline + HOUR


async def test_timeouts_come_by_the_clock(t: TestApp) -> None:
    @t.job(timeout="10m", max_retries=0)
    async def whole(ctx: JobContext) -> None:
        await ctx.step("work", t.clock.sleep, "1h")

    @t.job(max_retries=0)
    async def step(ctx: JobContext) -> str:
        try:
            await ctx.options(timeout="5m").step("work", t.clock.sleep, "1h")
        except TimeoutError:
            return "too slow"
        return "in time"

    began = t.clock.now()
    handle = await t.enqueue(step)
    await t.run_until_idle()
    assert (await handle.get()).result == "too slow"
    assert t.clock.now() == began + timedelta(minutes=5)
    other = await t.enqueue(whole)
    await t.run_until_idle()
    assert "ran longer than 600 s" in str((await other.get()).error_message)
    assert t.clock.now() == began + timedelta(minutes=15)


async def test_a_steps_own_retries_move_the_clock_by_themselves(t: TestApp) -> None:
    tried: list[timedelta] = []
    began = t.clock.now()

    async def flaky() -> int:
        tried.append(t.clock.now() - began)
        if len(tried) < 4:
            raise OSError("not now")
        return len(tried)

    @t.job
    async def patient(ctx: JobContext) -> int:
        backoff = Backoff(base="2h", cap="2h", jitter=0)
        return await ctx.options(retries=5, backoff=backoff).step("flaky", flaky)

    handle = await t.enqueue(patient)
    assert await t.run_until_idle() == 1  # far beyond its lease, in one attempt: a living worker keeps its leases
    assert (await handle.get()).result == 4
    assert tried == [0 * HOUR, 2 * HOUR, 4 * HOUR, 6 * HOUR]


async def test_the_clock_waits_for_those_who_really_work(t: TestApp) -> None:
    finished: list[str] = []

    @t.job
    async def both(ctx: JobContext) -> list[str]:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("late", late))
            group.create_task(ctx.options(timeout="10m").step("work", work))
        return finished

    async def late() -> None:
        await t.clock.sleep("1h")
        finished.append("late")

    async def work() -> None:
        await asyncio.sleep(0.2)  # real work: far longer than it takes to see that the other one sleeps
        finished.append("work")

    handle = await t.enqueue(both)
    await t.run_until_idle()
    assert (await handle.get()).result == ["work", "late"]


async def test_a_fake_may_move_the_clock(t: TestApp) -> None:
    @t.job(timeout="1h")
    async def slow(ctx: JobContext, minutes: int) -> str:
        await ctx.step("work", t.clock.advance, 60.0 * minutes)  # in a thread, as plain functions are
        return "in time"

    assert await (await t.enqueue(slow, 59)).result() == "in time"
    handle = await t.enqueue(slow, 61, max_retries=0)
    await t.run_until_idle()
    assert (await handle.get()).error_kind == "timeout"


async def test_two_apps_can_share_a_clock() -> None:
    clock = ManualClock()
    async with TestApp(clock=clock) as one, TestApp(clock=clock) as other:
        clock.advance("3h")
        assert await (await one.open()).now() == await (await other.open()).now() == clock.now()


async def test_a_worker_of_its_own_lives_by_the_clock_too(t: TestApp) -> None:
    started = asyncio.Event()

    @t.job
    async def stuck(ctx: JobContext) -> None:
        started.set()
        await ctx.step("stuck", asyncio.Event().wait)

    handle = await t.enqueue(stuck)
    worker = await t.worker(lease=30)
    working = asyncio.create_task(worker.run())
    await started.wait()
    t.clock.advance("1h")  # in one jump, as if it had been stopped so long: its lease runs out
    async with asyncio.timeout(20):
        while worker.busy:
            await asyncio.sleep(0.01)
    assert await handle.status() is Status.RUNNING
    worker.stop(now=True)
    await working
    assert [r.status for r in await (await t.open()).leases.reap(worker_id="tester")] == [Status.RETRY]


# -- results ----------------------------------------------------------------------------------------------------------------


async def test_asking_for_a_result_runs_the_job_and_lets_time_pass(t: TestApp) -> None:
    @t.job
    async def report(ctx: JobContext) -> Report:
        await ctx.sleep("nap", "3d")
        return Report("slept well")

    began = t.clock.now()
    assert await (await t.enqueue(report)).result(timeout="1w") == Report("slept well")
    assert t.clock.now() == began + timedelta(days=3)


async def test_a_result_that_does_not_come_says_why(t: TestApp) -> None:
    @t.job
    async def nap(ctx: JobContext) -> None:
        await ctx.sleep("nap", "3h")
        await ctx.approve("publish", title="ok?")

    began = t.clock.now()
    handle = await t.enqueue(nap)
    with pytest.raises(WaitTimeout, match=r"still PARKED .* waits for timer 'nap'"):
        await handle.result(timeout="1h")
    assert t.clock.now() == began + HOUR
    with pytest.raises(WaitTimeout, match=r"nothing will ever move it .* waits for approval 'publish'"):
        await handle.result()
    await t.deny_pending(handle.id, comment="no")
    with pytest.raises(JobFailed, match="denied"):
        await handle.result()


async def test_many_results_can_be_asked_for_at_once(t: TestApp) -> None:
    @t.job
    async def nap(ctx: JobContext, hours: int) -> int:
        await ctx.sleep("nap", f"{hours}h")
        return hours

    handles = [await t.enqueue(nap, hours) for hours in (3, 1, 2)]
    running = asyncio.create_task(t.run_until_idle())
    assert await asyncio.gather(*(h.result() for h in handles)) == [3, 1, 2]
    assert await running <= 3
    late = await t.enqueue(nap, 5)
    some = await asyncio.gather(late.result("1h"), late.result("2h"), late.result("1d"), return_exceptions=True)
    assert [type(one) for one in some] == [WaitTimeout, WaitTimeout, int]


@pytest.mark.parametrize("late", ["claim", "heartbeat"])
async def test_no_time_passes_while_a_job_is_about_to_begin(
    t: TestApp, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may be so busy that the answer to a claim takes longer than an attempt takes to fall asleep."""
    answer = getattr(SqliteLeases, late)

    async def answer_late(*args: Any, **options: Any) -> Any:
        answered = await answer(*args, **options)
        await asyncio.sleep(0.1)
        return answered

    monkeypatch.setattr(SqliteLeases, late, answer_late)

    @t.job(max_retries=0)  # its lease is renewed before it begins
    async def child(ctx: JobContext) -> str:
        await ctx.sleep("nap", "1d")
        return "rested"

    async def ask() -> str:
        return await (await t.enqueue(child)).result("1w")

    @t.job
    async def parent(ctx: JobContext) -> str:
        return await ctx.step("child", ask)

    began = t.clock.now()
    assert await (await t.enqueue(parent)).result() == "rested"
    assert t.clock.now() == began + timedelta(days=1)


async def test_a_job_can_wait_for_another(t: TestApp) -> None:
    @t.job
    async def child(ctx: JobContext, limit: str) -> str:
        await ctx.sleep("nap", "1d")
        return (
            "approved"
            if (await ctx.approve("ok", title="ok?", expires_in="2d", on_expiry="continue")).approved
            else "no"
        )

    async def ask(limit: str) -> str:
        return await (await t.enqueue(child, limit)).result(limit)

    @t.job
    async def parent(ctx: JobContext, limit: str) -> str:
        try:
            return await ctx.step("child", ask, limit)
        except WaitTimeout:
            return "too late"

    began = t.clock.now()
    assert await (await t.enqueue(parent, "1w")).result() == "no"
    assert t.clock.now() == began + timedelta(days=3)
    assert await (await t.enqueue(parent, "12h")).result() == "too late"
    assert t.clock.now() == began + timedelta(days=3.5)


# -- approvals and steps ----------------------------------------------------------------------------------------------------


async def test_what_is_pending_is_decided_at_once(t: TestApp) -> None:
    @t.job
    async def ask(ctx: JobContext) -> list[Any]:
        first = await ctx.approve("first", title="ok?", payload={"n": 1})
        try:
            await ctx.approve("second", title="ok?", on_deny="resume")
        except Denied as denied:
            return [first.payload, first.by, denied.reason]
        return []

    one, two = await t.enqueue(ask), await t.enqueue(ask)
    with pytest.raises(AssertionError, match="nothing waits for approval"):
        await t.approve_pending()
    await t.run_until_idle()
    assert len(await t.approve_pending(one.id, edited={"n": 2}, by="ann")) == 1
    await t.run_until_idle()
    assert await two.status() is Status.WAITING_FOR_APPROVAL
    assert [a.key for a in await t.deny_pending(one.id, comment="not like this")] == ["second"]
    assert await one.result() == [{"n": 2}, "ann", "not like this"]
    assert [a.key for a in await t.approve_pending()] == ["first"]
    with pytest.raises(AssertionError, match=f"in job {one.id}"):
        await t.deny_pending(one.id)


async def test_what_is_pending_is_decided_by_its_assignees(t: TestApp) -> None:
    @t.job
    async def ask(ctx: JobContext) -> list[Any]:
        first = await ctx.approve("first", title="ok?", assignees=["ann", "bob"])
        second = await ctx.approve("second", title="ok?", assignees=["ann", "bob"])
        try:
            await ctx.approve("third", title="ok?", assignees=["cy"], on_deny="resume")
        except Denied:
            return [first.by, second.by]
        return []

    job = await t.enqueue(ask)
    await t.run_until_idle()
    await t.approve_pending()
    await t.run_until_idle()
    await t.approve_pending(by="bob")
    await t.run_until_idle()
    await t.deny_pending()
    assert await job.result() == ["ann", "bob"]


async def test_the_steps_of_a_job_can_be_read(t: TestApp) -> None:
    @t.job
    async def several(ctx: JobContext) -> None:
        await ctx.step("add", lambda: 2)
        await ctx.step("add", lambda: 3)
        await ctx.tool("send", lambda: "sent")
        await ctx.sleep("nap", "1m")
        await ctx.approve("ok", title="ok?")

    handle = await t.enqueue(several)
    await t.run_until_idle(advance=True)
    steps = await t.steps(handle.id)
    assert [(s.key, s.kind, s.status, s.result) for s in steps] == [
        ("add", "step", "done", 2),
        ("add#2", "step", "done", 3),
        ("send", "tool", "done", "sent"),
        ("nap", "timer", "done", None),
        ("ok", "approval", "waiting", None),
    ]


# -- stubs ------------------------------------------------------------------------------------------------------------------


def real(*_: Any, **__: Any) -> Report:
    raise AssertionError("the real function was called")


async def test_stubs_are_called_in_place_of_the_real_functions() -> None:
    async def write(topic: str, *, length: int) -> dict[str, str]:
        return {"text": f"{topic} in {length} words"}

    app = App(NOWHERE)

    @app.job
    async def essay(ctx: JobContext, topic: str) -> list[Any]:
        first = await ctx.step("write", real, topic, length=5)
        keyed = await ctx.options(key="[a]#1").step("write", real, "b", length=6)
        again = await ctx.step("write", real, "c", length=7)
        await ctx.tool("send", real, first)
        own = await ctx.step("write more", lambda: "really called")
        return [first.text, keyed.text, again.text, own]

    sent: list[Any] = []

    def send(report: Report) -> Report:
        sent.append(report)
        return report

    async with TestApp(app, stubs={"write": write, "send": send}) as t:
        handle = await t.enqueue(essay, "tea")
        assert await handle.result() == ["tea in 5 words", "b in 6 words", "c in 7 words", "really called"]
        assert sent == [Report("tea in 5 words")]  # typed as the real function's result


async def test_stubs_that_were_not_called_are_named() -> None:
    app = App(NOWHERE)

    @app.job
    async def essay(ctx: JobContext) -> str:
        found = await ctx.options(key="tea").step("search", str)
        return await ctx.step("write", str, found)

    stubs: dict[str, Any] = {"search": lambda: "a source", "serach": lambda: "a typo", "write": str.upper}
    async with TestApp(app, stubs=stubs) as t:
        assert t.unused_stubs == ["search", "serach", "write"]
        await (await t.enqueue(essay)).result()
        assert t.unused_stubs == ["serach"]
        t.stub({"write": str.lower, "another": str.lower})
        assert t.unused_stubs == ["serach", "write", "another"]
        await t.crash_after_each_step(essay)
        assert t.unused_stubs == ["serach", "another"]


def fits_nothing() -> None:
    pass


@pytest.mark.parametrize(
    "fake", [fits_nothing, int, Mock(side_effect=ValueError("no")), AsyncMock(side_effect=ValueError("no"))]
)
async def test_an_error_of_a_fake_without_lines_is_reported_with_the_line_that_called_it(fake: Any) -> None:
    async with TestApp(stubs={"write": fake}) as t:

        @t.job(max_retries=0)
        async def essay(ctx: JobContext) -> None:
            await ctx.step("write", real, "tea")

        handle = await t.enqueue(essay)
        await t.run_until_idle()
        assert re.search(r" \(at test_memory\.py:\d+ in essay\)$", str((await handle.get()).error_message))


# -- what it says -----------------------------------------------------------------------------------------------------------


async def test_only_handlers_are_heard_in_the_log(t: TestApp) -> None:
    """Hundreds of workers come and go while the clock is moved."""

    @t.job
    async def naps(ctx: JobContext) -> None:
        log.info("going to sleep")
        await ctx.sleep("nap", "1h")

    with structlog.testing.capture_logs() as lines:
        await (await t.enqueue(naps)).result()
    assert [line["event"] for line in lines] == ["going to sleep"] * 2


# -- the App of one's own ---------------------------------------------------------------------------------------------------

mine = App(NOWHERE)


@mine.job
async def parent_of_mine(ctx: JobContext) -> int:
    child = await ctx.step("child", start_child)
    return int(await mine.jobs.result(child, timeout="2d"))


async def start_child() -> str:
    return str((await mine.enqueue(child_of_mine)).id)


@mine.job
async def child_of_mine(ctx: JobContext) -> int:
    await ctx.sleep("nap", "1d")
    return 7


async def test_what_uses_the_app_uses_the_database_of_the_test() -> None:
    async with TestApp(mine) as t:
        assert await (await t.enqueue(parent_of_mine)).result() == 7
        assert await mine.jobs.count() == {"COMPLETED": 2}
        async with mine:  # as a program does around its whole life
            handle = await mine.enqueue(child_of_mine)
        assert await handle.result() == 7
        await mine.work(once=True)


async def test_synchronous_code_uses_it_too() -> None:
    client = SyncClient(mine)  # as a module has it that was imported long ago
    before = set(threading.enumerate())
    async with TestApp(mine) as t:
        handle = await asyncio.to_thread(client.enqueue, child_of_mine)
        waiting = asyncio.create_task(asyncio.to_thread(handle.result, "2d"))
        await t.run_until_idle(advance=True)
        assert await waiting == 7
    client.close()
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert [thread for thread in left if thread.name == "perdure-sqlite-write"] == []


async def test_afterwards_the_app_is_what_it_was() -> None:
    app = App("memory:")
    async with app:
        before = await app.open()
        async with TestApp(app) as outer:
            assert await app.open() is await outer.open()
            async with TestApp(app) as inner:
                assert await app.open() is await inner.open()
            assert await app.open() is await outer.open()
        assert await app.open() is before


async def test_it_is_used_inside_its_block_only() -> None:
    t = TestApp(mine)
    with pytest.raises(ConfigError, match="inside"):
        await t.enqueue(child_of_mine)
    async with t:
        await t.enqueue(child_of_mine)
    with pytest.raises(ConfigError, match="inside"):
        await t.run_until_idle()
    async with t:  # again
        assert await t.jobs.count() == {}


async def test_the_environment_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_DATABASE_URL", NOWHERE)
    monkeypatch.setenv("PERDURE_LEASE", "nonsense")
    async with TestApp(mine) as t:
        assert await (await t.enqueue(child_of_mine)).result() == 7


# -- synchronous tests ------------------------------------------------------------------------------------------------------


def test_a_synchronous_test_runs_calls() -> None:
    with at_once(), TestApp(mine) as t:
        handle = t.run(t.enqueue(child_of_mine, delay="1d"))
        assert t.run(t.run_until_idle()) == 0
        assert t.run(t.run_until_idle(advance=True)) == 2
        assert t.run(handle.result()) == 7
        with SyncClient(mine) as client:  # what is tested may be synchronous itself
            assert client.jobs.get(handle.id).result == 7
            assert client.enqueue(child_of_mine).result() == 7
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


async def test_run_is_for_synchronous_tests_only() -> None:
    async with TestApp(mine) as t:
        with pytest.raises(ConfigError, match="await the call"):
            t.run(t.jobs.count())


def test_a_plain_handler_runs_like_any_other() -> None:
    app = App(NOWHERE)
    tried: list[int] = []

    @app.job
    def plain(ctx: BlockingContext, name: str) -> str:
        def flaky() -> str:
            tried.append(1)
            if len(tried) < 3:
                raise OSError("not now")
            return f"hello {name}"

        said = ctx.options(retries=5, backoff=Backoff(base="1h", cap="1h")).step("say", flaky)
        ctx.sleep("nap", "1d")
        return said + ctx.approve("sign", title="Sign?", payload=" Yours").payload

    with at_once(), TestApp(app) as t:
        handle = t.run(t.enqueue(plain, "world"))
        t.run(t.run_until_idle(advance=True))
        t.run(t.approve_pending())
        assert t.run(handle.result()) == "hello world Yours"


async def test_handlers_of_a_test_do_not_stay_with_the_app() -> None:
    for _ in range(2):
        async with TestApp(mine) as t:

            @t.job
            async def only_here(ctx: JobContext) -> int:
                return 1

            assert await (await t.enqueue("only_here")).result() == 1
            with pytest.raises(DuplicateHandler):
                t.job(name="child_of_mine")(only_here.fn)
            with pytest.raises(UnknownHandler, match="did you mean 'child_of_mine'") as unknown:
                await t.enqueue("child_of_min")
            assert "only_here" in str(unknown.value.hint)
    assert mine.registry.find("only_here") is None


async def test_handlers_that_the_app_gets_later_are_known() -> None:
    app = App(NOWHERE)
    async with TestApp(app) as t:

        @app.job
        async def late(ctx: JobContext) -> int:
            return 1

        assert await (await t.enqueue(late)).result() == 1
        assert len((await t.crash_after_each_step(late)).boundaries) == 1
