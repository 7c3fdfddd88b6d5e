"""How much text a call brings: what is written together is bounded by its size as well as by its number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from perdure.model.events import NewEvent
from perdure.model.jobs import NewJob, Outcome, StatePatch

T = TypeVar("T")

MOST_TEXT = 8 * 1024 * 1024
"""Characters of one write; a single item that is larger goes alone."""
MOST_ITEMS = 500
"""Items of one write: beyond this a larger one saves nothing."""


def text_of_job(job: NewJob) -> int:
    """Of an enqueue."""
    return len(job.payload) + len(job.goal or "") + len(job.note)


def text_of_record(events: Sequence[NewEvent], state: StatePatch | None) -> int:
    """Of a holder's write."""
    size = 0 if state is None or state.checkpoint is None else len(state.checkpoint)
    for event in events:
        size += len(event.payload)
    return size


def text_of_outcome(outcome: Outcome) -> int:
    """Of an attempt's end."""
    return len(outcome.result or "") + len(outcome.error or "")


def chunks(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """The jobs in order, in portions of one write each."""
    return _portions(jobs, text_of_job)


def event_chunks(events: Sequence[NewEvent]) -> Iterator[Sequence[NewEvent]]:
    """The events in order, in portions of one write each."""
    return _portions(events, lambda event: len(event.payload))


def _portions(items: Sequence[T], size_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    start = text = 0
    for n, item in enumerate(items):
        size = size_of(item)
        if n > start and (n - start >= MOST_ITEMS or text + size > MOST_TEXT):
            yield items[start:n]
            start, text = n, 0
        text += size
    if start < len(items):
        yield items[start:]
