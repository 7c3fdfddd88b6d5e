"""Coding CLIs as children of a job, over every kind of store: what one run of a CLI gives is given by each test."""

import asyncio
import os
from dataclasses import replace
from typing import Any

import pytest

from perdure import (
    AccountDisabled,
    AccountNotFound,
    App,
    ApprovalContext,
    Backoff,
    BlockingContext,
    InvalidInput,
    InvalidTask,
    JobContext,
    PerdureError,
    SecretByValue,
    StepChanged,
    TaskSpec,
    ToolNotAllowed,
)
from perdure.model.tooling import Account, RunClass, Usage
from tests.tools.conftest import GOOD, Runs

NOW = Backoff(base=0, cap=0)
TASK = TaskSpec("codex", "write results.txt", output_spec=("results.txt",))


async def result_of(app: App, handle: Any) -> Any:
    """Run workers until the job has ended."""
    for _ in range(400):
        await app.work(once=True)
        if (await handle.status()).terminal:
            return await handle.result(timeout=5)
        await asyncio.sleep(0.02)
    raise AssertionError("it did not end")


async def test_a_job_goes_on_with_the_answer_of_a_cli(app: App, runs: Runs) -> None:
    @app.job
    async def agent(ctx: JobContext) -> dict[str, Any]:
        run = await ctx.run_tool(TASK, files={"in.txt": b"input"})
        assert isinstance(run.usage, Usage)
        return {
            "ok": run.ok,
            "text": run.text,
            "tokens": run.usage.tokens,
            "files": dict(run.files),
            "content": (await ctx.read_file(run, "results.txt")).decode(),
            "diff": run.diff,
            "task": str(run.task_id),
        }

    handle = await app.enqueue(agent)
    found = await result_of(app, handle)
    task = await app.jobs.get(found.pop("task"))
    assert found == {
        "ok": True,
        "text": "done",
        "tokens": 120,
        "files": {"results.txt": 3},
        "content": "42\n",
        "diff": None,
    }
    assert runs.inputs == {"in.txt": b"input"}
    assert (task.kind, task.parent_id) == ("cli.codex", handle.id)
    assert [e.type for e in await handle.events()].count("wait_started") == 1


async def test_a_replay_runs_no_cli_again(app: App, runs: Runs) -> None:
    failures = iter([True, False])

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> list[str]:
        first = await ctx.run_tool(TASK, files={"in.txt": b"input"})
        second = await ctx.run_tool(replace(TASK, prompt="review"), key="review")
        if next(failures):
            raise ValueError("again")
        return [first.text, second.text]

    assert await result_of(app, await app.enqueue(agent)) == ["done", "done"]
    assert len(runs.accounts) == 2


async def test_a_cli_runs_once_a_person_has_approved_its_task(app: App, runs: Runs) -> None:
    prompt = ["write"]

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> str:
        run = await ctx.run_tool(replace(TASK, prompt=prompt[0]), files={"in.txt": b"input"})
        return run.text

    handle = await app.enqueue(agent, approval_context=ApprovalContext({"cli.codex": "always"}, default="never"))
    await app.work(once=True)
    [first] = (await app.approvals.list()).items
    assert first.payload["tool"] == "cli.codex"
    arguments = first.payload["arguments"]
    assert (arguments["prompt"], arguments["input_files"][0]["path"]) == ("write", "in.txt")
    assert runs.accounts == []
    prompt[0] = "write results.txt"
    await app.approvals.approve(first.id)
    await app.work(once=True)
    [second] = (await app.approvals.list()).items
    assert (second.id != first.id, runs.accounts) == (True, [])
    await app.approvals.approve(second.id)
    assert await result_of(app, handle) == "done"
    assert len(runs.accounts) == 1
    [spawned] = [e.payload for e in await handle.events() if e.type == "child_spawned"]
    assert spawned["approval"] == str(second.id)


async def test_a_cli_that_is_not_allowed_is_not_run_also_when_the_rules_change(app: App, runs: Runs) -> None:
    failures = iter([True, False])

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> str:
        try:
            await ctx.run_tool(TASK)
        except ToolNotAllowed as error:
            await ctx.step("note", lambda: None)
            if next(failures):
                raise ValueError("again") from None
            return error.message
        return "ran"

    handle = await app.enqueue(agent, approval_context=ApprovalContext(autonomous=[]))
    rule = await app.approvals.add_rule("cli.codex", "deny", scope="tenant", reason="incident 12")
    await app.work(once=True)
    await app.approvals.revoke_rule(rule.id)
    assert "denies tool 'cli.codex': incident 12" in await result_of(app, handle)
    assert runs.accounts == []


async def test_a_task_that_failed_is_not_ok(app: App, runs: Runs) -> None:
    runs.ends = [replace(GOOD, outcome=RunClass.FATAL, message="no such model", exit_code=1)]

    @app.job
    async def agent(ctx: JobContext) -> list[Any]:
        run = await ctx.run_tool(TASK)
        return [run.ok, run.text, run.error, run.error_kind]

    assert await result_of(app, await app.enqueue(agent)) == [False, "", "fatal: no such model", "fatal"]


async def test_what_no_adapter_can_run_is_refused(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> None:
        await ctx.run_tool(TaskSpec("nonesuch", "do it"))

    handle = await app.enqueue(agent)
    await app.work(once=True)
    job = await handle.get()
    assert job.error_message is not None
    assert "UnknownTool" in job.error_message
    assert await app.jobs.count() == {"FAILED": 1}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ("nosuch", AccountNotFound("no account has the id or group name 'nosuch'")),
        ("off", AccountDisabled("account 'off' is disabled")),
        ("other", InvalidTask("account 'other' is one of claude, and the task is for codex")),
    ],
)
async def test_an_account_that_cannot_run_it_is_refused(app: App, wanted: str, error: PerdureError) -> None:
    await app.accounts.add(Account("off", "codex", enabled=False))
    await app.accounts.add(Account("other", "claude"))

    @app.job
    async def agent(ctx: JobContext) -> str:
        with pytest.raises(type(error)) as raised:
            await ctx.run_tool(replace(TASK, account=wanted), files={"in.txt": b"input"})
        return raised.value.message

    assert await result_of(app, await app.enqueue(agent)) == error.message
    assert await app.jobs.count() == {"COMPLETED": 1}, "no task was stored"
    with pytest.raises(type(error), match=error.message):
        await app.tasks.enqueue(replace(TASK, account=wanted))


async def test_an_account_that_is_disabled_later_does_not_change_what_is_recorded(app: App, runs: Runs) -> None:
    failures = iter([True, False])

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> str:
        run = await ctx.run_tool(replace(TASK, account="a"))
        if next(failures):
            await app.accounts.disable("a")
            raise ValueError("again")
        return run.text

    assert await result_of(app, await app.enqueue(agent)) == "done"
    assert len(runs.accounts) == 1


async def test_attempts_of_a_task_are_checked(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> str:
        with pytest.raises(InvalidTask, match="max_attempts must be from 1 to 101, got 0"):
            await ctx.run_tool(TASK, max_attempts=0)
        return "refused"

    assert await result_of(app, await app.enqueue(agent)) == "refused"


async def test_another_prompt_than_was_recorded_is_refused(app: App) -> None:
    prompts = iter(["one", "two"])

    @app.job(on_change="fail", backoff=NOW)
    async def agent(ctx: JobContext) -> None:
        await ctx.run_tool(replace(TASK, prompt=next(prompts)))
        raise ValueError("again")

    handle = await app.enqueue(agent)
    for _ in range(100):
        await app.work(once=True)
        if (await handle.status()).terminal:
            break
    job = await handle.get()
    assert job.error_message is not None
    assert StepChanged.__name__ in job.error_message


async def test_a_plain_handler_runs_a_tool(app: App) -> None:
    @app.job
    def agent(ctx: BlockingContext) -> list[str]:
        run = ctx.run_tool(TASK)
        return [run.text, ctx.read_file(run, "results.txt").decode()]

    assert await result_of(app, await app.enqueue(agent)) == ["done", "42\n"]


async def test_a_cancelled_job_cancels_its_task(app: App, runs: Runs) -> None:
    runs.pause = asyncio.Event()

    @app.job
    async def agent(ctx: JobContext) -> None:
        await ctx.run_tool(TASK)

    working = asyncio.create_task(app.work(once=True))
    handle = await app.enqueue(agent)
    async with asyncio.timeout(30):
        while not runs.accounts or (await handle.status()) != "PARKED":
            if working.done():
                working = asyncio.create_task(app.work(once=True))
            await asyncio.sleep(0.02)
        await handle.cancel("enough")
        await working
    assert await app.jobs.count() == {"CANCELLED": 2}


async def test_extra_env_reaches_the_cli_and_nothing_else(
    app: App, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION", "of the worker")

    @app.job
    async def agent(ctx: JobContext) -> list[Any]:
        await ctx.run_tool(replace(TASK, env={"OWN": "task", "STAGE": "task"}))
        return [os.environ["REGION"], os.environ.get("STAGE"), await ctx.snapshot(), ctx.fields.extra_env]

    given = {"REGION": "eu", "STAGE": "job", "DEPLOY_TOKEN": "env:DEPLOY"}
    handle = await app.enqueue(agent, extra_env=given)
    region, stage, snapshot, known = await result_of(app, handle)
    assert (region, stage, known) == ("of the worker", None, given)
    assert runs.env == {**given, "STAGE": "task", "OWN": "task"}
    assert "extra_env" not in snapshot

    task = await app.enqueue("cli.codex", {"prompt": "do it"}, extra_env=given, elsewhere=True)
    await result_of(app, task)
    assert runs.env == given


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"PATH": "/tmp"}, InvalidTask),
        ({"LD_PRELOAD": "x"}, InvalidTask),
        ({"OPENAI_BASE_URL": "http://evil"}, InvalidTask),
        ({"A": 1}, InvalidTask),
        ({"API_TOKEN": "abc"}, SecretByValue),
        (["A=1"], InvalidInput),
    ],
)
async def test_extra_env_obeys_the_rules_for_tasks(app: App, wrong: Any, error: type[PerdureError]) -> None:
    with pytest.raises(error):
        await app.enqueue("agent", extra_env=wrong, elsewhere=True)
    assert not (await app.jobs.list()).items
