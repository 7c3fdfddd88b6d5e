"""Absurd under measurement: python absurd_steps.py JOBS STEPS CONCURRENCY, with ABSURD_DATABASE_URL; prints seconds and steps
as JSON. Runs in Absurd's own virtual environment. A client of Absurd is one connection: as many of them as jobs at a
time, eight at most."""

import asyncio
import json
import os
import sys
import time
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd

URL = os.environ["ABSURD_DATABASE_URL"]


async def empty_step() -> dict[str, Any]:
    return {"ok": True, "value": 12345}


async def make_steps(params: dict[str, Any], ctx: Any) -> int:
    for n in range(params["steps"]):
        await ctx.step(f"step{n}", empty_step)
    return int(params["steps"])


def client() -> Any:
    app = AsyncAbsurd(URL, queue_name="bench")
    app.register_task(name="make_steps")(make_steps)
    return app


async def main(jobs: int, steps: int, concurrency: int) -> None:
    clients = [client() for _ in range(min(concurrency, 8))]
    each = concurrency // len(clients)
    await clients[0].create_queue("bench")
    for _ in range(jobs):
        await clients[0].spawn("make_steps", {"steps": steps})
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as conn:

        async def count(query: str) -> int:
            row = await (await conn.execute(query)).fetchone()
            return int(row[0])

        t = time.perf_counter()
        options = {"concurrency": each, "batch_size": each, "poll_interval": 0.02}
        workers = [asyncio.create_task(app.start_worker(**options)) for app in clients]
        while await count("select count(*) from absurd.t_bench where state = 'completed'") < jobs:  # noqa: ASYNC110 (a table)
            await asyncio.sleep(0.02)
        seconds = time.perf_counter() - t
        for app in clients:
            app.stop_worker()
        await asyncio.gather(*workers)
        print(json.dumps({"seconds": seconds, "steps": await count("select count(*) from absurd.c_bench")}))
    for app in clients:
        await app.close()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
