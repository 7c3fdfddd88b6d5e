"""Workers of one tenant as rows."""

from __future__ import annotations

from datetime import timedelta

from perdure.model.ids import MIN_SUFFIX_DIGITS
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.store.errors import ambiguous_id, worker_not_found
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.engine import Engine
from perdure.store.rows import worker_of


class PostgresWorkers:
    """See `protocol.WorkerStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._notifier = engine.notifier
        self._tenant_id = tenant_id

    async def register_worker(self, info: WorkerInfo) -> None:
        """See `protocol.WorkerStore.register_worker`."""
        await self._database.rows(
            "register_worker",
            worker_id=info.id,
            tenant_id=self._tenant_id,
            host=info.host,
            pid=info.pid,
            queues=list(info.queues),
            kinds=list(info.kinds),
            concurrency=info.concurrency,
            grace=timedelta(seconds=info.grace),
            version=info.version,
            state=info.state.value,
        )

    async def beat_worker(
        self, worker_id: str, *, state: WorkerState, hung: int = 0, blocked: int = 0
    ) -> WorkerCommand | None:
        """See `protocol.WorkerStore.beat_worker`."""
        row = await self._database.row(
            "beat_worker", worker_id=worker_id, state=state.value, hung=hung, blocked=blocked, tenant_id=self._tenant_id
        )
        return None if row is None or row["command"] is None else WorkerCommand(row["command"])

    async def list_workers(self, *, include_stopped: bool = False) -> list[WorkerInfo]:
        """See `protocol.WorkerStore.list_workers`."""
        rows = await self._database.rows("list_workers", tenant_id=self._tenant_id, include_stopped=include_stopped)
        return [worker_of(row, CODEC) for row in rows]

    async def command_worker(self, worker_id: str, command: WorkerCommand) -> None:
        """See `protocol.WorkerStore.command_worker`."""
        text = worker_id.strip().lstrip("…")
        rows = await self._database.rows("find_worker", text=text, tenant_id=self._tenant_id) if text else []
        found = [row["id"] for row in rows]
        if not found:
            raise worker_not_found(worker_id)
        if found[0] != text and (len(found) > 1 or len(text) < MIN_SUFFIX_DIGITS):
            raise ambiguous_id(worker_id)
        await self._database.rows("command_worker", worker_id=found[0], command=command.value)
        self._notifier.notify(self._tenant_id, "work")
