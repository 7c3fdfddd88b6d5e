"""A worker process of the benchmark: python -m bench.child URL CONCURRENCY

Says `ready` once its App is open, starts its worker at a line on stdin, stops at the next one (or at the end of stdin), and
then says how many jobs its handlers ran.
"""

import asyncio
import sys

from bench.handlers import subject
from bench.machine import quiet
from perdure.app import run
from perdure.runtime.gc_tuning import devoted


async def line() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def main(url: str, concurrency: int) -> None:
    it = subject(url)
    async with it.app:
        worker = await it.app.worker(concurrency=concurrency)
        print("ready", flush=True)
        await line()
        working = asyncio.create_task(worker.run())
        await line()
        worker.stop()
        await working
        print(it.counted.ran, flush=True)


if __name__ == "__main__":
    quiet()
    with devoted():
        run(main(sys.argv[1], int(sys.argv[2])))
