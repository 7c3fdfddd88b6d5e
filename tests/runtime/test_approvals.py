"""Approvals from inside a job: asked once, decided once, waited for without a worker."""

import asyncio
import json
import random
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import App, ApprovalRequest, ApprovalStatus, BlockingContext, Decision, Denied, JobContext, Status
from perdure.model.errors import AlreadyDecided, ApprovalChanged, ApprovalExpired, InvalidInput, NotAssigned, WrongToken
from perdure.runtime import waits
from tests.conformance.sql_shell import dump, open_shell
from tests.runtime.support import (
    LONG,
    NOW,
    PATIENCE,
    chores,
    ended,
    keys,
    only,
    pending,
    reached,
    soon,
    types,
    until,
    working,
)


@dataclass
class Draft:
    """What is to be published."""

    text: str
    tags: tuple[str, ...] = ()


class Order(BaseModel):
    """What is to be bought."""

    item: str
    count: int


@pytest.fixture
def publish(app: App) -> Any:
    """A handler that asks before it publishes, with the defaults."""

    @app.job(max_retries=0)
    async def publish(ctx: JobContext, draft: Draft) -> str:
        decision = await ctx.approve("publish", title="Publish this?", payload=draft)
        assert isinstance(decision.payload, Draft)
        return f"{decision.payload.text} by {decision.by}"

    return publish


async def test_an_approved_job_goes_on(app: App, publish: Any) -> None:
    async with working(app) as worker:
        handle = await app.enqueue(publish, Draft("draft 1", ("a", "b")))
        job = await reached(handle, Status.WAITING_FOR_APPROVAL)
        assert job.lease is None
        assert job.due_at is None
        assert worker.busy == 0
        approval = await pending(app, handle)
        assert approval.title == "Publish this?"
        assert approval.payload == {"text": "draft 1", "tags": ["a", "b"]}
        decided = await app.approve(approval.id, by="ann", comment="fine", expected_digest=approval.payload_digest)
        assert decided.status is ApprovalStatus.APPROVED
        assert await handle.result(PATIENCE) == "draft 1 by ann"
    job = await handle.get()
    assert (job.attempt, job.retry_count) == (2, 0)
    log = await handle.events()
    assert types(log)[2:] == [
        "approval_requested",
        "job_waiting_for_approval",
        "approval_decided",
        "run_started",
        "wait_completed",
        "job_completed",
    ]
    report = only(log, "approval_decided").payload
    assert (report["actor"], report["via"], report["reason"], report["decision"]) == (
        "ann",
        "python",
        "fine",
        "APPROVED",
    )


async def test_the_edited_payload_is_what_the_job_gets(app: App) -> None:
    got: list[Decision[Order]] = []

    @app.job
    async def buy(ctx: JobContext) -> str:
        decision = await ctx.approve("buy", title="Buy?", payload=Order(item="bolt", count=3))
        got.append(decision)
        return f"{decision.payload.count} {decision.payload.item}"

    async with working(app):
        handle = await app.enqueue(buy)
        approval = await pending(app, handle)
        await app.approve(approval.id, by="ann", edited=Order(item="bolt", count=2))
        assert await handle.result(PATIENCE) == "2 bolt"
    assert got[-1].edited
    assert got[-1].approved
    assert got[-1].approval_id == approval.id
    stored = await app.approvals.get(approval.id)
    assert stored.payload == {"item": "bolt", "count": 3}
    assert stored.final_payload == {"item": "bolt", "count": 2}
    assert only(await handle.events(), "approval_decided").payload["edited"] is True


async def test_a_denied_job_fails_by_default(app: App, publish: Any) -> None:
    async with working(app):
        handle = await app.enqueue(publish, Draft("draft 1"))
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        await app.deny((await pending(app, handle)).id, by="ann", comment="too early")
        job = await ended(app, handle)
    assert (job.status, job.error_kind, job.attempt) == (Status.FAILED, "denied", 1)
    assert job.error_message == "approval 'publish' was denied by ann: too early"


async def test_a_denial_before_the_job_is_suspended_fails_it_as_well(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "SETTLE", 0)  # it would be suspended as soon as it waits
    swallowed: list[BaseException] = []

    @app.job(max_retries=5)
    async def careless(ctx: JobContext) -> str:
        async def at_once(request: ApprovalRequest) -> None:
            await app.deny(token=request.token, comment="no")

        try:
            await ctx.approve("publish", title="?", notify=at_once)
        except Exception as error:  # noqa: BLE001  it must not even come to that
            swallowed.append(error)
        return "went on all the same"

    async with working(app):
        job = await ended(app, await app.enqueue(careless))
    assert (job.status, job.error_kind, job.attempt) == (Status.FAILED, "denied", 1)
    assert swallowed == []


async def test_a_denial_may_be_answered_by_the_job(app: App) -> None:
    @app.job(max_retries=0)
    async def ask(ctx: JobContext) -> list[str | None]:
        try:
            await ctx.approve("first", title="?", on_deny="resume")
        except Denied as denied:
            return [denied.by, denied.reason, denied.approval.status, await ctx.step("instead", str, "x")]
        return []

    async with working(app):
        handle = await app.enqueue(ask)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        await app.deny((await pending(app, handle)).id, by="ann", comment="too early")
        assert await handle.result(PATIENCE) == ["ann", "too early", "DENIED", "x"]


async def test_a_denial_that_is_not_caught_fails_the_job(app: App) -> None:
    @app.job
    async def ask(ctx: JobContext) -> None:
        await ctx.approve("first", title="?", on_deny="resume")

    async with working(app):
        handle = await app.enqueue(ask)
        await app.deny((await pending(app, handle)).id, by="ann")
        job = await ended(app, handle)
    assert (job.status, job.error_kind, job.retry_count) == (Status.FAILED, "denied", 0)


@pytest.mark.parametrize(
    ("on_expiry", "status", "kind", "result"),
    [
        ("fail", Status.FAILED, "expired", None),
        ("deny", Status.FAILED, "denied", None),
        ("continue", Status.COMPLETED, None, [False, {"n": 1}, None]),
    ],
)
async def test_an_approval_that_runs_out(
    app: App, on_expiry: Any, status: Status, kind: str | None, result: Any
) -> None:
    @app.job(max_retries=0)
    async def ask(ctx: JobContext) -> list[Any]:
        decision = await ctx.approve("ok", title="?", payload={"n": 1}, expires_in=0.2, on_expiry=on_expiry)
        return [decision.approved, decision.payload, decision.by]

    async with working(app):
        handle = await app.enqueue(ask)

        async def expired() -> Any:
            await chores(app)
            return (await app.approvals.list(job_id=handle.id, status="EXPIRED")).items

        [approval] = await until(expired)
        with pytest.raises(ApprovalExpired):
            await app.approve(approval.id)
        job = await ended(app, handle)
    assert (job.status, job.error_kind, job.result) == (status, kind, result)


async def test_an_expiry_may_be_answered_like_a_denial(app: App) -> None:
    @app.job(max_retries=0)
    async def ask(ctx: JobContext) -> str:
        try:
            await ctx.approve("ok", title="?", expires_in=0.1, on_expiry="deny", on_deny="resume")
        except Denied as denied:
            return f"{denied.approval.status} {denied.by}"
        return "approved"

    async with working(app):
        handle = await app.enqueue(ask)

        async def over() -> bool:
            await chores(app)
            return (await handle.get()).status.terminal

        await until(over)
        assert await handle.result(PATIENCE) == "EXPIRED None"


# -- the link ---------------------------------------------------------------------------------------------------------------


async def test_the_token_works_once_and_is_written_nowhere(file_app: App, file_store_url: str) -> None:
    app = file_app
    report: list[ApprovalRequest] = []

    @app.job
    async def ask(ctx: JobContext) -> str | None:
        decision = await ctx.approve("ok", title="Ok?", payload={"n": 1}, assignees=["ann"], notify=report.append)
        return decision.by

    async with working(app):
        handle = await app.enqueue(ask)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        [request] = report
        assert (request.title, request.payload, request.job_id) == ("Ok?", {"n": 1}, handle.id)
        with pytest.raises(WrongToken):
            await app.approve(token=request.token[:-2] + "xx")
        with pytest.raises(NotAssigned):
            await app.approve(request.id, by="bob")
        approval = await app.approve(token=request.token)  # the holder of the link may, assigned or not
        assert approval.decided_by == "link holder"
        assert approval.decided_via == "python:link"
        with pytest.raises(AlreadyDecided):
            await app.approve(token=request.token)
        with pytest.raises(AlreadyDecided):
            await app.deny(token=request.token)
        assert await handle.result(PATIENCE) == "link holder"
    async with open_shell(file_store_url) as shell:
        rows = "\n".join((await dump(shell)).values())
    assert str(handle.id) in rows
    assert request.token not in rows
    assert request.token.removeprefix("pdt_") not in rows
    assert "".join(f"{e.type}{e.payload}" for e in await handle.events()).count(request.token) == 0
    assert len(report) == 1


async def test_a_notifier_that_fails_is_asked_again_with_another_token(app: App) -> None:
    report: list[ApprovalRequest] = []

    @app.job(backoff=NOW)
    async def ask(ctx: JobContext) -> str | None:
        async def notify(request: ApprovalRequest) -> None:
            report.append(request)
            if len(report) == 1:
                raise OSError("the mail server is away")

        return (await ctx.approve("ok", title="?", notify=notify)).by

    async with working(app):
        handle = await app.enqueue(ask)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        first, second = report
        assert (first.id, first.token == second.token) == (second.id, False)
        with pytest.raises(WrongToken):
            await app.approve(token=first.token)
        await app.approve(token=second.token, by="ann")
        assert await handle.result(PATIENCE) == "ann"
    assert keys(await handle.events(), "approval_requested") == ["ok"]
    assert keys(await handle.events(), "approval_notified") == ["ok"]


async def test_a_new_token_replaces_the_old_one(app: App) -> None:
    report: list[ApprovalRequest] = []

    @app.job
    async def ask(ctx: JobContext) -> str | None:
        return (await ctx.approve("ok", title="?", notify=report.append)).comment

    async with working(app):
        handle = await app.enqueue(ask)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        token = await app.approvals.new_token(report[0].id)
        with pytest.raises(WrongToken):
            await app.approve(token=report[0].token)
        await app.approve(token=token, comment="by the second link")
        assert await handle.result(PATIENCE) == "by the second link"
        with pytest.raises(AlreadyDecided):
            await app.approvals.new_token(report[0].id)


# -- moments ----------------------------------------------------------------------------------------------------------------


async def test_a_decision_before_the_job_is_suspended_is_taken_at_once(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "SETTLE", 0)

    @app.job
    async def ask(ctx: JobContext) -> list[Any]:
        async def at_once(request: ApprovalRequest) -> None:
            await app.approve(token=request.token, by="ann", edited="edited")

        decision = await ctx.approve("ok", title="?", payload="asked", notify=at_once)
        return [ctx.attempt, decision.by, decision.payload]

    async with working(app):
        handle = await app.enqueue(ask)
        assert await handle.result(PATIENCE) == [1, "ann", "edited"]
    assert "job_waiting_for_approval" not in types(await handle.events())


async def test_decisions_that_race_with_the_suspension_are_never_missed(app: App) -> None:
    """The job is suspended some 20 ms after it asked; the answers come just before, at, and after that."""

    @app.job
    async def ask(ctx: JobContext, n: int) -> int:
        await ctx.approve("ok", title="?")
        return n

    async def answer(n: int, delay: float) -> int:
        handle = await app.enqueue(ask, n)
        approval = await pending(app, handle)
        await asyncio.sleep(delay)
        await app.approve(approval.id)
        return await handle.result(PATIENCE)

    rng = random.Random(7)
    async with working(app):
        results = await asyncio.gather(*(answer(n, rng.uniform(0, 0.06)) for n in range(25)))
    assert results == list(range(25))


async def test_the_first_of_many_deciders_wins(app: App) -> None:
    @app.job
    async def ask(ctx: JobContext) -> str | None:
        return (await ctx.approve("ok", title="?")).by

    async with working(app):
        handle = await app.enqueue(ask)
        approval = await pending(app, handle)
        answers = await asyncio.gather(
            *(app.approve(approval.id, by=f"person {n}") for n in range(10)), return_exceptions=True
        )
        winners = [a for a in answers if not isinstance(a, BaseException)]
        assert len(winners) == 1
        assert all(isinstance(a, AlreadyDecided) for a in answers if isinstance(a, BaseException))
        assert await handle.result(PATIENCE) == winners[0].decided_by
    assert types(await handle.events()).count("approval_decided") == 1


async def test_two_approvals_at_once(app: App) -> None:
    @app.job
    async def ask(ctx: JobContext) -> list[str | None]:
        both = await asyncio.gather(ctx.approve("a", title="A?"), ctx.approve("b", title="B?"))
        return [d.by for d in both]

    async with working(app):
        handle = await app.enqueue(ask)
        job = await reached(handle, Status.WAITING_FOR_APPROVAL)
        assert {w.key for w in job.waits} == {"a", "b"}
        by_key = {a.key: a for a in (await app.approvals.list(job_id=handle.id)).items}
        await app.approve(by_key["b"].id, by="bea")

        async def back_again() -> bool:
            job = await handle.get()
            return job.attempt == 2 and job.status is Status.WAITING_FOR_APPROVAL

        await until(back_again)
        await app.approve(by_key["a"].id, by="ann")
        assert await handle.result(PATIENCE) == ["ann", "bea"]
    log = await handle.events()
    assert sorted(keys(log, "approval_requested")) == ["a", "b"]
    assert keys(log, "wait_completed") == ["b", "a"]


async def test_an_approval_and_a_sleep_at_once(app: App) -> None:
    @app.job
    async def ask(ctx: JobContext) -> str | None:
        _, decision = await asyncio.gather(ctx.sleep("nap", LONG), ctx.approve("ok", title="?"))
        return decision.by

    async with working(app):
        handle = await app.enqueue(ask)
        job = await reached(handle, Status.WAITING_FOR_APPROVAL)
        assert job.due_at == next(w.until for w in job.waits if w.kind == "timer")
        await app.approve((await pending(app, handle)).id)
        await reached(handle, Status.PARKED)
        await handle.cancel()


async def test_a_slow_notifier_during_another_wait_is_not_cut_off(app: App) -> None:
    report: list[str] = []

    @app.job
    async def ask(ctx: JobContext) -> None:
        async def slow(request: ApprovalRequest) -> None:
            await asyncio.sleep(0.2)
            report.append(request.token)

        await asyncio.gather(ctx.sleep("nap", LONG), ctx.approve("ok", title="?", notify=slow))

    async with working(app):
        handle = await app.enqueue(ask)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        assert len(report) == 1
        await handle.cancel()


async def test_another_payload_than_the_requested_one_asks_no_person(app: App) -> None:
    @app.job(backoff=NOW, on_change="fail")
    async def ask(ctx: JobContext) -> None:
        await ctx.approve("ok", title="?", payload={"attempt": ctx.attempt})

    async with working(app):
        handle = await app.enqueue(ask)
        approval = await pending(app, handle)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        with pytest.raises(ApprovalChanged):
            await app.approve(approval.id, expected_digest="something else")
        await app.approve(approval.id)
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.FAILED, "fatal")
    assert "approval 'ok'" in (job.error_message or "")


async def test_the_end_of_a_job_closes_its_open_questions(app: App) -> None:
    @app.job
    async def ask(ctx: JobContext) -> None:
        await ctx.approve("ok", title="?")

    async with working(app):
        handle = await app.enqueue(ask)
        approval = await pending(app, handle)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        await handle.cancel()
        assert (await app.approvals.get(approval.id)).status is ApprovalStatus.CANCELLED
        with pytest.raises(AlreadyDecided):
            await app.approve(approval.id)


async def test_a_plain_handler_asks_too(app: App) -> None:
    report: list[ApprovalRequest] = []

    @app.job
    def ask(ctx: BlockingContext, draft: Draft) -> str:
        decision = ctx.approve("publish", title="Publish?", payload=draft, notify=report.append, on_deny="resume")
        try:
            ctx.approve("again", title="Really?", on_deny="resume")
        except Denied as denied:
            return f"{decision.payload.text}, but {denied.reason}"
        return "published"

    async with working(app):
        handle = await app.enqueue(ask, Draft("draft 1"))
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        await app.approve(token=report[0].token, edited=Draft("draft 2"))

        async def second() -> Any:
            return [a for a in (await app.approvals.list(job_id=handle.id)).items if a.key == "again"]

        [approval] = await until(second)
        await app.deny(approval.id, comment="not today")
        assert await handle.result(PATIENCE) == "draft 2, but not today"


@pytest.mark.parametrize(
    ("name", "bad", "says"),
    [
        *(("title", bad, "not blank and has no NUL") for bad in ("", " \n", "a\x00b", None, 5)),
        ("title", "\ud800", "lone surrogate"),
        ("on_deny", "zzz", "on_deny must be 'fail' or 'resume', got 'zzz'"),
        ("on_deny", None, "on_deny must be 'fail' or 'resume', got None"),
        ("on_expiry", "zzz", "on_expiry must be 'fail' or 'deny' or 'continue', got 'zzz'"),
        ("assignees", ["ann", "b\x00"], "assignees is a list of names"),
    ],
)
async def test_what_is_asked_is_checked(app: App, name: str, bad: object, says: str) -> None:
    @app.job
    async def ask(ctx: JobContext) -> str:
        options: dict[str, Any] = {"title": "Go?", name: bad}
        try:
            await ctx.approve("go", **options)
        except InvalidInput as error:
            return error.message
        return "asked"

    async with working(app):
        handle = await app.enqueue(ask)
        assert says in await handle.result(PATIENCE)
    assert (await app.approvals.list(status=(), job_id=handle.id)).items == ()


async def test_decisions_are_checked(app: App, publish: Any) -> None:
    async with working(app):
        handle = await app.enqueue(publish, Draft("draft 1"))
        approval = await pending(app, handle)
        with pytest.raises(InvalidInput, match="exactly one"):
            await app.approve()
        with pytest.raises(InvalidInput, match="exactly one"):
            await app.approve(approval.id, token="pdt_x")
        with pytest.raises(InvalidInput):
            await app.approve(approval.id, by="")
        with pytest.raises(InvalidInput):
            await app.approve(approval.id, comment="x" * 4001)
        with pytest.raises(InvalidInput):
            await app.approve(approval.id, edited=object())
        assert (await app.approvals.get(approval.id)).status is ApprovalStatus.PENDING
        by_job = await app.approvals.get(str(handle.id))
        assert by_job.id == approval.id
        await app.approve(approval.short_id, by="ann")
        assert await handle.result(PATIENCE) == "draft 1 by ann"


async def test_a_notifier_may_be_plain_or_async_and_is_called_once(app: App) -> None:
    report: list[str] = []

    @app.job(backoff=NOW)
    async def ask(ctx: JobContext) -> None:
        async def notify(request: ApprovalRequest) -> None:
            report.append("async")

        def plain(request: ApprovalRequest) -> None:
            report.append("plain")

        await ctx.approve("a", title="?", notify=notify)
        if ctx.attempt == 2:
            raise OSError("replay, please")
        await ctx.approve("b", title="?", notify=plain)

    async with working(app):
        handle = await app.enqueue(ask)
        await app.approve((await pending(app, handle)).id)

        async def second() -> Any:
            return [a for a in (await app.approvals.list(job_id=handle.id)).items if a.key == "b"]

        [approval] = await until(second)
        await app.approve(approval.id)
        await soon(handle.result())
    assert report == ["async", "plain"]
    assert "token" not in json.dumps([e.payload for e in await handle.events()])
