"""Jobs as records for an export: JSON objects, one per line, each saying what it is. docs/retention.md describes the format."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from perdure.model.approvals import Approval
from perdure.model.events import RESERVED_TYPES, Event
from perdure.model.jobs import Job, RunRecord
from perdure.store.protocol import Store

FORMAT = 1
"""The `v` of every record; it grows when a reader of the former version would misunderstand."""

Record = dict[str, Any]
"""A JSON object: `v`, `record` (job, run, approval, event or end), `job_id`, and the fields of that thing."""

# Line ends to some, and halves of surrogate pairs, which JSON can spell and UTF-8 cannot.
_AWKWARD = re.compile("[\x85\u2028\u2029\ud800-\udfff]")

SOME_TEXT = 1_000_000
MOST_EVENTS = 1000
HIDDEN = "[redacted]"

# What is left to read of an event of perdure's own when the rest is hidden: how the job went, not what it was about.
_PLAIN_KEYS = frozenset(
    {
        "key",
        "kind",
        "error_kind",
        "approval",
        "decision",
        "worker",
        "via",
        "tokens",
        "cost",
        "retry_count",
        "next_retry_at",
    }
)
_PRIVATE = {
    "job": (
        "goal",
        "payload",
        "result",
        "error_message",
        "note",
        "state.checkpoint",
        "state.progress_text",
        "idempotency_key",
    ),
    "run": ("error_message",),
    "approval": (
        "title",
        "payload",
        "payload_digest",
        "requester",
        "assignees",
        "decided_by",
        "comment",
        "decision_payload",
    ),
}


async def records_of(store: Store, job_id: UUID, *, redact: bool = False) -> AsyncIterator[Record]:
    """Everything about one job, as it stands: the job, its runs, approvals, its events up to that version, and an end that
    counts them. Holds a few events at a time. Raises JobNotFound, also where it is pruned meanwhile: then there is no end.

    redact: texts become `[redacted]`, numbers 0 and truths false wherever a payload, a result or a person shows; keys stay.
    """
    job = await store.jobs.get_job(job_id)
    yield _shown("job", job, redact)
    runs = await store.jobs.list_runs(job_id)
    for run in runs:
        yield _shown("run", run, redact)
    approvals = 0
    cursor: str | None = None
    while True:
        page = await store.approvals.list_approvals(job_id=job_id, limit=20, cursor=cursor)
        for approval in page.items:
            approvals += 1
            yield _shown("approval", approval, redact)
        if (cursor := page.next_cursor) is None:
            break
    events = 0
    async for event in _events(store, job):  # last: if they are there, nothing of the job was gone before
        events += 1
        yield _event(event, redact)
    if events < job.version:
        await store.jobs.get_job(job_id)
    counted = {"runs": len(runs), "approvals": approvals, "events": events}
    hidden = {"redacted": True} if redact else {}
    yield {"v": FORMAT, "record": "end", "job_id": str(job_id), **counted, **hidden}


async def _events(store: Store, job: Job) -> AsyncIterator[Event]:
    """The job's log up to the version it was read at, in pages that are small where the events are large."""
    after, limit = 0, 16
    while after < job.version:
        page = await store.jobs.list_events(job.id, after=after, limit=min(limit, job.version - after))
        if not page:
            return
        for event in page:
            yield event
        after = page[-1].version
        size = sum(len(json.dumps(event.payload)) for event in page)
        limit = limit * 4 if size < SOME_TEXT / 4 else max(1, limit // 4) if size > SOME_TEXT else limit
        limit = min(limit, MOST_EVENTS)


def line_of(record: Record) -> str:
    """A record as one line, without its end: whatever splits lines sees one, and it can be written as UTF-8."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _AWKWARD.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def _shown(what: str, thing: Job | RunRecord | Approval, redact: bool) -> Record:
    fields: Record = _plain(thing)
    if what == "job":
        fields["job_id"] = fields.pop("id")
    if redact:
        for name in _PRIVATE[what]:
            outer, _, inner = name.partition(".")
            if inner:
                fields[outer][inner] = _hidden(fields[outer][inner])
            else:
                fields[outer] = _hidden(fields[outer])
        fields["redacted"] = True
    return {"v": FORMAT, "record": what, "job_id": fields.pop("job_id"), **fields}


def _event(event: Event, redact: bool) -> Record:
    fields: Record = _plain(event)
    if redact:
        own = _PLAIN_KEYS if event.type in RESERVED_TYPES else frozenset()
        payload = fields["payload"]
        if isinstance(payload, dict):
            fields["payload"] = {
                k: v if k in own and not isinstance(v, dict | list) else _hidden(v) for k, v in payload.items()
            }
        else:
            fields["payload"] = _hidden(payload)
        fields["redacted"] = True
    return {"v": FORMAT, "record": "event", "job_id": fields.pop("job_id"), **fields}


def _hidden(value: Any) -> Any:
    """The same shape, and nothing of what it said."""
    try:
        return _shape(value)
    except RecursionError:
        return HIDDEN


def _shape(value: Any) -> Any:
    match value:
        case dict():
            return {k: _shape(v) for k, v in value.items()}
        case list():
            return [_shape(v) for v in value]
        case str():
            return HIDDEN
        case bool():
            return False
        case int() | float():
            return 0
        case _:
            return None


def _plain(value: Any) -> Any:
    """A record's fields as JSON values: ids, times in UTC to the microsecond, enums, and records within."""
    match value:
        case str():
            return str(value)  # an enum is one
        case int() | float() | None | dict() | list():
            return value
        case UUID():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case tuple():
            return [_plain(v) for v in value]
        case _:
            return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
