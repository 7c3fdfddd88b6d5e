"""The rows of workers. Part of `protocol.Store`."""

from __future__ import annotations

from typing import Protocol

from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState


class WorkerStore(Protocol):
    """The rows of workers, by which people see and control them."""

    async def register_worker(self, info: WorkerInfo) -> None:
        """Insert the worker's row, heartbeat now."""
        ...

    async def beat_worker(
        self, worker_id: str, *, state: WorkerState, hung: int = 0, blocked: int = 0
    ) -> WorkerCommand | None:
        """Renew the worker's row and return what an operator asks of it, if anything. A missing row is not an error. hung: how
        many calls go on in it though their attempt has ended. blocked: how often its event loop stood still."""
        ...

    async def list_workers(self, *, include_stopped: bool = False) -> list[WorkerInfo]:
        """Workers, newest first, with their live leases counted. A worker without a heartbeat for 15 s has alive=False."""
        ...

    async def command_worker(self, worker_id: str, command: WorkerCommand) -> None:
        """Ask a worker to drain or stop; a suffix of 6+ characters is accepted. Raises `WorkerNotFound`, `AmbiguousId`."""
        ...
