"""`client.workers`: the workers that share the database."""

from __future__ import annotations

import builtins

from perdure.model.workers import WorkerCommand, WorkerInfo
from perdure.runtime.client.base import ClientPart


class Workers(ClientPart):
    """The workers that share the database."""

    async def list(self, *, include_stopped: bool = False) -> builtins.list[WorkerInfo]:
        """The workers that share this database."""
        return await (await self._store()).workers.list_workers(include_stopped=include_stopped)

    async def command(self, worker_id: str, command: WorkerCommand) -> None:
        """Ask a worker to drain or stop. Raises WorkerNotFound, AmbiguousId."""
        await (await self._store()).workers.command_worker(worker_id, command)
