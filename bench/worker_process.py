"""A worker process of the benchmark: python -m bench.worker_process URL CONCURRENCY

Prints `ready` once its App is open and starts its worker at a line on stdin. Prints how many jobs its handlers ran, after the
first one and after each hundred. Stops at the next line (or at the end of stdin) and then prints a report as JSON
(`processes.Report`).
"""

import asyncio
import json
import sys
import time

from bench.handlers import bench_app
from bench.machine import warnings_only
from perdure.app import run
from perdure.runtime.gc_tuning import tuned_for_worker


async def line() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def main(url: str, concurrency: int) -> None:
    bench = bench_app(url)
    first: tuple[int, float] | None = None

    def on_count(ran: int) -> None:
        nonlocal first
        if first is None:
            first = time.monotonic_ns(), time.process_time()
        if ran == 1 or ran % 100 == 0:
            print(ran, flush=True)

    bench.counter.on_count = on_count
    async with bench.app:
        worker = await bench.app.worker(concurrency=concurrency)
        print("ready", flush=True)
        await line()
        working = asyncio.create_task(worker.run())
        await line()
        cpu = time.process_time()
        worker.stop()
        await working
    began, cpu_at_first = first or (0, cpu)
    report = {
        "ran": bench.counter.ran,
        "began": began,
        "cpu": cpu - cpu_at_first,
        "pickups": bench.counter.pickups,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    warnings_only()
    with tuned_for_worker():
        run(main(sys.argv[1], int(sys.argv[2])))
