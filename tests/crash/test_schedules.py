"""Processes that fire a schedule are killed: each of its times has one job."""

import asyncio
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from perdure.model.jobs import JobFilter
from perdure.model.schedules import NewSchedule, Overlap, firing_key
from perdure.runtime.firings import firings
from perdure.store.open import open_store
from tests.runtime.support import PATIENCE

pytestmark = pytest.mark.crash

MISSED, KILLS = 600, 12

PROGRAM = """
import asyncio, sys
from perdure.runtime.schedule_firing import Firing
from perdure.store.open import open_store

async def main():
    store = await open_store(sys.argv[1])
    print("begins", flush=True)
    while True:  # under one name: both fire, as two would whose leader's lease has just run out
        await Firing(store, "leader").make_some()

asyncio.run(main())
"""


async def begin(url: str) -> asyncio.subprocess.Process:
    """A process that fires what is due, as fast as it can."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, url, stdout=subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await process.stdout.readline()
    return process


async def test_each_time_has_one_job_however_often_its_process_is_killed(file_store_url: str) -> None:
    store = await open_store(file_store_url)
    await store.schema.migrate()
    now = await store.now()
    start = now - timedelta(seconds=MISSED)
    schedule = NewSchedule(
        id="each second",
        kind="k",
        payload="null",
        cron=None,
        every=1.0,
        at=None,
        timezone="UTC",
        anchor=start,
        queue="default",
        priority=5,
        max_retries=None,
        concurrency_key=None,
        max_concurrent=None,
        overlap=Overlap.ENQUEUE,
        catch_up=10 * MISSED,
        jitter=0.0,
        next_at=start + timedelta(seconds=1),
        set_by="test",
    )
    await store.schedules.put_schedule(schedule)
    processes = [await begin(file_store_url), await begin(file_store_url)]
    try:
        async with asyncio.timeout(4 * PATIENCE):
            for kill in range(1, KILLS + 1):
                while (await store.schedules.get_schedule("each second")).next_at < start + timedelta(  # type: ignore[operator]  # it never ends
                    seconds=kill * MISSED / (KILLS + 1)
                ):
                    await asyncio.sleep(0)
                processes[kill % 2].send_signal(signal.SIGKILL)
                await processes[kill % 2].wait()
                processes[kill % 2] = await begin(file_store_url)
            while (last := (await store.schedules.get_schedule("each second")).last_at) is None or last < now:
                await asyncio.sleep(0.01)
    finally:
        for process in processes:
            process.kill()
            await process.wait()
    stored = await store.schedules.get_schedule("each second")
    assert stored.next_at is not None
    counted = await store.jobs.count_jobs(JobFilter(), by="status")
    expected = [firing_key("each second", at) for at in firings(schedule, start, stored.next_at)]
    found = []
    cursor = None
    while True:
        page = await store.jobs.list_jobs(JobFilter(), limit=1000, cursor=cursor)
        found += [job.idempotency_key for job in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert sorted(key or "" for key in found) == sorted(expected)
    assert sum(counted.values()) == len(expected)
    await store.close()
