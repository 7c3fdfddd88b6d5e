"""Where a job failed is in its log, pointing at the user's line, bounded, and without the values of variables."""

from pathlib import Path

import pytest

from perdure import App, Backoff, Fail, JobContext
from perdure.model.jobs import Job
from perdure.model.states import Status
from perdure.runtime.tracebacks import MAX_BYTES, kept_traceback
from tests.runtime.support import until, working

HERE = str(Path(__file__))


def look_up(secret: str) -> str:
    """A function of the user, called by a step."""
    raise ValueError("empty source list")  # the line that is wanted


def line_of(text: str) -> int:
    """Its number in this file."""
    return 1 + next(n for n, line in enumerate(Path(__file__).read_text().splitlines()) if text in line)


async def ended(app: App, job: Job | None = None, **options: object) -> Job:
    """A job of the only handler, once it failed."""
    [handler] = app.registry
    id = (await app.enqueue(handler, **options)).id  # type: ignore[call-overload]  # options of a test
    async with working(app):
        await until(lambda: _is_over(app, id))
    return await app.jobs.get(id)


async def _is_over(app: App, id: object) -> bool:
    return (await app.jobs.get(str(id))).status in (Status.FAILED, Status.DEADLETTER, Status.RETRY)


async def test_a_failed_job_keeps_its_traceback(app: App) -> None:
    @app.job(retry_on=())
    async def work(ctx: JobContext) -> None:
        password = "hunter" + "2"
        await ctx.step("look up", look_up, password)

    job = await ended(app)
    assert job.status is Status.FAILED
    text = job.traceback
    assert text is not None
    frames = [line.strip() for line in text.splitlines() if line.startswith("  File")]
    assert frames[0].startswith(f'File "{HERE}"')
    assert frames[-1] == f'File "{HERE}", line {line_of("# the line that is wanted")}, in look_up'
    assert text.endswith("ValueError: empty source list")
    assert "hunter2" not in text
    assert "perdure/runtime" not in text
    [event] = [e for e in await app.jobs.events(job.id) if e.type == "job_failed"]
    assert event.payload["traceback"] == text


async def test_of_a_retry_and_of_the_dead_letters(app: App) -> None:
    @app.job(max_retries=1, backoff=Backoff(base=3600, cap=3600, jitter=0))
    def plain(ctx: object) -> None:
        look_up("x")

    job = await ended(app)
    assert job.status is Status.RETRY
    assert job.traceback is not None
    assert "in look_up" in job.traceback
    await app.jobs.retry_now(job.id)
    async with working(app):
        await until(lambda: _is_dead(app, job))
    dead = await app.jobs.get(job.id)
    assert dead.traceback == job.traceback
    assert [bool(e.payload.get("traceback")) for e in await app.jobs.events(job.id) if e.type == "job_retrying"] == [
        True
    ]


async def _is_dead(app: App, job: Job) -> bool:
    return (await app.jobs.get(job.id)).status is Status.DEADLETTER


async def test_of_what_perdure_asks_to_raise(app: App) -> None:
    @app.job
    async def work(ctx: JobContext) -> None:
        try:
            look_up("x")
        except ValueError as error:
            raise Fail("no such account") from error

    job = await ended(app)
    assert job.traceback is not None
    assert "ValueError: empty source list" in job.traceback
    assert "Fail: no such account" in job.traceback


async def test_none_where_no_code_of_the_user_failed(app: App) -> None:
    @app.job
    async def work(ctx: JobContext) -> object:
        return object()

    assert (await ended(app)).traceback is None


def deep(number: int) -> None:
    """Many frames, no two alike."""
    if number == 0:
        look_up("x")
    elif number % 2:
        deep(number - 1)
    else:
        deep(number - 1)


@pytest.mark.parametrize("message", ["short", "long " * 5000, "ü" * 20_000, "\x00\ud800" * 5000])
def test_it_is_bounded_and_the_users_frames_have_precedence(message: str) -> None:
    def fails() -> None:
        try:
            deep(60)
        except ValueError as error:
            raise RuntimeError(message) from error

    with pytest.raises(RuntimeError) as raised:
        fails()
    text = kept_traceback(raised.value)
    assert text is not None
    assert len(text.encode()) <= MAX_BYTES
    assert "\x00" not in text
    assert "in fails" in text
    assert f"line {line_of('# the line that is wanted')}, in look_up" in text


def test_groups_are_whole() -> None:
    with pytest.raises(ValueError, match="empty") as one:
        look_up("x")
    with pytest.raises(ExceptionGroup) as raised:
        raise ExceptionGroup("both", [one.value, KeyError("y")])
    text = kept_traceback(raised.value)
    assert text is not None
    assert "in look_up" in text
    assert "KeyError: 'y'" in text
