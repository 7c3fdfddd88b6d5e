"""`client.tasks`: jobs that run a coding CLI."""

from __future__ import annotations

import asyncio
import builtins
import io
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from perdure.model.errors import AccountDisabled, FileNotFound, InvalidTask
from perdure.model.ids import uuid7
from perdure.model.task_payload import KIND_PREFIX, payload_of_task
from perdure.model.task_records import JobFile, NewFile, OutputChunk, TaskResult, ToolRun
from perdure.model.timing import Duration
from perdure.model.tooling import Account, TaskSpec, check_path
from perdure.runtime.client.base import ClientPart, JobId, Scope
from perdure.runtime.client.enqueue import EnqueueOptions
from perdure.runtime.client.jobs import Jobs
from perdure.runtime.handle import Handle
from perdure.store.protocol import AccountStore, FileStore
from perdure.store.protocol.blobs import Writable

MAX_ATTEMPTS = 101
_PAGE = 100


class Tasks(ClientPart):
    """Tasks: jobs of kind `cli.<tool>`, each of which runs a coding CLI in a workspace of its own. What jobs can do, such as
    cancel, rerun, watch and explain, is done with `client.jobs`."""

    def __init__(self, scope: Scope, jobs: Jobs) -> None:
        super().__init__(scope)
        self._jobs = jobs

    async def enqueue(
        self,
        task: TaskSpec,
        *,
        files: Mapping[str, bytes | Path] | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        deadline: datetime | None = None,
        idempotency_key: str | None = None,
        goal: str | None = None,
    ) -> Handle[TaskResult]:
        """Store a task. When this returns it is committed, with its input files.

        files: contents, or files of this machine that have them, by path in the workspace; `task.input_files` may be left out
        then. max_attempts: 3 unless given. idempotency_key: unique for its tool; the same key and the same task is one job.
        Raises UnknownTool, PromptTooLarge, InvalidTask, UnsafePath, FilesTooLarge, BlobDirUnusable, AccountNotFound,
        AccountDisabled, InvalidPriority, IdempotencyConflict, StoreUnreachable, OSError for a file that cannot be read. If it
        raises, nothing was enqueued.
        """
        self._scope.holder.check_task(task)
        max_retries = retries_of(max_attempts)
        check_inputs(task, files or {})
        account = await account_of((await self._store()).accounts, task)
        if account is not None and not await self._is_there(task, idempotency_key):
            check_enabled(account)
        options: dict[str, Any] = {
            "priority": priority,
            "max_retries": max_retries,
            "delay": delay,
            "run_at": run_at,
            "deadline": deadline,
            "idempotency_key": idempotency_key,
            "goal": goal,
        }
        given = {name: value for name, value in options.items() if value is not None}
        store = await self._store()
        inputs = await kept_inputs(store.files, files or {})
        payload = payload_of_task(task, inputs)
        wanted = cast("EnqueueOptions", {**given, "elsewhere": True})
        new = self._jobs.prepared(KIND_PREFIX + task.tool, payload, wanted)._replace(id=uuid7())
        if inputs:
            await store.files.add_inputs(new.id, inputs)
        try:
            stored = await self._jobs.enqueue_prepared(new, wanted)
        except BaseException:
            if inputs:
                await store.files.drop_inputs(new.id)
            raise
        if inputs and not stored.created:
            await store.files.drop_inputs(new.id)
        return Handle(self._jobs, stored.id, TaskResult, created=stored.created)

    async def _is_there(self, task: TaskSpec, key: str | None) -> bool:
        """Whether this idempotency key has a task already."""
        return key is not None and bool(
            (await self._jobs.list(kind=KIND_PREFIX + task.tool, idempotency_key=key, limit=1)).items
        )

    async def runs(self, task_id: JobId) -> list[ToolRun]:
        """The runs of a task that have ended, by attempt. Raises JobNotFound, AmbiguousId."""
        return await (await self._store()).tool_runs.list_tool_runs(await self._known(task_id))

    async def files(self, task_id: JobId) -> list[JobFile]:
        """Its input files, then the files that each attempt wrote. Raises JobNotFound, AmbiguousId."""
        return await (await self._store()).files.list_files(await self._known(task_id))

    async def read_file(
        self, task_id: JobId, path: str, *, attempt: int | None = None, is_input: bool = False
    ) -> bytes:
        """The content of a file that an attempt wrote (default: the last one that wrote it), or of an input, all of it in memory.

        Raises FileNotFound, ContentMissing, ContentDamaged, JobNotFound, AmbiguousId.
        """
        read = io.BytesIO()
        await self.copy_file(task_id, path, read, attempt=attempt, is_input=is_input)
        return read.getvalue()

    async def copy_file(
        self, task_id: JobId, path: str, to: Writable, *, attempt: int | None = None, is_input: bool = False
    ) -> int:
        """Write the content of a file to an open file, piece by piece, in a thread; return how many bytes it has.

        attempt, is_input: as for `read_file`. Raises as `read_file`; ContentDamaged comes after the last piece.
        """
        store, id = await self._store(), await self._known(task_id)
        found = [
            file
            for file in await store.files.list_files(id)
            if file.path == path and file.is_input == is_input and attempt in (None, file.attempt)
        ]
        if found and await store.files.copy_file(id, path, to, is_input=is_input, attempt=found[-1].attempt):
            return found[-1].size
        what = "no input file" if is_input else "no output file"
        raise FileNotFound(
            f"task …{str(id)[-8:]} has {what} '{path}'", hint=f"perdure tasks artifacts ls {str(id)[-8:]}"
        )

    async def output(self, task_id: JobId, *, after: tuple[int, int] = (0, 0)) -> AsyncIterator[OutputChunk]:
        """What its runs have written so far, in order. after: attempt and seq of the last chunk that is known."""
        store, id = await self._store(), await self._known(task_id)
        while True:
            chunks = await store.tool_runs.read_output(id, attempt=after[0], after=after[1], limit=_PAGE)
            for chunk in chunks:
                yield chunk
                after = chunk.attempt, chunk.seq
            if len(chunks) < _PAGE:
                return

    async def kinds(self) -> list[str]:
        """The kinds of the tasks that the database has or had: `cli.` and the name of a tool."""
        return [kind for kind in await (await self._store()).schema.kinds() if kind.startswith(KIND_PREFIX)]

    async def _known(self, task_id: JobId) -> UUID:
        """The id of a job that exists."""
        return (await self._jobs.get(task_id)).id


def retries_of(max_attempts: int | None) -> int | None:
    """The retries that so many attempts are. Raises InvalidTask."""
    if max_attempts is not None and not 1 <= max_attempts <= MAX_ATTEMPTS:
        raise InvalidTask(f"max_attempts must be from 1 to {MAX_ATTEMPTS}, got {max_attempts}")
    return None if max_attempts is None else max_attempts - 1


async def account_of(accounts: AccountStore, task: TaskSpec) -> Account | None:
    """The account that a task names, None if it names none. Raises AccountNotFound; InvalidTask if it is one of another tool."""
    if task.any_account:
        return None
    account = (await accounts.get_account(task.account or "")).account
    if account.tool != task.tool:
        raise InvalidTask(
            f"account '{task.account}' is one of {account.tool}, and the task is for {task.tool}",
            hint=f"name an account of {task.tool}, or none",
        )
    return account


def check_enabled(account: Account) -> None:
    """Raises AccountDisabled."""
    if not account.enabled:
        raise AccountDisabled(
            f"account '{account.id}' is disabled",
            hint=f"perdure accounts enable {account.id}, or name another one",
        )


def check_inputs(task: TaskSpec, files: Mapping[str, bytes | Path]) -> None:
    """Raises InvalidTask for an input without a content, UnsafePath."""
    if missing := [path for path in task.input_files if path not in files]:
        raise InvalidTask(
            f"input_files names {missing[0]}, whose content is not given", hint="pass files={path: content}"
        )
    for path in files:
        check_path(path, "files")


async def kept_inputs(store: FileStore, files: Mapping[str, bytes | Path]) -> builtins.list[NewFile]:
    """The inputs, with their large contents in the blob directory."""
    kept: list[NewFile] = []
    left = store.limit()
    for path, content in files.items():
        with (
            await asyncio.to_thread(content.open, "rb") if isinstance(content, Path) else io.BytesIO(content) as source
        ):
            kept.append(await store.keep(path, source, most=left))
        left -= kept[-1].size
    return kept
