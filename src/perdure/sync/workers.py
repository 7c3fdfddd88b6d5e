"""`client.workers`, blocking."""

from __future__ import annotations

import builtins

from perdure.model.workers import WorkerCommand, WorkerInfo
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.workers import Workers as AsyncWorkers


class Workers:
    """See `perdure.Client.workers`."""

    def __init__(self, workers: AsyncWorkers, background: BackgroundLoop) -> None:
        self._workers = workers
        self._background = background

    def list(self, *, include_stopped: bool = False) -> builtins.list[WorkerInfo]:
        """See `Workers.list`."""
        return self._background.run(self._workers.list(include_stopped=include_stopped))

    def command(self, worker_id: str, command: WorkerCommand) -> None:
        """See `Workers.command`."""
        self._background.run(self._workers.command(worker_id, command))
