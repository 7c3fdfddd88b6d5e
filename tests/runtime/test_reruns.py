"""A rerun takes over the idempotency key of a job that is dead, and a result follows a job to its newest rerun."""

import asyncio

import pytest

from perdure import App, Fail, IdempotencyConflict, JobContext, JobFailed, Status, Unique, WaitTimeout
from tests.runtime.support import PATIENCE, ended, reached, working

failures = 0


@pytest.fixture
def failing(app: App) -> None:
    """The kind `flaky` fails as often as `failures` says, and `fine` never."""

    @app.job
    async def flaky(ctx: JobContext, n: int) -> int:
        global failures  # noqa: PLW0603  what the tests set
        failures -= 1
        if failures >= 0:
            raise Fail("not this time")
        return n

    @app.job
    async def fine(ctx: JobContext, n: int) -> int:
        return n


@pytest.mark.usefixtures("failing")
async def test_a_dead_job_hands_its_key_over(app: App) -> None:
    global failures  # noqa: PLW0603  what the tests set
    failures = 2
    async with working(app):
        first = await app.enqueue("flaky", 7, idempotency_key="order:1")
        assert (await ended(app, first)).status is Status.FAILED
        second = await app.jobs.rerun(first.id)
        assert second.created
        assert (await app.enqueue("flaky", 7, idempotency_key="order:1")).id == second.id
        with pytest.raises(IdempotencyConflict):
            await app.enqueue("flaky", 8, idempotency_key="order:1")
        assert (await ended(app, second)).status is Status.FAILED
        third = await app.jobs.rerun(second.id)
        assert (await ended(app, third)).status is Status.COMPLETED
    keys = [(await handle.get()).idempotency_key for handle in (first, second, third)]
    assert keys == [None, None, "order:1"]
    again = await app.jobs.rerun(first.id)
    assert (await again.get()).idempotency_key is None, "a key goes to the first rerun of each job"
    assert (await app.jobs.events(first.id))[-1].type == "job_failed", "the log of the old one does not change"


@pytest.mark.usefixtures("failing")
async def test_a_job_that_is_not_dead_keeps_its_key(app: App) -> None:
    pending = await app.enqueue("fine", 1, idempotency_key="a", delay="1h")
    assert (await (await app.jobs.rerun(pending.id)).get()).idempotency_key is None
    async with working(app):
        done = await app.enqueue("fine", 1, idempotency_key="b")
        await done.result(timeout=PATIENCE)
    assert (await (await app.jobs.rerun(done.id)).get()).idempotency_key is None
    assert [(await handle.get()).idempotency_key for handle in (pending, done)] == ["a", "b"]


@pytest.mark.usefixtures("failing")
async def test_reruns_at_the_same_time_are_one_job(app: App) -> None:
    old = await app.enqueue("fine", 1, idempotency_key="k")
    await old.cancel()
    made = await asyncio.gather(*(app.jobs.rerun(old.id) for _ in range(5)))
    keyed = [handle for handle in made if (await handle.get()).idempotency_key == "k"]
    assert len({handle.id for handle in keyed}) == 1
    assert sum(handle.created for handle in keyed) == 1


@pytest.mark.usefixtures("failing")
async def test_a_dead_job_hands_its_unique_key_over(app: App) -> None:
    old = await app.enqueue("fine", 1, unique="k")
    assert (await (await app.jobs.rerun(old.id)).get()).unique_key is None, "it has not ended, and keeps its key"
    await old.cancel()
    made = await asyncio.gather(*(app.jobs.rerun(old.id) for _ in range(3)))
    assert len({handle.id for handle in made}) == 1
    assert sum(handle.created for handle in made) == 1
    assert (await app.enqueue("fine", 2, unique="k")).id == made[0].id
    await made[0].cancel()
    other = await app.enqueue("fine", 3, unique="k")
    assert (await app.jobs.rerun(old.id)).id == other.id
    await other.cancel()
    assert (await app.jobs.rerun(old.id)).created


@pytest.mark.usefixtures("failing")
async def test_a_rerun_goes_on_with_the_period_of_its_unique_key(app: App) -> None:
    hourly = Unique("k", period="1h")
    old = await app.enqueue("fine", 1, unique=hourly)
    await old.cancel()
    assert (await app.enqueue("fine", 1, unique=hourly)).id == old.id
    new = await app.jobs.rerun(old.id)
    assert new.created
    assert (await app.enqueue("fine", 1, unique=hourly)).id == new.id
    until = [(await handle.get()).unique_until for handle in (old, new)]
    assert until[0] is not None
    assert until[1] is not None
    assert abs((until[1] - until[0]).total_seconds()) < PATIENCE
    assert (await app.jobs.rerun(old.id)).id == new.id
    await new.cancel()
    again = await app.jobs.rerun(old.id)
    assert again.created
    assert (await app.enqueue("fine", 1, unique=hourly)).id == again.id


@pytest.mark.usefixtures("failing")
async def test_of_dead_jobs_of_one_unique_key_one_is_run_again(app: App) -> None:
    for n in range(2):
        await (await app.enqueue("fine", n, unique="k")).cancel()
    assert (await app.jobs.rerun_many(status="cancelled")).done == 1
    assert await app.jobs.count(status="pending") == {"PENDING": 1}


@pytest.mark.usefixtures("failing")
async def test_a_result_follows_reruns(app: App) -> None:
    global failures  # noqa: PLW0603  what the tests set
    failures = 2
    async with working(app):
        first = await app.enqueue("flaky", 7)
        assert (await ended(app, first)).status is Status.FAILED
        with pytest.raises(JobFailed):
            await first.result(timeout=PATIENCE, follow=True)  # nothing to follow
        second = await app.jobs.rerun(first.id)
        await ended(app, second)
        third = await app.jobs.rerun(second.id)
        assert await first.result(timeout=PATIENCE, follow=True) == 7
        assert await third.result(timeout=PATIENCE, follow=True) == 7
        with pytest.raises(JobFailed):
            await first.result(timeout=PATIENCE)


@pytest.mark.usefixtures("failing")
async def test_it_follows_what_is_rerun_while_it_waits(app: App) -> None:
    first = await app.enqueue("fine", 1, delay="1h")
    waiting = asyncio.create_task(first.result(timeout=PATIENCE, follow=True))
    await reached(first, Status.PENDING)
    second = await app.jobs.rerun(first.id)
    await first.cancel()
    async with working(app):
        assert await waiting == 1
    assert (await second.get()).status is Status.COMPLETED
    with pytest.raises(WaitTimeout):
        await (await app.enqueue("fine", 1, delay="1h")).result(timeout=0.05, follow=True)
