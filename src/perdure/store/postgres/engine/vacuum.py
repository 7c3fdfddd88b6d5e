"""VACUUM of the two tables that every job passes through.

A claim deletes a row of job_queue, an end one of job_claims. What is left of them lies where the next claims look first, and
autovacuum comes once a minute: a busy minute leaves a million dead rows, and every claim reads past them.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from perdure.store.postgres.engine.connections import borrowed
from perdure.store.postgres.engine.database import Database
from perdure.store.postgres.engine.statements import STATEMENTS

CLAIMS = 20_000
"""Claims of this engine after which it is worth a vacuum: some milliseconds for as many dead rows."""
SHARE = 0.05
"""Of the time, at most: an open transaction may keep all that is dead, and a long queue makes each vacuum long."""
LONGEST = 600.0
"""Seconds a vacuum may take: of a queue of millions, on a slow disk."""

log = structlog.get_logger("perdure.store")


class Vacuum:
    """Of one engine, in the background. Where it fails, autovacuum is still there. Used from one event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._claims = 0
        self._not_before = 0.0
        self._task: asyncio.Task[None] | None = None
        self._given_up = False

    def claimed(self, jobs: int) -> None:
        """So many more were claimed: begin, if it is time."""
        self._claims += jobs
        if self._claims < CLAIMS or self._given_up or self._task is not None or time.monotonic() < self._not_before:
            return
        self._claims = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Begin no more, and wait for none: the server may finish what it has begun."""
        self._given_up = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        began = time.monotonic()
        try:
            async with borrowed(self._db.pool) as connection:
                row = await connection.fetchrow(STATEMENTS["may_vacuum"].sql)
                if row is None or not row["owned"]:
                    self._given_up = True
                elif not row["busy"]:
                    await connection.execute(STATEMENTS["vacuum"].sql, timeout=LONGEST)
        except Exception as error:  # noqa: BLE001  no caller depends on it
            log.info("vacuum failed; autovacuum will do it", error=str(error) or type(error).__name__)
        finally:
            self._not_before = time.monotonic() + (time.monotonic() - began) / SHARE
            self._task = None
