"""How an attempt ends: what a handler raises, and what becomes of the job."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from perdure import App, Backoff, BlockingContext, Fail, JobContext, Retry, Snooze, Status
from perdure.model.errors import StoreUnreachable
from perdure.runtime import run
from perdure.runtime.history import load_history
from tests.runtime.support import NOW, PATIENCE, ended, only, reached, types, until, working

MINUTE = Backoff(base=60, cap=60, jitter=0)


def seconds_until_due(job: Any) -> float:
    seconds: float = (job.next_retry_at - job.updated_at).total_seconds()
    return seconds


async def test_an_error_uses_a_retry_and_the_backoff_until_none_is_left(app: App) -> None:
    @app.job(backoff=NOW, max_retries=2)
    async def broken(ctx: JobContext) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    async with working(app):
        handle = await app.enqueue(broken)
        job = await ended(app, handle)
    assert (job.status, job.error_kind, job.retry_count, job.attempt) == (Status.DEADLETTER, "exhausted", 2, 3)
    assert (job.error_message or "").startswith("ValueError: attempt 3 (at test_outcomes.py:")
    log = await handle.events()
    assert [t for t in types(log) if t.startswith("job_")] == [
        "job_created",
        "job_retrying",
        "job_retrying",
        "job_deadlettered",
    ]
    runs = await app.jobs.runs(handle.id)
    assert [(r.attempt, r.outcome) for r in runs] == [(1, Status.RETRY), (2, Status.RETRY), (3, Status.DEADLETTER)]
    assert all("ValueError" in (r.error_message or "") for r in runs)


async def test_an_error_in_code_without_lines_is_reported_with_the_line_that_called_it(app: App) -> None:
    @app.job(max_retries=0)
    async def broken(ctx: JobContext) -> int:
        return await ctx.step("number", int, "a")

    @app.job(max_retries=0)
    def plainly_broken(ctx: BlockingContext) -> int:
        return ctx.step("number", int, "a")

    async with working(app):
        for handler in (broken, plainly_broken):
            job = await ended(app, await app.enqueue(handler))
            assert re.search(rf" \(at test_outcomes\.py:\d+ in {handler.name}\)$", job.error_message or "")


async def test_without_retries_the_first_error_is_the_last(app: App) -> None:
    @app.job(max_retries=0)
    async def broken(ctx: JobContext) -> None:
        raise ValueError

    async with working(app):
        job = await ended(app, await app.enqueue(broken))
    assert (job.status, job.error_kind, job.attempt) == (Status.DEADLETTER, "exhausted", 1)


async def test_backoff_stays_within_its_bounds(app: App) -> None:
    @app.job(backoff=Backoff(base=100, cap=250), max_retries=4)
    async def broken(ctx: JobContext) -> None:
        raise ValueError

    async with working(app):
        handle = await app.enqueue(broken)
        for retry, ceiling in enumerate((100, 200, 250, 250), start=1):

            async def failed(retry: int = retry) -> Any:
                job = await handle.get()
                return job if (job.status, job.retry_count) == (Status.RETRY, retry) else None

            job = await until(failed)
            assert 0 <= seconds_until_due(job) <= ceiling + 1
            assert job.due_at == job.next_retry_at
            await app.jobs.retry_now(handle.id)
        assert (await ended(app, handle)).status is Status.DEADLETTER


async def test_retry_says_when(app: App) -> None:
    @app.job(backoff=NOW)
    async def asks(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            raise Retry("the queue is full", after="30s")
        return "done"

    async with working(app):
        handle = await app.enqueue(asks)
        job = await reached(handle, Status.RETRY)
        assert seconds_until_due(job) == pytest.approx(30, abs=1)
        assert job.retry_count == 1
        assert "the queue is full" in str(only(await handle.events(), "job_retrying").payload)
        await app.jobs.retry_now(handle.id)
        assert await handle.result(PATIENCE) == "done"
    assert "made_due" in types(await handle.events())


async def test_fail_fails_at_once(app: App) -> None:
    @app.job(max_retries=9)
    async def gives_up(ctx: JobContext) -> None:
        raise Fail("there is no such customer")

    async with working(app):
        job = await ended(app, await app.enqueue(gives_up))
    assert (job.status, job.error_kind, job.retry_count) == (Status.FAILED, "fatal", 0)
    assert job.error_message == "there is no such customer"


async def test_fail_may_be_given_the_error_itself(app: App) -> None:
    @app.job
    async def wrong(ctx: JobContext) -> None:
        raise Fail(ValueError("bad input"))  # type: ignore[arg-type]

    async with working(app):
        job = await ended(app, await app.enqueue(wrong))
    assert (job.status, job.error_message, job.attempt) == (Status.FAILED, "bad input", 1)


async def test_snooze_uses_no_retry_however_often(app: App) -> None:
    @app.job(max_retries=0)
    async def sleepy(ctx: JobContext) -> int:
        if ctx.attempt < 6:
            raise Snooze(0, "not yet")
        return ctx.attempt

    @app.job(max_retries=0)
    async def later(ctx: JobContext) -> None:
        raise Snooze("45s")

    async with working(app):
        handle = await app.enqueue(sleepy)
        assert await handle.result(PATIENCE) == 6
        assert (await handle.get()).retry_count == 0
        job = await reached(await app.enqueue(later), Status.RETRY)
        assert seconds_until_due(job) == pytest.approx(45, abs=1)


async def test_policies_decide_by_the_class_of_the_error(app: App) -> None:
    class Quota(OSError):
        """Worth another attempt."""

    class Banned(Quota):
        """Not worth another attempt."""

    errors: dict[str, Exception] = {"quota": Quota("later"), "banned": Banned("never"), "other": ValueError("a bug")}

    @app.job(retry_on=(OSError,), fatal_on=Banned, backoff=MINUTE)
    async def picky(ctx: JobContext, which: str) -> None:
        raise errors[which]

    async with working(app):
        job = await reached(await app.enqueue(picky, "quota"), Status.RETRY)
        assert job.retry_count == 1
        for which in ("banned", "other"):
            job = await ended(app, await app.enqueue(picky, which))
            assert (job.status, job.error_kind, job.retry_count) == (Status.FAILED, "fatal", 0)


class Response:
    """As HTTP clients give it."""

    def __init__(self, headers: Any) -> None:
        self.headers = headers


def too_many(**attributes: Any) -> Exception:
    error = OSError("429")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    ("attributes", "seconds"),
    [
        ({"retry_after": 17}, 17),
        ({"retry_after": 2.5}, 2.5),
        ({"response": Response({"retry-after": "21"})}, 21),
        ({"response": Response({"Retry-After": " 21 "})}, 21),
        ({"response": Response({"retry-after": "in-a-minute"})}, 23),
        ({"response": Response({"retry-after": "9" * 400})}, 23),
        ({"response": Response({"retry-after": "²"})}, 23),
        ({"response": Response([("retry-after", "21")])}, 23),
        ({"response": Response(None)}, 23),
        ({"retry_after": float("inf")}, 23),
        ({"retry_after": float("nan")}, 23),
        ({"retry_after": -1}, 23),
        ({"retry_after": True}, 23),
    ],
)
async def test_a_server_that_says_when_wins_over_the_backoff(
    app: App, attributes: dict[str, Any], seconds: float
) -> None:
    @app.job(backoff=Backoff(base=23, cap=23, jitter=0))
    async def calls(ctx: JobContext) -> None:
        raise too_many(**attributes)

    async with working(app):
        job = await reached(await app.enqueue(calls), Status.RETRY)
    assert seconds_until_due(job) == pytest.approx(seconds, abs=1)


async def test_a_server_may_name_a_date(app: App) -> None:
    @app.job(backoff=NOW)
    async def calls(ctx: JobContext) -> None:
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=600), usegmt=True)
        raise too_many(response=Response({"retry-after": date}))

    async with working(app):
        job = await reached(await app.enqueue(calls), Status.RETRY)
    assert seconds_until_due(job) == pytest.approx(600, abs=5)


# -- several errors at once -------------------------------------------------------------------------------------------------


async def test_a_fatal_error_in_a_group_wins(app: App) -> None:
    async def soon(error: Exception) -> None:
        raise error

    @app.job
    async def group(ctx: JobContext) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(soon(OSError("worth an attempt")))
            tasks.create_task(soon(Fail("no use at all")))

    @app.job(backoff=MINUTE)
    async def harmless(ctx: JobContext) -> None:
        raise ExceptionGroup("several", [ExceptionGroup("inside", [OSError("a")]), OSError("b")])

    @app.job
    async def deep(ctx: JobContext) -> None:
        raise ExceptionGroup("several", [OSError("b"), ExceptionGroup("inside", [OSError("a"), Fail("deep inside")])])

    async with working(app):
        job = await ended(app, await app.enqueue(group))
        assert (job.status, job.error_kind, job.error_message) == (Status.FAILED, "fatal", "no use at all")
        assert (await reached(await app.enqueue(harmless), Status.RETRY)).retry_count == 1
        job = await ended(app, await app.enqueue(deep))
        assert (job.status, job.error_message) == (Status.FAILED, "deep inside")


# -- handlers that will not go ----------------------------------------------------------------------------------------------


async def test_an_attempt_that_takes_too_long_is_cut_off_and_tried_again(app: App) -> None:
    cut = []

    @app.job(timeout=0.1, backoff=NOW, max_retries=1)
    async def slow(ctx: JobContext) -> None:
        try:
            await asyncio.sleep(PATIENCE * 2)
        except asyncio.CancelledError:
            cut.append(ctx.attempt)
            raise

    async with working(app):
        handle = await app.enqueue(slow)
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.DEADLETTER, "timeout")
    assert job.error_message == "the attempt ran longer than 0.1 s"
    assert cut == [1, 2]


@pytest.mark.parametrize("then", ["returns", "raises", "calls", "sleeps"])
async def test_a_timeout_is_a_timeout_whatever_the_handler_makes_of_it(app: App, then: str) -> None:
    @app.job(timeout=0.1, max_retries=0)
    async def deaf(ctx: JobContext) -> str:
        try:
            await asyncio.sleep(PATIENCE * 2)
        except asyncio.CancelledError:
            if then == "raises":
                raise ValueError("something else") from None
            if then == "calls":
                await ctx.step("after the end", str, "x")
            if then == "sleeps":
                await ctx.sleep("after the end", 0)
        return "as if nothing had happened"

    async with working(app):
        handle = await app.enqueue(deaf)
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.DEADLETTER, "timeout")
    assert types(await handle.events())[1:] == ["run_started", "job_deadlettered"], "nothing was recorded any more"


async def test_a_timeout_of_the_users_own_is_an_error_like_any_other(app: App) -> None:
    @app.job(timeout=PATIENCE, max_retries=0)
    async def calls(ctx: JobContext) -> None:
        raise TimeoutError("the other side did not answer")

    async with working(app):
        job = await ended(app, await app.enqueue(calls))
    assert (job.status, job.error_kind) == (Status.DEADLETTER, "exhausted")
    assert "the other side did not answer" in (job.error_message or "")


async def test_the_deadline_fails_a_running_job_for_good(app: App) -> None:
    @app.job(timeout=PATIENCE, max_retries=9)
    async def slow(ctx: JobContext) -> None:
        await asyncio.sleep(PATIENCE * 2)

    async with working(app):
        deadline = await (await app.open()).now() + timedelta(seconds=0.5)
        job = await ended(app, await app.enqueue(slow, deadline=deadline))
    assert (job.status, job.error_kind, job.error_message) == (Status.FAILED, "timeout", "the deadline passed")
    assert job.finished_at is not None
    assert job.finished_at >= deadline - timedelta(milliseconds=5)


async def test_after_its_deadline_a_job_is_not_started(app: App) -> None:
    started = []

    @app.job
    async def late(ctx: JobContext) -> None:
        started.append(ctx.attempt)

    handle = await app.enqueue(late, deadline=datetime.now(UTC) - timedelta(seconds=1))
    async with working(app):
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.FAILED, "timeout")
    assert started == []


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, SystemExit, KeyboardInterrupt])
async def test_a_handler_that_ends_oddly_uses_a_retry_and_its_backoff(app: App, error: type[BaseException]) -> None:
    @app.job(backoff=MINUTE)
    async def odd(ctx: JobContext) -> None:
        raise error

    async with working(app):
        handle = await app.enqueue(odd)
        job = await reached(handle, Status.RETRY)
    assert seconds_until_due(job) == pytest.approx(60, abs=1)
    assert job.retry_count == 1
    assert error.__name__ in str(only(await handle.events(), "job_retrying").payload)


async def test_a_handler_that_catches_everything_still_parks(app: App) -> None:
    caught: list[str] = []

    @app.job(max_retries=0)
    async def greedy(ctx: JobContext) -> str:
        try:
            await ctx.sleep("nap", 2)
        except BaseException as error:  # noqa: BLE001  as a careless handler would
            caught.append(type(error).__name__)
            for _ in range(3):
                try:
                    await ctx.step("after the end", str, "x")
                except BaseException as again:  # noqa: BLE001  again
                    caught.append(type(again).__name__)
            return "never mind"
        return "slept"

    async with working(app):
        handle = await app.enqueue(greedy)
        assert await handle.result(PATIENCE) == "slept"
    assert caught[0] in ("CancelledError", "Suspended")
    assert caught[1:] == ["Suspended"] * 3
    assert "node_finished" not in types(await handle.events())


async def test_a_handler_that_keeps_trying_does_not_freeze_the_others(app: App) -> None:
    """It catches what tells it to stop and calls again, for ever."""
    spins = 0
    parked = asyncio.Event()

    @app.job(max_retries=0)
    async def spinning(ctx: JobContext) -> None:
        nonlocal spins
        while spins < 100_000_000:
            try:
                await ctx.sleep("nap", "1h")
            except BaseException:
                spins += 1
                parked.set()
                if enough.is_set():
                    raise

    @app.job
    async def quick(ctx: JobContext) -> str:
        return "done"

    enough = asyncio.Event()
    async with working(app):
        handle = await app.enqueue(spinning)
        await until(parked.is_set)
        assert await (await app.enqueue(quick)).result(PATIENCE) == "done"
        enough.set()
        await reached(handle, Status.PARKED)


async def test_an_error_message_of_any_kind_can_be_stored(app: App) -> None:
    @app.job(max_retries=0)
    async def broken(ctx: JobContext, which: int) -> None:
        raise ValueError(["a\x00b\ud800c", "x" * 100_000, "", "多行\nerror\r\n"][which])

    async with working(app):
        for which in range(4):
            job = await ended(app, await app.enqueue(broken, which))
            assert job.status is Status.DEADLETTER
            assert (job.error_message or "").startswith("ValueError")
            assert len(job.error_message or "") <= 4000
            assert "\x00" not in (job.error_message or "")


async def test_an_exception_whose_text_cannot_be_had_is_still_an_error(app: App) -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("I will not say")

    @app.job(max_retries=0)
    async def broken(ctx: JobContext) -> None:
        raise Rude

    async with working(app):
        job = await ended(app, await app.enqueue(broken))
    assert job.status is Status.DEADLETTER
    assert "Rude" in (job.error_message or "")


async def test_a_history_that_cannot_be_read_uses_no_retry(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database did not answer, which is not the job's fault."""
    failures = [StoreUnreachable("it does not answer")]

    async def failing(store: Any, job_id: Any) -> Any:
        if failures:
            raise failures.pop()
        return await load_history(store, job_id)

    monkeypatch.setattr(run, "load_history", failing)

    @app.job(max_retries=0, backoff=NOW)
    async def later(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            raise Snooze(0)
        return "done"

    async with working(app):
        job = await ended(app, await app.enqueue(later))
    assert (job.status, job.error_message, job.attempt) == (Status.COMPLETED, None, 3)
    assert not failures
