"""`client.tasks`, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from perdure.model.task_records import JobFile, OutputChunk, TaskResult, ToolRun
from perdure.model.timing import Duration
from perdure.model.tooling import TaskSpec
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.base import JobId
from perdure.runtime.client.tasks import Tasks as AsyncTasks
from perdure.store.protocol.blobs import Writable
from perdure.sync.handle import Handle


class Tasks:
    """See `perdure.Client.tasks`."""

    def __init__(self, tasks: AsyncTasks, background: BackgroundLoop) -> None:
        self._tasks = tasks
        self._background = background

    def enqueue(
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
        """See `Tasks.enqueue`."""
        handle = self._background.run(
            self._tasks.enqueue(
                task,
                files=files,
                priority=priority,
                max_attempts=max_attempts,
                delay=delay,
                run_at=run_at,
                deadline=deadline,
                idempotency_key=idempotency_key,
                goal=goal,
            )
        )
        return Handle(handle, self._background)

    def runs(self, task_id: JobId) -> list[ToolRun]:
        """See `Tasks.runs`."""
        return self._background.run(self._tasks.runs(task_id))

    def files(self, task_id: JobId) -> list[JobFile]:
        """See `Tasks.files`."""
        return self._background.run(self._tasks.files(task_id))

    def read_file(self, task_id: JobId, path: str, *, attempt: int | None = None, is_input: bool = False) -> bytes:
        """See `Tasks.read_file`."""
        return self._background.run(self._tasks.read_file(task_id, path, attempt=attempt, is_input=is_input))

    def copy_file(
        self, task_id: JobId, path: str, to: Writable, *, attempt: int | None = None, is_input: bool = False
    ) -> int:
        """See `Tasks.copy_file`."""
        return self._background.run(self._tasks.copy_file(task_id, path, to, attempt=attempt, is_input=is_input))

    def output(self, task_id: JobId, *, after: tuple[int, int] = (0, 0)) -> Iterator[OutputChunk]:
        """See `Tasks.output`."""
        return self._background.iterate(self._tasks.output(task_id, after=after))

    def kinds(self) -> list[str]:
        """See `Tasks.kinds`."""
        return self._background.run(self._tasks.kinds())
