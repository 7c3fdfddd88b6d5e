"""Coding CLIs as children: a job runs one, and goes on with its answer and its files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from perdure.model.children import ChildState
from perdure.model.errors import FileNotFound
from perdure.model.ids import uuid7
from perdure.model.states import Status
from perdure.model.task_payload import KIND_PREFIX, payload_of_task
from perdure.model.task_records import DIFF, TaskOutcome, TaskResult
from perdure.model.tooling import TaskSpec, Usage
from perdure.model.waits import APPROVAL
from perdure.runtime import codec
from perdure.runtime.client.tasks import account_of, check_enabled, check_inputs, kept_inputs
from perdure.runtime.context import children
from perdure.runtime.context.children import SpawnOptions
from perdure.runtime.context.options import CallOptions
from perdure.runtime.context.tool_gate import Asked
from perdure.runtime.run import Run

Admit: TypeAlias = Callable[[Asked], Awaitable[str]]
"""Waits until a call may be made; see `tool_gate.admit`."""
MOST_DIFF = 1024 * 1024
"""Bytes of a diff that are read; a longer one is read with `read_file`."""


def checked(run: Run, task: TaskSpec, files: Mapping[str, bytes | Path]) -> None:
    """Raises UnknownTool, PromptTooLarge, InvalidTask, UnsafePath."""
    if run.registry is not None and run.registry.check_task is not None:
        run.registry.check_task(task)
    check_inputs(task, files)


async def spawn_task(
    run: Run,
    options: CallOptions,
    key: str,
    task: TaskSpec,
    files: Mapping[str, bytes | Path],
    given: SpawnOptions,
    admit: Admit,
) -> UUID:
    """Store the task as a child, once under this key; its inputs are stored before it, under its id. admit: waits until it may be
    run. Raises AccountNotFound, AccountDisabled, InvalidTask, FilesTooLarge, StepChanged, ToolNotAllowed, Denied."""
    kind = KIND_PREFIX + task.tool
    asked, _ = children.checked(run, kind, payload_of_task(task, ()), {**given, "elsewhere": True})
    for approval in run.history.asked_tools.get(key, ()):
        run.history.meet(APPROVAL.name, approval)
    if children.is_spawned(run, options, key, asked):
        return await children.spawn(run, options, key, asked)  # which compares it, without reading its inputs again
    with run.busy():
        if (account := await account_of(run.store.accounts, task)) is not None:
            check_enabled(account)
        inputs = await kept_inputs(run.store.files, files)
    payload = payload_of_task(task, inputs)
    granted = await admit(Asked(kind, key, codec.digest((), payload), _shown, (), payload))
    new, _ = children.checked(run, kind, payload, {**given, "elsewhere": True})
    new = new._replace(id=uuid7())
    if inputs:
        with run.busy():
            await run.store.files.add_inputs(new.id, inputs)
    return await children.spawn(run, options, key, new, compared=asked, granted=granted)


def _shown(**task: Any) -> None:
    """What a person sees of a task: all that differs from the defaults."""


async def outcome_of_task(run: Run, ended: ChildState) -> TaskOutcome:
    """What came of it, with its diff."""
    if ended.status is not Status.COMPLETED:
        kind = "cancelled" if ended.status is Status.CANCELLED else ended.error_kind
        return TaskOutcome(ended.id, ok=False, error=ended.error or f"it is {ended.status}", error_kind=kind)
    result: TaskResult = children.result_of(ended, TaskResult)
    diff: str | None = None
    if DIFF in result.files and result.files[DIFF] <= MOST_DIFF:
        diff = (await read_file(run, ended.id, DIFF)).decode(errors="replace")
    cost = None if result.cost is None else Decimal(result.cost)
    return TaskOutcome(
        task_id=ended.id,
        ok=True,
        text=result.text,
        usage=Usage(result.tokens_in, result.tokens_out, result.tokens_cached, cost),
        files=result.files,
        diff=diff,
        session=result.session,
        account=result.account,
        exit_code=result.exit_code,
    )


async def read_file(run: Run, task_id: UUID, path: str) -> bytes:
    """The content of a file that its last run wrote. Raises FileNotFound, ContentMissing, ContentDamaged."""
    with run.busy():
        found = [f for f in await run.store.files.list_files(task_id) if f.path == path and not f.is_input]
        content: Any = None
        if found:
            content = await run.store.files.read_file(task_id, path, is_input=False, attempt=found[-1].attempt)
    if content is None:
        raise FileNotFound(f"task …{str(task_id)[-8:]} has no output file '{path}'")
    return bytes(content)
