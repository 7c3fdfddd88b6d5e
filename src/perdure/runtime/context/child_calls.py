"""What a context does with children: spawning them, waiting for them, and running coding CLIs as children."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, overload
from uuid import UUID

from perdure.model.batches import Batch
from perdure.model.errors import ChildError
from perdure.model.ids import short_id
from perdure.model.task_payload import KIND_PREFIX
from perdure.model.task_records import TaskOutcome
from perdure.model.tooling import TaskSpec
from perdure.model.waits import CHILD
from perdure.runtime.batches import batch_of
from perdure.runtime.client.tasks import retries_of
from perdure.runtime.context import children, tool_tasks
from perdure.runtime.context.calls import Caller
from perdure.runtime.context.children import ChildHandle, SpawnOptions
from perdure.runtime.context.options import DEFAULTS, CallOptions
from perdure.runtime.handle import Handle
from perdure.runtime.registry import Handler
from perdure.runtime.run import Run
from perdure.runtime.validation import check_budget

R = TypeVar("R")
I = TypeVar("I")  # noqa: E741  the child's input
O = TypeVar("O")  # noqa: E741  the child's output


class ChildCalls:
    """The part of `JobContext` that is about children."""

    _options: CallOptions = DEFAULTS
    _run: Run

    @property
    def _caller(self) -> Caller:
        raise NotImplementedError

    def _keyed(self, key: str | None) -> CallOptions:
        """These options, with this key if there is one."""
        raise NotImplementedError

    @overload
    async def spawn(
        self, job: Handler[None, O], /, *, key: str | None = None, **options: Unpack[SpawnOptions]
    ) -> ChildHandle[O]: ...
    @overload
    async def spawn(
        self, job: Handler[I, O], input: I, /, *, key: str | None = None, **options: Unpack[SpawnOptions]
    ) -> ChildHandle[O]: ...
    @overload
    async def spawn(
        self, job: str, input: Any = None, /, *, key: str | None = None, **options: Unpack[SpawnOptions]
    ) -> ChildHandle[Any]: ...
    async def spawn(
        self,
        job: Handler[Any, Any] | str,
        input: Any = None,
        /,
        *,
        key: str | None = None,
        **options: Unpack[SpawnOptions],
    ) -> ChildHandle[Any]:
        """Store a child job, once, in the transaction that records it; a later attempt gets the same child.

        Its name is that of the handler: a second one is `name#2`; parallel calls give `key`. It goes on if this job completes or
        fails; a cancel of this job cancels it, and this job's deadline is its deadline unless its own is earlier. Of this job's
        budget a part is set aside for the child; the approval context that it was enqueued with is the child's too.
        Raises StepChanged if it is recorded with another handler or input, BudgetExceeded, and as `Jobs.enqueue`.
        """
        new, output = children.checked(self._run, job, input, options)
        its_key = await self._caller.enter(children.SPAWN, new.kind, self._keyed(key))
        budget = check_budget(options.get("budget"))
        per_minute = children.rate_of(self._run, job, options)
        id = await children.spawn(self._run, self._options, its_key, new, budget=budget, per_minute=per_minute)
        return ChildHandle(id, new.kind, its_key, output)

    @overload
    async def wait_for(self, child: ChildHandle[R], /) -> R: ...
    @overload
    async def wait_for(self, child: Handle[Any] | UUID, /) -> Any: ...
    async def wait_for(self, child: children.Awaitable, /) -> Any:
        """Wait for the end of a child without holding a worker, and return what it returned, typed as its handler is annotated.

        Survives restarts. Also for a child of another job, given its id. Raises ChildFailed, ChildCancelled, WaitCircle (the
        child waits for this job, or stands above it), InvalidInput for a job without a parent, JobNotFound, JobPruned,
        StepChanged.
        """
        id = children.id_of(child)
        key = await self._caller.enter_wait(child.key if isinstance(child, ChildHandle) else f"job …{short_id(id)}")
        [ended] = await children.wait_for_all(self._run, self._options, key, [id])
        return children.result_of(ended, child.output_type if isinstance(child, ChildHandle) else None)

    async def batch(self) -> Batch:
        """What became of the jobs of the batch whose callback this job is, or is a rerun of. Raises InvalidInput if it is none of
        a batch."""
        with self._run.busy():
            return await batch_of(self._run.store, self._run.claimed.id)

    @overload
    async def gather(self, *of: ChildHandle[R], return_exceptions: Literal[False] = False) -> list[R]: ...
    @overload
    async def gather(self, *of: ChildHandle[R], return_exceptions: Literal[True]) -> list[R | ChildError]: ...
    async def gather(self, *of: ChildHandle[Any], return_exceptions: bool = False) -> list[Any]:
        """Wait until all of these children have ended, and return their results in the order given. The job is woken once, by the
        last of them, however many there are.

        return_exceptions: a child that failed or was cancelled gives its error in its place; else the first such error is raised,
        after all have ended. The second gather has the key `gather#2`; parallel ones give options(key=...). Raises as `wait_for`.
        """
        key = await self._caller.enter(CHILD.name, "gather", self._options)
        ids = [children.id_of(child) for child in of]
        if not ids:
            return []
        states = await children.wait_for_all(self._run, self._options, key, list(dict.fromkeys(ids)))
        ended = {state.id: state for state in states}
        results: list[Any] = []
        for child in of:
            try:
                results.append(children.result_of(ended[child.id], child.output_type))
            except ChildError as error:
                if not return_exceptions:
                    raise
                results.append(error)
        return results

    async def run_tool(
        self,
        task: TaskSpec,
        /,
        *,
        files: Mapping[str, bytes | Path] | None = None,
        key: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        goal: str | None = None,
    ) -> TaskOutcome:
        """Run a coding CLI as a child of kind `cli.<tool>`, and wait for its end without holding a worker.

        It runs once for this key (`cli.codex`, `cli.codex#2`, ...; parallel calls give `key`), however often this job is
        replayed. files: input files by their path in the workspace. The `extra_env` of this job is added to its environment.
        max_attempts: 3 unless given. A task that failed gives `ok=False` and its error. Workers that serve the tool run it:
        `perdure worker start --tools codex`. To an `ApprovalContext` it is the tool `cli.codex`.
        Raises UnknownTool, PromptTooLarge, InvalidTask, UnsafePath, FilesTooLarge, AccountNotFound, AccountDisabled,
        StepChanged, ToolNotAllowed, Denied.
        """
        task = task.with_env(self._run.history.fields.extra_env)
        tool_tasks.checked(self._run, task, files or {})
        given = SpawnOptions()
        if priority is not None:
            given["priority"] = priority
        if (max_retries := retries_of(max_attempts)) is not None:
            given["max_retries"] = max_retries
        if goal is not None:
            given["goal"] = goal
        its_key = await self._caller.enter(children.SPAWN, KIND_PREFIX + task.tool, self._keyed(key))
        admit = partial(self._caller.admit_task, children.SPAWN, options=self._options)
        id = await tool_tasks.spawn_task(self._run, self._options, its_key, task, files or {}, given, admit)
        [ended] = await children.wait_for_all(self._run, self._options, await self._caller.enter_wait(its_key), [id])
        return await tool_tasks.outcome_of_task(self._run, ended)

    async def read_file(self, task: TaskOutcome, path: str) -> bytes:
        """The content of a file that a task has written. Raises FileNotFound, ContentMissing, ContentDamaged."""
        return await tool_tasks.read_file(self._run, task.task_id, path)
