"""A failure that the handler went on from is raised again by a replay; one that ended the attempt is tried again."""

import asyncio
import sys
import types as modules
from collections import Counter
from typing import Any

import pytest

from perdure import App, BlockingContext, Fail, JobContext, RecordedFailure, Retry, Snooze, Status
from perdure.model.errors import PerdureError
from perdure.model.steps import steps_of
from perdure.runtime.raised import as_raised, rebuilt
from tests.runtime.support import NOW, PATIENCE, ended, keys, take_away, types, until, working


class CardDeclined(Exception):
    """A failure with arguments and attributes of its own."""

    def __init__(self, card: str, reason: str) -> None:
        super().__init__(card, reason)
        self.reason = reason
        self.client = object()


class NotAgain(CardDeclined):
    """Its making would be noticed."""

    made = 0

    def __init__(self, card: str) -> None:
        type(self).made += 1
        super().__init__(card, "stolen")


class Shop:
    """Functions for steps and tools, which count their calls and fail."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def fail(self, name: str, error: BaseException) -> Any:
        self.calls[name] += 1
        raise error

    def fail_first(self, name: str) -> str:
        self.calls[name] += 1
        if self.calls[name] == 1:
            raise CardDeclined("1234", "empty")
        return "paid"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.mark.parametrize("kind", ["step", "tool"])
async def test_a_caught_failure_is_raised_again_without_a_call(app: App, shop: Shop, kind: str) -> None:
    seen: list[Any] = []
    stolen = NotAgain("1234")

    @app.job(backoff=NOW)
    async def pay(ctx: JobContext) -> str:
        call = ctx.tool if kind == "tool" else ctx.step
        try:
            await call("charge", shop.fail, "charge", stolen)
        except CardDeclined as error:
            seen.append((type(error), error.args, error.reason))
        await ctx.sleep("settle", 0.3)
        if ctx.retry_count == 0:
            raise OSError("replay, please")
        return "settled"

    async with working(app, linger=0.0):
        handle = await app.enqueue(pay)
        assert await handle.result(PATIENCE) == "settled"
    assert shop.calls == {"charge": 1}
    assert len(seen) >= 2
    assert set(seen) == {(NotAgain, ("1234", "stolen"), "stolen")}
    events = await handle.events()
    assert keys(events, "failure_caught") == ["charge"]
    [step, _] = steps_of(events)
    assert (step.kind, step.status) == (kind, "failed")
    assert "NotAgain" in (step.error or "")


async def test_a_plain_handler_that_goes_on(app: App, shop: Shop) -> None:
    @app.job(backoff=NOW)
    def pay(ctx: BlockingContext) -> str:
        try:
            ctx.tool("charge", shop.fail, "charge", CardDeclined("1", "empty"))
            said = ""
        except CardDeclined as error:
            said = error.reason
        ctx.step("note", int)
        if ctx.attempt < 3:
            raise OSError("replay, please")
        return said

    async with working(app):
        assert await (await app.enqueue(pay)).result(PATIENCE) == "empty"
    assert shop.calls == {"charge": 1}


@pytest.mark.parametrize("how", ["itself", "from", "inside", "group", "verdict", "none"])
async def test_a_failure_that_ended_the_attempt_is_tried_again(app: App, shop: Shop, how: str) -> None:
    @app.job(backoff=NOW)
    async def pay(ctx: JobContext) -> str:
        try:
            return await ctx.tool("charge", shop.fail_first, "charge")
        except CardDeclined as error:
            match how:
                case "itself":
                    raise
                case "from":
                    raise ValueError("no money") from error
                case "inside":
                    raise ValueError("no money")  # noqa: B904  its context is what is tested
                case "group":
                    raise ExceptionGroup("several", [ValueError(), error]) from None
                case "verdict":
                    raise Retry(after=0) from error
                case _:
                    raise ValueError("no money") from None

    async with working(app):
        handle = await app.enqueue(pay)
        assert await handle.result(PATIENCE) == "paid"
    assert shop.calls == {"charge": 2}
    assert "failure_caught" not in types(await handle.events()), "it costs no write"


@pytest.mark.parametrize("verdict", [Retry("later", after=0), Snooze(0)])
async def test_a_verdict_that_a_function_raised_ends_the_attempt_and_calls_again(
    app: App, shop: Shop, verdict: Exception
) -> None:
    @app.job(backoff=NOW)
    async def pay(ctx: JobContext) -> int:
        if ctx.attempt < 3:
            await ctx.step("charge", shop.fail, "charge", verdict)
        return ctx.attempt

    async with working(app):
        assert await (await app.enqueue(pay)).result(PATIENCE) == 3
    assert shop.calls == {"charge": 2}


async def test_a_verdict_that_the_handler_caught_is_raised_again(app: App, shop: Shop) -> None:
    seen: list[Any] = []

    @app.job(backoff=NOW)
    async def pay(ctx: JobContext) -> None:
        for name, error in (("fail", Fail("no")), ("retry", Retry("later", after=7)), ("snooze", Snooze(9))):
            try:
                await ctx.step(name, shop.fail, name, error)
            except PerdureError as raised:
                seen.append((type(raised), raised.message, getattr(raised, "after", getattr(raised, "delay", None))))
        await ctx.step("note", int)
        if ctx.attempt == 1:
            raise OSError("replay, please")

    async with working(app):
        await (await app.enqueue(pay)).result(PATIENCE)
    assert seen == [(Fail, "no", None), (Retry, "later", 7.0), (Snooze, "snoozed", 9.0)] * 2
    assert set(shop.calls.values()) == {1}


async def test_what_a_gather_collects_is_gone_on_from(app: App, shop: Shop) -> None:
    @app.job(backoff=NOW)
    async def several(ctx: JobContext) -> list[str]:
        found = await asyncio.gather(
            ctx.step("one", shop.fail, "one", CardDeclined("1", "a")),
            ctx.step("two", shop.fail, "two", KeyError("x")),
            ctx.step("three", int),
            return_exceptions=True,
        )
        await ctx.step("note", int)
        if ctx.attempt == 1:
            raise OSError("replay, please")
        return [type(one).__name__ for one in found]

    async with working(app):
        assert await (await app.enqueue(several)).result(PATIENCE) == ["CardDeclined", "KeyError", "int"]
    assert shop.calls == {"one": 1, "two": 1}


@pytest.mark.parametrize("group", [False, True])
async def test_a_parallel_branch_that_writes_in_between_does_not_hide_what_ended_the_attempt(
    app: App, shop: Shop, group: bool
) -> None:
    @app.job(backoff=NOW)
    async def several(ctx: JobContext) -> str:
        async def branch() -> str:
            try:
                return await ctx.tool("charge", shop.fail_first, "charge")
            finally:
                await ctx.step("meanwhile", int)  # writes what failed so far

        if not group:
            return (await asyncio.gather(branch()))[0]
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(branch())
        return task.result()

    async with working(app):
        handle = await app.enqueue(several)
        assert await handle.result(PATIENCE) == "paid"
    assert shop.calls == {"charge": 2}
    assert keys(await handle.events(), "failure_retried") == ["charge"]


async def test_a_call_that_fails_while_another_failure_is_handled(app: App, shop: Shop) -> None:
    """The handler went on from the first: it called the second."""

    @app.job(backoff=NOW)
    async def pay(ctx: JobContext) -> str:
        try:
            return await ctx.tool("charge", shop.fail_first, "charge")
        except CardDeclined:
            return await ctx.step("tell", shop.fail_first, "tell")

    async with working(app):
        assert await (await app.enqueue(pay)).result(PATIENCE) == "paid"
    assert shop.calls == {"charge": 1, "tell": 2}


async def test_a_failure_inside_a_call_goes_the_way_of_that_call(app: App, shop: Shop) -> None:
    @app.job(backoff=NOW)
    async def pay(ctx: JobContext) -> str:
        async def outer() -> str:
            try:
                return await ctx.step("inner", shop.fail_first, "inner")
            except CardDeclined:
                raise ValueError("outer") from None

        return await ctx.step("outer", outer)

    async with working(app):
        assert await (await app.enqueue(pay)).result(PATIENCE) == "paid"
    assert shop.calls == {"inner": 2}


async def test_retries_of_a_call_are_not_failures_that_were_gone_on_from(app: App, shop: Shop) -> None:
    @app.job(backoff=NOW)
    async def pay(ctx: JobContext) -> str:
        paid = await ctx.options(retries=1, backoff=NOW).tool("charge", shop.fail_first, "charge")
        await ctx.step("note", int)
        if ctx.attempt == 1:
            raise OSError("replay, please")
        return paid

    async with working(app):
        handle = await app.enqueue(pay)
        assert await handle.result(PATIENCE) == "paid"
    assert shop.calls == {"charge": 2}
    assert "failure_caught" not in types(await handle.events())


async def test_after_a_crash_what_was_written_later_shows_that_the_handler_went_on(app: App, shop: Shop) -> None:
    go = asyncio.Event()

    @app.job(backoff=NOW)
    async def pay(ctx: JobContext, goes_on: bool) -> str:
        try:
            said = await ctx.tool("charge", shop.fail_first, "charge")
        except CardDeclined as error:
            said = error.reason
            if goes_on:
                await ctx.step("note", int)
        if ctx.attempt == 1:
            await go.wait()
        return said

    async with working(app):
        for goes_on, said in ((True, "empty"), (False, "paid")):
            shop.calls.clear()
            go.clear()
            handle = await app.enqueue(pay, goes_on)
            last = "node_finished" if goes_on else "tool_failed"

            async def written(handle: Any = handle, last: str = last) -> bool:
                return last in types(await handle.events())

            await until(written)
            await take_away(await app.open(), handle)
            go.set()
            assert await handle.result(PATIENCE) == said
            assert shop.calls == {"charge": 1 if goes_on else 2}


async def test_a_fork_keeps_what_was_gone_on_from(app: App, shop: Shop) -> None:
    @app.job(max_retries=0)
    async def pay(ctx: JobContext, broken: bool = True) -> str:
        try:
            await ctx.tool("charge", shop.fail, "charge", CardDeclined("1", "empty"))
            said = ""
        except CardDeclined as error:
            said = error.reason
        if broken:
            await ctx.step("note", shop.fail_first, "note")
        return said

    async with working(app):
        handle = await app.enqueue(pay)
        assert (await ended(app, handle)).status is Status.DEADLETTER
        fork = await app.jobs.fork(handle.id, input=False)
        assert await fork.result(PATIENCE) == "empty"
    assert shop.calls["charge"] == 1


# -- exceptions as JSON and back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 1, None, [1.5, {"b": True}]),
        KeyError("x"),
        FileNotFoundError(2, "No such file", "/tmp/x"),
        CardDeclined("1", "empty"),
        ExceptionGroup("two", [ValueError("a"), ExceptionGroup("in", [KeyError("b")])]),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ValueError("\x00\ud800"),
        ValueError("x" * 100_000),
        ValueError(10**400),
        Retry("later", after=3),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_known_class_comes_back(error: Exception) -> None:
    import json

    again = rebuilt(json.loads(json.dumps(as_raised(error))))
    assert type(again) is type(error) or isinstance(error, UnicodeDecodeError)
    assert isinstance(again, ValueError if isinstance(error, ValueError) else Exception)
    if all(type(arg) in (str, int) and len(str(arg)) < 100 for arg in error.args) and "\x00" not in str(error):
        assert again.args == error.args
    if isinstance(error, OSError) and isinstance(again, OSError):
        assert (again.errno, again.filename) == (error.errno, error.filename)
    if isinstance(error, ExceptionGroup) and isinstance(again, ExceptionGroup):
        assert [type(e) for e in again.exceptions] == [type(e) for e in error.exceptions]


def test_a_class_that_is_not_imported_becomes_what_it_derives_from() -> None:
    module = modules.ModuleType("gone_tomorrow")
    sys.modules["gone_tomorrow"] = module
    exec("class Base(LookupError): pass\nclass Error(Base):\n    pass\nclass Bare(Exception): pass", vars(module))
    raised, bare = as_raised(module.Error("x", 1)), as_raised(module.Bare("x"))
    assert type(rebuilt(raised)) is module.Error
    del sys.modules["gone_tomorrow"]
    again = rebuilt(raised)
    assert (type(again), again.args) == (LookupError, ("('x', 1)",))
    found = rebuilt(bare)
    assert isinstance(found, RecordedFailure)
    assert (found.type_name, found.text) == ("gone_tomorrow.Bare", "x")
    assert "gone_tomorrow" not in sys.modules


def test_no_code_of_the_class_runs() -> None:
    before = NotAgain.made
    error = NotAgain("1")
    again = rebuilt(as_raised(error))
    assert (type(again), NotAgain.made) == (NotAgain, before + 1)
    assert not hasattr(again, "client"), "what is not JSON is not there"


def test_a_name_in_the_log_can_only_name_an_exception() -> None:
    for name in ("os:system", "builtins:exec", "builtins:SystemExit", "builtins:int", "sys:modules", ""):
        assert type(rebuilt({"types": [name], "text": "rm -rf /", "args": ["rm -rf /"]})) is RecordedFailure
