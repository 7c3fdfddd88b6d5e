"""Approvals of tools: asked before the call, for these arguments, used by one call."""

from typing import Any

import pytest

from perdure import App, ApprovalContext, Denied, InvalidInput, JobContext, Status, ToolNotAllowed
from perdure.testing import TestApp
from tests.runtime.support import NOW, PATIENCE, ended, pending, reached, types, working

ALWAYS = ApprovalContext(tools={"deploy": "always"}, default="never")


async def test_a_tool_is_called_once_a_person_has_approved_its_arguments(app: App) -> None:
    called: list[str] = []

    @app.job
    async def release(ctx: JobContext, version: str) -> str:
        def deploy(version: str, token: str) -> str:
            called.append(version)
            return f"deployed {version}"

        await ctx.tool("build", lambda: None)
        return await ctx.tool("deploy", deploy, version, token="s3cret")

    handle = await app.enqueue(release, "1.2", approval_context=ALWAYS)
    async with working(app, linger=0.0):
        approval = await pending(app, handle)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        assert called == []
        assert approval.title == "Call tool 'deploy'?"
        assert approval.payload["tool"] == "deploy"
        assert approval.payload["arguments"] == {"version": "1.2", "token": "[redacted]"}
        assert "is to be decided" in (await app.jobs.explain(handle.id)).sentence
        await app.approvals.approve(approval.id, by="ann")
        assert await handle.result(PATIENCE) == "deployed 1.2"
    assert called == ["1.2"]
    said = {e.payload["key"]: e.payload for e in await handle.events() if e.type == "tool_called"}
    assert said["deploy"]["approval"] == str(approval.id)
    assert said["deploy"]["digest"] == approval.payload["digest"]
    assert "approval" not in said["build"]


async def test_each_call_is_asked_about_also_with_the_same_arguments(app: App) -> None:
    called: list[int] = []

    @app.job(approval_context=ALWAYS)
    async def release(ctx: JobContext) -> int:
        await ctx.tool("deploy", called.append, 1)
        await ctx.tool("deploy", called.append, 1)
        return len(called)

    handle = await app.enqueue(release)
    async with working(app, linger=0.0):
        for number in (1, 2):
            approval = await pending(app, handle)
            assert len(called) == number - 1
            await app.approvals.approve(approval.id)
        assert await handle.result(PATIENCE) == 2


async def test_other_arguments_than_approved_are_asked_about_again(app: App) -> None:
    wanted, called = ["1.2"], list[str]()

    @app.job(backoff=NOW, approval_context=ALWAYS)
    async def release(ctx: JobContext) -> None:
        await ctx.tool("deploy", called.append, wanted[0])

    handle = await app.enqueue(release)
    async with working(app, linger=0.0):
        first = await pending(app, handle)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        wanted[0] = "1.3"
        await app.approvals.approve(first.id)
        second = await pending(app, handle)
        assert (second.id != first.id, second.payload["arguments"]) == (True, {"object": "1.3"})
        assert called == []
        await app.approvals.approve(second.id)
        await handle.result(PATIENCE)
    assert called == ["1.3"]


async def test_a_denial_fails_the_job_or_is_raised(app: App) -> None:
    called: list[int] = []

    async def body(ctx: JobContext) -> str:
        try:
            await ctx.tool("deploy", called.append, 1)
        except Denied as denied:
            return f"denied by {denied.by}: {denied.reason}"
        return "deployed"

    app.job(name="fails", approval_context=ALWAYS)(body)
    app.job(name="resumes", approval_context=ApprovalContext({"deploy": "always"}, on_deny="resume"))(body)
    one, other = await app.enqueue("fails"), await app.enqueue("resumes")
    async with working(app, linger=0.0):
        for handle in (one, other):
            await app.approvals.deny((await pending(app, handle)).id, by="ann", comment="no")
        job = await ended(app, one)
        assert (job.status, job.error_kind) == (Status.FAILED, "denied")
        assert await other.result(PATIENCE) == "denied by ann: no"
    assert called == []


async def test_an_autonomous_run_asks_no_person_and_refuses_what_is_not_named(app: App) -> None:
    context = ApprovalContext({"deploy": "always", "delete": "always"}, autonomous=["deploy"])

    @app.job
    async def release(ctx: JobContext) -> list[str]:
        done = [await ctx.tool("read", lambda: "read"), await ctx.tool("deploy", lambda: "deployed")]
        try:
            await ctx.tool("delete", lambda: "deleted")
        except ToolNotAllowed as error:
            done.append(error.message)
        await ctx.sleep("a moment", 0.05)  # and the refusal is raised again by the replay
        return done

    handle = await app.enqueue(release, approval_context=context)
    async with working(app, linger=0.0):
        refused = "tool 'delete' needs the approval of a person, and this job runs without one"
        assert await handle.result(PATIENCE) == ["read", "deployed", refused]
    assert types(await handle.events()).count("failure_caught") == 1


async def test_the_strictest_of_app_handler_and_job_counts(app: App) -> None:
    app.registry.approval_context = ApprovalContext({"deploy": "always"}, default="never", assignees=["ann"])
    seen: list[ApprovalContext | None] = []

    @app.job(approval_context=ApprovalContext({"mail": "always"}, default="never", expires_in="1h"))
    async def release(ctx: JobContext) -> None:
        seen.append(ctx.approval_context)
        await ctx.tool("deploy", lambda: None)

    handle = await app.enqueue(
        release, approval_context=ApprovalContext(autonomous=["deploy", "mail"], default="never")
    )
    async with working(app):
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.FAILED, "denied")
    [context] = seen
    assert context == ApprovalContext(
        {"deploy": "always", "mail": "always"}, default="never", autonomous=[], assignees=["ann"], expires_in="1h"
    )


async def test_a_fork_asks_again_for_what_it_calls_again_and_not_for_what_is_recorded(app: App) -> None:
    called: list[str] = []

    @app.job
    async def release(ctx: JobContext) -> int:
        await ctx.tool("deploy", called.append, "a")
        await ctx.step("note", lambda: None)
        return len(called)

    handle = await app.enqueue(release, approval_context=ALWAYS)
    async with working(app, linger=0.0):
        await app.approvals.approve((await pending(app, handle)).id)
        await handle.result(PATIENCE)
        after = await app.jobs.fork(handle.id, "note")
        await after.result(PATIENCE)
        assert called == ["a"]
        again = await app.jobs.fork(handle.id, "deploy")
        await app.approvals.approve((await pending(app, again)).id)
        await again.result(PATIENCE)
        assert called == ["a", "a"]
        rerun = await app.jobs.rerun(handle.id)
        await app.approvals.deny((await pending(app, rerun)).id)
        await ended(app, rerun)
    assert called == ["a", "a"]


async def test_a_decision_counts_once_for_a_tool_that_fails_and_is_called_again(app: App) -> None:
    failures = iter([True, False])

    @app.job(backoff=NOW, approval_context=ALWAYS)
    async def release(ctx: JobContext) -> str:
        def deploy() -> str:
            if next(failures):
                raise ValueError("refused by the server")
            return "deployed"

        return await ctx.tool("deploy", deploy)

    handle = await app.enqueue(release)
    async with working(app, linger=0.0):
        await app.approvals.approve((await pending(app, handle)).id)
        assert await handle.result(PATIENCE) == "deployed"
    assert types(await handle.events()).count("approval_requested") == 1


async def test_changed_arguments_in_a_decision_are_not_taken(app: App) -> None:
    called: list[int] = []

    @app.job(approval_context=ALWAYS)
    async def release(ctx: JobContext) -> None:
        await ctx.tool("deploy", called.append, 1)

    handle = await app.enqueue(release)
    async with working(app, linger=0.0):
        first = await pending(app, handle)
        await app.approvals.approve(first.id, edited={"arguments": {"object": 2}})
        second = await pending(app, handle)
        assert "it changed the arguments" in second.title
        assert called == []
        await app.approvals.approve(second.id)
        await handle.result(PATIENCE)
    assert called == [1]


async def test_what_was_denied_stays_denied_when_the_rules_are_gone(app: App) -> None:
    called: list[int] = []

    @app.job
    async def release(ctx: JobContext) -> str:
        try:
            await ctx.tool("deploy", called.append, 1)
        except Denied:
            await ctx.sleep("a moment", 0.05)
            return "denied"
        return "deployed"

    app.registry.approval_context = ApprovalContext(on_deny="resume")
    handle = await app.enqueue(release)
    async with working(app, linger=0.0):
        approval = await pending(app, handle)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        app.registry.approval_context = None
        await app.approvals.deny(approval.id)
        assert (await ended(app, handle)).error_kind == "denied"  # without a context a denial fails the job
    assert called == []


async def test_a_child_has_the_context_its_parent_was_enqueued_with(app: App) -> None:
    @app.job
    async def child(ctx: JobContext) -> None:
        await ctx.tool("deploy", lambda: None)

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.wait_for(await ctx.spawn(child))

    handle = await app.enqueue(parent, approval_context=ApprovalContext({"deploy": "always"}, autonomous=[]))
    async with working(app, linger=0.0):
        job = await ended(app, handle)
    assert job.status is Status.FAILED
    assert "needs the approval of a person" in str(job.error_message)


async def test_a_job_without_a_context_writes_what_it_always_wrote(app: App) -> None:
    @app.job
    async def plain(ctx: JobContext) -> None:
        assert ctx.approval_context is None
        await ctx.tool("deploy", lambda: None)

    handle = await app.enqueue(plain)
    async with working(app):
        await handle.result(PATIENCE)
    assert types(await handle.events()) == [
        "job_created",
        "run_started",
        "tool_called",
        "tool_returned",
        "job_completed",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"tools": {"deploy": "sometimes"}},
        {"tools": ["deploy"]},
        {"default": "yes"},
        {"autonomous": "deploy"},
        {"assignees": "ann"},
        {"expires_in": "soon"},
        {"on_deny": "ignore"},
    ],
)
def test_a_wrong_context_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ApprovalContext(**wrong)


async def test_only_a_context_is_taken(app: App) -> None:
    with pytest.raises(InvalidInput, match="ApprovalContext"):
        await app.enqueue("echo", approval_context={"deploy": "always"}, elsewhere=True)  # type: ignore[call-overload]  # that is the mistake


async def test_a_decision_that_is_remembered_decides_later_calls_until_it_is_revoked(app: App) -> None:
    called: list[int] = []

    @app.job
    async def release(ctx: JobContext, n: int) -> None:
        await ctx.tool("deploy", called.append, n)

    context = ApprovalContext()
    async with working(app, linger=0.0):
        first = await app.enqueue(release, 1, approval_context=context, user_id="ann")
        await app.approve(
            (await pending(app, first)).id, by="bo", remember="user", remember_for="1h", comment="all day"
        )
        await first.result(PATIENCE)
        second = await app.enqueue(release, 2, approval_context=context, user_id="ann")
        await second.result(PATIENCE)
        [rule] = (await app.approvals.rules(tool="deploy")).items
        assert (rule.scope, rule.verdict, rule.created_by, rule.reason) == ("user:ann", "allow", "bo", "all day")
        assert rule.expires_at is not None
        assert rule.approval_id is not None
        [use] = [e.payload for e in await second.events() if e.type == "tool_called"]
        assert use["rule"] == str(rule.id)
        other = await app.enqueue(release, 3, approval_context=context, user_id="bob")
        await app.deny((await pending(app, other)).id)
        always = await app.enqueue(release, 4, approval_context=ALWAYS, user_id="ann")
        await app.deny((await pending(app, always)).id)
        revoked = await app.approvals.revoke_rule(rule.short_id, "enough")
        assert (revoked.revoked_reason, (await app.approvals.rules()).items) == ("enough", ())
        third = await app.enqueue(release, 5, approval_context=context, user_id="ann")
        await app.deny((await pending(app, third)).id)
        await ended(app, third)
    assert called == [1, 2]


async def test_a_rule_that_denies_comes_first_and_is_raised_in_the_handler(app: App) -> None:
    @app.job
    async def release(ctx: JobContext) -> str:
        try:
            await ctx.tool("deploy", lambda: None)
        except ToolNotAllowed as error:
            return error.message
        return "deployed"

    allowed = await app.approvals.add_rule("deploy", "allow", scope="tenant")
    denied = await app.approvals.add_rule("deploy", "deny", scope="tenant", by="ann", reason="incident 12")
    async with working(app, linger=0.0):
        for context in (ApprovalContext(), ALWAYS, ApprovalContext({"deploy": "always"}, autonomous=["deploy"])):
            handle = await app.enqueue(release, approval_context=context)
            assert await handle.result(PATIENCE) == f"rule …{denied.short_id} of ann denies tool 'deploy': incident 12"
        await app.approvals.revoke_rule(denied.id)
        handle = await app.enqueue(release, approval_context=ApprovalContext())
        assert await handle.result(PATIENCE) == "deployed"
    assert [rule.id for rule in (await app.approvals.rules(ended=True)).items] == [denied.id, allowed.id]


async def test_only_a_decision_about_a_tool_makes_a_rule(app: App) -> None:
    @app.job
    async def asks(ctx: JobContext) -> None:
        await ctx.approve("go", title="Go?")

    @app.job(approval_context=ApprovalContext())
    async def release(ctx: JobContext) -> None:
        await ctx.tool("deploy", lambda: None)

    one, other = await app.enqueue(asks), await app.enqueue(release)
    async with working(app, linger=0.0):
        with pytest.raises(InvalidInput, match="not about a tool"):
            await app.approve((await pending(app, one)).id, remember="job")
        approval = await pending(app, other)
        with pytest.raises(InvalidInput, match="no agent"):
            await app.approve(approval.id, remember="agent")
        with pytest.raises(InvalidInput, match="by id"):
            await app.approve(token="x", remember="job")
        with pytest.raises(InvalidInput, match="goes with"):
            await app.approve(approval.id, remember_for="1h")
        assert (await app.approvals.rules()).items == ()
        await app.approve(approval.id, remember="job")
        await other.result(PATIENCE)
    assert [rule.scope for rule in (await app.approvals.rules()).items] == [f"job:{other.id}"]


async def test_a_crash_after_each_record_neither_asks_again_nor_calls_again(timed_app: TestApp) -> None:
    called: list[str] = []

    @timed_app.job(approval_context=ALWAYS)
    async def release(ctx: JobContext) -> str:
        await ctx.options(tool_call_id="call_1").tool("deploy", called.append, "1.2")
        return await ctx.tool("echo", str, "$call_1")

    report = await timed_app.crash_after_each_step(release, effects=called, max_retries=9)
    assert (report.status, report.effects) == (Status.COMPLETED, ["1.2"])
    assert sum("approval" in str(boundary) or "wait" in str(boundary) for boundary in report.boundaries) == 2
