"""The export of jobs by a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from perdure.model.errors import InvalidInput, JobNotFound
from perdure.model.states import Status
from perdure.runtime.client.base import JobId
from perdure.runtime.client.queries import JobQueries
from perdure.runtime.export_records import Record, records_of

PAGE = 20


class JobExport(JobQueries):
    """See `jobs.Jobs`."""

    async def export(
        self,
        *job_ids: JobId,
        redact: bool = False,
        status: str | Status | Sequence[str | Status] = (),
        kind: str | Sequence[str] = (),
        queue: str | Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        search: str | None = None,
        tags: str | Sequence[str] = (),
    ) -> AsyncIterator[Record]:
        """Jobs with all that is stored of them, as JSON objects: for each a `job`, its `run`s, `approval`s and `event`s, and an
        `end`. With ids, in their order; with filters as in `list`, or without either, newest first.

        It reads a few jobs or events at a time. redact: payloads, results and names of people are masked, their structure stays.
        A token is never exported. Raises JobNotFound, AmbiguousId, InvalidInput.
        """
        store = await self._store()
        filters: dict[str, Any] = {
            "status": status,
            "kind": kind,
            "queue": queue,
            "since": since,
            "until": until,
            "search": search,
            "tags": tags,
        }
        if job_ids:
            if any(filters.values()):
                raise InvalidInput("export takes ids or filters, not both")
            for id in [await self._id(job_id) for job_id in job_ids]:
                async for record in records_of(store, id, redact=redact):
                    yield record
            return
        cursor: str | None = None
        while True:
            page = await self.list(**filters, limit=PAGE, cursor=cursor)
            for job in page.items:
                try:
                    async for record in records_of(store, job.id, redact=redact):
                        yield record
                except JobNotFound:
                    continue  # it has just been pruned
            if (cursor := page.next_cursor) is None:
                return
