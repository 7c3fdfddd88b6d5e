"""What belongs to a batch, read from the log and the children of its callback."""

from __future__ import annotations

from uuid import UUID

from perdure.model.batches import Batch, batch_in
from perdure.model.errors import InvalidInput
from perdure.model.events import Event
from perdure.model.ids import short_id
from perdure.store.protocol import Store

_PAGE = 1000


async def batch_of(store: Store, job_id: UUID) -> Batch:
    """The batch whose callback this job is, or is a rerun or a fork of. Raises InvalidInput if it is no callback, JobNotFound."""
    id = job_id
    while True:
        started = await store.jobs.list_events(id, limit=1, types=["wait_started"])
        batch_id = batch_in(started[0].payload.get("subject")) if started else None
        if batch_id is not None:
            break
        job = await store.jobs.get_job(id)
        if job.origin_id is None:
            raise InvalidInput(f"job …{short_id(job_id)} is not the callback of a batch")
        id = job.origin_id
    children = await store.children.list_children(batch_id)
    spawned: set[str] = set()  # by the callback itself
    page: list[Event] = []
    while page := await store.jobs.list_events(
        batch_id, after=page[-1].version if page else 0, limit=_PAGE, types=["child_spawned"]
    ):
        spawned.update(event.payload["child"] for event in page)
    return Batch(batch_id, tuple(child for child in children if str(child.id) not in spawned))
