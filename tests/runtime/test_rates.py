"""Rates of concurrency keys, as apps say them, and as explain shows them."""

from typing import Any

import pytest

import perdure.sync
from perdure import App, InvalidInput, JobContext, Request, Status
from perdure.testing import TestApp


async def statuses(t: App) -> list[Status]:
    return [job.status for job in reversed((await t.jobs.list()).items)]


async def test_a_handler_starts_so_many_a_minute_and_the_others_then() -> None:
    async with TestApp() as t:

        @t.job(max_per_minute=2)
        async def work(ctx: JobContext, n: int) -> int:
            return n

        first = await t.enqueue("work", 0, elsewhere=True)
        await t.enqueue_many([Request(work, n) for n in range(1, 5)])
        await t.run_until_idle()
        assert [status is Status.COMPLETED for status in await statuses(t)] == [True, True, False, False, False]
        assert (await first.get()).concurrency_key == "work"
        waits = (await t.jobs.list()).items[0]
        explained = await t.jobs.explain(waits.id)
        assert "It waits until it may start: 2 jobs of 'work' have started in the last minute" in explained.sentence
        assert "perdure limits set work --per-minute 4" in str(explained)
        await t.run_until_idle(advance="61s")
        await t.run_until_idle()
        assert [status is Status.COMPLETED for status in await statuses(t)].count(True) == 4
        assert (await t.limits.set("work", per_minute=9)).rate is not None
        await t.run_until_idle()
        assert {*await statuses(t)} == {Status.COMPLETED}
        assert [fault async for fault in t.database.fsck()] == []


async def test_of_what_was_said_of_a_key_the_last_counts() -> None:
    async with TestApp() as t:

        @t.job(concurrency_key=lambda n: f"key {n % 2}", max_per_minute=7)
        async def work(ctx: JobContext, n: int) -> int:
            return n

        async def rate(key: str) -> int | None:
            found = (await t.limits.get(key)).rate
            return None if found is None else found.per_minute

        await t.enqueue(work, 1)
        await t.enqueue(work, 2, max_per_minute=3)
        await t.enqueue(work, 2, concurrency_key="vip", max_per_minute=1)
        assert [await rate(key) for key in ("key 0", "key 1", "vip", "other")] == [3, 7, 1, None]
        await t.enqueue(work, 2)
        assert await rate("key 0") == 7
        await t.limits.set("key 0", 5, per_minute=2)
        await t.enqueue(work, 2, max_per_minute=8)
        assert await rate("key 0") == 2
        assert (await t.limits.unset("key 0")).max is None
        assert await rate("key 0") == 8
        assert [limit.key for limit in await t.limits.list()] == ["key 0", "key 1", "vip"]


async def test_bad_input() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext) -> None: ...

        with pytest.raises(InvalidInput, match="max_per_minute needs a concurrency_key"):
            await t.enqueue(work, max_per_minute=1)
        for bad in (0, -1, True, "2", 1.5):
            with pytest.raises(InvalidInput, match="max_per_minute must be"):
                await t.enqueue(work, concurrency_key="k", max_per_minute=bad)  # type: ignore[arg-type]  # that is the point
            with pytest.raises(InvalidInput, match="per_minute must be"):
                await t.limits.set("k", per_minute=bad)  # type: ignore[arg-type]  # as above
        with pytest.raises(InvalidInput, match="give max, per_minute or both"):
            await t.limits.set("k")
        with pytest.raises(InvalidInput, match="max_per_minute must be"):

            @t.job(max_per_minute=0)
            async def other(ctx: JobContext) -> None: ...

        assert await t.limits.list() == []


def test_the_blocking_client(tmp_path: Any) -> None:
    with perdure.sync.Client(f"sqlite:///{tmp_path}/jobs.db") as client:
        client.database.migrate()
        found = client.limits.set("k", per_minute=3).rate
        assert found is not None
        assert (found.per_minute, found.set_by_hand) == (3, True)


async def test_a_spawn_says_the_rate_of_the_handler_of_its_child() -> None:
    async with TestApp() as t:

        @t.job(concurrency_key=lambda n: f"customer:{n}", max_per_minute=2)
        async def work(ctx: JobContext, n: int) -> int:
            return n

        @t.job
        async def parent(ctx: JobContext) -> None:
            for _ in range(3):
                await ctx.spawn(work, 1)
            await ctx.spawn(work, 2, concurrency_key="other")

        await t.enqueue(parent)
        await t.run_until_idle()
        for key, started in (("customer:1", 2), ("other", 1)):
            rate = (await t.limits.get(key)).rate
            assert rate is not None
            assert (rate.per_minute, rate.started) == (2, started)


async def test_a_schedule_says_the_rate_of_its_handler() -> None:
    async with TestApp() as t:

        @t.job(concurrency_key=lambda n: f"customer:{n}", max_per_minute=2)
        async def work(ctx: JobContext, n: int) -> int:
            return n

        await t.schedules.add("daily", work, 1, cron="0 3 * * *")
        rate = (await t.limits.get("customer:1")).rate
        assert rate is not None
        assert rate.per_minute == 2


async def test_a_spawn_says_the_rate_of_the_key_of_its_child() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext, n: int) -> int:
            return n

        @t.job
        async def parent(ctx: JobContext) -> None:
            for n in range(3):
                await ctx.spawn(work, n, concurrency_key="mail", max_per_minute=2)

        @t.job(max_retries=0)
        async def keyless(ctx: JobContext) -> None:
            await ctx.spawn(work, 1, max_per_minute=2)

        await t.enqueue(parent)
        refused = await t.enqueue(keyless)
        await t.run_until_idle()
        rate = (await t.limits.get("mail")).rate
        assert rate is not None
        assert (rate.per_minute, rate.started) == (2, 2)
        assert "max_per_minute needs a concurrency_key" in str((await refused.get()).error_message)
