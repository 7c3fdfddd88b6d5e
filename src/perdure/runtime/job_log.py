"""Reading the events of some types from a job's log, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from perdure.model.events import Event
from perdure.store.protocol import Store

_PAGE = 1000


async def events_of(store: Store, job_id: UUID, types: Sequence[str]) -> list[Event]:
    """The events of these types, in order."""
    found: list[Event] = []
    while page := await store.jobs.list_events(
        job_id, after=found[-1].version if found else 0, limit=_PAGE, types=types
    ):
        found += page
        if len(page) < _PAGE:
            break
    return found
