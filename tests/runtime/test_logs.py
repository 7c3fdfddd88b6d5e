"""Log lines of an attempt carry its ids, whatever code writes them, and nothing is configured unless it is asked for."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from perdure import App, Backoff, BlockingContext, Fail, JobContext, Request, Snooze, Status
from perdure.logs import AttemptFilter, add_attempt
from tests.runtime.support import NOW, chores, ended, take_away, until, working

log = structlog.get_logger("a handler's")
plain_log = logging.getLogger("tests.handler")
IDS = ("job_id", "kind", "attempt", "worker")


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What is written through structlog, as a program would see it that has taken `add_attempt` into its configuration."""
    written: list[dict[str, Any]] = []

    def keep(_: Any, __: str, event: Any) -> Any:
        written.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, add_attempt, keep])
    yield written
    structlog.reset_defaults()


def said(lines: list[dict[str, Any]], event: str) -> list[tuple[Any, ...]]:
    """The ids on all lines that say this."""
    return [tuple(line.get(name) for name in IDS) for line in lines if line["event"] == event]


async def test_every_line_of_an_attempt_names_it(app: App, lines: list[dict[str, Any]]) -> None:
    @app.job(backoff=NOW, max_retries=1)
    async def work(ctx: JobContext, n: int) -> None:
        log.info("handler", n=n)
        await ctx.step("async", spoken)
        await ctx.step("thread", speak)
        await asyncio.gather(*(ctx.options(key=str(i)).step("both", spoken) for i in range(2)))
        if ctx.retry_count == 0:
            raise ValueError("a bug")

    @app.job
    def plain(ctx: BlockingContext) -> None:
        log.info("plain handler")
        ctx.step("thread", speak)

    async def spoken() -> None:
        log.info("async step")

    def speak() -> None:
        log.info("step in a thread")

    async with working(app) as worker:
        handles = await app.enqueue_many([Request(work, n) for n in range(3)])
        other = await app.enqueue(plain)
        for handle in (*handles, other):
            await ended(app, handle)
    for handle in handles:
        first, second = ((str(handle.id), "work", n, worker.id) for n in (1, 2))
        assert [line for line in said(lines, "handler") if line[0] == str(handle.id)] == [first, second]
        assert [line for line in said(lines, "async step") if line[0] == str(handle.id)] == [first] * 3
        assert [line for line in said(lines, "step in a thread") if line[0] == str(handle.id)] == [first]
        failed = said(lines, "the attempt failed; the job runs again")
        assert [line for line in failed if line[0] == str(handle.id)] == [first]
    last = (str(other.id), "plain", 1, worker.id)
    assert said(lines, "plain handler") == [last]
    assert last in said(lines, "step in a thread")
    assert said(lines, "worker started") == [(None, None, None, worker.id)], "that is no attempt"


async def test_what_the_worker_says_about_an_attempt_names_it(app: App, lines: list[dict[str, Any]]) -> None:
    entered = asyncio.Event()

    @app.job
    async def work(ctx: JobContext) -> None:
        if ctx.retry_count == 0:
            entered.set()
            await asyncio.sleep(3600)

    async with working(app, lease=1) as worker:
        handle = await app.enqueue(work)
        await entered.wait()
        await take_away(await app.open(), handle)
        await ended(app, handle)
    [lost] = said(lines, "lease lost")
    assert (lost[0], lost[2:]) == (str(handle.id), (1, worker.id))


async def test_a_job_that_fails_is_logged_as_an_error_with_its_traceback(app: App, lines: list[dict[str, Any]]) -> None:
    structlog.configure(
        processors=[structlog.processors.add_log_level, *structlog.get_config()["processors"]],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )

    @app.job(backoff=NOW, max_retries=1)
    async def breaks(ctx: JobContext) -> None:
        raise ValueError("a bug")

    @app.job(max_retries=0)
    def leaves(ctx: BlockingContext) -> None:
        raise SystemExit(3)

    @app.job(retry_on=(KeyError,))
    async def hopeless(ctx: JobContext) -> None:
        raise ValueError("another bug")

    @app.job
    async def gives_up(ctx: JobContext) -> None:
        raise Fail("no such account")

    @app.job(timeout=0.05, max_retries=0)
    async def dawdles(ctx: JobContext) -> None:
        await asyncio.sleep(3600)

    @app.job(backoff=NOW)
    async def naps(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            raise Snooze(0)

    async with working(app) as worker:
        handles = {job.name: await app.enqueue(job) for job in (breaks, leaves, hopeless, gives_up, dawdles, naps)}
        ends = {name: await ended(app, handle) for name, handle in handles.items()}
    assert {name: job.status for name, job in ends.items()} == {
        "breaks": Status.DEADLETTER,
        "leaves": Status.DEADLETTER,
        "hopeless": Status.FAILED,
        "gives_up": Status.FAILED,
        "dawdles": Status.DEADLETTER,
        "naps": Status.COMPLETED,
    }
    warnings = [line for line in lines if line["level"] == "warning"]
    errors = {line["kind"]: line for line in lines if line["level"] == "error"}
    assert len(warnings) + len(errors) == len(lines)
    [again] = warnings
    assert (again["event"], again["kind"], again["attempt"], again["worker"]) == (
        "the attempt failed; the job runs again",
        "breaks",
        1,
        worker.id,
    )
    assert again["error"].startswith("ValueError: a bug")
    assert "exception" not in again
    assert errors.keys() == ends.keys() - {"naps"}
    for name, line in errors.items():
        assert (line["event"], line["status"]) == ("the job failed", ends[name].status.value)
        assert (line["job_id"], line["worker"]) == (str(handles[name].id), worker.id)
        assert line["error"] == ends[name].error_message
    assert {name for name, line in errors.items() if "exception" in line} == {"breaks", "leaves", "hopeless"}
    assert 'raise ValueError("a bug")' in errors["breaks"]["exception"]
    assert "raise SystemExit(3)" in errors["leaves"]["exception"]


async def test_a_job_that_a_lost_worker_ended_is_logged_as_an_error(app: App, lines: list[dict[str, Any]]) -> None:
    structlog.configure(processors=[structlog.processors.add_log_level, *structlog.get_config()["processors"]])

    @app.job(max_retries=0)
    async def once(ctx: JobContext) -> None: ...

    @app.job
    async def again(ctx: JobContext) -> None: ...

    store = await app.open()
    for job in (once, again):
        handle = await app.enqueue(job)
        [claimed] = await store.leases.claim(
            queue="default",
            kinds=app.registry.kinds,
            worker_id=f"w-{handle.id}",  # one each: only a job that was lost alone is blamed
            ttl=60,
            limit=1,
        )
        assert await store.leases.heartbeat([claimed.lease], ttl=0.001, started=[handle.id]) == {handle.id}

    async def report() -> bool:
        await chores(app)
        return len(lines) == 2

    await until(report)
    assert {(line["now"], line["level"]) for line in lines} == {("DEADLETTER", "error"), ("RETRY", "warning")}


async def test_a_line_may_name_another_job(app: App, lines: list[dict[str, Any]]) -> None:
    @app.job
    async def work(ctx: JobContext) -> None:
        log.info("about another", job_id="that one")

    async with working(app):
        await ended(app, await app.enqueue(work))
    [line] = said(lines, "about another")
    assert line[:2] == ("that one", "work")


class Kept(logging.Handler):
    """A handler of the program's own."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


async def test_the_filter_for_the_standard_librarys_logging(app: App) -> None:
    kept = Kept()
    kept.addFilter(AttemptFilter())
    kept.setFormatter(logging.Formatter("%(job_id)s %(kind)s %(attempt)s %(message)s"))
    plain_log.addHandler(kept)

    @app.job
    async def work(ctx: JobContext) -> None:
        plain_log.warning("inside")
        plain_log.warning("about another", extra={"job_id": "that one"})

    try:
        async with working(app):
            handle = await app.enqueue(work)
            await ended(app, handle)
        plain_log.warning("outside")
    finally:
        plain_log.removeHandler(kept)
    assert [kept.format(r) for r in kept.records] == [
        f"{handle.id} work 1 inside",
        "that one work 1 about another",
        "None None None outside",
    ]


ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
PROGRAM = """
import asyncio, logging, sys
import structlog
from perdure import App, JobContext

app = App("sqlite:///perdure.db")

@app.job
async def work(ctx: JobContext) -> None:
    structlog.get_logger().info("structured", job=1)
    logging.getLogger("mine").info("plain %s", "line", extra={"more": 2})
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("mine").exception("oh")

async def main() -> None:
    async with app:
        await app.enqueue(work)
        await app.work(once=True)

"""


def run_program(place: Path, more: str, **env: str) -> subprocess.CompletedProcess[str]:
    (place / "program.py").write_text(PROGRAM + textwrap.dedent(more))
    command = [sys.executable, "program.py"]
    return subprocess.run(command, cwd=place, env={**ENVIRONMENT, **env}, capture_output=True, text=True, check=True)


def test_the_library_configures_nothing(tmp_path: Path) -> None:
    done = run_program(
        tmp_path,
        """
        asyncio.run(main())
        assert not structlog.is_configured()
        assert logging.getLogger().handlers == []
        assert logging.getLogger().level == logging.WARNING
        """,
    )
    assert "oh" in done.stderr, "Python's own last resort"


RUN_WORKER = """
async def enqueue() -> None:
    async with app:
        await app.enqueue(work)

asyncio.run(enqueue())
app.run_worker(once=True)
"""


def test_a_program_that_runs_a_worker_gets_json_from_both(tmp_path: Path) -> None:
    done = run_program(tmp_path, RUN_WORKER, PERDURE_LOG_FORMAT="json")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["worker started", "structured", "plain line", "oh", "worker stopped"]
    started, structured, plain, oh, _ = lines
    assert structured["job"] == 1
    assert plain["more"] == 2
    assert (plain["logger"], plain["level"]) == ("mine", "info")
    assert "ZeroDivisionError" in oh["exception"]
    for line in (structured, plain, oh):
        assert (line["kind"], line["attempt"], line["worker"]) == ("work", 1, started["worker"])
        assert len(line["job_id"]) == 36
        assert line["timestamp"]
    assert done.stdout == ""


def test_in_text_they_are_shown_as_well(tmp_path: Path) -> None:
    done = run_program(tmp_path, RUN_WORKER, PERDURE_LOG_LEVEL="info")
    [plain] = [line for line in done.stderr.splitlines() if "plain line" in line]
    assert "kind=work" in plain
    assert "job_id=" in plain


def test_a_program_with_a_configuration_of_its_own_keeps_it(tmp_path: Path) -> None:
    own = "logging.basicConfig(level=logging.INFO, format='own: %(message)s')\n" + RUN_WORKER
    done = run_program(tmp_path, own, PERDURE_LOG_FORMAT="json")
    assert "own: plain line" in done.stderr
    assert '"event": "structured"' in done.stderr
    own = (
        "structlog.configure(processors=[structlog.processors.KeyValueRenderer()], "
        "logger_factory=structlog.PrintLoggerFactory(sys.stdout))\n" + RUN_WORKER
    )
    done = run_program(tmp_path, own, PERDURE_LOG_FORMAT="json")
    assert "job=1 event='structured'" in done.stdout
    assert "plain line" not in done.stderr, "its root logger is left alone as well"


def test_a_warning_is_a_line_like_the_others(tmp_path: Path) -> None:
    done = run_program(
        tmp_path,
        r"""
        import warnings
        from perdure.logs import configure_logs
        configure_logs(level="info", format="json", stdlib=True)
        warnings.warn("old\nways", FutureWarning)
        """,
    )
    [line] = [json.loads(line) for line in done.stderr.splitlines()]
    assert "old\nways" in line["event"]
    assert (line["logger"], line["level"]) == ("py.warnings", "warning")


def test_configuring_twice_writes_once(tmp_path: Path) -> None:
    done = run_program(
        tmp_path,
        """
        from perdure.logs import configure_logs
        for _ in range(2):
            configure_logs(level="info", format="json", stdlib=True)
        logging.getLogger("mine").info("once")
        assert len(logging.getLogger().handlers) == 1
        configure_logs(level="info", format="json")
        assert logging.getLogger().handlers == []
        """,
    )
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["once"]


async def test_an_attempt_that_breaks_is_logged_without_the_variables_of_its_code(
    app: App, capfd: pytest.CaptureFixture[str]
) -> None:
    """structlog shows them for an exception, if it is not configured."""

    class Odd(Backoff):
        def delay(self, retry: int, rng: Any = None) -> float:
            raise RuntimeError("an odd backoff")

    @app.job(backoff=Odd())
    async def work(ctx: JobContext, text: str) -> None:
        raise ValueError("a bug")

    async with working(app):
        await app.enqueue(work, "s3cret")
        said: list[str] = []

        def broke() -> bool:
            said.append(capfd.readouterr().out)
            return "an attempt failed in the worker itself" in "".join(said)

        await until(broke, what="the broken run")
    whole = "".join(said) + capfd.readouterr().out
    assert "RuntimeError: an odd backoff" in whole
    assert "s3cret" not in whole
