"""`client.database`: the schema, database time, sizes, checks and pruning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from perdure.model.errors import InvalidInput
from perdure.model.figures import LiveJobs
from perdure.model.retention import ENDS, PruneFilter, StoreSizes
from perdure.model.states import Status
from perdure.model.timing import Duration
from perdure.runtime.client.base import ClientPart
from perdure.runtime.client.fsck import Fsck
from perdure.runtime.client.queries import job_filter
from perdure.runtime.retention import BATCH, WORKERS_KEPT, Forgetting, Pruning, count
from perdure.runtime.validation import check_seconds
from perdure.store.protocol import Migration, SchemaStatus

MOST_AT_ONCE = 10_000


class Database(ClientPart):
    """The schema, database time, sizes, checks and pruning."""

    async def schema_status(self) -> SchemaStatus:
        """What the database has and what this version needs; also of a database without a schema, or with a newer one.

        Raises MalformedUrl, StoreUnreachable, ForeignDatabase.
        """
        return await self._scope.holder.backend.schema_status()

    async def migrate(self) -> list[Migration]:
        """Create or upgrade the schema; return what was applied. One process migrates at a time; a migration is applied whole or
        not at all.

        Tables of other programs are allowed, unless they are in the way: in a SQLite file one of the same name as one of
        perdure's, on PostgreSQL any in a schema `perdure`. Raises MalformedUrl, StoreUnreachable, ForeignDatabase, SchemaTooNew,
        MigrationChanged.
        """
        return await self._scope.holder.backend.migrate()

    async def now(self) -> datetime:
        """Database time, UTC: the clock by which leases, timers, deadlines and expiry are judged. Raises as `App.open`."""
        return await (await self._store()).now()

    async def sizes(self) -> StoreSizes:
        """How much space tables and indexes take, largest first, found out without reading them. Raises as `App.open`."""
        return await (await self._store()).figures.sizes()

    async def live_jobs(self) -> tuple[LiveJobs, ...]:
        """The jobs that are not finished, counted by kind, queue and status, and how long the first that is due has waited for a
        worker. It costs a look at each of them. Raises as `App.open`.
        """
        return (await (await self._store()).figures.snapshot()).jobs

    async def blocked_by(self) -> str | None:
        """The process that holds the lock file of a SQLite database for longer than a moment, in words; None: none does.

        It takes a second to be sure. Raises as `App.open`.
        """
        return await (await self._store()).checks.blocked_by()

    async def backup(self, file: str | PathLike[str], *, overwrite: bool = False) -> int:
        """Copy a SQLite database to another file, as it is at one moment, while workers run; return how many bytes it has.

        Its schema may also be older or newer than this perdure's. The copy has mode 0600, and is there when it is complete and
        synced. overwrite: replace a file that is there. Raises InvalidInput for a file that exists, or is the database itself,
        and for PostgreSQL, where pg_dump makes backups; StoreError if the copy cannot be written; MalformedUrl, StoreUnreachable.
        """
        return await self._scope.holder.backend.backup(fspath(file), overwrite=overwrite)

    def fsck(self, *, fix: bool = False, deep: bool = False) -> Fsck:
        """Check that every job fits its log, that no row is missing or left over, and that the schema is whole:
        `async for finding in app.database.fsck()`. A database without damage gives only notes (`finding.note`).

        fix: repair what is safe, each repair in a transaction of its own; it is reported with fixed=True once it is committed.
        deep: read the content of every file of a task, and compare its hash. Without it, only whether large files are there.
        It takes time in proportion to the database, memory for a few jobs, and blocks no worker. It checks the jobs of
        this client's tenant. Raises ForeignDatabase, SchemaMissing, SchemaOutdated, SchemaTooNew, StoreUnreachable.
        """
        return Fsck(self._store, fix=fix, deep=deep, embedder=self._scope.registry.choose_embedder)

    async def prune(
        self,
        *,
        older_than: Duration,
        status: str | Status | Sequence[str | Status] = (),
        kind: str | Sequence[str] = (),
        queue: str | Sequence[str] = (),
        keep_logs: bool = False,
        export: str | PathLike[str] | None = None,
        batch: int = BATCH,
        dry_run: bool = False,
        on_batch: Callable[[int], None] | None = None,
    ) -> int:
        """Delete jobs that ended at least `older_than` (seconds or text) ago, with their logs, permanently; return how many.

        One transaction per batch of at most `batch` jobs, fewer if they are large; `on_batch` is called with the number so
        far after each. Stopped at any moment it leaves whole jobs, and another call goes on.
        status: only jobs that ended so. keep_logs: only payloads, results and checkpoints are deleted. export: a file (JSON
        lines; gzipped if it ends in .gz) to which each job is appended and synced before the transaction that deletes it.
        dry_run: only count jobs. Without filters it also deletes the rows of workers without a heartbeat for that long, at least
        a day, and messages and signals to agents as old that no job will get any more.
        Raises InvalidInput, and StoreError if the export cannot be written.
        """
        wanted = _wanted(older_than, status, kind, queue, heavy=keep_logs)
        _check_batch(batch)
        store = await self._store()
        if dry_run:
            return await count(store, wanted)
        path = None if export is None else Path(fspath(export))
        reported = 0
        with Pruning(store, wanted, batch=batch, keep_logs=keep_logs, archive=path) as pruning:
            going = True
            while going:
                try:
                    going = await pruning.step()
                finally:
                    if on_batch is not None and pruning.pruned > reported:
                        reported = pruning.pruned
                        on_batch(reported)
        if not (status or kind or queue):
            await store.retention.forget_workers(max(wanted.older_than, WORKERS_KEPT))
            forgetting = Forgetting(store, wanted.older_than)
            while await forgetting.step():
                pass
        await store.files.forget_contents()
        return pruning.pruned


def _wanted(older_than: Any, status: Any, kind: Any, queue: Any, *, heavy: bool) -> PruneFilter:
    """A filter from what a person wrote. Raises InvalidInput for a status that is not terminal, and for an invalid age."""
    filter = job_filter(status, kind, queue)
    if live := [s for s in filter.statuses if not s.terminal]:
        raise InvalidInput(
            f"jobs in {live[0]} are not finished, and only finished jobs are pruned",
            hint=f"give one of: {', '.join(ENDS)}",
        )
    age = check_seconds(older_than, "older_than")
    return PruneFilter(age, filter.statuses or ENDS, filter.kinds, filter.queues, heavy=heavy)


def _check_batch(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_AT_ONCE:
        raise InvalidInput(f"batch is a whole number from 1 to {MOST_AT_ONCE}, got {value!r}")
