"""What mypy --strict knows of the public API. Nothing here runs: mypy is the test, and `warn_unused_ignores` makes every
`type: ignore` a promise that the line is refused."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type
from uuid import UUID

from perdure import (
    Action,
    App,
    Approval,
    ApprovalRequest,
    Backoff,
    BlockingContext,
    Decision,
    Event,
    Explanation,
    Finding,
    First,
    Fitted,
    Handle,
    Handler,
    Job,
    JobContext,
    JobDiff,
    OnSignal,
    OnTime,
    Request,
    Status,
    Worker,
)
from perdure.model.jobs import Page, RunRecord
from perdure.sync import Client as SyncClient
from perdure.sync import Handle as SyncHandle
from perdure.testing import CrashReport, ManualClock, Step, TestApp


@dataclass
class Brief:
    """An input."""

    topic: str


@dataclass
class Report:
    """An output."""

    text: str


app = App("memory:")


async def search(topic: str, limit: int = 10) -> list[str]:
    return [topic] * limit


def count(words: list[str], *, twice: bool = False) -> int:
    return len(words) * (2 if twice else 1)


# -- handlers keep their input and output -----------------------------------------------------------------------------------


@app.job
async def research(ctx: JobContext, brief: Brief) -> Report:
    found = await ctx.step("search", search, brief.topic)
    assert_type(found, list[str])
    assert_type(await ctx.step("count", count, found, twice=True), int)
    assert_type(await ctx.tool("search", search, topic="x", limit=3), list[str])
    assert_type(await ctx.options(retries=3, timeout="5m", key="a").step("count", count, found), int)
    assert_type(await ctx.step("format", "{}".format, 1), str)
    assert_type(await ctx.step("constructor", Report, "text"), Report)
    assert_type(await ctx.step("lambda", lambda: 7), int)

    assert_type(ctx.messages.list(), list[dict[str, Any]])
    assert_type(ctx.messages.fit(1_000, count=lambda message: len(str(message))), Fitted)
    assert_type(await ctx.messages.append("user", "hello", name="ann"), None)
    assert_type(await ctx.vars.set("turns", 1), None)
    assert_type(ctx.vars.get("turns", 0), Any)
    assert_type(ctx.vars.all(), dict[str, Any])
    assert_type(await ctx.actions(), list[Action])
    ctx.messages.fit("many")  # type: ignore[arg-type]
    await ctx.vars.set(1, 1)  # type: ignore[arg-type]

    await ctx.step("search", search, 1)  # type: ignore[call-overload]
    await ctx.step("search", search)  # type: ignore[call-overload]
    await ctx.step("search", search, "x", limit="many")  # type: ignore[arg-type]
    await ctx.step("count", count, found, once=True)  # type: ignore[arg-type, call-arg]
    await ctx.tool("count", count, 5)  # type: ignore[call-overload]
    await ctx.step(search, "x")  # type: ignore[call-overload]
    ctx.options(on_change="ignore")  # type: ignore[arg-type]
    ctx.options(attempts=3)  # type: ignore[call-arg]

    decision = await ctx.approve("publish", title="Publish?", payload=Report("x"), expires_in=timedelta(hours=1))
    assert_type(decision, Decision[Report])
    assert_type(decision.payload, Report)
    assert_type(decision.by, str | None)
    nothing = await ctx.approve("go", title="Go?", notify=tell)
    assert_type(nothing, Decision[None])
    await ctx.approve("publish")  # type: ignore[call-arg]
    await ctx.approve("publish", title="?", on_deny="ignore")  # type: ignore[arg-type]
    await ctx.approve("publish", title="?", notify=search)  # type: ignore[arg-type]

    assert_type(ctx.job_id, UUID)
    assert_type(ctx.attempt, int)
    assert_type(ctx.goal, str | None)
    assert_type(ctx.last_checkpoint, Any)
    assert_type(await ctx.wait_signal("paid", Brief, timeout="1d"), Brief)
    assert_type(await ctx.wait_signal("paid"), Any)
    assert_type(await ctx.wait_any(OnSignal("paid", Brief), OnTime("late", "1d")), First)
    await ctx.wait_signal("paid", timeout=None)
    await ctx.wait_any("paid")  # type: ignore[arg-type]
    await ctx.sleep("nap", "1h")
    await ctx.sleep("nap", timedelta(seconds=3))
    await ctx.sleep("nap", None)  # type: ignore[arg-type]
    await ctx.sleep("1h")  # type: ignore[call-arg]
    await ctx.usage(tokens="many")  # type: ignore[arg-type]
    return Report(str(found))


async def tell(request: ApprovalRequest) -> None:
    assert_type(request.token, str)
    assert_type(request.job_id, UUID)


@app.job(max_retries=5, backoff=Backoff(base="1s", cap="5m"), timeout="2h", retry_on=OSError, fatal_on=(KeyError,))
async def without_input(ctx: JobContext) -> int:
    return ctx.attempt


@app.job
def plain(ctx: BlockingContext, brief: Brief) -> Report:
    assert_type(ctx.step("search", search, brief.topic), list[str])
    assert_type(ctx.step("count", count, ["a"]), int)
    assert_type(ctx.options(retries=1).tool("count", count, ["a"]), int)
    decision = ctx.approve("publish", title="?", payload=brief)
    assert_type(decision, Decision[Brief])
    assert_type(ctx.approve("go", title="?"), Decision[None])
    ctx.step("search", search, 1)  # type: ignore[call-overload]
    ctx.step("count", count)  # type: ignore[call-overload]
    ctx.sleep("nap", 1.5)
    return Report("x")


@app.job(queue="slow")
def plain_without_input(ctx: BlockingContext) -> None: ...


assert_type(research, Handler[Brief, Report])
assert_type(without_input, Handler[None, int])
assert_type(plain, Handler[Brief, Report])
assert_type(plain_without_input, Handler[None, None])

app.job(max_retry=5)  # type: ignore[call-overload]
app.job(priority="high")  # type: ignore[call-overload]


@app.job  # type: ignore[arg-type]
async def two_inputs(ctx: JobContext, a: int, b: int) -> None: ...


@app.job
async def with_default(ctx: JobContext, days: int = 30) -> int:
    return days


@app.job(queue="plain")
def plain_with_default(ctx: BlockingContext, name: str = "nobody") -> str:
    return name


# -- enqueue and result -----------------------------------------------------------------------------------------------------


async def client() -> None:
    handle = await app.enqueue(research, Brief("x"), priority=7, idempotency_key="order:42", delay="5m", goal="g")
    assert_type(handle, Handle[Report])
    assert_type(await handle.result(timeout=60), Report)
    assert_type(await handle.get(), Job)
    assert_type(await handle.status(), Status)
    assert_type(await handle.cancel("no need"), Status)
    assert_type(await handle.events(), list[Event])
    assert_type(handle.watch(), AsyncIterator[Event])
    assert_type(await (await app.enqueue(without_input)).result(), int)
    assert_type(await (await app.enqueue(plain, Brief("x"))).result(), Report)
    assert_type(await app.enqueue("research", {"topic": "x"}), Handle[Any])
    assert_type(await app.enqueue_many([Request(research, Brief("x"), {"priority": 3})]), list[Handle[Any]])

    assert_type(await app.enqueue(research, Brief("x"), tx=object(), priority=7), Handle[Report])
    assert_type(await app.enqueue(without_input, tx=None), Handle[int])
    assert_type(await app.enqueue_many([Request(research, Brief("x"))], tx=object()), list[Handle[Any]])
    await app.enqueue_many([Request(research, Brief("x"), {"tx": object()})])  # type: ignore[arg-type]

    assert_type(await (await app.enqueue(with_default)).result(), int)
    assert_type(await (await app.enqueue(with_default, 7)).result(), int)
    assert_type(await (await app.enqueue(plain_with_default, "x")).result(), str)
    await app.enqueue(with_default, "x")  # type: ignore[misc]
    await app.enqueue(research, "x")  # type: ignore[misc]
    await app.enqueue(research)  # type: ignore[arg-type]
    await app.enqueue(without_input, 1)  # type: ignore[misc]
    await app.enqueue(research, Brief("x"), urgency=9)  # type: ignore[call-overload]
    await app.enqueue(research, Brief("x"), priority="high")  # type: ignore[call-overload]
    await app.enqueue_many([Request(research, Brief("x"), {"urgency": 9})])  # type: ignore[arg-type]

    assert_type(await app.jobs.list(status=["PENDING", Status.RETRY], kind="research", limit=10), Page[Job])
    assert_type(await app.jobs.count(by="queue"), dict[str, int])
    assert_type(await app.jobs.runs(handle.id), list[RunRecord])
    assert_type(await app.jobs.rerun(handle.id), Handle[Any])
    assert_type(
        await app.database.prune(older_than="30d", status=["completed", Status.FAILED], export="old.jsonl"), int
    )
    assert_type(app.jobs.export(handle.id, "43149ff1", redact=True), AsyncIterator[dict[str, Any]])
    await app.database.prune(status="completed")  # type: ignore[call-arg]
    assert_type(await app.jobs.fork(handle.id, "search", input=Brief("y")), Handle[Any])
    assert_type(await app.jobs.fork(handle.id, from_step=3), Handle[Any])
    assert_type(await app.jobs.explain(handle.id), Explanation)
    assert_type(await app.jobs.diff(handle.id, "0123abcd"), JobDiff)
    assert_type(await app.jobs.get(handle.id, at=3), Job)
    await app.jobs.fork(handle.id, from_step=1.5)  # type: ignore[arg-type]
    await app.jobs.get(handle.id, 3)  # type: ignore[call-arg]
    assert_type(await app.jobs.append(handle.id, 3, "note", {"a": 1}), int)
    assert_type(await app.approvals.list(), Page[Approval])
    assert_type(await app.approve(token="pdt_x", edited={"a": 1}), Approval)
    assert_type(await app.deny("0123abcd", by="ann", comment="no"), Approval)
    assert_type(await app.worker(concurrency=5), Worker)
    assert_type([finding async for finding in app.database.fsck(fix=True)], list[Finding])
    await app.jobs.count(by="colour")  # type: ignore[arg-type]
    await app.jobs.append(handle.id, "3", "note")  # type: ignore[arg-type]

    report: Report = await handle.result()
    number: int = await handle.result()  # type: ignore[assignment]
    print(report, number)


def sync_client() -> None:
    with SyncClient(app) as client:
        handle = client.enqueue(research, Brief("x"), priority=7)
        assert_type(handle, SyncHandle[Report])
        assert_type(handle.result(timeout="1m"), Report)
        assert_type(client.enqueue(without_input).result(), int)
        assert_type(client.enqueue("research", {"topic": "x"}), SyncHandle[Any])
        assert_type(client.enqueue(research, Brief("x"), tx=object(), delay="5m"), SyncHandle[Report])
        assert_type(client.enqueue_many([Request(research, Brief("x"))], tx=object()), list[SyncHandle[Any]])
        assert_type(client.jobs.get(handle.id), Job)
        assert_type(client.jobs.get(handle.id, at=3), Job)
        assert_type(client.jobs.explain(handle.id), Explanation)
        assert_type(client.jobs.diff(handle.id, handle.id), JobDiff)
        assert_type(client.jobs.fork(handle.id, "search"), SyncHandle[Any])
        assert_type(client.jobs.events(handle.id), list[Event])
        assert_type(list(client.database.fsck()), list[Finding])
        client.enqueue(research, "x")  # type: ignore[misc]
        client.enqueue(research, Brief("x"), urgency=9)  # type: ignore[call-overload]


def a_handler_is_still_a_function() -> None:
    assert_type(research.name, str)
    assert_type(research.policy.max_retries, int)


# -- the testing kit --------------------------------------------------------------------------------------------------------


async def decide(app: App, approval: Approval) -> None:
    await app.deny(approval.id)


async def test_kit() -> None:
    async with TestApp(app, clock=ManualClock(), stubs={"search": search, "count": count}, lease="1m") as t:
        assert_type(t, TestApp)
        assert_type(await t.enqueue(research, Brief("x")), Handle[Report])
        assert_type(await t.run_until_idle(), int)
        assert_type(await t.run_until_idle(advance="1h"), int)
        assert_type(await t.steps("0123abcd"), list[Step])
        assert_type(await t.approve_pending(edited={"a": 1}), list[Approval])
        t.clock.advance(timedelta(hours=1))
        assert_type(await t.crash_after_each_step(research, Brief("x"), decide=decide, effects=[]), CrashReport)
        assert_type(await t.crash_after_each_step(without_input, max_retries=5), CrashReport)
        await t.crash_after_each_step(research, "x")  # type: ignore[misc]
        await t.crash_after_each_step(research)  # type: ignore[arg-type]
        await t.crash_after_each_step(without_input, urgency=9)  # type: ignore[call-overload]
        await t.run_until_idle(advance=None)  # type: ignore[arg-type]
    TestApp(stubs={"search": 1})  # type: ignore[dict-item]


def test_kit_without_async() -> None:
    with TestApp(app) as t:
        handle = t.run(t.enqueue(research, Brief("x")))
        assert_type(t.run(handle.result()), Report)
        t.run(7)  # type: ignore[arg-type]
