"""Following a log as it grows, on any store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from perdure.model.events import Event
from perdure.store.heads import moved_on
from perdure.store.protocol import Store


async def follow(store: Store, job_id: UUID, *, after: int = 0) -> AsyncIterator[Event]:
    """Yield the events of a job after version `after`, in order, none twice and none skipped, as they are committed, on any
    store and across processes; end after the event that makes the job terminal. Raises `JobNotFound`."""
    await store.jobs.get_job(job_id)
    while True:
        events = await store.jobs.list_events(job_id, after=after)
        for event in events:
            yield event
            after = event.version
            if event.new_status is not None and event.new_status.terminal:
                return
        if not events and (await store.jobs.get_job(job_id)).status.terminal:
            if not await store.jobs.list_events(job_id, after=after, limit=1):
                return
            continue
        await moved_on(store, job_id, after=after)
