"""`client.database`, blocking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from os import PathLike

from perdure.model.figures import LiveJobs
from perdure.model.fsck_faults import Finding
from perdure.model.retention import StoreSizes
from perdure.model.states import Status
from perdure.model.timing import Duration
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.database import Database as AsyncDatabase
from perdure.runtime.retention import BATCH
from perdure.store.protocol import Migration, SchemaStatus


class Database:
    """See `perdure.Client.database`; each call does what the one of the same name does there."""

    def __init__(self, database: AsyncDatabase, background: BackgroundLoop) -> None:
        self._database = database
        self._background = background

    def schema_status(self) -> SchemaStatus:
        """See `Database.schema_status`."""
        return self._background.run(self._database.schema_status())

    def migrate(self) -> list[Migration]:
        """See `Database.migrate`."""
        return self._background.run(self._database.migrate())

    def now(self) -> datetime:
        """See `Database.now`."""
        return self._background.run(self._database.now())

    def sizes(self) -> StoreSizes:
        """See `Database.sizes`."""
        return self._background.run(self._database.sizes())

    def live_jobs(self) -> tuple[LiveJobs, ...]:
        """See `Database.live_jobs`."""
        return self._background.run(self._database.live_jobs())

    def blocked_by(self) -> str | None:
        """See `Database.blocked_by`."""
        return self._background.run(self._database.blocked_by())

    def backup(self, file: str | PathLike[str], *, overwrite: bool = False) -> int:
        """See `Database.backup`."""
        return self._background.run(self._database.backup(file, overwrite=overwrite))

    def fsck(self, *, fix: bool = False, deep: bool = False) -> Iterator[Finding]:
        """See `Database.fsck`."""
        return self._background.iterate(self._database.fsck(fix=fix, deep=deep))

    def prune(
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
        """See `Database.prune`. `on_batch` is called in the background thread."""
        return self._background.run(
            self._database.prune(
                older_than=older_than,
                status=status,
                kind=kind,
                queue=queue,
                keep_logs=keep_logs,
                export=export,
                batch=batch,
                dry_run=dry_run,
                on_batch=on_batch,
            )
        )
