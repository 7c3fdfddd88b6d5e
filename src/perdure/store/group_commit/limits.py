"""How much text a call brings: what is written together is bounded by its size as well as by its number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from perdure.model.effects import Effect
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease, NewJob, Outcome

T = TypeVar("T")

MOST_TEXT = 8 * 1024 * 1024
"""Characters of one write; a single item that is larger goes alone."""
MOST_ITEMS = 500
"""Items of one write: beyond this a larger one saves nothing."""
ROW = 200
"""Characters that an event counts for besides its payload."""


def text_of_job(job: NewJob) -> int:
    """Of an enqueue."""
    return len(job.payload) + len(job.goal or "") + len(job.note)


def text_of_record(events: Sequence[NewEvent], effects: Sequence[Effect]) -> int:
    """Of a holder's write."""
    size = sum(len(value) for effect in effects for value in effect.row.values() if isinstance(value, str))
    for event in events:
        size += ROW + len(event.payload)
    return size


def text_of_outcome(outcome: Outcome) -> int:
    """Of an attempt's end."""
    return len(outcome.result or "") + len(outcome.error or "") + len(outcome.traceback or "")


def chunks(jobs: Iterable[NewJob]) -> Iterator[Sequence[NewJob]]:
    """The jobs in order, in portions of one write each."""
    return _portions(jobs, text_of_job)


def event_chunks(events: Sequence[NewEvent]) -> Iterator[Sequence[NewEvent]]:
    """The events in order, in portions of one write each."""
    return _portions(events, lambda event: len(event.payload))


def end_chunks(
    ends: Sequence[tuple[Lease, Outcome]], most: int = MOST_ITEMS
) -> Iterator[Sequence[tuple[Lease, Outcome]]]:
    """The ends in order, in portions of one write each, of `most` at most."""
    return _portions(ends, lambda end: text_of_outcome(end[1]), most)


def _portions(items: Iterable[T], size_of: Callable[[T], int], most: int = MOST_ITEMS) -> Iterator[Sequence[T]]:
    portion: list[T] = []
    text = 0
    for item in items:
        size = size_of(item)
        if portion and (len(portion) >= most or text + size > MOST_TEXT):
            yield portion
            portion, text = [], 0
        portion.append(item)
        text += size
    if portion:
        yield portion
