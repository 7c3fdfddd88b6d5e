"""The Python of every page runs: the blocks of a page, in order, as one program, while a worker runs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from perdure import App, Worker
from perdure.runtime.worker_options import WorkerOptions
from perdure.store.open import open_store
from tests.docs.pages import PAGES, ROOT, Block, blocks, name

OTHERWISE = ("README.md", "testing.md", "transactions.md", "sync.md")  # done as they say by tests of their own
WITH_PYTHON = [page for page in PAGES if page.name not in OTHERWISE and blocks(page, "python")]
URL = "sqlite:///perdure.db"


def compiled(block: Block) -> CodeType:
    """A block with its own lines in tracebacks; `await` may stand at its top level."""
    file = f"{name(block.page)}:{block.line}"
    linecache.cache[file] = (len(block.text), None, block.text.splitlines(True), file)
    code: CodeType = compile(block.text, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


class WorkerThread(threading.Thread):
    """A worker for an App's handlers, in a thread and on a store of its own, as another process would be."""

    def __init__(self, app: App) -> None:
        super().__init__(daemon=True)
        self._app = app
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._up = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001  raised again by `stop`
            self._error = error
        finally:
            self._up.set()

    async def _work(self) -> None:
        store = await open_store(URL)
        try:
            await store.schema.migrate()
            self._loop = asyncio.get_running_loop()
            self._worker = Worker(store, self._app.registry, WorkerOptions())
            self._up.set()
            await self._worker.run()
        finally:
            await store.close()

    def stop(self) -> None:
        """Stop it and wait for its end."""
        self._up.wait(20)
        if self._loop is not None and self._worker is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._worker.stop)
        self.join(20)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error


@contextmanager
def program(page: Path) -> Iterator[dict[str, Any]]:
    """The names of a page's program."""
    module = ModuleType("a_page")
    sys.modules[module.__name__] = module
    try:
        yield vars(module)
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
async def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_DATABASE_URL", URL)
    await run_page(page)


async def test_the_quickstart_runs_twice_on_one_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_DATABASE_URL", URL)
    for _ in range(2):
        await run_page(ROOT / "docs" / "quickstart.md")


async def run_page(page: Path) -> None:
    """Run the blocks of a page in the current directory, while a worker runs."""
    with program(page) as names:
        helping = asyncio.create_task(worker_for(names))
        try:
            async with asyncio.timeout(30):
                for block in blocks(page, "python"):
                    code = compiled(block)
                    if code.co_flags & inspect.CO_COROUTINE:
                        await eval(code, names)
                    else:
                        await asyncio.to_thread(exec, code, names)  # it may block, as synchronous programs do
        finally:
            helping.cancel()
            (worker,) = await asyncio.gather(helping, return_exceptions=True)
            if isinstance(worker, WorkerThread):
                worker.stop()
            if isinstance(names.get("app"), App):
                await names["app"].close()


async def worker_for(names: dict[str, Any]) -> WorkerThread:
    """A worker, as soon as the program has an App."""
    while not isinstance(names.get("app"), App):
        await asyncio.sleep(0.01)
    worker = WorkerThread(names["app"])
    worker.start()
    return worker
