"""crash_after_each_step: handlers that survive, and every way in which one may not."""

import asyncio
import itertools
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    App,
    ApprovalContext,
    ApprovalRequest,
    Backoff,
    BlockingContext,
    Budget,
    Denied,
    Fail,
    JobContext,
    OnSignal,
    OnTime,
    Status,
    idempotency_key,
)
from perdure.model.approvals import Approval
from perdure.model.errors import InvalidInput
from perdure.testing import Boundary, TestApp
from tests.testing.support import at_once


@dataclass
class Brief:
    topic: str


class World:
    """What a handler's functions do to the world outside."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.tried = 0

    def do(self, what: str) -> str:
        self.effects.append(what)
        return what

    async def flaky(self, times: int) -> int:
        self.tried += 1
        if self.tried <= times:
            raise OSError(f"not at try {self.tried}")
        return self.tried

    def reset(self) -> None:
        self.tried = 0


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def t() -> AsyncIterator[TestApp]:
    with at_once(60):
        async with TestApp() as t:
            yield t


def names(boundaries: tuple[Boundary, ...]) -> list[str]:
    return [str(b) for b in boundaries]


# -- handlers that survive --------------------------------------------------------------------------------------------------


async def test_a_durable_handler_survives_a_crash_at_every_record(t: TestApp, world: World) -> None:
    lines: list[str] = []

    def tell(request: ApprovalRequest) -> None:
        lines.append(request.token)

    @t.job
    async def research(ctx: JobContext, brief: Brief) -> dict[str, Any]:
        found = await ctx.step("search", world.do, f"search {brief.topic}")
        tries = await ctx.options(retries=3, backoff=Backoff(base="1h", cap="1h")).step("flaky", world.flaky, 2)
        await ctx.sleep("settle", "1d")
        decision = await ctx.approve("publish", title="ok?", payload={"text": found}, expires_in="3d", notify=tell)
        await ctx.checkpoint({"found": found})
        await ctx.emit("halfway", {})
        await ctx.usage(tokens=10)
        await ctx.progress(0.5)
        sent = await ctx.tool("send", world.do, "send it")
        return {"tries": tries, "sent": sent, "payload": decision.payload, "by": decision.by}

    report = await t.crash_after_each_step(
        research, Brief("tea"), effects=world.effects, setup=world.reset, max_retries=5
    )
    assert report.status is Status.COMPLETED
    assert report.result["tries"] == 3
    assert report.effects == ["search tea", "send it"]
    assert names(report.boundaries) == [
        "step 'search'",
        "a failed call of step 'flaky'",
        "a failed call of step 'flaky' (number 2)",
        "step 'flaky'",
        "the beginning of wait 'settle'",
        "the end of wait 'settle'",
        "the request for approval 'publish'",
        "the message about approval 'publish'",
        "the end of wait 'publish'",
        "a checkpoint",
        "event 'halfway'",
        "a record of usage",
        "the call of tool 'send'",
        "the return of tool 'send'",
        "its end, before that was recorded",
    ]
    assert len(lines) == len(set(lines)) == 2 + len(report.boundaries)  # once in every run
    assert str(report).startswith(
        "research survives 15 crashes, and ends COMPLETED every time; right after\n- step 'se"
    )
    assert await t.jobs.count() == {}  # all of it happened elsewhere


async def test_signals_are_sent_when_the_handler_waits_for_them(t: TestApp, world: World) -> None:
    @t.job
    async def order(ctx: JobContext) -> Any:
        paid = await ctx.wait_signal("paid", int, timeout="3d")
        first = await ctx.wait_any(OnSignal("stop"), OnTime("late", "1d"))
        return [paid, first.name, await ctx.tool("ship", world.do, "ship")]

    report = await t.crash_after_each_step(order, signals={"paid": 3}, effects=world.effects, setup=world.reset)
    assert report.result[:2] == [3, "late"]
    assert "the end of wait 'stop'" in names(report.boundaries)
    with pytest.raises(AssertionError, match="PARKED, and waits for signal 'paid'"):
        await t.crash_after_each_step(order_for_ever(t), signals={"other": 3})


def order_for_ever(t: TestApp) -> Any:
    @t.job
    async def patient(ctx: JobContext) -> Any:
        return await ctx.wait_signal("paid")

    return patient


async def test_the_worker_really_dies_and_another_takes_over(t: TestApp) -> None:
    attempts: list[tuple[int, str]] = []
    began: list[Any] = []

    @t.job
    async def two_steps(ctx: JobContext) -> int:
        attempts.append((ctx.attempt, ctx.worker_id))
        began.append(ctx._run.database_now())
        one = await ctx.step("one", lambda: 1)
        return one + await ctx.step("two", lambda: 2)

    await t.crash_after_each_step(two_steps)
    assert [number for number, _ in attempts] == [1, 1, 1, 2, 1, 2, 1, 2]
    assert len({worker for _, worker in attempts}) == 8
    waited = [(later - former).total_seconds() for former, later in itertools.pairwise(began[2:])]
    assert waited[::2] == [30.0, 30.0, 30.0]  # the lease, on the clock


async def test_nothing_of_a_killed_attempt_runs_on(t: TestApp) -> None:
    went_on: list[int] = []

    @t.job
    async def stubborn(ctx: JobContext) -> int:
        one = await ctx.step("one", lambda: 1)
        went_on.append(ctx.attempt)
        try:
            return one + await ctx.step("two", lambda: 2)
        finally:
            if ctx.attempt == 1:
                went_on.append(-1)
                await ctx.emit("last_words")  # into the void: the attempt is over

    report = await t.crash_after_each_step(stubborn, setup=went_on.clear)
    assert report.result == 3
    assert went_on == [1, -1, 2]  # of the last run, which crashes at the very end: nothing stops it before


async def test_parallel_branches_survive(t: TestApp, world: World) -> None:
    @t.job
    async def fan_out(ctx: JobContext) -> list[str]:
        async def branch(n: int) -> str:
            mine = ctx.options(key=str(n))
            await mine.step("look", world.flaky, 0)
            if n == 1:
                await mine.sleep("nap", "1h")
            return await mine.tool("act", world.do, f"act {n}")

        return await asyncio.gather(*(branch(n) for n in range(3)))

    report = await t.crash_after_each_step(fan_out, effects=Sorted(world), setup=world.reset, max_retries=9)
    assert report.result == ["act 0", "act 1", "act 2"]
    assert len(report.boundaries) == 3 * 3 + 2 + 1


class Sorted:
    """Effects in no particular order: parallel branches have none."""

    def __init__(self, world: World) -> None:
        self._world = world

    def clear(self) -> None:
        self._world.effects.clear()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sorted) and sorted(self._world.effects) == sorted(other._world.effects)

    __hash__ = None  # type: ignore[assignment]  # it changes


async def test_a_plain_handler_survives(t: TestApp, world: World) -> None:
    @t.job
    def plain(ctx: BlockingContext, brief: Brief) -> str:
        ctx.step("look", world.do, "look")
        ctx.sleep("nap", "1h")
        ctx.approve("ok", title="ok?")
        return ctx.tool("act", world.do, brief.topic)

    report = await t.crash_after_each_step(plain, Brief("tea"), effects=world.effects)
    assert (report.result, len(report.boundaries)) == ("tea", 8)


async def test_the_job_has_what_it_is_enqueued_with(t: TestApp, world: World) -> None:
    asked: list[str] = []

    @t.job
    async def buyer(ctx: JobContext) -> list[Any]:
        await ctx.tool("buy", world.do, "buy")
        assert ctx.budget_left is not None
        return [ctx.budget_left["tool_calls"] < 5, ctx.fields.user_id]

    async def decide(app: App, approval: Approval) -> None:
        asked.append(approval.payload["tool"])
        await app.approve(approval.id)

    report = await t.crash_after_each_step(
        buyer,
        effects=world.effects,
        decide=decide,
        budget=Budget(tool_calls=5),
        approval_context=ApprovalContext({"buy": "always"}),
        user_id="ann",
    )
    assert report.result == [True, "ann"]
    assert names(report.boundaries)[0].startswith("the request for approval 'buy")
    assert set(asked) == {"buy"}


async def test_a_handler_without_steps_may_survive_as_well(t: TestApp) -> None:
    @t.job
    async def pure(ctx: JobContext, n: int) -> int:
        return n * n

    report = await t.crash_after_each_step(pure, 7)
    assert (report.result, names(report.boundaries)) == (49, ["its end, before that was recorded"])


async def test_a_handler_that_fails_must_fail_every_time(t: TestApp) -> None:
    @t.job
    async def fails(ctx: JobContext) -> None:
        await ctx.step("look", lambda: 1)
        raise Fail("there is nothing")

    report = await t.crash_after_each_step(fails)
    assert (report.status, len(report.boundaries)) == (Status.FAILED, 2)


async def test_decisions_can_be_made_otherwise(t: TestApp) -> None:
    @t.job
    async def ask(ctx: JobContext) -> str:
        first = await ctx.approve("first", title="ok?", payload="draft")
        try:
            await ctx.approve("second", title="ok?", on_deny="resume")
        except Denied as denied:
            return f"{first.payload}: {denied.reason}"
        return "approved"

    async def decide(app: App, approval: Approval) -> None:
        if approval.key == "first":
            await app.approve(approval.id, edited="edited")
        else:
            await app.deny(approval.id, comment="not now")

    report = await t.crash_after_each_step(ask, decide=decide)
    assert report.result == "edited: not now"


async def test_assignees_decide_by_default(t: TestApp) -> None:
    @t.job
    async def ask(ctx: JobContext) -> str | None:
        return (await ctx.approve("first", title="ok?", assignees=["ann"])).by

    assert (await t.crash_after_each_step(ask)).result == "ann"


async def test_a_decision_may_be_left_to_time(t: TestApp) -> None:
    @t.job
    async def ask(ctx: JobContext) -> bool:
        return (await ctx.approve("ok", title="ok?", expires_in="2d", on_expiry="continue")).approved

    async def decide(app: App, approval: Approval) -> None:
        pass

    assert (await t.crash_after_each_step(ask, decide=decide)).result is False


@pytest.mark.parametrize("policy", ["ask", "retry", "fail"])
async def test_a_tool_that_is_cut_off_goes_by_its_policy(t: TestApp, world: World, policy: Any) -> None:
    @t.job
    async def pay(ctx: JobContext) -> str:
        return await ctx.options(on_unknown=policy).tool("pay", world.do, "pay")

    report = await t.crash_after_each_step(pay, effects=world.effects if policy != "fail" else None)
    assert len(report.boundaries) == 3


async def test_a_tool_that_was_done_but_not_recorded_is_not_done_again(t: TestApp, world: World) -> None:
    """The crash comes from a parallel branch; the question about the tool is answered by what really happened."""

    async def pay() -> str:
        world.do("pay")
        await asyncio.sleep(0.05)  # so that the other branch's record comes before this one's
        return "paid"

    @t.job
    async def both(ctx: JobContext) -> list[Any]:
        return list(await asyncio.gather(ctx.tool("pay", pay), ctx.step("look", lambda: "seen")))

    report = await t.crash_after_each_step(both, effects=world.effects)
    assert report.effects == ["pay"]
    assert sorted(names(report.boundaries))[-3:] == [
        "step 'look'",
        "the call of tool 'pay'",
        "the return of tool 'pay'",
    ]


async def test_children_with_a_key_are_not_started_twice(t: TestApp) -> None:
    @t.job
    async def child(ctx: JobContext) -> None:
        await ctx.step("work", lambda: 1)

    app = App("memory:")

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.step("before", lambda: 1)
        await app.enqueue(child, idempotency_key="the only one", elsewhere=True)
        await ctx.step("after", lambda: 2)

    async with TestApp(app) as other:
        assert len((await other.crash_after_each_step(parent)).boundaries) == 3


async def test_stubs_are_used_there_too() -> None:
    app = App("memory:")

    @app.job
    async def guess(ctx: JobContext) -> float:
        return await ctx.step("draw", random.random)

    async with TestApp(app, stubs={"draw": lambda: 0.5}) as t:
        assert (await t.crash_after_each_step(guess)).result == 0.5


async def test_ids_and_keys_are_the_same_in_every_run(t: TestApp, world: World) -> None:
    def pay() -> None:
        world.do(idempotency_key())

    @t.job
    async def pays(ctx: JobContext) -> str:
        await ctx.tool("pay", pay)
        return str(ctx.job_id)

    report = await t.crash_after_each_step(pays, effects=world.effects)
    assert len(uuid.UUID(report.result).hex) == len(report.effects[0]) == 32


async def test_a_crash_may_take_no_time_at_all() -> None:
    async with TestApp(lease=0) as t:

        @t.job
        async def when(ctx: JobContext) -> str:
            await ctx.step("look", lambda: 1)
            return str((await ctx.approve("ok", title="ok?")).at)

        report = await t.crash_after_each_step(when)
        assert report.result == str(t.clock.now())


# -- handlers that do not ---------------------------------------------------------------------------------------------------


async def test_a_counter_outside_of_the_steps_is_found(t: TestApp) -> None:
    runs = 0

    @t.job
    async def counts(ctx: JobContext) -> int:
        nonlocal runs
        runs += 1
        await ctx.step("work", lambda: 1)
        return runs

    with pytest.raises(AssertionError, match=r"counts ends differently even when nothing crashes.*returns 2.* 1\."):
        await t.crash_after_each_step(counts)

    def reset() -> None:
        nonlocal runs
        runs = 0

    with pytest.raises(
        AssertionError,
        match=r"counts does not survive a crash right after step 'work': after the crash it returns 2, without it 1\.",
    ):
        await t.crash_after_each_step(counts, setup=reset)


async def test_a_side_effect_between_two_steps_is_found(t: TestApp, world: World) -> None:
    @t.job
    async def posts(ctx: JobContext) -> str:
        await ctx.step("write", lambda: "draft")
        world.do("post")  # not in a tool
        return await ctx.step("archive", lambda: "done")

    with pytest.raises(
        AssertionError, match=r"crash right after step 'archive': after the crash its effects are \['post', 'post'\]"
    ):
        await t.crash_after_each_step(posts, effects=world.effects)


async def test_a_side_effect_before_a_wait_is_found(t: TestApp, world: World) -> None:
    @t.job
    async def posts(ctx: JobContext) -> None:
        world.do("post")
        await ctx.sleep("nap", "1h")

    with pytest.raises(AssertionError, match=r"the beginning of wait 'nap'.* its effects are"):
        await t.crash_after_each_step(posts, effects=world.effects)


async def test_a_side_effect_after_the_last_step_is_found(t: TestApp, world: World) -> None:
    @t.job
    async def posts(ctx: JobContext) -> None:
        await ctx.step("write", lambda: "draft")
        world.do("post")

    with pytest.raises(AssertionError, match="its end, before that was recorded: after the crash its effects"):
        await t.crash_after_each_step(posts, effects=world.effects)


async def test_a_job_that_is_started_between_two_steps_is_found() -> None:
    app = App("memory:")

    @app.job
    async def child(ctx: JobContext) -> None:
        pass

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.step("before", lambda: 1)
        await app.enqueue(child)
        await ctx.step("after", lambda: 2)

    async with TestApp(app) as t:
        with pytest.raises(
            AssertionError, match=r"step 'after': .* these jobs: 2 child, 1 parent; .* 1 child, 1 parent"
        ):
            await t.crash_after_each_step(parent)


async def test_arguments_that_change_are_found(t: TestApp, world: World) -> None:
    numbers = itertools.count()

    @t.job
    async def draws(ctx: JobContext) -> None:
        await ctx.step("use", world.do, f"{next(numbers)}"[:0] + str(ctx.attempt))

    with pytest.raises(AssertionError, match=r"step 'use'.*FAILED .*recorded with other arguments"):
        await t.crash_after_each_step(draws)


async def test_a_recorded_step_that_runs_again_is_found(t: TestApp) -> None:
    @t.job
    async def reruns(ctx: JobContext) -> int:
        return await ctx.options(on_change="rerun").step("work", lambda attempt: 1, ctx.attempt)

    with pytest.raises(AssertionError, match="right after step 'work': 'work' ran again although it was recorded"):
        await t.crash_after_each_step(reruns)


async def test_names_that_change_are_found(t: TestApp) -> None:
    @t.job
    async def names_by_attempt(ctx: JobContext) -> int:
        return await ctx.step(f"work in attempt {ctx.attempt}", lambda: 1)

    with pytest.raises(AssertionError, match="'work in attempt 2' is recorded only after the crash"):
        await t.crash_after_each_step(names_by_attempt)

    @t.job
    async def names_by_chance(ctx: JobContext) -> int:
        return await ctx.step(f"work {uuid.uuid4()}", lambda: 1)

    with pytest.raises(AssertionError, match=r"even when nothing crashes: 'work .*' is recorded only"):
        await t.crash_after_each_step(names_by_chance)


async def test_a_boundary_that_is_never_reached_is_found(t: TestApp) -> None:
    runs: Iterator[int] = itertools.count(1)

    @t.job
    async def forgets(ctx: JobContext) -> int:
        if next(runs) <= 2:
            await ctx.emit("only_at_first")
        return await ctx.step("work", lambda: 1)

    with pytest.raises(AssertionError, match="forgets never came to event 'only_at_first'"):
        await t.crash_after_each_step(forgets)


async def test_a_job_that_may_not_be_retried_does_not_survive(t: TestApp) -> None:
    @t.job(max_retries=0)
    async def once(ctx: JobContext) -> int:
        return await ctx.step("work", lambda: 1)

    with pytest.raises(
        AssertionError, match=r"after the crash it ends DEADLETTER \(the lease of worker .* ran out\).*uses 0\."
    ):
        await t.crash_after_each_step(once)


async def test_a_crash_that_takes_the_last_retry_is_reported_as_such(t: TestApp, world: World) -> None:
    @t.job(max_retries=2, backoff=Backoff(base="1s", cap="1s"))
    async def flaky(ctx: JobContext) -> None:
        await ctx.step("look", lambda: 1)
        await world.flaky(2)

    with pytest.raises(AssertionError) as raised:
        await t.crash_after_each_step(flaky, setup=world.reset)
    assert "survive a crash right after step 'look': after the crash it ends DEADLETTER (OSError: " in str(raised.value)
    assert str(raised.value).endswith(
        ", without it COMPLETED. Each crash uses a retry, and there was none left for it: max_retries is 2, and without a "
        "crash this job uses 2. Give the handler more of them, or only this test: crash_after_each_step(..., max_retries=3)"
    )
    report = await t.crash_after_each_step(flaky, setup=world.reset, max_retries=3)
    assert report.status is Status.COMPLETED


async def test_other_reasons_to_be_given_up_are_not_taken_for_it(t: TestApp, world: World) -> None:
    @t.job(max_retries=2, backoff=Backoff(base="1s", cap="1s"))
    async def fails_once_it_crashed(ctx: JobContext) -> int:
        await ctx.step("look", lambda: 1)
        return await world.flaky(9 if ctx.attempt > 1 else 0)

    with pytest.raises(AssertionError, match=r"DEADLETTER .*, without it COMPLETED\. What a handler does outside"):
        await t.crash_after_each_step(fails_once_it_crashed, setup=world.reset)


async def test_a_job_that_never_ends_is_reported(t: TestApp) -> None:
    @t.job
    async def asks(ctx: JobContext) -> None:
        await ctx.approve("ok", title="ok?")

    async def decide(app: App, approval: Approval) -> None:
        pass

    with pytest.raises(
        AssertionError, match="comes to no end: it is WAITING_FOR_APPROVAL, and waits for approval 'ok'"
    ):
        await t.crash_after_each_step(asks, decide=decide)


async def test_only_a_handler_of_the_app_can_be_tried(t: TestApp) -> None:
    async def function(ctx: JobContext) -> None:
        pass

    other_app = App("memory:").job(function)
    for what in (function, other_app):
        with pytest.raises(InvalidInput, match="is not a handler of this app"):
            await t.crash_after_each_step(what)  # type: ignore[arg-type]


async def test_a_conversation_survives_a_crash_at_each_of_its_writes(t: TestApp) -> None:
    @t.job
    async def talker(ctx: JobContext) -> list[Any]:
        async def ask(messages: list[Any]) -> None:
            await ctx.messages.append("assistant", f"{len(messages)}")

        await ctx.messages.append("user", "hello")
        for _ in range(2):
            await ctx.step("ask", ask, ctx.messages.list())
            await ctx.vars.set("turns", ctx.vars.get("turns", 0) + 1)
        return [ctx.messages.list(), ctx.vars.all()]

    report = await t.crash_after_each_step(talker)
    assert {"message_appended", "variable_set"} <= {boundary.type for boundary in report.boundaries}
