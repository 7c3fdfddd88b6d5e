"""Budgets as a property: whatever runs at once, fails or is cut off, no more is spent than there is, and nothing leaks."""

import asyncio
import random

import pytest

from perdure import Budget, BudgetExceeded, JobContext
from perdure.model.budgets import use_of
from perdure.testing import TestApp
from tests.runtime.support import NOW, types


@pytest.mark.parametrize("seed", range(12))
async def test_any_history_of_parallel_calls_and_crashes_keeps_to_the_budget(seed: int) -> None:
    rng = random.Random(seed)
    limit, crashes = rng.randint(50, 200), rng.randint(0, 3)
    really_used = [0]  # by calls of the outside world, whether they were reported or not
    cut_off = [0]

    async with TestApp(lease="5s") as app:

        @app.job(backoff=NOW, max_retries=50)
        async def agent(ctx: JobContext) -> None:
            async def call(used: int, fails: bool) -> None:
                really_used[0] += used
                await ctx.usage(tokens=used)
                await asyncio.sleep(rng.random() / 100)
                if fails:
                    raise ValueError("no")

            async def branch(number: int) -> None:
                for n in range(rng.randint(1, 4)):
                    estimate = rng.randint(1, 40)
                    used, fails = rng.randint(0, estimate), rng.random() < 0.2
                    key = f"{number}.{n}"
                    try:
                        await ctx.options(tokens=estimate, key=key, on_change="keep").step("call", call, used, fails)
                    except (ValueError, BudgetExceeded):
                        continue

            await asyncio.gather(*(branch(number) for number in range(5)))

        class Crash:
            def reached(self, job_id: object, type: str, key: str | None) -> bool:
                due = type in ("usage_recorded", "budget_reserved", "budget_settled")
                crash = due and cut_off[0] < crashes and rng.random() < 0.2
                cut_off[0] += crash
                return crash

        app.kill_rule = Crash()
        handle = await app.enqueue(agent, budget=Budget(tokens=limit, on_breach="fail"))
        await app.run_until_idle(advance=True)
        events = await handle.events()
        use = use_of(events)
        assert (await handle.get()).status == "COMPLETED"
        assert really_used[0] <= limit
        assert use.spent.tokens == (await handle.get()).state.tokens <= limit
        assert use.spent.tokens + use.reserved.tokens <= limit
        if not cut_off[0]:
            assert not use.reservations
        begun = [e.payload["key"].rpartition("/")[2].partition(".")[0] for e in events if e.type == "budget_reserved"]
        open_of = {key.rpartition("/")[2].partition(".")[0] for key in use.reservations}
        assert open_of <= set(begun)
        assert str((await handle.get()).attempt) not in open_of  # only attempts that were cut off leave any
        assert types(events).count("run_started") == cut_off[0] + 1
