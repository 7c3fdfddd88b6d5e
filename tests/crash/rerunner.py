"""A process that runs all failed jobs again, and kills itself at a given point."""

import asyncio
from typing import Any

from perdure import App
from perdure.runtime.client import bulk
from tests.crash.child_config import ChildConfig
from tests.crash.kill_points import at_point, kill_self

BATCH = 3
POINTS = ("before rerun 1", "during rerun 2", "after rerun 2", "after rerun 3")


async def rerun(config: ChildConfig) -> None:
    """Run all jobs again, in small batches."""
    bulk.BATCH = BATCH
    count = 0
    async with App(config.url) as app:
        store = await app.open()
        original = store.jobs.rerun_jobs

        async def rerunning(*jobs: Any) -> list[bool]:
            nonlocal count
            count += 1
            at_point(f"before rerun {count}")
            if config.kill_at == f"during rerun {count}":
                write = asyncio.ensure_future(original(*jobs))
                await asyncio.wait({write}, timeout=0.002)
                kill_self()
            stored = await original(*jobs)
            at_point(f"after rerun {count}")
            return stored

        store.jobs.rerun_jobs = rerunning  # type: ignore[method-assign,assignment]  # bent
        await app.jobs.rerun_many(status="cancelled")
