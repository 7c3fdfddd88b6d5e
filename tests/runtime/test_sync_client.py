"""perdure.sync.Client: the same calls for programs without an event loop."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from perdure import App, BlockingContext, JobCancelled, JobContext, JobFailed, Request, Status, WaitTimeout
from perdure.model.errors import InvalidPriority, JobNotFound, StoreUnreachable, VersionMismatch
from perdure.model.ids import uuid7
from perdure.sync import Client
from tests.conformance.support import check_job
from tests.runtime.support import NOW, PATIENCE, QUICK


def handlers(url: str) -> App:
    """An App of its own for every event loop."""
    app = App(url, migrate=True)

    @app.job(backoff=NOW)
    async def double(ctx: JobContext, n: int) -> int:
        return await ctx.step("double", lambda: n * 2)

    @app.job
    def ask(ctx: BlockingContext) -> str | None:
        return ctx.approve("ok", title="Ok?", payload={"n": 1}).by

    @app.job(max_retries=0)
    async def fails(ctx: JobContext) -> None:
        raise ValueError("a bug")

    return app


@contextmanager
def working_in_a_thread(url: str) -> Iterator[None]:
    """A worker with an event loop of its own, as in another process."""
    begun, loop = threading.Event(), asyncio.new_event_loop()
    workers: list[Any] = []

    async def work() -> None:
        async with handlers(url) as app:
            workers.append(await app.worker(**QUICK))
            begun.set()
            await workers[0].run()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    try:
        assert begun.wait(PATIENCE)
        yield
    finally:
        loop.call_soon_threadsafe(lambda: workers[0].stop(now=True))
        thread.join(PATIENCE)
        assert not thread.is_alive()
        loop.close()


def test_end_to_end(file_store_url: str) -> None:
    app = handlers(file_store_url)
    double, fails = app.registry.get("double"), app.registry.get("fails")
    with Client(app) as client, working_in_a_thread(file_store_url):
        handle = client.enqueue(double, 21, goal="g", idempotency_key="k")
        assert handle.created
        assert handle.result(timeout=PATIENCE) == 42
        assert not client.enqueue(double, 21, idempotency_key="k").created
        assert (handle.status(), handle.get().goal) == (Status.COMPLETED, "g")
        assert client.jobs.result(handle.id, timeout=PATIENCE) == 42
        assert [h.result(PATIENCE) for h in client.enqueue_many([Request(double, n) for n in range(5)])] == [
            0,
            2,
            4,
            6,
            8,
        ]
        log = client.jobs.events(handle.id)
        assert list(handle.watch()) == log
        assert list(client.jobs.watch(handle.id, from_version=2)) == log[2:]
        assert client.jobs.events(handle.id, after=2) == log[2:]
        check_job(handle.get(), log)
        assert [r.outcome for r in client.jobs.runs(handle.id)] == [Status.COMPLETED]
        assert client.jobs.rerun(handle.id, "once more").result(PATIENCE) == 42
        assert client.jobs.explain(handle.id).code == "completed"
        assert client.jobs.get(handle.id, at=1).status is Status.PENDING
        forked = client.jobs.fork(handle.id, "double", input=20, reason="half a dozen less")
        assert forked.result(PATIENCE) == 40
        assert [s.what for s in client.jobs.diff(handle.id, forked.id).steps] == [("result",)]
        with pytest.raises(JobFailed, match="a bug"):
            client.enqueue(fails).result(PATIENCE)
        asking = client.enqueue("ask")
        with pytest.raises(WaitTimeout):
            asking.result(timeout=0.1)
        while not (found := client.approvals.list(job_id=asking.id).items):
            pass
        assert client.approvals.get(found[0].id).title == "Ok?"
        assert client.approve(found[0].id, by="ann").decided_by == "ann"
        assert asking.result(PATIENCE) == "ann"
        later = client.enqueue("double", 1, delay="1h")
        assert client.jobs.append(later.id, 1, "note", {"a": 1}) == 2
        with pytest.raises(VersionMismatch):
            client.jobs.append(later.id, 1, "note")
        client.jobs.retry_now(later.id)
        assert later.result(PATIENCE) == 2
        never = client.enqueue("double", 1, delay="1h")
        assert never.cancel("no need") is Status.CANCELLED
        with pytest.raises(JobCancelled):
            never.result(PATIENCE)
        assert client.jobs.count()["COMPLETED"] == 10
        records = list(client.jobs.export(handle.id, redact=True))
        assert [records[0]["payload"], records[-1]["events"]] == [0, len(log)]
        assert len({record["job_id"] for record in client.jobs.export(kind="double")}) == 10
        assert client.database.prune(older_than="1h") == 0
        assert client.database.prune(older_than=0, dry_run=True, status="completed") == 10
        assert len(client.jobs.list(kind="double", limit=3).items) == 3
        assert len(client.workers.list()) == 1
        with pytest.raises(JobNotFound):
            client.jobs.get(uuid7())
        with pytest.raises(InvalidPriority):
            client.enqueue("double", 1, priority=0)


def test_many_threads_share_a_client(file_store_url: str) -> None:
    with Client(handlers(file_store_url)) as client, working_in_a_thread(file_store_url):

        def one(n: int) -> int:
            handle = client.enqueue("double", n)
            result: int = handle.result(PATIENCE)
            assert [e.type for e in handle.watch()][-1] == "job_completed"
            return result

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(one, range(60))) == [n * 2 for n in range(60)]


def test_a_client_by_url_and_by_environment(file_store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(handlers(file_store_url)) as client:
        handle = client.enqueue("double", 1)
    with Client(file_store_url) as client:
        assert client.jobs.get(handle.id).kind == "double"
    monkeypatch.setenv("PERDURE_DATABASE_URL", file_store_url)
    with Client() as client:
        assert client.jobs.get(handle.id).kind == "double"


def test_a_client_of_memory_runs_nothing_but_works() -> None:
    with Client("memory:") as client:
        handle = client.enqueue("anything", {"n": 1}, elsewhere=True)
        assert handle.status() is Status.PENDING
        assert [e.type for e in client.jobs.events(handle.id)] == ["job_created"]


def test_watching_may_be_given_up(file_store_url: str) -> None:
    with Client(handlers(file_store_url)) as client:
        handle = client.enqueue("double", 1)
        for event in handle.watch():
            assert event.type == "job_created"
            break
        events = client.jobs.watch(handle.id)
        assert next(events).version == 1
        del events
        gc.collect()
        assert handle.status() is Status.PENDING
    gc.collect()


def test_closing_twice_is_fine(file_store_url: str) -> None:
    client = Client(handlers(file_store_url))
    client.enqueue("double", 1)
    client.close()
    client.close()


def test_closing_ends_the_calls_of_other_threads(file_store_url: str) -> None:
    client = Client(handlers(file_store_url))
    handle = client.enqueue("double", 1)  # no worker runs
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(handle.result, "1m"), threads.submit(lambda: list(handle.watch()))]
        while not any(future.done() for future in waiting) and len(asyncio.all_tasks(client._background._loop)) < 2:
            client.jobs.count()
        client.close()
        for future in waiting:
            with pytest.raises(StoreUnreachable, match="closed"):
                future.result(PATIENCE)


def test_calls_during_a_close_end(file_store_url: str) -> None:
    def count(client: Client) -> None:
        while True:
            client.jobs.count()

    for _ in range(5):
        client = Client(handlers(file_store_url))
        client.jobs.count()
        with ThreadPoolExecutor(4) as threads:
            calls = [threads.submit(count, client) for _ in range(4)]
            client.close()
            for call in calls:
                with pytest.raises(StoreUnreachable, match="closed"):
                    call.result(PATIENCE)


FORKED = """
import os, sys
from perdure.model.errors import StoreUnreachable
from perdure.sync import Client

with Client(sys.argv[1]) as client:
    if not (child := os.fork()):
        try:
            client.jobs.count()
        except StoreUnreachable as error:
            print(error, flush=True)
        client.close()
        os._exit(0)
    os.waitpid(child, 0)
    print(client.jobs.count())
"""


def test_a_client_says_that_it_was_forked_away_from_its_thread(file_store_url: str) -> None:
    with Client(handlers(file_store_url)) as client:
        client.jobs.count()
    command = [sys.executable, "-W", "ignore", "-c", FORKED, file_store_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "forked" in done.stdout.splitlines()[0]
    assert done.stdout.splitlines()[1] == "{}"
