"""ctx.session: what a job of a session saves, the next one reads; two that save at once do not overwrite each other."""

from dataclasses import dataclass
from typing import Any

import pytest

import perdure.runtime.outcomes
import perdure.sync
from perdure import (
    AgentNotFound,
    App,
    Backoff,
    BlockingContext,
    InvalidInput,
    JobContext,
    NotJson,
    Retry,
    SessionChanged,
    Status,
)
from perdure.testing import TestApp
from tests.runtime.support import types, until, working


@dataclass
class Talk:
    said: list[str]


async def test_the_next_job_of_a_session_reads_what_the_last_one_saved() -> None:
    async with TestApp() as t:

        @t.agent("ann").on_message(str)
        async def talk(ctx: JobContext, text: str) -> list[str]:
            state = await ctx.session.get(Talk) or Talk([])
            state.said.append(text)
            assert await ctx.session.save(state) == len(state.said)
            if ctx.retry_count == 0:
                raise Retry(after=0)
            return [*state.said, str(ctx.session.id)]

        async def says(text: str, session: str | None) -> Any:
            handle = await t.agents.message("ann", text, session=session)
            await t.run_until_idle(advance=True)
            return await handle.result()

        assert await says("a", "x") == ["a", "x"]
        assert await says("b", "y") == ["b", "y"]
        assert await says("c", "x") == ["a", "c", "x"]
        assert await says("d", None) == ["d", "None"]
        assert await says("e", None) == ["d", "e", "None"]
        state = await (await t.open()).agents.read_state("ann", "x")
        assert state is not None
        assert (state.state, state.version) == ({"said": ["a", "c"]}, 2)


@pytest.mark.parametrize("caught", [True, False])
async def test_a_job_that_reads_before_another_one_saves_does_not_overwrite_it(caught: bool) -> None:
    async with TestApp() as t:

        @t.job(max_retries=3, backoff=Backoff(base=0, cap=0))
        async def add(ctx: JobContext, text: str) -> list[str]:
            said = await ctx.session.get() or []
            if text == "slow":
                await ctx.sleep("think", "1h")
            try:
                await ctx.session.save([*said, text])
            except SessionChanged:
                if not caught:
                    raise
                said = await ctx.session.get()
                await ctx.session.save([*said, text])
            if ctx.attempt < 4:
                raise Retry(after=0)
            return [*said, text]

        await t.agents.create("ann", kind="add")
        slow = await t.enqueue(add, "slow", agent="ann")
        await t.run_until_idle()
        quick = await t.enqueue(add, "quick", agent="ann")
        await t.run_until_idle(advance=True)
        assert await quick.result() == ["quick"]
        assert await slow.result() == ["quick", "slow"]
        state = await (await t.open()).agents.read_state("ann", "")
        assert state is not None
        assert (state.state, state.version) == (["quick", "slow"], 2)
        assert types(await t.jobs.events(slow.id)).count("session_conflict") == 1


async def test_a_lost_save_uses_no_retry(file_app: App) -> None:
    read: list[int] = []

    @file_app.job(max_retries=0)
    async def add(ctx: JobContext, n: int) -> int:
        total: int = await ctx.session.get() or 0
        read.append(n)
        await until(lambda: len(read) >= 4)  # four jobs read before the first one saves
        await ctx.session.save(total + n)
        return ctx.retry_count

    await file_app.agents.create("ann", kind="add", max_parallel_jobs=4)
    handles = [await file_app.enqueue(add, n, agent="ann", session="s") for n in (1, 2, 3, 4)]
    async with working(file_app):
        assert [await handle.result(timeout=60) for handle in handles] == [0, 0, 0, 0]
    state = await (await file_app.open()).agents.read_state("ann", "s")
    assert state is not None
    assert (state.state, state.version) == (10, 4)
    reasons = [e.payload.get("reason") for h in handles for e in await h.events() if e.type == "job_retrying"]
    assert len(reasons) >= 3
    assert set(reasons) == {"session_changed"}


async def test_a_job_that_never_comes_to_save_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perdure.runtime.outcomes, "MOST_CONFLICTS", 5)
    async with TestApp() as t:

        @t.job(max_retries=1)
        async def save(ctx: JobContext) -> None:
            await ctx.session.get()
            await ctx.session.save(1)

        async def lost(*_: object) -> int:
            raise SessionChanged("another job was quicker")

        monkeypatch.setattr(type((await t.open()).agents), "save_state", lost)
        await t.agents.create("ann", kind="save")
        handle = await t.enqueue(save, agent="ann")
        await t.run_until_idle(advance=True)
        job = await handle.get()
        assert (job.status, job.attempt, job.retry_count) == (Status.DEADLETTER, 6, 1)
        assert "another job was quicker" in str(job.error_message)


async def test_one_that_the_handler_raises_itself_uses_a_retry() -> None:
    async with TestApp() as t:

        @t.job(max_retries=1)
        async def save(_: JobContext) -> None:
            raise SessionChanged("mine")

        handle = await t.enqueue(save)
        await t.run_until_idle(advance=True)
        job = await handle.get()
        assert (job.status, job.attempt) == (Status.DEADLETTER, 2)


async def test_a_plain_handler_and_a_later_save_in_one_job() -> None:
    async with TestApp() as t:

        @t.job
        def count(ctx: BlockingContext) -> list[int]:
            before = ctx.session.get() or 0
            versions = [ctx.session.save(before + n) for n in (1, 2)]
            return [before, *versions, ctx.session.get(), ctx.session.version]

        await t.agents.create("ann", kind="count")
        results = []
        for _ in range(2):
            handle = await t.enqueue(count, agent="ann", session="s")
            await t.run_until_idle()
            results.append(await handle.result())
        assert results == [[0, 1, 2, 2, 2], [2, 3, 4, 4, 4]]


async def test_bad_input() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext) -> None:
            if ctx.agent_id is None:
                with pytest.raises(InvalidInput, match="it has no session"):
                    ctx.session  # noqa: B018  reading it is what raises
                return
            await ctx.session.save({"a": 1})
            with pytest.raises(InvalidInput, match="the state of the session"):
                await ctx.session.get(Talk)
            with pytest.raises(InvalidInput):
                await ctx.session.save(object())

        await t.agents.create("ann", kind="work")
        for handle in (await t.enqueue(work), await t.enqueue(work, agent="ann")):
            await t.run_until_idle()
            assert (await handle.get()).status is Status.COMPLETED


async def test_sessions_on_files_and_servers(file_app: App) -> None:
    @file_app.job
    async def add(ctx: JobContext, n: int) -> int:
        total: int = (await ctx.session.get() or 0) + n
        await ctx.session.save(total)
        return total

    await file_app.agents.create("ann", kind="add")
    handles = [await file_app.enqueue(add, n, agent="ann", session="s") for n in (1, 2, 3)]
    async with working(file_app):
        assert [await handle.result(timeout=30) for handle in handles] == [1, 3, 6]


async def test_every_crash() -> None:
    async with TestApp() as t:

        @t.job(max_retries=3)
        async def add(ctx: JobContext) -> list[int]:
            first = await ctx.session.get() or 0
            await ctx.session.save(first + 1)
            more = await ctx.step("more", int, 5)
            second = await ctx.session.get()
            return [first, second, await ctx.session.save(second + more)]

        report = await t.crash_after_each_step(add, agent="ann", concurrency_key="agent:ann")
        assert {boundary.type for boundary in report.boundaries} >= {"session_read", "session_saved"}


async def test_a_client_reads_and_sets_what_the_next_job_finds() -> None:
    async with TestApp() as t:

        @t.agent("ann").on_message(str)
        async def add(ctx: JobContext, text: str) -> list[str]:
            texts = [*(await ctx.session.get() or []), text]
            await ctx.session.save(texts)
            return texts

        assert await t.agents.session("ann", "x") is None
        await t.agents.create("ann")
        first = await t.agents.set_session("ann", ["a"], session="x", expected=0)
        assert (first.session_id, first.state, first.version, first.job_id) == ("x", ["a"], 1, None)
        handle = await t.agents.message("ann", "b", session="x")
        await t.run_until_idle()
        assert await handle.result() == ["a", "b"]
        found = await t.agents.session("ann", "x")
        assert found is not None
        assert (found.state, found.version, found.job_id) == (["a", "b"], 2, handle.id)
        for expected in (0, 1, 3):
            with pytest.raises(SessionChanged):
                await t.agents.set_session("ann", [], session="x", expected=expected)
        assert await t.agents.session("ann", "x") == found
        assert (await t.agents.set_session("ann", None)).version == 1
        assert (await t.agents.set_session("ann", 5)).version == 2
        page = await t.agents.sessions("ann", limit=1)
        rest = await t.agents.sessions("ann", limit=1, cursor=page.next_cursor)
        assert [(s.session_id, s.state) for s in (*page.items, *rest.items)] == [(None, 5), ("x", ["a", "b"])]
        assert rest.next_cursor is None
        assert [fault async for fault in t.database.fsck()] == []


async def test_a_job_that_has_read_it_before_notices_the_client() -> None:
    async with TestApp() as t:

        @t.job(max_retries=0)
        async def slow(ctx: JobContext) -> list[str]:
            texts = await ctx.session.get() or []
            if not texts:
                await t.agents.set_session("ann", ["client"])
            await ctx.session.save([*texts, "job"])
            return [*texts, "job"]

        await t.agents.create("ann", kind="slow")
        handle = await t.enqueue(slow, agent="ann")
        await t.run_until_idle(advance=True)
        assert await handle.result() == ["client", "job"]


async def test_bad_sessions() -> None:
    async with TestApp() as t:
        with pytest.raises(AgentNotFound):
            await t.agents.set_session("ann", 1)
        with pytest.raises(AgentNotFound):
            await t.agents.sessions("ann")
        await t.agents.create("ann")
        for bad in ({"session": ""}, {"session": "x" * 201}, {"expected": -1}, {"expected": True}, {"expected": "1"}):
            with pytest.raises(InvalidInput):
                await t.agents.set_session("ann", 1, **bad)
        with pytest.raises(InvalidInput):
            await t.agents.sessions("ann", cursor="x")
        with pytest.raises(NotJson):
            await t.agents.set_session("ann", object())
        assert (await t.agents.sessions("ann")).items == ()


def test_the_blocking_client_has_sessions(tmp_path: Any) -> None:
    with perdure.sync.Client(f"sqlite:///{tmp_path}/jobs.db") as client:
        client.database.migrate()
        client.agents.create("ann")
        saved = client.agents.set_session("ann", {"n": 1}, session="x")
        assert client.agents.session("ann", "x") == saved
        assert client.agents.sessions("ann").items == (saved,)
