"""What the page "Changing code under running jobs" says without showing it, tried on two releases of a program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import App, Handle, JobContext
from perdure.model.errors import IllegalTransition

NAP = 0.8
"""Seconds: also a loaded machine has suspended the job before it is over."""
AFTER_NAP = NAP + 0.1


def upper(text: str) -> str:
    """Another function for a step that was recorded."""
    return text.upper()


class Releases:
    """The old and the new code of one program, on one database."""

    def __init__(self, url: str) -> None:
        self.old, self.new = App(url, version="1"), App(url, version="2")
        self.calls: list[str] = []

    def note(self, text: str) -> str:
        """What steps and tools call."""
        self.calls.append(text)
        return text

    async def work(self, app: App) -> None:
        """A worker of one release, until nothing is due."""
        async with asyncio.timeout(20):
            await app.work(once=True, linger=0)

    async def change(self, job: Handle[str]) -> str:
        """Run the job with the old code until it is suspended, then with the new one; its result, or its error."""
        await self.work(self.old)
        await asyncio.sleep(AFTER_NAP)
        return await self.end_with_new(job)

    async def end_with_new(self, job: Handle[str]) -> str:
        """Run the job with the new code; its result, its error, or why it is suspended."""
        await self.work(self.new)
        found = await job.get()
        return str(found.result or found.error_message or found.note.get("reason"))


@pytest.fixture
async def code(tmp_path: Path) -> AsyncIterator[Releases]:
    releases = Releases(f"sqlite:///{tmp_path / 'perdure.db'}")
    yield releases
    await releases.old.close()
    await releases.new.close()


async def test_a_renamed_tool_has_its_side_effect_again(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.tool("charge", code.note, "5")
        await ctx.sleep("nap", NAP)
        return ""

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        return await ctx.tool("bill", code.note, "5")

    assert await code.change(await code.old.enqueue(old)) == "5"
    assert code.calls == ["5", "5"]


async def test_reordered_steps_and_a_new_function_keep_the_records(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.step("a", code.note, "1")
        await ctx.step("b", code.note, "2")
        await ctx.sleep("nap", NAP)
        return ""

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        second = await ctx.step("b", upper, "2")
        first = await ctx.step("a", upper, "1")
        return second + first

    assert await code.change(await code.old.enqueue(old)) == "21"
    assert code.calls == ["1", "2"]


async def test_a_call_added_before_one_of_the_same_name_gets_its_key(code: Releases) -> None:
    @code.old.job(name="same")
    async def same_old(ctx: JobContext) -> str:
        await ctx.step("read", code.note, "x")
        await ctx.sleep("nap", NAP)
        return ""

    @code.new.job(name="same")
    async def same_new(ctx: JobContext) -> str:
        first = await ctx.step("read", upper, "x")
        return first + await ctx.step("read", upper, "x")

    @code.old.job(name="other")
    async def other_old(ctx: JobContext) -> str:
        await ctx.step("read", code.note, "x")
        await ctx.sleep("nap", NAP)
        return ""

    @code.new.job(name="other")
    async def other_new(ctx: JobContext) -> str:
        return await ctx.step("read", upper, "y") + await ctx.step("read", upper, "x")

    assert await code.change(await code.old.enqueue(same_old)) == "xX"
    assert "step 'read' was recorded with other arguments" in await code.change(await code.old.enqueue(other_old))


async def test_a_result_that_does_not_fit_its_new_type_fails_the_job(code: Releases) -> None:
    def count(text: str) -> int:
        return len(text)

    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.step("read", code.note, "x")
        await ctx.sleep("nap", NAP)
        return ""

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        return str(await ctx.step("read", count, "x"))

    assert "the recorded result of step 'read' does not fit int" in await code.change(await code.old.enqueue(old))


async def test_without_the_approval_a_tool_of_its_name_keeps_its_record(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.approve("publish", title="Publish?")
        await ctx.tool("publish", code.note, "post")
        await ctx.sleep("nap", NAP)
        return ""

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        return await ctx.tool("publish", code.note, "post")

    job = await code.old.enqueue(old)
    await code.work(code.old)
    await code.old.approve(job.id)
    assert await code.change(job) == "post"
    assert code.calls == ["post"]


async def test_the_duration_of_a_sleep_that_has_begun_does_not_change(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.sleep("nap", NAP)
        return ""

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        await ctx.sleep("nap", "1h")
        return "awake"

    assert await code.change(await code.old.enqueue(old)) == "awake"


async def test_a_sleep_that_is_gone(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.sleep("nap", NAP)
        return ""

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        await ctx.sleep("later", NAP)
        return "awake"

    job = await code.old.enqueue(old)
    await code.work(code.old)
    with pytest.raises(IllegalTransition):
        await code.new.jobs.retry_now(job.id)
    await asyncio.sleep(AFTER_NAP)
    await code.work(code.new)
    suspended = await job.get()
    assert (suspended.attempt, [wait.key for wait in suspended.waits]) == (2, ["later"])
    await asyncio.sleep(AFTER_NAP)
    assert await code.end_with_new(job) == "awake"


async def test_an_open_approval_stays_as_it_was_asked(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.approve("go", title="Go?", assignees=["ann"])
        return ""

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        decision = await ctx.approve("go", title="Shall we go?", assignees=["bo"])
        return str(decision.by)

    job = await code.old.enqueue(old)
    await code.work(code.old)
    [approval] = (await code.new.approvals.list(job_id=job.id)).items
    assert (approval.title, approval.assignees) == ("Go?", ("ann",))
    await code.new.approve(approval.id, by="ann")
    assert await code.end_with_new(job) == "ann"


@pytest.mark.parametrize(("on_change", "end"), [("wait", "was asked for with another payload"), ("keep", "1")])
async def test_the_payload_of_an_approval_changed(code: Releases, on_change: str, end: str) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.approve("go", title="Go?", payload="1")
        return ""

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        options = ctx.options(on_change="keep") if on_change == "keep" else ctx
        decision = await options.approve("go", title="Go?", payload="2")
        return decision.payload

    job = await code.old.enqueue(old)
    await code.work(code.old)
    await code.old.approve(job.id)
    assert end in await code.end_with_new(job)


async def test_an_approval_that_is_gone(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.approve("go", title="Go?")
        return ""

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        return "went"

    job = await code.old.enqueue(old)
    await code.work(code.old)
    await code.work(code.new)
    assert await job.status() == "WAITING_FOR_APPROVAL"
    await code.new.approve(job.id)
    assert await code.end_with_new(job) == "went"


async def test_an_approval_that_is_renamed(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        return (await ctx.approve("go", title="Go?", payload="a")).payload

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        await ctx.approve("proceed", title="Go?")
        return ""

    job = await code.old.enqueue(old)
    await code.work(code.old)
    await code.old.approve(job.id, edited="b")
    await code.work(code.new)
    suspended = await job.get()
    assert (suspended.attempt, [wait.key for wait in suspended.waits]) == (2, ["proceed"])
    assert {approval.key for approval in (await code.new.approvals.list(job_id=job.id)).items} == {"proceed"}
    await code.old.approve(job.id)
    await code.work(code.old)
    assert await job.result() == "b"


@pytest.mark.parametrize("first", ["sleep", "approve"])
async def test_a_sleep_and_an_approval_exchange_names(code: Releases, first: str) -> None:
    async def sleeps(ctx: JobContext) -> str:
        await ctx.sleep("go", NAP)
        await ctx.sleep("nap", NAP)
        return ""

    async def asks(ctx: JobContext) -> str:
        await ctx.approve("go", title="Go?")
        await ctx.sleep("nap", NAP)
        return ""

    old = code.old.job(name="j")(sleeps if first == "sleep" else asks)
    code.new.job(name="j")(asks if first == "sleep" else sleeps)
    job = await code.old.enqueue(old)
    await code.work(code.old)
    if first == "approve":
        await code.old.approve(job.id)
    else:
        await asyncio.sleep(AFTER_NAP)
    assert "'go' was recorded as" in await code.change(job)


async def test_retries_are_those_of_the_enqueue_or_of_the_first_worker(code: Releases) -> None:
    @code.old.job(name="j", max_retries=0)
    async def old(ctx: JobContext) -> str:
        return ""

    @code.new.job(name="j", max_retries=5)
    async def new(ctx: JobContext) -> str:
        raise ValueError

    given, left_open = await code.old.enqueue(old, max_retries=0), await code.old.enqueue(old)
    await code.work(code.new)
    assert (await given.status(), await left_open.status()) == ("DEADLETTER", "RETRY")


async def test_old_code_ignores_what_new_code_recorded(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        return await ctx.step("a", code.note, "1")

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        await ctx.step("a", code.note, "1")
        await ctx.step("b", code.note, "2")
        await ctx.sleep("nap", NAP)
        return ""

    job = await code.new.enqueue(new)
    await code.work(code.new)
    await asyncio.sleep(AFTER_NAP)
    await code.work(code.old)
    assert await job.result() == "1"
    assert code.calls == ["1", "2"]


async def test_a_fork_keeps_an_answer_that_was_not_read(code: Releases) -> None:
    @code.old.job(name="j")
    async def old(ctx: JobContext) -> str:
        await ctx.step("a", code.note, "1")
        await ctx.approve("go", title="Go?")
        return "went"

    @code.new.job(name="j")
    async def new(ctx: JobContext) -> str:
        await ctx.step("a", code.note, "2")
        await ctx.approve("go", title="Go?")
        return "went"

    job = await code.old.enqueue(old)
    await code.work(code.old)
    await code.old.approve(job.id)
    assert "step 'a' was recorded with other arguments" in await code.end_with_new(job)
    fork = await code.old.jobs.fork(job.id)
    await code.work(code.old)
    assert await fork.result() == "went"
