"""A recorded job runs again offline, to the same end; what differs is named."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    App,
    ApprovalContext,
    InvalidExport,
    JobContext,
    ReplayDiverged,
    StepNotFound,
    ToolNotAllowed,
    current_context,
)
from perdure.model.errors import ContentMissing
from perdure.model.ids import uuid7
from perdure.model.steps import steps_of
from perdure.runtime.export_records import line_of
from perdure.testing import Recording, TestApp, read_recordings, replay
from perdure.testing.recording import recordings_of


def agent_of(app: App, calls: list[str], *, publish: bool = True, style: str = "short") -> Any:
    @app.job(name="child")
    async def child(ctx: JobContext, n: int) -> int:
        return n + 1

    @app.job(name="agent")
    async def agent(ctx: JobContext, topic: str) -> str:
        async def search(topic: str) -> list[str]:
            calls.append("search")
            await ctx.usage(tokens=10)
            return [topic]

        def write(notes: list[str], style: str) -> str:
            calls.append("write")
            return f"{style} {notes}"

        notes = await ctx.step("search", search, topic)
        await ctx.sleep("rest", "1h")
        draft = await ctx.step("write", write, notes, style)
        await ctx.emit("drafted", {"n": 1})
        await ctx.checkpoint({"draft": draft})
        decision = await ctx.approve("publish", title="Publish?", payload=draft)
        answer = await ctx.wait_signal("go", timeout="1d")
        number = await ctx.wait_for(await ctx.spawn(child, 1))
        if publish:
            await ctx.tool("post", lambda text: calls.append("post"), decision.payload)
        return f"{decision.payload} {answer} {number}"

    return agent


async def recorded(app: TestApp) -> Recording:
    """A job that did all of it, and its record."""
    calls: list[str] = []
    handle = await app.enqueue(agent_of(app, calls), "tea")
    await app.run_until_idle(advance="2h")
    await app.approve_pending(edited="long text")
    await app.jobs.signal(handle.id, "go", {"yes": True})
    assert await handle.result() == "long text {'yes': True} 2"
    assert calls == ["search", "write", "post"]
    records = [record async for record in app.jobs.export(handle.id)]
    [recording] = recordings_of(records, "it")
    return recording


async def test_a_job_replays_to_the_same_result_and_calls_nothing() -> None:
    async with TestApp() as app:
        recording = await recorded(app)
    calls: list[str] = []
    other = App("postgresql://app@127.0.0.1:1/nowhere")
    agent_of(other, calls)
    done = await replay(other, recording)
    assert (done.status, done.result, done.reached) == ("COMPLETED", "long text {'yes': True} 2", None)
    assert (done.steps, calls) == (8, [])
    part = await replay(other, recording, to="publish")
    assert (part.reached, part.steps, part.status, calls) == ("publish", 3, None, [])
    with pytest.raises(StepNotFound):
        await replay(other, recording, to="print")


async def test_what_differs_is_named() -> None:
    async with TestApp() as app:
        recording = await recorded(app)
    fewer, changed, none = App("memory:"), App("memory:"), App("memory:")
    agent_of(fewer, [], publish=False)
    with pytest.raises(ReplayDiverged, match=r"ends without tool 'post', which is in the record") as diverged:
        await replay(fewer, recording)
    assert diverged.value.step == "post"
    agent_of(changed, [], style="long")
    with pytest.raises(ReplayDiverged, match=r"step 'write' was recorded with other arguments") as diverged:
        await replay(changed, recording)
    assert diverged.value.step == "write"

    @none.job(name="agent")
    async def another(ctx: JobContext, topic: str) -> str:
        return await ctx.step("look", lambda: "up")

    with pytest.raises(
        ReplayDiverged,
        match=r"comes to step 'look', which the record does not have; the record goes on with step 'search'",
    ):
        await replay(none, recording)


async def test_another_result_is_a_difference() -> None:
    async with TestApp() as app:

        @app.job(name="agent")
        async def agent(ctx: JobContext) -> int:
            return 1

        handle = await app.enqueue(agent)
        await handle.result()
        [recording] = recordings_of([r async for r in app.jobs.export(handle.id)], "it")
    other = App("memory:")

    @other.job(name="agent")
    async def changed(ctx: JobContext) -> int:
        return 2

    with pytest.raises(ReplayDiverged, match="the result is 2, and was recorded as 1"):
        await replay(other, recording)


async def test_a_job_that_failed_replays_up_to_where_it_failed() -> None:
    async with TestApp() as app:

        @app.job(max_retries=0)
        async def agent(ctx: JobContext) -> None:
            await ctx.step("one", lambda: 1)
            await ctx.step("two", lambda: 1 / 0)

        handle = await app.enqueue(agent)
        await app.run_until_idle()
        [recording] = recordings_of([r async for r in app.jobs.export(handle.id)], "it")
        done = await replay(app, recording)
        assert (done.steps, done.reached) == (1, "two")


async def test_what_is_no_whole_export_is_refused(tmp_path: Path) -> None:
    async with TestApp() as app:
        handle = await app.enqueue(agent_of(app, []), "tea")
        whole = [r async for r in app.jobs.export(handle.id)]
        redacted = [r async for r in app.jobs.export(handle.id, redact=True)]
    file = tmp_path / "job.jsonl"
    event = next(r for r in whole if r["record"] == "event")
    wrong: list[tuple[list[Any], str]] = [
        ([], "holds no job"),
        ([{"v": 99, "record": "job"}], "line 1: this is no record of an export"),
        (whole[:-1], "ends before the records"),
        ([r for r in whole if r is not event], "are missing"),
        (redacted, "was redacted"),
        ([event], "did not come before it"),
        ([{**whole[0], "status": "HAPPY"}], "the job is damaged"),
        ([{**whole[0], "job_id": str(uuid7()), "kind": None}], "the job is damaged"),
    ]
    for records, said in wrong:
        file.write_text("".join(line_of(record) + "\n" for record in records))
        with pytest.raises(InvalidExport, match=said):
            await asyncio.to_thread(read_recordings, file)
    file.write_text("{ no json")
    with pytest.raises(InvalidExport):
        read_recordings(file)
    with pytest.raises(InvalidExport):
        read_recordings(tmp_path / "missing.jsonl")


def talker_of(app: App, calls: list[str], *, more: bool = False) -> Any:
    @app.job(name="talker")
    async def talker(ctx: JobContext) -> list[Any]:
        async def ask(messages: list[Any]) -> int:
            calls.append("ask")
            await ctx.messages.append("assistant", f"{len(messages)}")
            return len(messages)

        await ctx.messages.append("user", "hello")
        for _ in range(2):
            await ctx.step("ask", ask, ctx.messages.list())
            await ctx.vars.set("turns", ctx.vars.get("turns", 0) + 1)
        if more:
            await ctx.messages.append("user", "more")
        return [ctx.messages.list(), ctx.vars.all()]

    return talker


async def test_a_conversation_replays() -> None:
    async with TestApp() as app:
        handle = await app.enqueue(talker_of(app, []))
        await app.run_until_idle()
        [recording] = recordings_of([record async for record in app.jobs.export(handle.id)], "it")
        result = await handle.result()
    calls: list[str] = []
    same, other = App("memory:"), App("memory:")
    talker_of(same, calls)
    talker_of(other, calls, more=True)
    done = await replay(same, recording)
    assert (done.status, done.result, calls) == ("COMPLETED", result, [])
    assert len(result[0]) == 3
    with pytest.raises(ReplayDiverged, match="message of the conversation 'message#2'"):
        await replay(other, recording)


def reader_of(app: App, calls: list[str], *, path: str = "large") -> Any:
    @app.job(name="reader")
    async def reader(ctx: JobContext) -> list[Any]:
        def read(path: str) -> list[str]:
            calls.append(path)
            current_context().tool_output_stash.state["__last"] = path
            return ["x" * 50_000] * (2 if path == "large" else 1)

        await ctx.options(tool_call_id="one").tool("read", read, "small")
        await ctx.options(tool_call_id="two").tool("read", read, path)
        found = [await ctx.tool("count", len, "$one"), await ctx.tool("count", len, "$two")]
        try:
            await ctx.tool("delete", calls.append, "all")
        except ToolNotAllowed:
            await ctx.step("note", len, "no")
        stash = ctx.tool_output_stash
        assert ctx.approval_context is not None
        return [found, stash.ids, stash.state["__last"], len(await stash.output("two")), ctx.fields.user_id]

    return reader


async def unreadable(*_: object, **__: object) -> bytes:
    raise ContentMissing("it is on another machine")


async def test_approved_tools_and_their_outputs_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ApprovalContext({"read": "always", "delete": "unless_auto_approved"}, default="never")
    calls: list[str] = []
    async with TestApp() as app:
        await app.approvals.add_rule("delete", "deny", scope="tenant")
        handle = await app.enqueue(reader_of(app, calls), approval_context=context, user_id="ann")
        for _ in range(2):
            await app.run_until_idle()
            await app.approve_pending()
        result = await handle.result()
        assert calls == ["small", "large"]
        records = [record async for record in app.jobs.export(handle.id)]
        redacted = [record async for record in app.jobs.export(handle.id, redact=True)]
        monkeypatch.setattr(type((await app.open()).files), "read_file", unreadable)
        unread = [record async for record in app.jobs.export(handle.id)]
    assert [record["content"] for record in redacted if record["record"] == "output"] == [None]
    monkeypatch.undo()
    [output] = [record for record in unread if record["record"] == "output"]
    assert (output["content"], output["missing"], unread[-1]["record"]) == (None, "it is on another machine", "end")
    [recording] = recordings_of(records, "it")
    calls.clear()
    same, other = App("memory:"), App("memory:")
    reader_of(same, calls)
    reader_of(other, calls, path="huge")
    done = await replay(same, recording)
    assert (done.status, done.result, calls) == ("COMPLETED", result, [])
    asked = [step.key for step in steps_of(recording.events) if step.kind == "approval"]
    assert (await replay(same, recording, to=asked[1])).reached == asked[1]
    with pytest.raises(ReplayDiverged, match="tool 'read#2' was recorded with other arguments"):
        await replay(other, recording)
    for without in ([record for record in records if record["record"] != "output"], unread):
        [lost] = recordings_of(without, "it")
        with pytest.raises(ReplayDiverged, match=r"ends without tool 'count'.*it fails: ContentMissing"):
            await replay(same, lost)
    assert calls == []
