"""Worker processes, perdure's or a peer's, all with the protocol of `bench.worker_process`; and a timed drain by them."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.checks import Incorrect
from bench.machine import idle_seconds
from bench.targets import Target

TIMEOUT = 600.0
LONGEST_LINE = 1 << 22  # bytes: a report lists the time of each pick-up


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker process reports at its end."""

    ran: int
    """How often its handlers ran."""
    began: int
    """time.monotonic_ns() when its first handler began; 0 without any."""
    cpu: float
    """Seconds of processor time it used from then until it was stopped."""
    pickups: list[float]
    """Milliseconds from the call of enqueue to the start of the handler, where the job says when that was."""


def perdure_worker(url: str, concurrency: int = 100) -> list[str]:
    """The command of a worker process."""
    return [sys.executable, "-m", "bench.worker_process", url, str(concurrency)]


class Workers:
    """Worker processes that are ready and start at `go`."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes
        self._counts = [0] * len(processes)
        self._reports: list[Report | None] = [None] * len(processes)
        self._news = asyncio.Event()
        self._readers = [asyncio.create_task(self._read(n, process)) for n, process in enumerate(processes)]

    @classmethod
    @asynccontextmanager
    async def started(cls, command: Sequence[str], number: int = 1, *, env: Any = None) -> AsyncIterator["Workers"]:
        """`number` processes of this command, each ready to start; killed at the end where they have not stopped."""
        pipe = asyncio.subprocess.PIPE
        options: dict[str, Any] = {"stdin": pipe, "stdout": pipe, "env": env, "limit": LONGEST_LINE}
        processes = [await asyncio.create_subprocess_exec(*command, **options) for _ in range(number)]
        workers = None
        try:
            for process in processes:
                async with asyncio.timeout(60):
                    assert process.stdout is not None
                    if await process.stdout.readline() != b"ready\n":
                        raise Incorrect(f"a worker process did not start: {command[:3]}")
            workers = cls(processes)
            yield workers
        finally:
            for process in processes:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.kill()
                await process.wait()
            if workers is not None:
                await asyncio.gather(*workers._readers, return_exceptions=True)

    @property
    def number(self) -> int:
        """Of processes."""
        return len(self._processes)

    @property
    def ran(self) -> int:
        """How many jobs their handlers ran, as far as they have reported: each reports the first one and every hundredth."""
        return sum(self._counts)

    def memory(self, name: str) -> float | None:
        """MiB of the first process, by name in /proc (VmRSS now, VmHWM the highest so far); None where there is no /proc."""
        try:
            status = Path(f"/proc/{self._processes[0].pid}/status").read_text()
        except OSError:
            return None
        lines = dict(line.split(":", 1) for line in status.splitlines())
        return int(lines[name].split()[0]) / 1024 if name in lines else None

    def reset_peak(self) -> None:
        """Let VmHWM of the first process start again from its present size, where /proc allows it."""
        with suppress(OSError):
            Path(f"/proc/{self._processes[0].pid}/clear_refs").write_text("5")

    def go(self) -> None:
        """Start working."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")

    async def reached(self, number: int) -> None:
        """Wait until `ran` is at least so high. Raises TimeoutError, and Incorrect if a process ended before."""
        async with asyncio.timeout(TIMEOUT):
            while self.ran < number:
                if any(reader.done() for reader in self._readers):
                    raise Incorrect("a worker process ended too early")
                self._news.clear()
                await self._news.wait()

    async def stop(self) -> list[Report]:
        """Stop, and return what each process reports."""
        self.go()
        async with asyncio.timeout(60):
            await asyncio.gather(*self._readers)
        for process in self._processes:
            await process.wait()
        if None in self._reports:
            raise Incorrect("a worker process ended without a report")
        return [report for report in self._reports if report is not None]

    async def _read(self, number: int, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                if line.startswith(b"{"):
                    self._reports[number] = Report(**json.loads(line))
                else:
                    self._counts[number] = int(line)
                self._news.set()
        finally:
            self._news.set()


@dataclass(frozen=True, slots=True)
class Drained:
    """A drain by worker processes, from the start of the first handler until the database has no unfinished job."""

    seconds: float
    client: float
    """Seconds of processor time of all worker processes."""
    server: float | None
    """Of the database server's processes; None where that cannot be read; 0 where there is no server."""
    idle_cores: float | None
    """How many cores of this machine were idle meanwhile, on average; None where that cannot be read."""
    reports: list[Report]


async def drain_by(target: Target, workers: Workers, jobs: int, left: Callable[[], Awaitable[bool]]) -> Drained:
    """Let the processes run `jobs` jobs that wait already. `left` says whether the database has an unfinished one; it is asked
    only near the end, so that asking costs the drain nothing. The workers are stopped then."""
    workers.go()
    await workers.reached(1)
    server, idle, t = await target.server_cpu(), idle_seconds(), time.monotonic()
    await workers.reached(max(1, jobs - 100 * workers.number))
    deadline = time.monotonic() + TIMEOUT
    while await left():
        if time.monotonic() > deadline:
            raise Incorrect("the workers did not finish")
        await asyncio.sleep(0.005)
    ended, idle_now, t = time.monotonic_ns(), idle_seconds(), time.monotonic() - t
    if not target.has_server:
        server = 0.0
    elif server is not None:
        server = now - server if (now := await target.server_cpu()) is not None else None
    reports = await workers.stop()
    ran = sum(report.ran for report in reports)
    if ran != jobs:
        raise Incorrect(f"handlers ran {ran} times for {jobs} jobs")
    began = min(report.began for report in reports if report.ran)
    client = sum(report.cpu for report in reports)
    idle_cores = None if idle is None or idle_now is None else (idle_now - idle) / t
    return Drained((ended - began) / 1e9, client, server, idle_cores, reports)
