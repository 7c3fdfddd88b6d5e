"""Workers as rows."""

from __future__ import annotations

from perdure.model.ids import MIN_SUFFIX_DIGITS
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.store.errors import ambiguous_id, worker_not_found
from perdure.store.postgres.engine.codec import SPELLING
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.rows import worker_of


class Workers(Base):
    """See `protocol.WorkerStore`."""

    async def register_worker(self, info: WorkerInfo) -> None:
        """See `protocol.WorkerStore.register_worker`."""
        await self._db.rows(
            "register_worker", info.id, self.tenant, info.host, info.pid, list(info.queues), list(info.kinds), info.concurrency,
            info.state.value,
        )  # fmt: skip

    async def beat_worker(self, worker_id: str, *, state: WorkerState) -> WorkerCommand | None:
        """See `protocol.WorkerStore.beat_worker`."""
        row = await self._db.row("beat_worker", worker_id, state.value, self.tenant)
        return None if row is None or row["command"] is None else WorkerCommand(row["command"])

    async def list_workers(self, *, include_stopped: bool = False) -> list[WorkerInfo]:
        """See `protocol.WorkerStore.list_workers`."""
        return [worker_of(row, SPELLING) for row in await self._db.rows("list_workers", self.tenant, include_stopped)]

    async def command_worker(self, worker_id: str, command: WorkerCommand) -> None:
        """See `protocol.WorkerStore.command_worker`."""
        text = worker_id.strip().lstrip("…")
        found = [row["id"] for row in await self._db.rows("find_worker", text, self.tenant)] if text else []
        if not found:
            raise worker_not_found(worker_id)
        if found[0] != text and (len(found) > 1 or len(text) < MIN_SUFFIX_DIGITS):
            raise ambiguous_id(worker_id)
        await self._db.rows("command_worker", found[0], command.value)
        self._bell.ring("work")
