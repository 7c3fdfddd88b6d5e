"""The connection of claims and heartbeats: its statements are repeated if it breaks, or if they lose against others."""

from __future__ import annotations

from typing import Any

from perdure.store.group_commit.retry import UNCONNECTED, Failure, Retries
from perdure.store.postgres.engine.connections import WRITE_TIMEOUT
from perdure.store.postgres.engine.database import Database
from perdure.store.postgres.engine.driver_errors import DAMAGED, failure_of, raise_translated
from perdure.store.postgres.engine.hot_connection import HotConnection
from perdure.store.rows import Row

HOT_STATEMENTS = (
    "claim",
    "claim_limited",
    "claim_front",
    "drop_stale_claim",
    "push_back",
    "next_due",
    "waiting_lanes",
    "release_held",
    "heartbeat",
    "still_held",
)

SHORTEST_TIME_LIMIT = 2.0
"""Seconds an answer may take however short the leases are."""


class LeaseConnection:
    """One per engine. A claim that was lost with its connection is reaped, unstarted, at no cost."""

    def __init__(self, hot: HotConnection, database: Database) -> None:
        self._hot = hot
        self._database = database
        self._time_limit = WRITE_TIMEOUT

    def limit_for(self, ttl: float) -> None:
        """Wait for answers well under `ttl` seconds from now on: a connection that gives none must not cost a lease."""
        self._time_limit = max(SHORTEST_TIME_LIMIT, min(WRITE_TIMEOUT, ttl / 3))

    async def rows(self, name: str, /, **values: Any) -> list[Row]:
        """All rows of a named statement."""
        retries = Retries(even_late=UNCONNECTED)
        while True:
            try:
                return await self._hot.rows_within(self._time_limit, name, **values)
            except DAMAGED:
                raise
            except Exception as error:  # noqa: BLE001  raised again unless it can be retried
                failure = failure_of(error)
                if failure is Failure.BLOCKED:  # wait for it elsewhere, where no other caller must wait as well
                    return await self._database.rows(name, **values)
                if not await retries.again(failure):
                    raise_translated(error)
