"""What a client does to all jobs that match."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from perdure import App, Budget, IllegalTransition, InvalidInput, JobNotFound, NotJson
from perdure.model.jobs import Outcome
from perdure.model.states import Status
from perdure.runtime.client import bulk

JOBS = 7


@pytest_asyncio.fixture
async def app(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setattr(bulk, "BATCH", 3)
    async with App("memory:") as app:
        yield app


async def some(app: App, number: int = JOBS, **options: Any) -> list[UUID]:
    return [(await app.enqueue("echo", n, elsewhere=True, **options)).id for n in range(number)]


async def fail(app: App) -> None:
    """All jobs that are due become FAILED."""
    store = await app.open()
    for job in await store.leases.claim(worker_id="w", queue="default", kinds={"echo": 0}, limit=100, ttl=30):
        await store.leases.finish(job.lease, Outcome(Status.FAILED, error="no", error_kind="fatal"))


async def test_all_that_match_are_cancelled_in_batches(app: App) -> None:
    await some(app)
    [other] = await some(app, 1, queue="mail")
    looked = await app.jobs.cancel_many(queue="default", dry_run=True)
    assert (looked.counts, looked.done, len(looked.sample), looked.dry_run) == ({"PENDING": JOBS}, 0, 5, True)
    assert await app.jobs.count() == {"PENDING": JOBS + 1}
    seen: list[int] = []
    done = await app.jobs.cancel_many("not needed", queue="default", on_batch=seen.append)
    assert (done.matched, done.done, done.skipped, seen) == (JOBS, JOBS, 0, [3, 6, 7])
    assert await app.jobs.count() == {"CANCELLED": JOBS, "PENDING": 1}
    assert (await app.jobs.get(other)).status == "PENDING"
    job = (await app.jobs.list(status="cancelled")).items[0]
    assert job.note["reason"] == "not needed"
    assert (await app.jobs.cancel_many(queue="default")).matched == 0


async def test_jobs_are_rerun_once_however_often_it_is_said(app: App) -> None:
    await some(app)
    await fail(app)
    assert (await app.jobs.rerun_many(kind="echo", dry_run=True)).counts == {"FAILED": JOBS}
    first = await app.jobs.rerun_many("again", kind="echo")
    assert (first.matched, first.done) == (JOBS, JOBS)
    assert (await app.jobs.rerun_many(kind="echo", dry_run=True)).matched == 0
    assert (await app.jobs.rerun_many(kind="echo")).done == 0
    assert await app.jobs.count() == {"FAILED": JOBS, "PENDING": JOBS}
    new = (await app.jobs.list(status="pending")).items
    assert sorted(job.payload for job in new) == list(range(JOBS))
    assert {job.origin_kind for job in new} == {"rerun"}


async def test_a_rerun_of_many_takes_the_idempotency_keys_and_budgets_over(app: App) -> None:
    job = await app.enqueue("echo", 1, elsewhere=True, idempotency_key="k", budget=Budget(tokens=5))
    await fail(app)
    assert (await app.jobs.rerun_many(kind="echo")).done == 1
    [new] = (await app.jobs.list(status="pending")).items
    assert (new.idempotency_key, new.origin_id) == ("k", job.id)
    assert [event.type for event in await app.jobs.events(new.id)] == ["job_created", "budget_set"]


async def test_what_is_interrupted_goes_on_with_the_rest(app: App) -> None:
    await some(app)
    await fail(app)

    def stop(number: int) -> None:
        if number == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await app.jobs.rerun_many(kind="echo", on_batch=stop)
    assert (await app.jobs.rerun_many(kind="echo")).done == 1
    assert await app.jobs.count(status="pending") == {"PENDING": JOBS}


async def test_jobs_are_retried_edited_and_deleted(app: App) -> None:
    await some(app, delay=60)
    done = await app.jobs.edit_many("urgent", kind="echo", priority=9)
    assert (done.done, done.skipped) == (JOBS, 0)
    assert (await app.jobs.edit_many(kind="echo", priority=9)).skipped == JOBS
    assert {job.priority for job in (await app.jobs.list()).items} == {9}
    assert (await app.jobs.retry_many(kind="echo")).matched == 0, "those in RETRY, unless statuses are named"
    assert (await app.jobs.retry_many(kind="echo", status="pending")).done == JOBS
    assert (await app.jobs.delete_many(kind="echo")).matched == 0, "none has ended"
    await fail(app)
    assert (await app.jobs.delete_many(kind="echo", dry_run=True)).counts == {"FAILED": JOBS}
    assert (await app.jobs.delete_many("old", kind="echo")).done == JOBS
    assert await app.jobs.count() == {}


async def test_tags_are_a_filter(app: App) -> None:
    await some(app, 2, tags=["a"])
    await some(app, 1, tags=["b"])
    assert (await app.jobs.cancel_many(tags="a")).done == 2


async def test_what_makes_no_sense_is_refused(app: App) -> None:
    for call in (
        app.jobs.cancel_many(),
        app.jobs.cancel_many(status=()),
        app.jobs.cancel_many(status="pending", kind=[]),  # a list that happens to be empty does not mean all jobs
        app.jobs.delete_many(kind="echo", tags=()),
        app.jobs.cancel_many(kind="echo", search=""),
        app.jobs.count(by="tag"),  # type: ignore[arg-type]  # nothing to group by
        app.jobs.delete_many(status="running"),
        app.jobs.retry_many(status="failed"),
        app.jobs.rerun_many(status="pending"),
        app.jobs.edit_many(kind="echo"),
        app.jobs.edit_many(kind="echo", priority=10),
        app.jobs.edit_many(kind="echo", delay=60, status="parked"),
        app.jobs.cancel_many(kinds="echo"),  # type: ignore[call-arg]  # no such filter
        app.jobs.cancel_many(kind=3),  # type: ignore[arg-type]  # no text, as the next ones
        app.jobs.cancel_many(queue=["default", 3]),  # type: ignore[list-item]
        app.jobs.cancel_many(tags=3),  # type: ignore[arg-type]
        app.jobs.cancel_many(search=3),  # type: ignore[arg-type]
        app.jobs.cancel_many(idempotency_key=3),  # type: ignore[arg-type]
        app.jobs.cancel_many(status=3),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInput):
            await call


async def test_one_job_is_edited_and_deleted(app: App) -> None:
    [job_id] = await some(app, 1)
    id = str(job_id)
    job = await app.jobs.edit(id, input={"x": 1}, delay="1h", priority=2, reason="asked")
    assert (job.payload, job.priority) == ({"x": 1}, 2)
    event = (await app.jobs.events(id))[-1]
    assert (event.type, event.payload["reason"]) == ("job_edited", "asked")
    with pytest.raises(NotJson):
        await app.jobs.edit(id, input=object())
    with pytest.raises(InvalidInput, match="needs something to change"):
        await app.jobs.edit(id)
    with pytest.raises(IllegalTransition, match="only a job that has ended can be deleted"):
        await app.jobs.delete(id)
    await app.jobs.cancel(id)
    with pytest.raises(IllegalTransition, match="cannot be edited"):
        await app.jobs.edit(id, priority=3)
    await app.jobs.delete(id)
    with pytest.raises(JobNotFound):
        await app.jobs.delete(id)
