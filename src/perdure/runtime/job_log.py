"""Reading a job's log: the events of some types, page by page, and its working memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

from perdure.model.actions import ACTION_TYPES, actions_of
from perdure.model.conversation import CONVERSATION_TYPES, messages_of, variables_in
from perdure.model.events import Event
from perdure.model.working_memory import Memory
from perdure.store.protocol import Store

_PAGE = 1000


async def events_of(store: Store, job_id: UUID, types: Sequence[str]) -> list[Event]:
    """The events of these types, in order."""
    return await _pages(partial(store.jobs.list_events, job_id, types=types))


async def pruned_events_of(store: Store, job_id: UUID, types: Sequence[str]) -> list[Event]:
    """The same of what a prune has kept of a job."""
    return await _pages(partial(store.retention.list_pruned_memory, job_id, types=types))


async def _pages(read: Callable[..., Awaitable[list[Event]]]) -> list[Event]:
    found: list[Event] = []
    while page := await read(after=found[-1].version if found else 0, limit=_PAGE):
        found += page
        if len(page) < _PAGE:
            break
    return found


async def read_memory(store: Store, job_id: UUID) -> Memory:
    """The working memory of a job; an unknown job has an empty one."""
    events = await events_of(store, job_id, (*CONVERSATION_TYPES, *ACTION_TYPES))
    noted = [(event.type, event.payload) for event in events if event.type in CONVERSATION_TYPES]
    return Memory(job_id, tuple(messages_of(events)), tuple(actions_of(events)), variables_in(noted))
