"""The handler of tasks: an account, a workspace, one run of the CLI, its files and its record; then what the job makes of it.

A run that ended well is recorded before its job ends. So an attempt that was cut off in between does not run the CLI again: the
next one finds the record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import structlog

from perdure.model.cost import ZERO, text_of_cost
from perdure.model.current_attempt import attempt_ids
from perdure.model.effects import Effect, add_tool_run, patch_state
from perdure.model.errors import (
    ContentDamaged,
    ContentMissing,
    DangerRefused,
    Fail,
    InvalidTask,
    RepositoryRefused,
    Retry,
    SandboxTooWeak,
    Snooze,
    ToolRefused,
)
from perdure.model.events import NewEvent
from perdure.model.task_payload import task_of_payload
from perdure.model.task_records import TaskResult, ToolRun
from perdure.model.timing import Backoff
from perdure.model.tooling import Account, CliRun, RunClass, RunStart, TaskSpec
from perdure.runtime.context.context import JobContext, run_of
from perdure.runtime.context.shared_budget import shared_spending
from perdure.runtime.run import Run
from perdure.store.protocol import FileStore
from perdure.tools.adapters.base import Adapter
from perdure.tools.live_output import LiveOutput
from perdure.tools.more_output import MoreOutput
from perdure.tools.output_files import Collected
from perdure.tools.outputs import create_input
from perdure.tools.repository import Repository
from perdure.tools.run import run_cli
from perdure.tools.secrets import Masker
from perdure.tools.settings import CliSettings
from perdure.tools.workspace import Workspace, workspace

log = structlog.get_logger("perdure.tools")

CHANGED_DELAY = 1.0
"""Seconds until a task may start again whose account was changed between its claim and its start."""
PARK_BACKOFF = Backoff(base=30, cap=300)
"""How long an account is parked whose tool reached a limit and did not say until when."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """How this worker runs tasks. served: ids and group names of accounts, None for all."""

    work_dir: Path
    cli: CliSettings
    adapters: Mapping[str, Adapter]
    served: Collection[str] | None = None


class TaskHandler:
    """Runs tasks of one tool."""

    def __init__(self, tool: str, settings: ToolSettings) -> None:
        self._tool = tool
        self._settings = settings

    async def __call__(self, ctx: JobContext, payload: dict[str, Any]) -> TaskResult:
        """One attempt. Raises Retry, Snooze or Fail, as the class of the run says."""
        attempt = run_of(ctx)
        try:
            task = task_of_payload(payload, ctx.kind).with_env(ctx.fields.extra_env)
        except InvalidTask as error:
            raise Fail(f"the task is invalid: {error}") from None
        earlier = await attempt.store.tool_runs.list_tool_runs(ctx.job_id)
        if earlier and earlier[-1].run.ok:
            return _result(earlier[-1])
        account = await self._account(attempt, task, earlier)
        try:
            run = await self._run(attempt, task, account)
        except (DangerRefused, RepositoryRefused, SandboxTooWeak) as error:
            raise Fail(error.message, kind=error.code) from error
        except (ContentMissing, ContentDamaged, ToolRefused) as error:  # another worker may have what this one has not
            raise Retry(error.message, kind=error.code) from error
        if not run.run.ok:
            await _stop(attempt, task, run, earlier)
        return _result(run)

    async def _account(self, attempt: Run, task: TaskSpec, earlier: list[ToolRun]) -> Account:
        wanted = None if task.any_account else task.account
        last = earlier[-1] if earlier else None
        refused = (
            (last.account_id,) if last is not None and last.account_id and last.run.outcome is RunClass.AUTH else ()
        )
        choice = await attempt.store.accounts.take_account(
            attempt.lease, self._tool, wanted=wanted, served=self._settings.served, avoid=refused
        )
        if choice.account is not None:
            return choice.account.account
        if choice.fatal:
            raise Fail(choice.why, kind="account")
        raise Snooze(CHANGED_DELAY, choice.why)

    async def _run(self, attempt: Run, task: TaskSpec, account: Account) -> ToolRun:
        lease, store = attempt.lease, attempt.store
        name = f"{lease.job_id.hex[-12:]}-{lease.attempt}"
        async with (
            workspace(self._settings.work_dir, name, keep=task.keep_workspace) as place,
            MoreOutput(place.root, store.files.limit()) as more,
        ):
            repository = None if task.repo is None else await Repository.check_out(task, place.files, place.base)
            inputs = await _put_inputs(store.files, lease.job_id, place)
            if repository is not None:
                await repository.note_inputs(inputs)
            masker = Masker(())
            started = attempt.database_now()
            idempotency_key = (await store.jobs.get_job(lease.job_id)).idempotency_key

            def hide(secrets: Masker) -> None:
                nonlocal masker
                masker = secrets

            async def announce(start: RunStart) -> None:
                await attempt.record([_started(start, account, place, idempotency_key)])
                log.info("run started", **attempt_ids(), tool=self._tool, account=account.id, version=start.version)

            async def take(stream: str, data: bytes) -> None:
                if attempt.stuck is not None:
                    attempt.stuck.progressed()
                await output.add(stream, data)

            async with LiveOutput(store, lease, more) as output:
                run = await run_cli(
                    task,
                    account,
                    workspace=place.files,
                    home=place.home,
                    settings=replace(self._settings.cli, sessions=self._settings.work_dir / "sessions"),
                    adapters=self._settings.adapters,
                    on_start=announce,
                    on_secrets=hide,
                    on_output=take,
                )
            found = Collected(store.files, masker)
            if run.ok:
                await found.collect(place.files, task.output_spec)
                if repository is not None:
                    await found.add_diff(await repository.diff())
            for path, file in more.finished():
                await found.add_own(path, file)
        if run.credential_changed:
            log.warning(
                "the tool wrote to its credential, a copy that is removed now", account=account.id, **attempt_ids()
            )
        if run.ok:
            await store.accounts.note_probe(account.id, accepted=True)
        run = _with_files(run, found)
        if found.files:
            await store.files.add_outputs(lease, found.files)
        ended = ToolRun(
            job_id=lease.job_id,
            attempt=lease.attempt,
            tool=self._tool,
            account_id=account.id,
            worker_id=lease.worker_id,
            started_at=started,
            finished_at=attempt.database_now(),
            files=tuple((file.path, file.size) for file in found.files),
            run=run,
        )
        usage, added = _usage(ended)
        used = ended.run.usage
        spent = shared_spending(attempt, used.tokens, used.cost or ZERO)
        await attempt.record([usage, _ended(ended)], add_tool_run(ended), added, *spent)
        if attempt.observer is not None:
            attempt.observer.tool_run(attempt.claimed, ended)
        log.info(
            "run ended",
            **attempt_ids(),
            tool=self._tool,
            account=account.id,
            exit_code=run.exit_code,
            tokens=run.usage.tokens,
            latency_ms=round(run.seconds * 1000),
            **{"class": run.outcome.value},
        )
        return ended


async def _put_inputs(files: FileStore, job_id: UUID, place: Workspace) -> list[str]:
    """Write the input files of a task, whose paths were checked when it was enqueued, into its workspace; returns their paths."""
    paths: list[str] = []
    for file in await files.list_files(job_id):
        if file.is_input:
            paths.append(file.path)
            try:
                opened = await asyncio.to_thread(create_input, place.files, file.path)
            except OSError as error:
                why = f"the input file '{file.path}' cannot be put into the copy of the repository: {error.strerror}"
                raise Fail(why, kind="unsafe-path") from None
            with opened as to:
                await files.copy_file(job_id, file.path, to, is_input=True, attempt=0)
    return paths


def _with_files(run: CliRun, found: Collected) -> CliRun:
    """The run, missing_output where a file that was declared could not be collected."""
    if not found.refused:
        return run
    refused = [f"{path}: {why}" for path, why in found.refused.items()]
    message = f"{found.left_out} files of output_spec were not collected: {'; '.join(refused[:5])}"
    return replace(
        run, outcome=RunClass.MISSING_OUTPUT, detail="refused", message=message, missing_files=tuple(found.refused)
    )


async def _stop(attempt: Run, task: TaskSpec, ended: ToolRun, earlier: list[ToolRun]) -> NoReturn:
    """End the attempt as the class of its run says. A quota uses no attempt: the account waits, the task moves or waits."""
    run, accounts = ended.run, attempt.store.accounts
    text = f"{run.outcome}{f' ({run.detail})' if run.detail else ''}: {run.message or 'no message'}"
    match run.outcome:
        case RunClass.RATE_LIMITED:
            met = sum(r.account_id == ended.account_id and r.run.outcome is RunClass.RATE_LIMITED for r in earlier)
            seconds = PARK_BACKOFF.delay(met) + 1 if run.retry_after is None else run.retry_after
            if ended.account_id is not None:
                await accounts.park_account(ended.account_id, seconds, run.message or str(run.outcome))
            raise Snooze(0, text)
        case RunClass.AUTH:
            if ended.account_id is not None and await accounts.note_probe(ended.account_id, accepted=False):
                log.warning(
                    "account disabled: its credential was refused twice", account=ended.account_id, tool=ended.tool
                )
            refused = {r.account_id for r in (*earlier, ended) if r.run.outcome is RunClass.AUTH}
            others = [a.account for a in await accounts.list_accounts() if a.account.id not in refused]
            bound = not task.any_account or task.session is not None  # a session is that of one account
            if not bound and any(a.tool == ended.tool and a.enabled for a in others):
                raise Snooze(0, text)
            raise Fail(text, kind="auth")
        case RunClass.FATAL:
            raise Fail(text)
        case _:
            raise Retry(text, kind=str(run.outcome))


def _result(ended: ToolRun) -> TaskResult:
    run = ended.run
    return TaskResult(
        text=run.final_text,
        files=dict(ended.files),
        session=run.session_id,
        account=ended.account_id,
        tokens_in=run.usage.tokens_in,
        tokens_out=run.usage.tokens_out,
        tokens_cached=run.usage.tokens_cached,
        cost=None if run.usage.cost is None else text_of_cost(run.usage.cost),
        seconds=round(run.seconds, 3),
        exit_code=run.exit_code,
    )


def _started(start: RunStart, account: Account, place: Workspace, idempotency_key: str | None) -> NewEvent:
    """Announces the run before its program starts: what it is called with, where, what it may reach, and what keeps it from being
    enqueued twice."""
    payload = {
        "tool": start.tool,
        "version": start.version,
        "account": account.id,
        "args": start.args,
        "dangerous": start.dangerous,
        "workspace": str(place.files),
        "idempotency_key": idempotency_key,
        "writable": start.writable,
        "ports": start.ports,
        "sandbox": asdict(start.sandbox),
    }
    return NewEvent("tool_run_started", json.dumps(payload))


def _ended(ended: ToolRun) -> NewEvent:
    run = ended.run
    payload = {
        "tool": ended.tool,
        "account": ended.account_id,
        "class": run.outcome,
        "detail": run.detail,
        "exit_code": run.exit_code,
        "files": [path for path, _ in ended.files],
    }
    return NewEvent("tool_run_ended", json.dumps(payload))


def _usage(ended: ToolRun) -> tuple[NewEvent, Effect]:
    tokens, cost = ended.run.usage.tokens, ended.run.usage.cost or ZERO
    payload = {"key": f"run {ended.attempt}", "tokens": tokens, "cost": text_of_cost(cost)}
    return NewEvent("usage_recorded", json.dumps(payload)), patch_state(tokens=tokens, cost=cost)
