"""Tasks of a coding CLI that is a shell script: what perdure adds to a run, in time and memory."""

import asyncio
import os
import resource
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.checks import check
from bench.handlers import bench_app
from bench.machine import warnings_only
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, percentile, working
from perdure import Account, App, Handle, TaskSpec
from perdure.config import load_settings
from perdure.model.task_records import TaskResult

TOOL = "clock"
EVENTS = 6
"""Of a task: it is made, starts, its program starts and ends, what it used is counted, it is completed."""
PROGRAM = """#!/bin/sh
date +%s%N
read seconds
sleep "$seconds"
date +%s%N
"""
"""It prints when it began and when it ended, in nanoseconds."""
MIB = 1 << 20


@asynccontextmanager
async def _serving(url: str, runs: int) -> AsyncIterator[App]:
    """A worker in this process that serves the tool, with an account of so many slots."""
    warnings_only()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        folder = Path(name)
        program = folder / "clock"
        await asyncio.to_thread(program.write_text, PROGRAM)
        program.chmod(0o755)
        own = {
            "database_url": url,
            "cli_work_dir": str(folder / "work"),
            "cli_tools": {TOOL: {"program": str(program)}},
        }
        bench = bench_app(url)
        bench.app.configure(load_settings(own, environ={}, directory=folder))
        bench.app.serve_tools(TOOL)
        async with bench.app:
            await bench.app.accounts.add(Account("a", TOOL, max_concurrency=runs))
            async with working(bench, concurrency=runs):
                await _ended(await _enqueue(bench.app, 0))  # the sandbox is tried, statements are used once
                yield bench.app


async def _enqueue(app: App, seconds: float) -> Handle[TaskResult]:
    return await app.tasks.enqueue(TaskSpec(TOOL, f"{seconds:g}\n"))


async def _ended(handle: Handle[TaskResult]) -> tuple[int, int, int]:
    """When its program began and ended, and when its result was here; in nanoseconds."""
    result = await handle.result(timeout=120)
    here = time.time_ns()
    began, ended = map(int, result.text.split())
    return began, ended, here


async def task_latency(target: Target, sizes: Sizes) -> Figures:
    """One task after the other, whose program ends at once."""
    number = max(4, round(200 * sizes.part))
    starts, ends = [], []
    async with target.fresh() as url:
        async with _serving(url, 1) as app:
            for _ in range(number):
                called = time.time_ns()
                began, ended, here = await _ended(await _enqueue(app, 0))
                starts.append((began - called) / 1e6)
                ends.append((here - ended) / 1e6)
        await check(target, url, f"cli.{TOOL}", status="COMPLETED", jobs=number + 1, events=EVENTS)
    return {
        "task_latency.start_p50": percentile(starts, 0.5),
        "task_latency.start_p99": percentile(starts, 0.99),
        "task_latency.end_p50": percentile(ends, 0.5),
        "task_latency.end_p99": percentile(ends, 0.99),
    }


async def tasks_100(target: Target, sizes: Sizes) -> Figures:
    """A hundred tasks at once, whose program takes a second."""
    number = max(4, round(100 * sizes.part))
    async with target.fresh() as url:
        async with _serving(url, number) as app:
            before, cpu, began = _resident(), _cpu(), time.monotonic()
            handles = await asyncio.gather(*(_enqueue(app, 1) for _ in range(number)))
            looking = asyncio.create_task(_while_they_run(before))
            times = await asyncio.gather(*map(_ended, handles))
            took, used = time.monotonic() - began, _cpu() - cpu
            most, worker, others = await looking
        await check(target, url, f"cli.{TOOL}", status="COMPLETED", jobs=number + 1, events=EVENTS)
    together = max(sum(began <= at < ended for began, ended, _ in times) for at, _, _ in times)
    return {
        "tasks_100.seconds": took,
        "tasks_100.at_once": together,
        "tasks_100.cpu_ms": used / number * 1000,
        "tasks_100.worker_mib": worker / number / MIB,
        "tasks_100.launcher_mib": others / max(1, most) / MIB,
    }


async def _while_they_run(before: int) -> tuple[int, int, int]:
    """At the moment with most launchers: how many, by how much this process has grown, and the memory of the launchers."""
    most, worker, others = 0, 0, 0
    until = time.monotonic() + 120
    while time.monotonic() < until:
        launchers = _launchers()
        if len(launchers) > most:
            most, worker, others = len(launchers), _resident() - before, sum(map(_proportional, launchers))
        elif most and not launchers:
            break
        await asyncio.sleep(0.1)
    return most, worker, others


def _launchers() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"launcher.py" in _read(f"/proc/{pid}/cmdline")]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _proportional(pid: int) -> int:
    """Bytes of memory; what processes share is divided among them."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", b"Pss:") * 1024


def _resident() -> int:
    return _kilobytes("/proc/self/status", b"VmRSS:") * 1024


def _kilobytes(path: str, name: bytes) -> int:
    return next((int(line.split()[1]) for line in _read(path).splitlines() if line.startswith(name)), 0)


def _cpu() -> float:
    """Seconds of this process and of the launchers that have ended, with their programs."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
