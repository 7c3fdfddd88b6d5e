"""Steps: run until they return, recorded once, never run again after that."""

import asyncio
import contextvars
import functools
import random
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from perdure import App, Backoff, Fail, JobContext, Retry, Snooze, Status, idempotency_key
from perdure.model.jobs import MAX_JSON_BYTES
from perdure.runtime.running_steps import ANNOUNCE_AFTER
from tests.runtime.support import LONG, NOW, PATIENCE, ended, keys, only, types, working


class Broken(Exception):
    """What goes wrong in these tests."""


class Calls:
    """A function that counts its calls, and fails a given number of times."""

    def __init__(self, *, failures: int = 0, error: Exception | None = None) -> None:
        self.made: list[str] = []
        self.failures = failures
        self.error = error or Broken("not yet")

    async def __call__(self, value: str) -> str:
        self.made.append(value)
        if len(self.made) <= self.failures:
            raise self.error
        return value.upper()


async def test_a_recorded_step_does_not_run_again_after_a_retry(app: App) -> None:
    first, second = Calls(), Calls()

    @app.job(backoff=NOW)
    async def two(ctx: JobContext) -> list[str]:
        a = await ctx.step("first", first, "a")
        if ctx.attempt == 1:
            raise Broken("between two steps")
        return [a, await ctx.step("second", second, "b")]

    async with working(app):
        handle = await app.enqueue(two)
        assert await handle.result(PATIENCE) == ["A", "B"]
    assert (first.made, second.made) == (["a"], ["b"])
    log = await handle.events()
    assert keys(log, "node_finished") == ["first", "second"]
    job = await handle.get()
    assert (job.attempt, job.retry_count) == (2, 1)
    assert job.state.cursor == "second"


async def test_a_failed_step_runs_again_in_the_next_attempt(app: App) -> None:
    flaky = Calls(failures=1)

    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> str:
        return await ctx.step("flaky", flaky, "x")

    async with working(app):
        handle = await app.enqueue(one)
        assert await handle.result(PATIENCE) == "X"
    assert flaky.made == ["x", "x"]
    assert keys(await handle.events(), "node_finished") == ["flaky"]


async def test_a_name_used_again_is_another_step(app: App) -> None:
    calls = Calls()

    @app.job(backoff=NOW)
    async def loop(ctx: JobContext) -> list[str]:
        results = [await ctx.step("page", calls, str(n)) for n in range(3)]
        if ctx.attempt == 1:
            raise Broken("replay, please")
        return results

    async with working(app):
        handle = await app.enqueue(loop)
        assert await handle.result(PATIENCE) == ["0", "1", "2"]
    assert calls.made == ["0", "1", "2"]
    assert keys(await handle.events(), "node_finished") == ["page", "page#2", "page#3"]


async def test_a_key_tells_parallel_steps_apart_whatever_their_order(app: App) -> None:
    calls = Calls()

    @app.job(backoff=NOW)
    async def fan(ctx: JobContext) -> dict[str, str]:
        names = ["x", "y", "z"] if ctx.attempt == 1 else ["z", "y", "x"]
        found = await asyncio.gather(*(ctx.options(key=n).step("fetch", calls, n) for n in names))
        if ctx.attempt == 1:
            raise Broken("replay in another order")
        return dict(zip(names, found, strict=True))

    async with working(app):
        handle = await app.enqueue(fan)
        assert await handle.result(PATIENCE) == {"x": "X", "y": "Y", "z": "Z"}
    assert sorted(calls.made) == ["x", "y", "z"]
    assert sorted(keys(await handle.events(), "node_finished")) == ["fetch[x]", "fetch[y]", "fetch[z]"]


async def test_parallel_steps_of_a_task_group(app: App) -> None:
    calls = Calls()

    @app.job(backoff=NOW)
    async def fan(ctx: JobContext) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.step(f"step {n}", calls, str(n))) for n in range(20)]
        if ctx.attempt == 1:
            raise Broken("replay, please")
        return [t.result() for t in tasks]

    async with working(app):
        handle = await app.enqueue(fan)
        assert await handle.result(PATIENCE) == [str(n) for n in range(20)]
    assert len(calls.made) == 20
    assert len(set(keys(await handle.events(), "node_finished"))) == 20


async def test_one_failing_branch_of_a_gather_keeps_what_the_others_recorded(app: App) -> None:
    good, bad = Calls(), Calls(failures=1)

    @app.job(backoff=NOW)
    async def fan(ctx: JobContext) -> list[str]:
        a = await ctx.step("before", good, "before")
        return [a, *await asyncio.gather(ctx.step("good", good, "a"), ctx.step("bad", bad, "b"))]

    async with working(app):
        handle = await app.enqueue(fan)
        assert await handle.result(PATIENCE) == ["BEFORE", "A", "B"]
    assert good.made.count("before") == 1
    recorded = keys(await handle.events(), "node_finished")
    assert sorted(recorded) == sorted(set(recorded))


# -- retries and timeouts inside an attempt ---------------------------------------------------------------------------------


async def test_a_step_is_tried_again_inside_the_attempt(app: App) -> None:
    flaky = Calls(failures=2)

    @app.job
    async def one(ctx: JobContext) -> str:
        return await ctx.options(retries=5, backoff=Backoff(base=0.01, cap=0.01)).step("flaky", flaky, "x")

    async with working(app):
        handle = await app.enqueue(one)
        assert await handle.result(PATIENCE) == "X"
    log = await handle.events()
    failures = [e.payload for e in log if e.type == "step_failed"]
    assert [f["call"] for f in failures] == [1, 2]
    assert all("Broken: not yet" in f["error"] for f in failures)
    assert only(log, "node_finished").payload["calls"] == 3
    job = await handle.get()
    assert (job.attempt, job.retry_count) == (1, 0)


async def test_a_step_without_retries_left_raises_what_it_raised(app: App) -> None:
    flaky = Calls(failures=9)
    seen: list[str] = []

    @app.job
    async def one(ctx: JobContext) -> str:
        try:
            return await ctx.options(retries=1, backoff=NOW).step("flaky", flaky, "x")
        except Broken as error:
            seen.append(str(error))
            return "went on without it"

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == "went on without it"
    assert (flaky.made, seen) == (["x", "x"], ["not yet"])


async def test_a_retry_asked_for_inside_a_step_wins_over_the_backoff(app: App) -> None:
    flaky = Calls(failures=1, error=Retry("busy", after=0.01))

    @app.job
    async def one(ctx: JobContext) -> str:
        return await ctx.options(retries=1, backoff=Backoff(base=3600, cap=3600)).step("flaky", flaky, "x")

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == "X"


async def test_verdicts_inside_a_step_are_not_tried_again(app: App) -> None:
    fails, snoozes = Calls(failures=9, error=Fail("no use")), Calls(failures=1, error=Snooze(0))

    @app.job
    async def failing(ctx: JobContext) -> str:
        return await ctx.options(retries=5, backoff=NOW).step("s", fails, "x")

    @app.job
    async def snoozing(ctx: JobContext) -> str:
        return await ctx.options(retries=5, backoff=Backoff(base=3600, cap=3600, jitter=0)).step("s", snoozes, "x")

    async with working(app):
        job = await ended(app, await app.enqueue(failing))
        assert (job.status, job.error_message, job.error_kind) == (Status.FAILED, "no use", "fatal")
        again = await ended(app, await app.enqueue(snoozing))
        assert (again.status, again.attempt, again.retry_count) == (Status.COMPLETED, 2, 0)
    assert (len(fails.made), len(snoozes.made)) == (1, 2)


async def test_a_step_that_takes_too_long_raises_a_timeout(app: App) -> None:
    async def hang() -> None:
        await asyncio.sleep(PATIENCE * 2)

    @app.job
    async def one(ctx: JobContext) -> str:
        try:
            await ctx.options(timeout=0.05).step("hang", hang)
        except TimeoutError:
            return "gave up"
        return "never"

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == "gave up"


# -- where a step runs ------------------------------------------------------------------------------------------------------


async def test_plain_functions_run_in_threads_with_the_context_of_the_caller(app: App) -> None:
    language = contextvars.ContextVar("language", default="none")
    here = threading.get_ident()

    def plain() -> tuple[bool, str]:
        return threading.get_ident() == here, language.get()

    @app.job
    async def one(ctx: JobContext) -> list[tuple[bool, str]]:
        language.set("latin")
        return [await ctx.step("plain", plain), await ctx.step("partial", functools.partial(plain))]

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == [(False, "latin"), (False, "latin")]


async def test_anything_callable_is_a_step(app: App) -> None:
    async def coroutine(value: str) -> str:
        return value

    @app.job
    async def one(ctx: JobContext) -> list[str]:
        return [
            await ctx.step("format", "{}!".format, "a"),
            await ctx.step("partial", functools.partial(coroutine, "b")),
            await ctx.step("lambda", lambda: coroutine("c")),
            await ctx.step("object", Calls(), "d"),
            await ctx.step("keywords", coroutine, value="e"),
        ]

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == ["a!", "b", "c", "D", "e"]


async def test_the_idempotency_key_is_stable_across_attempts(app: App) -> None:
    seen: list[str] = []

    def plain() -> None:
        seen.append(idempotency_key())
        if len(seen) == 1:
            raise Broken("after the effect")

    async def other() -> None:
        seen.append(idempotency_key())

    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> str:
        await ctx.step("plain", plain)
        await ctx.step("other", other)
        return ctx.idempotency_key("plain", kind="step")

    async with working(app):
        report = await (await app.enqueue(one)).result(PATIENCE)
    assert seen[0] == seen[1] == report
    assert seen[2] != report


async def test_a_stop_iteration_in_a_plain_step_is_an_error_like_any_other(app: App) -> None:
    empty: list[str] = []

    @app.job(max_retries=0)
    async def one(ctx: JobContext) -> str:
        return await ctx.step("next", next, iter(empty))

    async with working(app):
        job = await ended(app, await app.enqueue(one))
    assert job.status is Status.DEADLETTER
    assert "StopIteration" in (job.error_message or "")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
async def test_a_step_that_calls_exit_does_not_take_the_worker_along(app: App, error: type[BaseException]) -> None:
    def leave() -> None:
        raise error(3)

    async def leave_too() -> None:
        raise error(4)

    @app.job(max_retries=0)
    async def plain(ctx: JobContext) -> None:
        await asyncio.gather(ctx.step("leave", leave))

    @app.job(max_retries=0)
    async def coroutine(ctx: JobContext) -> None:
        await asyncio.gather(ctx.step("leave", leave_too))

    @app.job(max_retries=0)
    async def whole(ctx: JobContext) -> None:
        raise error(5)

    async with working(app) as worker:
        for handler in (plain, coroutine, whole):
            job = await ended(app, await app.enqueue(handler))
            assert job.status is Status.DEADLETTER
            assert re.search("exit|interrupt", job.error_message or "", re.IGNORECASE)
        assert worker.working


# -- arguments that changed -------------------------------------------------------------------------------------------------


async def test_a_recorded_step_with_other_arguments_fails_naming_it(app: App) -> None:
    calls = Calls()

    @app.job(backoff=NOW, on_change="fail")
    async def one(ctx: JobContext) -> str:
        value = await ctx.step("quote", calls, f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise Broken("replay, please")
        return value

    async with working(app):
        job = await ended(app, await app.enqueue(one))
    assert (job.status, job.error_kind) == (Status.FAILED, "fatal")
    assert "step 'quote'" in (job.error_message or "")
    assert calls.made == ["attempt 1"]


async def test_on_change_keep_takes_the_record_and_rerun_runs_again(app: App) -> None:
    kept, rerun = Calls(), Calls()

    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> list[str]:
        report = f"attempt {ctx.attempt}"
        values = [
            await ctx.options(on_change="keep").step("kept", kept, report),
            await ctx.options(on_change="rerun").step("rerun", rerun, report),
        ]
        if ctx.attempt == 1:
            raise Broken("replay, please")
        return values

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == ["ATTEMPT 1", "ATTEMPT 2"]
    assert (kept.made, rerun.made) == (["attempt 1"], ["attempt 1", "attempt 2"])


async def test_arguments_that_are_no_json_count_by_their_type_only(app: App) -> None:
    class Session:
        """A client, made again for every attempt."""

    calls: list[object] = []

    def use(session: Session, table: dict[object, str]) -> int:
        calls.append(session)
        return len(table)

    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> int:
        found = await ctx.step("use", use, Session(), {1: "a", "b": "c", (2, 3): "d"})
        if ctx.attempt == 1:
            raise Broken("replay, please")
        return found

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == 3
    assert len(calls) == 1


async def test_looking_at_arguments_does_not_use_them_up(app: App) -> None:
    def lines() -> Iterator[str]:
        yield from ("a", "b", "c")

    @app.job
    async def one(ctx: JobContext) -> str:
        return await ctx.step("join", "".join, lines())

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == "abc"


# -- what is written --------------------------------------------------------------------------------------------------------


async def test_only_slow_steps_announce_themselves(app: App) -> None:
    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @app.job
    async def one(ctx: JobContext) -> None:
        await ctx.step("fast", wait, 0)
        await ctx.step("slow", wait, 0.4)

    async with working(app):
        handle = await app.enqueue(one)
        await handle.result(PATIENCE)
    log = await handle.events()
    assert "slow" in keys(log, "node_started")
    slow = [e.type for e in log if isinstance(e.payload, dict) and e.payload.get("key") == "slow"]
    assert slow == ["node_started", "node_finished"]
    assert types(log)[-1] == "job_completed"


async def test_a_result_that_is_no_json_fails_the_job_and_says_which(app: App) -> None:
    def connect() -> Any:
        return threading.Lock()

    @app.job
    async def by_step(ctx: JobContext) -> None:
        await ctx.step("connect", connect)

    @app.job
    async def by_result(ctx: JobContext) -> object:
        return threading.Lock()

    @app.job
    async def not_a_number(ctx: JobContext) -> float:
        return float("nan")

    async with working(app):
        job = await ended(app, await app.enqueue(by_step))
        assert (job.status, job.error_kind) == (Status.FAILED, "fatal")
        assert "the result of step 'connect' cannot be written as JSON" in (job.error_message or "")
        job = await ended(app, await app.enqueue(by_result))
        assert job.status is Status.FAILED
        assert "the result of handler 'by_result' cannot be written as JSON" in (job.error_message or "")
        job = await ended(app, await app.enqueue(not_a_number))
        assert job.status is Status.FAILED
        assert "NaN" in (job.error_message or "")


async def test_a_result_over_a_mebibyte_fails_the_job(app: App) -> None:
    @app.job
    async def by_step(ctx: JobContext) -> int:
        return len(await ctx.step("download", "x".__mul__, MAX_JSON_BYTES))

    @app.job
    async def by_result(ctx: JobContext, size: int) -> str:
        return "x" * size

    async with working(app):
        job = await ended(app, await app.enqueue(by_step))
        assert (job.status, job.error_kind) == (Status.FAILED, "fatal")
        assert "the result of step 'download' is 1,048,578 bytes" in (job.error_message or "")
        job = await ended(app, await app.enqueue(by_result, MAX_JSON_BYTES - 1))
        assert job.status is Status.FAILED
        assert "the result of handler 'by_result' is 1,048,577 bytes" in (job.error_message or "")
        fits = await app.enqueue(by_result, MAX_JSON_BYTES - 2)
        assert len(await fits.result(PATIENCE)) == MAX_JSON_BYTES - 2


async def test_text_of_every_kind_survives(app: App) -> None:
    text = "naïve 中文 \U0001f9ea \x00 \u2028 \"'\\ \n\t"

    @app.job(backoff=NOW)
    async def one(ctx: JobContext, given: str) -> list[str]:
        found = await ctx.step("same — 同", str, given)
        if ctx.attempt == 1:
            raise Broken(text)
        return [given, found]

    async with working(app):
        handle = await app.enqueue(one, text, goal="中文")
        assert await handle.result(PATIENCE) == [text, text]


async def test_step_names_and_options_are_checked(app: App) -> None:
    @app.job
    async def one(ctx: JobContext) -> list[str]:
        refused = []
        for name, key in (
            ("", None),
            ("x" * 201, None),
            ("a\x00b", None),
            ("\ud800", None),
            ("a", "\x00"),
            ("a", "\udfff"),
        ):
            try:
                await ctx.options(key=key).step(name, str, 1)
            except ValueError as error:
                refused.append(type(error).__name__)
        for options in (
            {"retries": -1},
            {"retries": "3"},
            {"timeout": "soon"},
            {"backoff": 30},
            {"on_change": "kep"},
            {"on_unknown": "skip"},
        ):
            try:
                ctx.options(**options)
            except ValueError as error:
                refused.append(type(error).__name__)
        return refused

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == ["InvalidInput"] * 12


async def test_a_history_of_many_pages_is_read_to_its_end(app: App) -> None:
    ran: list[int] = []

    async def note(n: int) -> int:
        ran.append(n)
        return n

    @app.job(backoff=NOW)
    async def wide(ctx: JobContext) -> int:
        found = await asyncio.gather(*(ctx.step(f"step {n}", note, n) for n in range(2100)))
        if ctx.attempt == 1:
            raise Broken("replay, please")
        return sum(found)

    async with working(app):
        assert await (await app.enqueue(wide)).result(PATIENCE) == sum(range(2100))
    assert len(ran) == 2100


async def test_many_steps_make_one_dense_log(app: App) -> None:
    @app.job(backoff=NOW, max_retries=1)
    async def long(ctx: JobContext) -> int:
        total = 0
        for n in range(150):
            total += await ctx.step("add", int, n)
        if ctx.attempt == 1:
            raise Broken("replay, please")
        await ctx.sleep("nap", LONG if total < 0 else 0)
        return total

    async with working(app):
        handle = await app.enqueue(long)
        assert await handle.result(PATIENCE) == sum(range(150))
    log = await handle.events()
    assert [e.version for e in log] == list(range(1, len(log) + 1))
    assert len(keys(log, "node_finished")) == 150


async def test_no_step_is_announced_after_it_has_ended(app: App) -> None:
    """One timer announces all: a step may end between the timer and the announcement."""
    rng = random.Random(5)

    @app.job
    async def walk(ctx: JobContext) -> None:
        for _ in range(5):
            await ctx.step("wait", asyncio.sleep, rng.uniform(ANNOUNCE_AFTER, 2 * ANNOUNCE_AFTER))

    async with working(app, concurrency=100):
        handles = [await app.enqueue(walk) for _ in range(60)]
        for handle in handles:
            await handle.result(PATIENCE)
    announced = 0
    for handle in handles:
        ended: set[str] = set()
        for event in await handle.events():
            if event.type == "node_finished":
                ended.add(event.payload["key"])
            elif event.type == "node_started":
                announced += 1
                assert event.payload["key"] not in ended
    assert announced > 0


async def test_a_key_is_as_long_as_every_database_takes(app: App) -> None:
    longest = "".join(chr(0x1F600 + n % 80) for n in range(400))

    @app.job
    async def wait(ctx: JobContext, more: str) -> None:
        await ctx.options(key=longest + more).sleep("n" * 200, 0)

    async with working(app):
        await (await app.enqueue(wait, "")).result(PATIENCE)
        job = await ended(app, await app.enqueue(wait, "!"))
    assert "at most 400" in (job.error_message or "")


async def test_a_timeout_says_whose_time_was_up(app: App) -> None:
    @app.job(max_retries=0)
    async def slow(ctx: JobContext) -> None:
        await ctx.options(timeout=0.05).step("look", asyncio.sleep, PATIENCE)

    async with working(app):
        job = await ended(app, await app.enqueue(slow))
    assert (job.error_message or "").startswith(
        "TimeoutError: 'look' ran longer than its timeout of 0.05 s (at test_steps"
    )
