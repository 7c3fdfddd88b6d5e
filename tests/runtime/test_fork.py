"""fork: a new job that keeps what was recorded before a step, and goes on from there."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import App, Denied, Fail, Handle, JobContext, Status
from perdure.model.approvals import ApprovalStatus
from perdure.model.errors import InvalidInput, JobNotFound, JobPruned, NotJson, StepNotFound, TooLarge
from perdure.model.events import Event, EventClass, event_class
from perdure.model.ids import uuid7
from perdure.model.jobs import MAX_JSON_BYTES
from perdure.model.states import TERMINAL
from perdure.model.steps import COPIED, steps_of
from tests.conformance.support import checked_log, passed, run_to
from tests.crash import invariants
from tests.runtime.support import LONG, NOW, PATIENCE, ended, keys, pending, reached, types, until, working


class Work:
    """Functions for steps, which count their calls."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def do(self, name: str, value: Any = None) -> Any:
        self.calls[name] += 1
        return [name, value]

    def since(self) -> Counter[str]:
        """The calls since the last time."""
        calls, self.calls = self.calls, Counter()
        return calls


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def report(app: App, work: Work) -> Any:
    """Four steps; `broken` fails the last but one."""

    @app.job(max_retries=0, queue="default", priority=7, on_change="fail")
    async def report(ctx: JobContext, brief: dict[str, Any]) -> Any:
        found = await ctx.step("search", work.do, "search", brief["topic"])
        notes = [await ctx.step("read", work.do, "read", n) for n in range(2)]
        if brief.get("broken"):
            raise Fail("the printer is on fire")
        draft = await ctx.step("write", work.do, "write", brief.get("tone"))
        return await ctx.step("print", work.do, "print", [found, notes, draft])

    return report


async def run(app: App, job: Handle[Any]) -> Any:
    """Let a worker run it to its end; its result."""
    async with working(app):
        return (await ended(app, job)).result


async def fork_of(app: App, job: Handle[Any], *args: Any, **options: Any) -> Handle[Any]:
    """A fork, checked: its log begins with what it was copied from, marked as that."""
    before = await app.jobs.get(job.id), await app.jobs.events(job.id)
    made = await app.jobs.fork(job.id, *args, **options)
    assert (await app.jobs.get(job.id), await app.jobs.events(job.id)) == before or before[0].status.leased, (
        "it stays as it was"
    )
    new, log = await app.jobs.get(made.id), await checked_log(await app.open(), made.id)
    assert (new.status, new.attempt, new.version) == (Status.PENDING, 0, len(log))
    assert (new.origin_kind, new.origin_id) == ("fork", job.id)
    old = {e.version: e for e in before[1]} | {e.version: e for e in await app.jobs.events(job.id)}
    assert log[0].type == "job_created"
    for event in log[1:]:
        source = event.payload[COPIED]
        original = old[source["version"]]
        kept_as = "event_kept" if event_class(original.type) is EventClass.TRACE else original.type
        assert (source["job"], event.attempt, event.type) == (str(job.id), 0, kept_as)
        if original.type != kept_as:
            assert event.payload["event"] == str(original.event_id)
            continue
        assert event.payload.items() >= {k: v for k, v in original.payload.items() if k != COPIED}.items()
    return made


def copies(events: list[Event]) -> list[str]:
    """Types and keys of the events that a fork began with."""
    return [f"{e.type} {e.payload.get('key', '')}".strip() for e in events if e.attempt == 0 and e.version > 1]


# -- from a step on ----------------------------------------------------------------------------------------------------------


async def test_steps_before_it_are_kept_and_those_from_it_on_run_again(app: App, report: Any, work: Work) -> None:
    job = await app.enqueue(report, {"topic": "tea"}, idempotency_key="k", goal="Tea", queue="default", priority=3)
    result = await run(app, job)
    assert work.since() == {"search": 1, "read": 2, "write": 1, "print": 1}
    made = await fork_of(app, job, from_step="write")
    new = await made.get()
    assert (new.kind, new.payload, new.goal, new.queue, new.priority) == (
        "report",
        {"topic": "tea"},
        "Tea",
        "default",
        3,
    )
    assert (new.idempotency_key, new.max_retries) == (None, 0)
    assert (new.note["origin"], new.note["from_step"], new.note["actor"]) == (str(job.id), "write", app.client.actor)
    assert copies(await made.events()) == ["node_finished search", "node_finished read", "node_finished read#2"]
    assert await run(app, made) == result
    assert work.since() == {"write": 1, "print": 1}
    assert types(await made.events())[4:] == ["run_started", "node_finished", "node_finished", "job_completed"]


async def test_from_every_step_by_name_and_by_number(app: App, report: Any, work: Work) -> None:
    job = await app.enqueue(report, {"topic": "tea"})
    result = await run(app, job)
    steps, forks = ["search", "read", "read#2", "write", "print"], []
    assert [s.key for s in steps_of(await job.events())] == steps
    for number, name in enumerate(steps, 1):
        for from_step in (name, number, str(number)):
            made = await fork_of(app, job, from_step)
            assert len(copies(await made.events())) == number - 1
            forks.append(made)
    assert [await run(app, made) for made in forks] == [result] * 15


async def test_a_step_that_is_named_like_a_number(app: App, work: Work) -> None:
    @app.job
    async def counts(ctx: JobContext) -> None:
        for name in ("2", "1", "0"):
            await ctx.step(name, work.do, name)

    job = await app.enqueue(counts)
    await run(app, job)
    assert copies(await (await fork_of(app, job, "2")).events()) == [], "the name wins"
    assert len(copies(await (await fork_of(app, job, 2)).events())) == 1
    assert len(copies(await (await fork_of(app, job, "3")).events())) == 2


async def test_without_a_step_it_goes_on_where_the_job_ended(app: App, work: Work) -> None:
    repaired = False

    @app.job(max_retries=0)
    async def breaks(ctx: JobContext) -> Any:
        first = await ctx.step("first", work.do, "first")
        if not repaired:
            raise ValueError("a bug")
        return [first, await ctx.step("second", work.do, "second")]

    job = await app.enqueue(breaks)
    await run(app, job)
    assert await job.status() is Status.DEADLETTER
    repaired = True
    made = await fork_of(app, job)
    assert "from_step" not in (await made.get()).note
    assert await run(app, made) == [["first", None], ["second", None]]
    assert work.since() == {"first": 1, "second": 1}


async def test_jobs_in_every_state(app: App) -> None:
    store = await app.open()
    for status in Status:
        job_id = await run_to(store, status)
        made = await fork_of(app, app.jobs.handle(job_id))
        assert copies(await made.events()) == []
        if status not in TERMINAL:
            await app.jobs.cancel(job_id, force=True)


async def test_a_job_that_runs_is_taken_as_it_is_now(app: App, work: Work) -> None:
    go_on = asyncio.Event()

    @app.job
    async def works(ctx: JobContext) -> Any:
        first = await ctx.step("first", work.do, "first")
        await ctx.step("wait", go_on.wait)
        return first

    async with working(app):
        job = await app.enqueue(works)
        await until(lambda: work.calls["first"], what="the first step")

        async def recorded() -> bool:
            return "node_finished" in types(await job.events())

        await until(recorded)
        made = await app.jobs.fork(job.id)
        assert copies(await made.events()) == ["node_finished first"]
        go_on.set()
        assert (await ended(app, job)).result == (await ended(app, made)).result
    assert work.calls["first"] == 1


async def test_a_step_that_is_not_there(app: App, report: Any) -> None:
    job = await app.enqueue(report, {"topic": "tea"})
    with pytest.raises(StepNotFound, match="it has no recorded step"):
        await app.jobs.fork(job.id, "search")
    await run(app, job)
    with pytest.raises(StepNotFound, match="has no step 'wirte'; did you mean 'write'") as caught:
        await app.jobs.fork(job.id, "wirte")
    assert "1 search, 2 read, 3 read#2, 4 write, 5 print" in str(caught.value.hint)
    for nothing in (0, 6, -1, "6", "0", "", "read#3", "9" * 30):
        with pytest.raises(StepNotFound):
            await app.jobs.fork(job.id, nothing)
    for nonsense in (True, 1.0, ["read"]):
        with pytest.raises(InvalidInput, match="a step's name or its number"):
            await app.jobs.fork(job.id, nonsense)  # type: ignore[arg-type]  # refused for that
    with pytest.raises(JobNotFound):
        await app.jobs.fork(uuid7())
    assert await app.jobs.count() == {"COMPLETED": 1}, "nothing was written"


async def test_only_some_of_very_many_steps_are_named(app: App) -> None:
    @app.job
    async def many(ctx: JobContext) -> None:
        for n in range(30):
            await ctx.step(f"step {n}", str, n)

    job = await app.enqueue(many)
    await run(app, job)
    with pytest.raises(StepNotFound) as caught:
        await app.jobs.fork(job.id, "x")
    assert "20 step 19 and 10 more" in str(caught.value.hint)


async def test_a_long_log(work: Work) -> None:
    async with App("memory:") as app:

        @app.job
        async def long(ctx: JobContext) -> int:
            for n in range(1100):
                await ctx.step("piece", work.do, "piece", n)
            return await ctx.step("last", lambda: 1)

        job = await app.enqueue(long)
        await run(app, job)
        work.since()
        made = await fork_of(app, job, "last")
        assert len(copies(await made.events())) == 1100
        assert await run(app, made) == 1
        assert work.since() == {}


# -- another input -----------------------------------------------------------------------------------------------------------


async def test_another_input_for_the_steps_that_run_again(app: App, report: Any, work: Work) -> None:
    job = await app.enqueue(report, {"topic": "tea", "tone": "long"})
    await run(app, job)
    work.since()
    made = await fork_of(app, job, "write", input={"topic": "tea", "tone": "short"}, reason="too long")
    assert (await made.get()).note["reason"] == "too long"
    assert (await run(app, made))[1][2] == ["write", "short"]
    assert work.since() == {"write": 1, "print": 1}


async def test_a_kept_step_with_other_arguments_fails_naming_it(app: App, report: Any) -> None:
    job = await app.enqueue(report, {"topic": "tea"})
    await run(app, job)
    made = await fork_of(app, job, "write", input={"topic": "coffee"})
    await run(app, made)
    failed = await made.get()
    assert failed.status is Status.FAILED
    assert "StepChanged: step 'search' was recorded with other arguments" in (failed.error_message or "")


async def test_inputs_that_make_no_sense_write_nothing(app: App) -> None:
    @dataclass
    class Brief:
        topic: str

    @app.job
    async def typed(ctx: JobContext, brief: Brief) -> str:
        return brief.topic

    @app.job
    async def plain(ctx: JobContext) -> None: ...

    job, other = await app.enqueue(typed, Brief("tea")), await app.enqueue(plain)
    for error, origin, input in (
        (InvalidInput, job, {"limit": 3}),
        (InvalidInput, job, None),
        (NotJson, job, object()),
        (TooLarge, job, {"topic": "x" * MAX_JSON_BYTES}),
        (InvalidInput, other, 1),
    ):
        with pytest.raises(error):
            await app.jobs.fork(origin.id, input=input)
    with pytest.raises(InvalidInput, match="reason"):
        await app.jobs.fork(job.id, reason="\x00")
    assert await app.jobs.count() == {"PENDING": 2}
    made = await app.jobs.fork(job.id, input=Brief("coffee"))
    async with working(app):
        assert await made.result(PATIENCE) == "coffee"


async def test_a_job_whose_input_was_pruned_needs_another(app: App, report: Any, work: Work) -> None:
    job = await app.enqueue(report, {"topic": "tea"})
    result = await run(app, job)
    await passed(await app.open(), (await job.get()).finished_at)
    assert await app.database.prune(older_than=0, status="completed", keep_logs=True) == 1
    found = await app.jobs.explain(job.id)
    assert (found.code, found.moves) == ("completed", ())
    assert "it cannot be run again with it" in found.sentence
    with pytest.raises(JobPruned) as refused:
        await app.jobs.fork(job.id, "write")
    assert "give the fork an input: input=, or --input JSON" in (refused.value.hint or "")
    assert await app.jobs.count() == {"COMPLETED": 1}
    work.since()
    assert await run(app, await fork_of(app, job, "write", input={"topic": "tea"})) == result
    assert work.since() == {"write": 1, "print": 1}


# -- waits and approvals -----------------------------------------------------------------------------------------------------


@pytest.fixture
def publish(app: App, work: Work) -> Any:
    """Asks, and says what was decided; `extra` makes it ask a second time."""

    @app.job
    async def publish(ctx: JobContext, extra: bool) -> Any:
        draft = await ctx.step("draft", work.do, "draft")
        decision = await ctx.approve("ok", title="Publish?", payload={"draft": draft}, expires_in=LONG)
        if extra:
            await ctx.approve("sure", title="Sure?")
        return await ctx.step("publish", work.do, "publish", [decision.payload, decision.by, decision.comment])

    return publish


async def answered(app: App, publish: Any, *, extra: bool = False, edited: str = "short") -> Handle[Any]:
    """A job whose approval was edited and approved by ann."""
    job = await app.enqueue(publish, extra)
    async with working(app):
        await reached(job, Status.WAITING_FOR_APPROVAL)
        await app.approve((await pending(app, job)).id, by="ann", comment="shorter", edited={"draft": edited})
        if extra:
            await until(lambda: asking(app, job, "sure"), what="the second question")
        else:
            await ended(app, job)
    return job


async def asking(app: App, job: Handle[Any], key: str) -> bool:
    return [a.key for a in (await app.approvals.list(job_id=job.id)).items] == [key] and (
        await job.status() is Status.WAITING_FOR_APPROVAL
    )


async def test_an_answer_is_kept_and_not_asked_for_again(app: App, publish: Any, work: Work) -> None:
    job = await answered(app, publish, edited="Ä\x00")
    made = await fork_of(app, job, "publish")
    assert copies(await made.events()) == ["node_finished draft", "wait_completed ok"]
    assert await run(app, made) == ["publish", [{"draft": "Ä\x00"}, "ann", "shorter"]]
    assert (await app.approvals.list(status=(), job_id=made.id)).items == ()
    assert len((await app.approvals.list(status=(), job_id=job.id)).items) == 1
    assert work.since() == {"draft": 1, "publish": 2}
    step = steps_of(await made.events())[1]
    assert (step.kind, step.result, step.kept, step.status) == ("approval", "APPROVED by ann", True, "done")


async def test_an_answer_outlives_the_job_it_was_given_to(app: App, publish: Any) -> None:
    async def prune(job: Handle[Any]) -> None:
        store = await app.open()
        await passed(store, (await job.get()).finished_at)
        assert await store.retention.prune([job.id]) == 1
        with pytest.raises(JobNotFound):
            await job.get()

    job = await answered(app, publish)
    result = (await job.get()).result
    child = await fork_of(app, job, "publish")
    await prune(job)
    assert await run(app, child) == result
    grandchild = await fork_of(app, child, "publish")
    await prune(child)
    assert await run(app, grandchild) == result


async def test_from_the_question_on_it_is_asked_again(app: App, publish: Any) -> None:
    job = await answered(app, publish)
    made = await fork_of(app, job, "ok")
    assert copies(await made.events()) == ["node_finished draft"]
    async with working(app):
        again = await pending(app, made)
        assert (again.job_id, again.payload) == (made.id, {"draft": ["draft", None]})
        await app.deny(again.id, by="bob")
        assert (await ended(app, made)).error_kind == "denied"


async def test_a_question_that_is_open_is_asked_again(app: App, publish: Any) -> None:
    job = await answered(app, publish, extra=True)
    made = await fork_of(app, job)
    assert copies(await made.events()) == ["node_finished draft", "wait_completed ok"]
    async with working(app):
        mine, theirs = await pending(app, made), await pending(app, job)
        assert (mine.key, theirs.key) == ("sure", "sure")
        assert mine.id != theirs.id
        await app.approve(mine.id, by="ann")
        await ended(app, made)
    assert (await app.approvals.get(theirs.id)).status is ApprovalStatus.PENDING
    await app.jobs.cancel(job.id)


async def test_a_denial_is_an_answer_too(app: App, work: Work) -> None:
    @app.job
    async def careful(ctx: JobContext) -> Any:
        try:
            await ctx.approve("go", title="Go on?", on_deny="resume")
        except Denied as denied:
            return await ctx.step("tell", work.do, "tell", [denied.by, denied.reason, str(denied)])

    job = await app.enqueue(careful)
    async with working(app):
        await app.deny((await pending(app, job)).id, by="bob", comment="not now")
        await ended(app, job)
    made = await fork_of(app, job, "tell")
    assert await run(app, made) == ["tell", ["bob", "not now", "approval 'go' was denied by bob: not now"]]


async def test_sleeps_that_are_over_and_sleeps_that_are_not(app: App, work: Work) -> None:
    @app.job
    async def naps(ctx: JobContext) -> str:
        await ctx.sleep("short", 0.2)
        await ctx.step("between", work.do, "between")
        await ctx.sleep("long", LONG)
        return "awake"

    job = await app.enqueue(naps)
    async with working(app):

        async def fast_asleep() -> bool:
            return [w.key for w in (await job.get()).waits] == ["long"] and await job.status() is Status.PARKED

        await until(fast_asleep, what="the long nap")
        made = await app.jobs.fork(job.id)
        assert copies(await made.events()) == ["wait_started short", "wait_completed short", "node_finished between"]
        theirs = (await job.get()).waits[0].until
        await reached(made, Status.PARKED)
        mine = (await made.get()).waits
        assert [w.key for w in mine] == ["long"]
        assert mine[0].until is not None
        assert theirs is not None
        assert mine[0].until > theirs, "it begins again"
    assert work.since() == {"between": 1}
    for handle in (job, made):
        await handle.cancel()


# -- tools -------------------------------------------------------------------------------------------------------------------


async def test_a_tool_that_failed_and_came_back(app: App, work: Work) -> None:
    @app.job(max_retries=2, backoff=NOW)
    async def pays(ctx: JobContext) -> Any:
        paid = await ctx.tool("pay", flaky, ctx.kind)
        return await ctx.step("tell", work.do, "tell", paid)

    def flaky(kind: str) -> Any:
        value = work.do("pay", kind)
        if work.calls["pay"] == 1:
            raise OSError("no route")
        return value

    job = await app.enqueue(pays)
    result = await run(app, job)
    assert work.since() == {"pay": 2, "tell": 1}
    made = await fork_of(app, job, "tell")
    assert copies(await made.events()) == ["tool_called pay", "tool_failed pay", "tool_called pay", "tool_returned pay"]
    assert await run(app, made) == result
    assert work.since() == {"tell": 1}


async def test_a_tool_is_not_called_again_before_the_step_and_is_from_it_on(app: App, work: Work) -> None:
    @app.job(on_change="fail")
    async def pays(ctx: JobContext) -> Any:
        paid = await ctx.tool("pay", work.do, "pay", ctx.idempotency_key("pay"))
        return await ctx.step("tell", lambda: paid)

    job = await app.enqueue(pays)
    first = await run(app, job)
    made = await app.jobs.fork(job.id, "tell")
    await run(app, made)
    assert "StepChanged" in ((await made.get()).error_message or ""), "a key of its own: it is another job"
    again = await fork_of(app, job, "pay")
    assert (await run(app, again))[1] != first[1]
    assert work.since() == {"pay": 2}


async def test_a_tool_that_runs_at_that_step_keeps_its_outcome(app: App, work: Work) -> None:
    both = asyncio.Event()

    @app.job
    async def parallel(ctx: JobContext) -> Any:
        async def slow() -> Any:
            await both.wait()
            return work.do("a")

        async def fast() -> Any:
            value = work.do("b")
            both.set()
            return value

        async def second() -> Any:
            await begun.wait()
            return await ctx.tool("b", fast)

        begun = asyncio.Event()

        async def first() -> Any:
            asyncio.get_running_loop().call_later(0.1, begun.set)
            return await ctx.tool("a", slow)

        return await asyncio.gather(first(), second())

    job = await app.enqueue(parallel)
    result = await run(app, job)
    kinds = [(e.type, e.payload["key"]) for e in await job.events() if e.type.startswith("tool")]
    assert kinds == [("tool_called", "a"), ("tool_called", "b"), ("tool_returned", "b"), ("tool_returned", "a")]
    made = await fork_of(app, job, "b")
    assert copies(await made.events()) == ["tool_called a", "tool_returned a"]
    work.since()
    assert await run(app, made) == result
    assert work.since() == {"b": 1}


async def test_an_outcome_that_is_unknown_stays_unknown_and_is_asked_for(app: App, work: Work) -> None:
    @app.job(max_retries=0)
    async def pays(ctx: JobContext) -> Any:
        return await ctx.tool("pay", cut_off if cutting else work.do, "pay")

    def cut_off(name: str) -> None:
        raise TimeoutError("no answer")

    cutting = True
    job = await app.enqueue(pays)
    await run(app, job)
    assert await job.status() is Status.DEADLETTER
    cutting = False
    made = await fork_of(app, job)
    assert copies(await made.events()) == ["tool_called pay"]
    async with working(app):
        question = await pending(app, made)
        assert (question.kind, question.key) == ("question", "pay?1")
        await app.approve(question.id, edited={"outcome": "happened", "result": "paid"})
        assert (await ended(app, made)).result == "paid"
    assert work.since() == {}
    answered = await fork_of(app, made, "pay?1")
    assert copies(await answered.events()) == ["tool_called pay"], "from the question on: it is open again"
    async with working(app):
        await app.approve((await pending(app, answered)).id, edited={"outcome": "retry"})
        assert (await ended(app, answered)).result == ["pay", None]
    kept = await fork_of(app, answered)
    assert await run(app, kept) == ["pay", None]
    assert work.since() == {"pay": 1}


# -- state -------------------------------------------------------------------------------------------------------------------


async def test_the_last_checkpoint_before_the_step_is_kept_and_usage_is_not(app: App) -> None:
    @app.job
    async def saves(ctx: JobContext) -> Any:
        found = ctx.last_checkpoint
        for n in range(3):
            await ctx.step(f"step {n}", str, n)
            await ctx.checkpoint({"n": n})
            await ctx.usage(tokens=10)
        await ctx.emit("note", {"key": "step 0"})
        return found

    job = await app.enqueue(saves)
    assert await run(app, job) is None
    for of_its_own, from_step, expected in (
        (30, "step 0", None),
        (20, "step 1", {"n": 0}),
        (10, "step 2", {"n": 1}),
        (0, None, {"n": 2}),
    ):
        made = await fork_of(app, job, from_step)
        before = await made.get()
        assert (before.state.checkpoint, before.state.tokens) == (expected, 0)
        assert types(await made.events()).count("checkpoint_saved") == (expected is not None)
        assert await run(app, made) == expected
        assert (await made.get()).state.tokens == of_its_own


async def test_a_fork_that_crashes_and_comes_back_still_knows(app: App, work: Work) -> None:
    broken = True

    @app.job(max_retries=1, backoff=NOW)
    async def flaky(ctx: JobContext) -> int:
        await ctx.step("kept", work.do, "kept")
        await ctx.step("again", work.do, "again")
        if ctx.attempt == 1 and broken:
            raise OSError("once")
        return ctx.attempt

    job = await app.enqueue(flaky)
    await run(app, job)
    work.since()
    made = await fork_of(app, job, "again")
    assert await run(app, made) == 2
    assert work.since() == {"again": 1}


async def test_names_and_texts_that_no_file_would_like(app: App) -> None:
    names = ["Ä\x01", '"', "a\nb", "文"]

    @app.job
    async def odd(ctx: JobContext) -> list[str]:
        return [await ctx.step(name, lambda: "\x00文") for name in names]

    job = await app.enqueue(odd)
    result = await run(app, job)
    made = await fork_of(app, job)
    assert keys(await made.events(), "node_finished") == names
    assert await run(app, made) == result


async def test_what_holds_for_every_job_holds_for_forks(file_app: App, work: Work) -> None:
    """As the crash tests check it: from the rows alone."""

    @file_app.job(max_retries=0)
    async def everything(ctx: JobContext) -> Any:
        await ctx.step("step", work.do, "step")
        await ctx.sleep("nap", 0.15)
        await ctx.tool("tool", work.do, "tool")
        await ctx.approve("ok", title="Ok?")
        await ctx.checkpoint(1)
        await ctx.step("last", work.do, "last")

    job = await file_app.enqueue(everything)
    async with working(file_app):
        await file_app.approve((await pending(file_app, job)).id)
        await ended(file_app, job)
    made = [await fork_of(file_app, job, step) for step in ("step", "nap", "tool", "last", None)]
    asked = await fork_of(file_app, job, "ok")
    async with working(file_app):
        for handle in made[:3]:
            await file_app.approve((await pending(file_app, handle)).id)
        for handle in made:
            await ended(file_app, handle)
        await reached(asked, Status.WAITING_FOR_APPROVAL)
    url = file_app.settings["database_url"]
    snapshot = await invariants.check(url, [h.id for h in (job, asked, *made)], at_rest=True)
    assert len(snapshot.jobs) == 7
    assert [e.attempt for e in await made[3].events() if e.type == "checkpoint_saved"] == [0, 1]
