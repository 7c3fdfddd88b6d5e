"""Tasks from their enqueue to their end, over every kind of store. What one run of a CLI gives is given by each test: how real
CLIs are run and read is in the other files here."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from perdure import (
    AccountDisabled,
    AccountNotFound,
    App,
    FileNotFound,
    IdempotencyConflict,
    JobFailed,
    Status,
    UnknownTool,
    UnsafePath,
)
from perdure.model.explanation import Why
from perdure.model.task_records import TaskResult
from perdure.model.tooling import Account, CliRun, RunClass, RunStart, Sandbox, TaskSpec, Usage
from perdure.observe.metrics import Metrics
from perdure.tools import task_handler
from tests.tools.conftest import Runs

TASK = TaskSpec("codex", "write results.txt", output_spec=("results.txt",))


async def worked(app: App, until: Callable[[], Any]) -> None:
    """Run a worker until this is true."""
    for _ in range(200):
        await app.work(once=True)
        if await until():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come true")


async def test_a_task_gives_its_answer_and_its_files(app: App) -> None:
    handle = await app.tasks.enqueue(TASK)
    assert [move.command for move in (await app.jobs.explain(handle.id)).moves] == [
        "perdure worker start --tools codex"
    ]
    await app.work(once=True)
    result = await handle.result(timeout=5)
    assert result == TaskResult("done", {"results.txt": 3}, "s-1", "a", 100, 20, 30, "0.5", 0.0)
    assert await app.tasks.read_file(handle.id, "results.txt") == b"42\n"
    [run] = await app.tasks.runs(handle.id)
    assert (run.account_id, run.attempt, run.run.outcome, run.files) == ("a", 1, RunClass.OK, (("results.txt", 3),))
    assert [chunk.content async for chunk in app.tasks.output(handle.id)] == [b"working\n"]
    state = (await handle.get()).state
    assert (state.tokens, state.cost) == (120, Decimal("0.5"))
    with pytest.raises(FileNotFound):
        await app.tasks.read_file(handle.id, "other.txt")


async def test_inputs_are_in_the_workspace_and_not_in_the_payload(app: App, runs: Runs) -> None:
    files = {f"in/{n}.bin": bytes([n]) * 900 * 1024 for n in range(10)}
    handle = await app.tasks.enqueue(TASK, files=files)
    await app.work(once=True)
    await handle.result(timeout=5)
    assert runs.inputs == files
    assert len(str((await handle.get()).payload)) < 5000


async def test_the_workspace_is_gone_afterwards(app: App, tmp_path: Path) -> None:
    await app.tasks.enqueue(TASK)
    await app.work(once=True)
    assert list((tmp_path / "work").iterdir()) == []
    await app.tasks.enqueue(replace(TASK, keep_workspace=True))
    await app.work(once=True)
    [kept] = (tmp_path / "work").iterdir()
    assert (kept / "workspace" / "results.txt").read_bytes() == b"42\n"


async def test_a_missing_file_is_a_class_of_its_own(app: App, runs: Runs) -> None:
    runs.ends = [CliRun(RunClass.MISSING_OUTPUT, "missing", "it ended without writing results.txt", 0)]
    handle = await app.tasks.enqueue(TASK, max_attempts=1)
    await app.work(once=True)
    job = await handle.get()
    assert (job.status, job.error_kind) == (Status.DEADLETTER, "missing_output")


async def test_a_file_that_is_too_large_is_named(app: App, runs: Runs) -> None:
    runs.files = {"results.txt": b"x" * (16 * 1024 * 1024 + 1)}
    handle = await app.tasks.enqueue(TASK, max_attempts=1)
    await app.work(once=True)
    with pytest.raises(
        JobFailed, match=r"results.txt: it has 16,777,217 bytes; the limit for all files of a run is 16,777,216"
    ):
        await handle.result(timeout=5)
    [run] = await app.tasks.runs(handle.id)
    assert (run.run.outcome, run.run.detail, run.files) == (RunClass.MISSING_OUTPUT, "refused", ())


async def test_a_quota_parks_the_account_and_the_task_moves_on(app: App, runs: Runs) -> None:
    await app.accounts.add(Account("b", "codex"))
    runs.ends = [CliRun(RunClass.RATE_LIMITED, "plan_window", "hit your usage limit", 1, retry_after=3600.0)]
    handle = await app.tasks.enqueue(TASK)

    async def finished() -> bool:
        return (await handle.get()).status.terminal

    await worked(app, finished)
    assert (await handle.result(timeout=5)).account == "b"
    assert runs.accounts == ["a", "b"]
    job = await handle.get()
    assert job.retry_count == 0, "a quota uses no attempt"
    parked = await app.accounts.get("a")
    assert parked.parked_until is not None
    assert parked.parked_reason == "hit your usage limit"


async def test_a_refused_credential_moves_the_task_and_then_fails_it(app: App, runs: Runs) -> None:
    await app.accounts.add(Account("b", "codex"))
    runs.ends = [CliRun(RunClass.AUTH, "401", "bad key", 1)] * 2
    handle = await app.tasks.enqueue(TASK)

    async def finished() -> bool:
        return (await handle.get()).status.terminal

    await worked(app, finished)
    job = await handle.get()
    assert (job.status, job.error_kind, job.retry_count) == (Status.FAILED, "auth", 0)
    assert sorted(runs.accounts) == ["a", "b"]


@pytest.mark.parametrize("bound", [{"account": "a"}, {"session": "s-1"}])
async def test_a_refused_credential_fails_a_task_that_no_other_account_can_run(
    app: App, runs: Runs, bound: dict[str, Any]
) -> None:
    """It names its account, or goes on with a session of it."""
    await app.tasks.enqueue(TASK)
    await app.work(once=True)
    await app.accounts.add(Account("b", "codex"))
    runs.ends = [CliRun(RunClass.AUTH, "401", "bad key", 1)]
    handle = await app.tasks.enqueue(replace(TASK, **bound))
    await app.work(once=True)
    job = await handle.get()
    assert (job.status, job.error_kind, runs.accounts) == (Status.FAILED, "auth", ["a", "a"])
    assert (await app.accounts.get("a")).account.enabled, "one refusal disables no account"


async def test_a_fatal_run_fails_the_task_at_once(app: App, runs: Runs) -> None:
    runs.ends = [CliRun(RunClass.FATAL, "model", "no such model", 1)]
    handle = await app.tasks.enqueue(TASK)
    await app.work(once=True)
    job = await handle.get()
    assert (job.status, job.error_message) == (Status.FAILED, "fatal (model): no such model")


@pytest.mark.parametrize("outcome", [RunClass.RETRYABLE, RunClass.TIMEOUT, RunClass.UNKNOWN])
async def test_three_runs_and_then_the_dead_letter(app: App, runs: Runs, outcome: RunClass) -> None:
    runs.ends = [CliRun(outcome, "why", "it did not work", 1)] * 9
    handle = await app.tasks.enqueue(TASK)

    async def finished() -> bool:
        return (await handle.get()).status.terminal

    await worked(app, finished)
    job = await handle.get()
    assert (job.status, job.error_kind, len(runs.accounts)) == (Status.DEADLETTER, str(outcome), 3)
    assert [run.attempt for run in await app.tasks.runs(handle.id)] == [1, 2, 3]


async def test_a_run_that_was_recorded_is_not_made_again(app: App, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = await app.tasks.enqueue(TASK)
    real = task_handler._result

    def dies(_: object) -> Any:
        monkeypatch.setattr(task_handler, "_result", real)
        raise OSError("the process ended here")

    monkeypatch.setattr(task_handler, "_result", dies)

    async def finished() -> bool:
        return (await handle.get()).status.terminal

    await worked(app, finished)
    assert (await handle.result(timeout=5)).text == "done"
    assert len(runs.accounts) == 1
    assert (await handle.get()).state.tokens == 120


async def test_no_more_tasks_run_at_once_than_the_account_has_slots(app: App, runs: Runs) -> None:
    await app.accounts.set_limits("a", max_concurrency=2)
    runs.pause = asyncio.Event()
    handles = [await app.tasks.enqueue(TASK) for _ in range(5)]
    worker = asyncio.create_task(app.work(once=True))
    async with asyncio.timeout(60):
        while runs.together < 2:
            await asyncio.sleep(0.02)
    waiting = [handle for handle in handles if await handle.status() is Status.PENDING]
    assert len(waiting) == 3
    found = await app.jobs.explain(waiting[0].id)
    assert (found.code, len(found.details["holders"])) == (Why.ACCOUNT, 2)
    runs.pause.set()
    await worker
    assert runs.most_together == 2
    assert {(await handle.get()).retry_count for handle in handles} == {0}, (
        "a task that waits for a slot uses no attempt"
    )
    kinds = [{event.type for event in await handle.events()} for handle in handles]
    assert all(kind == kinds[0] for kind in kinds), "a task that waits for a slot has no events of that"


async def test_a_disabled_account_runs_nothing(app: App, runs: Runs) -> None:
    await app.accounts.disable("a")
    handle = await app.tasks.enqueue(TASK)
    await app.work(once=True)
    assert (await handle.status(), runs.accounts) == (Status.PENDING, [])
    with pytest.raises(AccountDisabled, match="account 'a' is disabled"):
        await app.tasks.enqueue(replace(TASK, account="a"))
    with pytest.raises(AccountNotFound):
        await app.tasks.enqueue(replace(TASK, account="nosuch"))
    assert await app.jobs.count() == {"PENDING": 1}, "nothing was written"
    await app.accounts.add(Account("b", "codex"))
    removed = await app.tasks.enqueue(replace(TASK, account="b"))
    await app.accounts.remove("b")
    await app.work(once=True)
    assert (await removed.status(), (await removed.get()).error_kind) == (Status.FAILED, "account")


async def test_accounts_are_noticed_while_a_worker_runs(app: App, runs: Runs) -> None:
    """Added, enabled or disabled: within the time of a heartbeat, which is 30 seconds by default."""
    beat = app.settings["cli_heartbeat"]
    await app.accounts.disable("a")
    worker = asyncio.create_task(app.work())
    try:
        first = await app.tasks.enqueue(TASK)
        await asyncio.sleep(0.3)
        assert await first.status() is Status.PENDING
        await app.accounts.add(Account("b", "codex"))
        assert (await first.result(timeout=beat)).account == "b"
        await app.accounts.disable("b")
        second = await app.tasks.enqueue(TASK)
        await asyncio.sleep(0.3)
        assert await second.status() is Status.PENDING
        await app.accounts.enable("a")
        assert (await second.result(timeout=beat)).account == "a"
        assert runs.accounts == ["b", "a"]
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_a_run_is_announced_before_its_program_starts(app: App, runs: Runs) -> None:
    runs.announced = RunStart("codex", "1.2.3", ("codex", "--x"), Sandbox(), ("--x",), ("/w", "/h"), (443,))
    handle = await app.tasks.enqueue(TASK, idempotency_key="k")
    await app.work(once=True)
    [said] = [event.payload for event in await handle.events() if event.type == "tool_run_started"]
    assert (said["args"], said["dangerous"], said["writable"], said["ports"]) == (
        ["codex", "--x"],
        ["--x"],
        ["/w", "/h"],
        [443],
    )
    assert said["idempotency_key"] == "k"
    assert said["workspace"].endswith("/workspace")
    assert (said["account"], said["sandbox"]["effective"]) == ("a", "L0")


async def test_log_lines_name_the_task_its_account_and_what_came_of_it(app: App, runs: Runs) -> None:
    runs.announced = RunStart("codex", "1.2.3", (), Sandbox())
    runs.ends = [CliRun(RunClass.UNKNOWN, "why", "it did not work", 7, seconds=1.5, usage=Usage(100, 20))]
    handle = await app.tasks.enqueue(TASK, max_attempts=1)
    with capture_logs() as lines:
        await app.work(once=True)
    started, ended = (next(x for x in lines if x["event"] == event) for event in ("run started", "run ended"))
    for line in (started, ended):
        assert (line["job_id"], line["kind"], line["attempt"]) == (str(handle.id), "cli.codex", 1)
        assert (line["account"], line["tool"]) == ("a", "codex")
    assert started["version"] == "1.2.3"
    assert (ended["class"], ended["exit_code"], ended["tokens"], ended["latency_ms"]) == ("unknown", 7, 120, 1500)


async def test_a_rerun_has_the_same_files(app: App, runs: Runs) -> None:
    handle = await app.tasks.enqueue(TASK, files={"a.txt": b"a"})
    await app.work(once=True)
    again = await app.jobs.rerun(handle.id)
    await app.work(once=True)
    assert await again.status() is Status.COMPLETED
    assert runs.inputs == {"a.txt": b"a"}


async def test_one_key_is_one_task_unless_its_files_differ(app: App) -> None:
    first = await app.tasks.enqueue(TASK, files={"a.txt": b"a"}, idempotency_key="k")
    again = await app.tasks.enqueue(TASK, files={"a.txt": b"a"}, idempotency_key="k")
    assert (again.id, again.created) == (first.id, False)
    assert len(await app.tasks.files(first.id)) == 1
    with pytest.raises(IdempotencyConflict):
        await app.tasks.enqueue(TASK, files={"a.txt": b"b"}, idempotency_key="k")


async def test_what_cannot_run_is_refused(app: App) -> None:
    with pytest.raises(UnknownTool):
        await app.tasks.enqueue(replace(TASK, tool="nosuch"))
    with pytest.raises(UnknownTool):
        await app.accounts.add(Account("x", "nosuch"))
    with pytest.raises(UnsafePath):
        await app.tasks.enqueue(TASK, files={"../a": b""})
    assert await app.jobs.count() == {}


async def test_a_payload_that_sql_wrote_badly_fails_its_job(app: App) -> None:
    handle = await app.jobs.enqueue("cli.codex", {"prompt": "  "})
    await app.work(once=True)
    job = await handle.get()
    assert job.status is Status.FAILED
    assert "the prompt is empty" in (job.error_message or "")


async def test_runs_and_slots_are_measured(app: App, runs: Runs) -> None:
    def value(name: str, **labels: str) -> float | None:
        return runs.metrics.get_sample_value(name, labels)

    runs.ends = [CliRun(RunClass.RATE_LIMITED, "api", "slow down", 1, retry_after=60.0, seconds=2.5)]
    await app.tasks.enqueue(TASK)
    await app.work(once=True)
    assert value("perdure_cli_runs_total", tool="codex", **{"class": "rate_limited"}) == 1
    assert value("perdure_account_throttled_total", account="a") == 1
    assert value("perdure_cli_run_duration_seconds_count", tool="codex") == 1
    observer = app.backend.observer
    assert isinstance(observer, Metrics)
    await observer.snapshot.refresh(await app.open())
    assert (value("perdure_account_slots_used", account="a"), value("perdure_account_slots_max", account="a")) == (0, 4)
    assert value("perdure_cli_run_duration_seconds_sum", tool="codex") == 2.5


async def test_slots_in_use_are_shown(app: App, runs: Runs) -> None:
    runs.pause = asyncio.Event()
    await app.tasks.enqueue(TASK)
    worker = asyncio.create_task(app.work(once=True))
    while (await app.accounts.get("a")).used == 0:
        await asyncio.sleep(0.01)
    assert [(info.account.id, info.used) for info in await app.accounts.list()] == [("a", 1)]
    assert [worker.accounts for worker in await app.workers.list()] == [{"a": 1}]
    observer = app.backend.observer
    assert isinstance(observer, Metrics)
    await observer.snapshot.refresh(await app.open())
    assert runs.metrics.get_sample_value("perdure_account_slots_used", {"account": "a"}) == 1
    runs.pause.set()
    await worker
    assert (await app.accounts.get("a")).used == 0


async def test_large_files_go_in_and_out(app: App, runs: Runs, tmp_path: Path) -> None:
    large = bytes(range(256)) * 4096 * 3
    (tmp_path / "input").write_bytes(large)
    runs.files = {"results.txt": large[::-1]}
    handle = await app.tasks.enqueue(TASK, files={"a.bin": tmp_path / "input", "b.bin": large})
    await app.work(once=True)
    result = await handle.result(timeout=5)
    assert runs.inputs == {"a.bin": large, "b.bin": large}
    assert result.files == {"results.txt": len(large)}
    with (tmp_path / "copy").open("wb") as copy:
        assert await app.tasks.copy_file(handle.id, "results.txt", copy) == len(large)
    assert (tmp_path / "copy").read_bytes() == large[::-1]
    with pytest.raises(FileNotFoundError):
        await app.tasks.enqueue(TASK, files={"a.bin": tmp_path / "nosuch"})
    assert await app.jobs.count() == {"COMPLETED": 1}


async def test_an_input_that_this_machine_does_not_have_is_retried(app: App, tmp_path: Path) -> None:
    handle = await app.tasks.enqueue(TASK, files={"a.bin": b"x" * 2_000_000})
    [file] = await app.tasks.files(handle.id)
    [blob] = (tmp_path / "blobs").rglob(file.hash)
    blob.unlink()
    await app.work(once=True)
    job = await handle.get()
    assert (job.status, job.error_kind) == (Status.DEADLETTER, "content-missing"), "after all attempts"
    assert socket.gethostname() in (job.error_message or "")
