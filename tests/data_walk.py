"""List the files of perdure that one job passes, from `app.enqueue` to COMPLETED: `python -m tests.data_walk`.

The worker is idle before the job comes, and the job has one step. Its end is read from the database itself, so that waiting for
it adds no file. A file counts if one of its functions is called in this time.
"""

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import asyncpg

import perdure
from perdure import App, JobContext
from tests.postgres_server import PostgresServer

PACKAGE = str(Path(perdure.__file__).parent)


class Walk:
    """The files whose functions were called while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.files: set[str] = set()

    def trace(self, frame: FrameType, event: str, arg: Any) -> None:
        """A trace function for `sys.settrace`."""
        del event, arg
        code = frame.f_code
        if self.on and code.co_name != "<module>" and code.co_filename.startswith(PACKAGE):
            self.files.add(str(Path(code.co_filename).relative_to(PACKAGE)))


async def walk(url: str) -> set[str]:
    """Run a job and return the files it passed. The database must have no jobs. Raises what the database raises."""
    found = Walk()
    threading.settrace(found.trace)
    sys.settrace(found.trace)
    app = App(url, migrate=True)

    @app.job
    async def greet(ctx: JobContext, name: str) -> str:
        return await ctx.step("say", "hello {}".format, name)

    async with app:
        worker = await app.worker()
        running = asyncio.create_task(worker.run())
        await (await app.enqueue(greet, "first")).result("30s")  # caches are filled, connections are open
        await asyncio.sleep(0.3)
        completed = await _reader(url)
        found.on = True
        await app.enqueue(greet, "world")
        while await completed() < 2:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        found.on = False
        worker.stop()
        await running
    sys.settrace(None)
    threading.settrace(None)
    return found.files


async def _reader(url: str) -> Callable[[], Awaitable[int]]:
    question = "select count(*) from {}jobs where status = 'COMPLETED'"
    if url.startswith("sqlite:///"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)

        async def from_file() -> int:
            return int(file.execute(question.format("")).fetchone()[0])

        return from_file
    server = await asyncpg.connect(url)

    async def from_server() -> int:
        return int(await server.fetchval(question.format("perdure.")))

    return from_server


def main() -> None:
    """Print the files for both stores."""
    with tempfile.TemporaryDirectory() as directory, PostgresServer() as server:
        server.create_database("walk")
        for name, url in (("PostgreSQL", server.url("walk")), ("SQLite", f"sqlite:///{directory}/walk.db")):
            files = asyncio.run(walk(url))
            lines = sorted(len(Path(PACKAGE, file).read_text(encoding="utf-8").splitlines()) for file in files)
            size = f"{sum(lines):,} lines; median {statistics.median(lines):.0f}, largest {lines[-1]}"
            print(f"{name}: {len(files)} files, {size}", *sorted(files), "", sep="\n")


if __name__ == "__main__":
    main()
