"""The records of an export: JSON objects, one per line, with a `record` that names their type. docs/retention.md describes
them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from perdure.model.approvals import Approval
from perdure.model.children import ChildState
from perdure.model.cost import text_of_cost
from perdure.model.errors import ContentDamaged, ContentMissing
from perdure.model.events import RESERVED_TYPES, Event
from perdure.model.jobs import Job, RunRecord
from perdure.model.signals import Signal
from perdure.store.protocol import Store

FORMAT = 1
"""The `v` of every record. A change that would mislead a reader of the former version increases it."""

Record = dict[str, Any]
"""A JSON object: `v`, `record` (job, run, approval, signal, event, output, child or end), `job_id`, and its own fields."""

# Characters that some programs read as line ends, and lone surrogates, which JSON can express and UTF-8 cannot.
_ESCAPED = re.compile("[\x85\u2028\u2029\ud800-\udfff]")

PAGE_CHARACTERS = 1_000_000
"""Pages of events are made larger or smaller to hold about this much text."""
MOST_EVENTS = 1000
HIDDEN = "[redacted]"

# The fields of perdure's own events that a redacted export shows: how the job went, not what it was about.
_PLAIN_KEYS = frozenset(
    {
        "key",
        "kind",
        "error_kind",
        "approval",
        "signal",
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
        "tags",
        "unique_key",
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
    "signal": ("payload", "caller_id", "actor", "refused"),
}


async def records_of(store: Store, job_id: UUID, *, redact: bool = False) -> AsyncIterator[Record]:
    """The records of one job: the job, its runs, approvals, signals, its events up to the job's version, and an end that counts
    them. Holds a few events at a time. Raises JobNotFound, also if the job is pruned meanwhile; then there is no end.

    redact: in payloads, results and names of people, texts become `[redacted]`, numbers 0 and booleans false; keys stay.
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
    signals = await store.signals.list_signals(job_id)
    for signal in signals:
        yield _shown("signal", signal, redact)
    events, spawned, outputs = 0, list[UUID](), list[Record]()
    async for event in _events(store, job):  # last: if they are complete, the job was not pruned before
        events += 1
        if event.type == "child_spawned" and isinstance(event.payload, dict):
            spawned.append(UUID(event.payload["child"]))
        if event.type == "tool_returned" and isinstance(event.payload, dict) and "stored" in event.payload:
            outputs.append(event.payload["stored"])
        yield _event(event, redact)
    if events < job.version:
        await store.jobs.get_job(job_id)
    for place in outputs:
        yield await _output(store, job_id, place, redact)
    children = await store.children.read_children(spawned) if spawned else []
    for child in children:
        if child.status.terminal and not child.pruned:
            yield _child(job_id, child, redact)
    counted = {"runs": len(runs), "approvals": approvals, "signals": len(signals), "events": events}
    hidden = {"redacted": True} if redact else {}
    yield {"v": FORMAT, "record": "end", "job_id": str(job_id), **counted, **hidden}


async def _events(store: Store, job: Job) -> AsyncIterator[Event]:
    """The job's log up to the job's version, read in pages that are small if the events are large."""
    after, limit = 0, 16
    while after < job.version:
        page = await store.jobs.list_events(job.id, after=after, limit=min(limit, job.version - after))
        if not page:
            return
        for event in page:
            yield event
        after = page[-1].version
        size = sum(len(json.dumps(event.payload)) for event in page)
        if size < PAGE_CHARACTERS / 4:
            limit *= 4
        elif size > PAGE_CHARACTERS:
            limit = max(1, limit // 4)
        limit = min(limit, MOST_EVENTS)


def line_of(record: Record) -> str:
    """A record as one line of UTF-8 text, without a line end: every program that splits lines reads it as one."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _ESCAPED.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def _shown(what: str, thing: Job | RunRecord | Approval | Signal, redact: bool) -> Record:
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


def _child(job_id: UUID, child: ChildState, redact: bool) -> Record:
    """What a job that waited for this child got of it."""
    result = None if child.result is None else json.loads(child.result)
    shown: Record = {
        "id": str(child.id),
        "kind": child.kind,
        "status": str(child.status),
        "error_kind": child.error_kind,
    }
    shown |= {"result": _hidden(result), "error": _hidden(child.error), "redacted": True} if redact else {}
    return {"v": FORMAT, "record": "child", "job_id": str(job_id), "result": result, "error": child.error, **shown}


async def _output(store: Store, job_id: UUID, place: Record, redact: bool) -> Record:
    """A large output of a tool. One that cannot be read keeps no other job from being exported: it says why in its place."""
    shown: Record = {"v": FORMAT, "record": "output", "job_id": str(job_id), "of": place["job"]}
    shown |= {"attempt": place["attempt"], "path": place["path"]}
    if redact:
        return shown | {"content": None, "redacted": True}
    of, attempt = UUID(place["job"]), place["attempt"]
    try:
        content = await store.files.read_file(of, place["path"], is_input=False, attempt=attempt)
    except (ContentMissing, ContentDamaged) as error:
        return shown | {"content": None, "missing": str(error)}
    return shown | {"content": None if content is None else json.loads(content)}


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
    """The value with its structure and without its content."""
    try:
        return _masked(value)
    except RecursionError:
        return HIDDEN


def _masked(value: Any) -> Any:
    match value:
        case dict():
            return {k: _masked(v) for k, v in value.items()}
        case list():
            return [_masked(v) for v in value]
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
        case Decimal():
            return text_of_cost(value)
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case tuple():
            return [_plain(v) for v in value]
        case _:
            return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
