"""Tools: side effects that are never silently repeated."""

import asyncio
from typing import Any

import pytest

from perdure import App, Handle, JobContext, Status, idempotency_key
from perdure.model.errors import InvalidInput, NotAssigned, UnknownOutcome
from tests.runtime.support import NOW, PATIENCE, ended, keys, only, pending, reached, types, until, working


class Post:
    """A side effect in another system: it happens, and its answer may be lost."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.keys: list[str] = []
        self.hang = False
        self.errors: list[Exception] = []

    async def __call__(self, text: str) -> dict[str, str]:
        self.happened.append(text)
        self.keys.append(idempotency_key())
        if self.errors:
            raise self.errors.pop(0)
        if self.hang:
            await asyncio.sleep(PATIENCE * 2)
        return {"posted": text}


@pytest.fixture
def post() -> Post:
    """A fresh one for every test."""
    return Post()


async def cut_off(app: App, handle: Handle[Any], post: Post) -> None:
    """Run the job on a worker that goes away in the middle of the effect."""
    post.hang = True
    before = len(post.happened)
    async with working(app):
        await until(lambda: len(post.happened) > before, what="the effect")
    post.hang = False
    assert (await handle.get()).status is Status.RETRY


def tool_events(log: list[Any]) -> list[str]:
    return [t for t in types(log) if t.startswith("tool_")]


async def test_a_call_is_durable_before_it_happens_and_its_answer_after(app: App, post: Post) -> None:
    seen: list[list[str]] = []

    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> dict[str, str]:
        async def effect(text: str) -> dict[str, str]:
            seen.append(types(await app.jobs.events(ctx.job_id)))
            return await post(text)

        answer = await ctx.tool("post", effect, "hello")
        if ctx.attempt == 1:
            raise OSError("replay, please")
        return answer

    async with working(app):
        handle = await app.enqueue(one)
        assert await handle.result(PATIENCE) == {"posted": "hello"}
    assert post.happened == ["hello"]
    assert seen[0][-1] == "tool_called"
    log = await handle.events()
    assert tool_events(log) == ["tool_called", "tool_returned"]
    assert only(log, "tool_called").payload["idempotency_key"] == post.keys[0]
    assert only(log, "tool_returned").payload["result"] == {"posted": "hello"}


async def test_a_tool_that_raised_is_called_again_with_the_same_key(app: App, post: Post) -> None:
    post.errors = [OSError("connection refused")]

    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> dict[str, str]:
        return await ctx.tool("post", post, "hello")

    async with working(app):
        handle = await app.enqueue(one)
        await handle.result(PATIENCE)
    assert len(post.happened) == 2
    assert len(set(post.keys)) == 1
    assert tool_events(await handle.events()) == ["tool_called", "tool_failed", "tool_called", "tool_returned"]
    assert (await handle.get()).retry_count == 1


async def test_a_tool_is_tried_again_inside_the_attempt(app: App, post: Post) -> None:
    post.errors = [OSError("connection refused"), OSError("connection reset")]

    @app.job
    async def one(ctx: JobContext) -> dict[str, str]:
        return await ctx.options(retries=2, backoff=NOW).tool("post", post, "hello")

    async with working(app):
        handle = await app.enqueue(one)
        await handle.result(PATIENCE)
    log = await handle.events()
    assert tool_events(log) == ["tool_called", "tool_failed"] * 2 + ["tool_called", "tool_returned"]
    assert len(set(post.keys)) == 1
    assert (await handle.get()).attempt == 1


@pytest.fixture
def one_post(app: App, post: Post) -> Any:
    """A handler that posts once, with the default: ask."""

    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> dict[str, str]:
        return await ctx.tool("post", post, "hello")

    return one


async def test_an_unknown_outcome_asks_and_takes_the_answer_that_it_happened(
    app: App, post: Post, one_post: Any
) -> None:
    handle = await app.enqueue(one_post)
    await cut_off(app, handle, post)
    async with working(app):
        question = await pending(app, handle)
        assert question.kind == "question"
        assert "post" in question.title
        [called] = [e for e in await handle.events() if e.type == "tool_called"]
        assert question.payload["idempotency_key"] == called.payload["idempotency_key"]
        assert "hello" in question.payload["arguments"].values()
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        for answer in ({}, {"edited": None}, {"edited": {"outcome": "perhaps"}}):
            with pytest.raises(InvalidInput, match="what happened"):
                await app.approve(question.id, **answer)
        await app.approve(question.id, edited={"outcome": "happened", "result": {"posted": "seen it"}})
        assert await handle.result(PATIENCE) == {"posted": "seen it"}
    assert post.happened == ["hello"]
    log = await handle.events()
    assert tool_events(log) == ["tool_called", "tool_returned"]
    assert only(log, "tool_returned").payload["answered"] is True


async def test_an_answer_that_does_not_fit_is_asked_for_again(app: App, post: Post, one_post: Any) -> None:
    """It must not fail the job: whatever one could do then would repeat the effect."""
    handle = await app.enqueue(one_post)
    await cut_off(app, handle, post)
    asked = set()
    for wrong in ("seen it", {"a\x00": 1}, None):
        async with working(app):
            question = await pending(app, handle)
            asked.add(question.key)
            await reached(handle, Status.WAITING_FOR_APPROVAL)
        await app.approve(question.id, edited={"outcome": "happened", "result": wrong})
    async with working(app):  # an attempt of its own for each question: the answers are read again
        last = await pending(app, handle)
        assert "The last answer was not taken: the result given for tool 'post' does not fit" in last.title
        await app.approve(last.id, edited={"outcome": "happened", "result": {"posted": "seen it"}})
        assert await handle.result(PATIENCE) == {"posted": "seen it"}
    assert len({*asked, last.key}) == 4
    assert post.happened == ["hello"]
    assert tool_events(await handle.events()) == ["tool_called", "tool_returned"]


async def test_an_unknown_outcome_asks_and_runs_again_if_that_is_the_answer(
    app: App, post: Post, one_post: Any
) -> None:
    handle = await app.enqueue(one_post)
    await cut_off(app, handle, post)
    async with working(app):
        question = await pending(app, handle)
        await app.approve(question.id, edited={"outcome": "retry"})
        assert await handle.result(PATIENCE) == {"posted": "hello"}
    assert len(post.happened) == 2
    assert len(set(post.keys)) == 1


async def test_an_unknown_outcome_that_is_denied_fails_the_job(app: App, post: Post, one_post: Any) -> None:
    handle = await app.enqueue(one_post)
    await cut_off(app, handle, post)
    async with working(app):
        question = await pending(app, handle)
        await app.deny(question.id, comment="better not")
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.FAILED, "denied")
    assert "better not" in (job.error_message or "")
    assert post.happened == ["hello"]


async def test_every_cut_off_asks_again(app: App, post: Post, one_post: Any) -> None:
    handle = await app.enqueue(one_post)
    await cut_off(app, handle, post)
    async with working(app):
        first = await pending(app, handle)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
    await app.approve(first.id, edited={"outcome": "retry"})
    assert (await handle.get()).status is Status.WAITING_FOR_APPROVAL
    await cut_off(app, handle, post)
    async with working(app):
        second = await pending(app, handle)
        assert second.id != first.id
        assert second.key != first.key
        await app.approve(second.id, edited={"outcome": "happened", "result": {"posted": "twice"}})
        assert await handle.result(PATIENCE) == {"posted": "twice"}
    assert len(post.happened) == 2


async def test_on_unknown_retry_calls_again_without_asking(app: App, post: Post) -> None:
    @app.job
    async def one(ctx: JobContext) -> dict[str, str]:
        return await ctx.options(on_unknown="retry").tool("post", post, "hello")

    handle = await app.enqueue(one)
    await cut_off(app, handle, post)
    async with working(app):
        assert await handle.result(PATIENCE) == {"posted": "hello"}
    assert len(post.happened) == 2
    assert len(set(post.keys)) == 1
    assert (await app.approvals.list(status=())).items == ()


async def test_on_unknown_fail_fails_the_job(app: App, post: Post) -> None:
    @app.job
    async def one(ctx: JobContext) -> dict[str, str]:
        return await ctx.options(on_unknown="fail").tool("post", post, "hello")

    handle = await app.enqueue(one)
    await cut_off(app, handle, post)
    async with working(app):
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.FAILED, "unknown_outcome")
    assert "'post'" in (job.error_message or "")
    assert post.happened == ["hello"]


async def test_a_handler_may_deal_with_an_unknown_outcome_itself(app: App, post: Post) -> None:
    @app.job
    async def one(ctx: JobContext) -> str:
        try:
            await ctx.options(on_unknown="fail").tool("post", post, "hello")
        except UnknownOutcome:
            return "looked it up elsewhere"
        return "posted"

    handle = await app.enqueue(one)
    await cut_off(app, handle, post)
    async with working(app):
        assert await handle.result(PATIENCE) == "looked it up elsewhere"


async def test_whom_the_question_asks(app: App, post: Post) -> None:
    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> dict[str, str]:
        asking = ctx.options(assignees=["ann", "bob"])
        posted = await asking.tool("post", post, "hello")
        await asking.approve("own", title="May I?", assignees=["carol"])
        await asking.approve("as the options say", title="May I?")
        await asking.options(assignees=[]).approve("any", title="May I?")
        return posted

    handle = await app.enqueue(one)
    await cut_off(app, handle, post)
    async with working(app):
        for by, assignees in (("ann", ("ann", "bob")), ("carol", ("carol",)), ("bob", ("ann", "bob")), ("eve", ())):
            asked = await pending(app, handle)
            assert asked.assignees == assignees
            answer: dict[str, Any] = {"edited": {"outcome": "retry"}} if asked.kind == "question" else {}
            if assignees:
                with pytest.raises(NotAssigned):
                    await app.approve(asked.id, by="eve", **answer)
            await app.approve(asked.id, by=by, **answer)
        assert await handle.result(PATIENCE) == {"posted": "hello"}


async def test_a_single_name_is_refused(app: App) -> None:
    @app.job
    async def one(ctx: JobContext) -> None:
        ctx.options(assignees="ann")  # type: ignore[arg-type]  # on purpose

    async with working(app):
        handle = await app.enqueue(one)
        assert "assignees is a list of names" in ((await reached(handle, Status.FAILED)).error_message or "")


async def test_a_timeout_leaves_the_outcome_unknown(app: App, post: Post) -> None:
    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> dict[str, str]:
        return await ctx.options(timeout=0.05).tool("post", post, "hello")

    post.hang = True
    async with working(app):
        handle = await app.enqueue(one)
        question = await pending(app, handle)
        post.hang = False
        await app.approve(question.id, edited={"outcome": "retry"})
        assert await handle.result(PATIENCE) == {"posted": "hello"}
    assert tool_events(await handle.events()) == ["tool_called", "tool_called", "tool_returned"]


async def test_an_empty_result_is_a_result(app: App, post: Post) -> None:
    """A tool that returned nothing is not called again because nothing was found on record."""
    calls = []

    def nothing() -> Any:
        calls.append("none")

    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> list[Any]:
        results: list[Any] = [await ctx.tool("none", nothing), await ctx.tool("list", list)]
        if ctx.attempt == 1:
            raise OSError("replay, please")
        return results

    async with working(app):
        handle = await app.enqueue(one)
        assert await handle.result(PATIENCE) == [None, []]
    assert calls == ["none"]


async def test_tools_with_other_arguments_are_distinguished(app: App, post: Post) -> None:
    @app.job(backoff=NOW, on_change="fail")
    async def one(ctx: JobContext) -> None:
        await ctx.tool("post", post, f"attempt {ctx.attempt}")
        raise OSError("replay, please")

    async with working(app):
        handle = await app.enqueue(one)
        job = await ended(app, handle)
    assert job.status is Status.FAILED
    assert "tool 'post'" in (job.error_message or "")
    assert post.happened == ["attempt 1"]
    assert keys(await handle.events(), "tool_called") == ["post"]
