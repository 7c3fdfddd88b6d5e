"""Effects: what commits together with a job's events, or with the end of its attempt. An effect is the name of a statement of the
store and its row.

The store runs the effects of many calls together, each statement once, and only for jobs whose lease is live. It adds the job and
the time to the row, whose other fields have the names of the statement's parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from perdure.model.budgets import Amounts
from perdure.model.cost import ZERO
from perdure.model.documents import DocumentRange, NewDocument
from perdure.model.events import NewEvent
from perdure.model.ids import uuid7
from perdure.model.jobs import NewJob, Wait
from perdure.model.memory import NewMemory
from perdure.model.messages import NewMessage
from perdure.model.task_records import ToolRun

LOCK_ORDER = (
    "patch_state",
    "send_message",
    "release_messages",
    "look_at_mailbox",
    "withdraw_approvals",
    "settle_waits",
    "release_signals",
    "refuse_signals",
    "close_waits",
    "open_wait",
    "await_jobs",
    "bind_signals",
    "answer_bound",
    "spawn_job",
    "spawn_event",
    "spawn_head",
    "add_tool_run",
    "memory_scope",
    "memory_entry",
    "memory_terms",
    "memory_vector",
    "remove_range",
    "add_document",
    "spend_budget",
    "raise_budget",
    "use_hold",
    "release_hold",
)
"""The statements, in the order in which they run, which is that of their locks. A new effect is one more statement in
`leases/effects.sql` of both dialects, its name here, and a function that makes it."""


class Effect(NamedTuple):
    """One row for a named statement."""

    statement: str
    row: Mapping[str, Any]


def patch_state(
    *,
    checkpoint: str | None = None,
    progress: float | None = None,
    progress_text: str | None = None,
    tokens: int = 0,
    cost: Decimal = ZERO,
) -> Effect:
    """Change the job's state: None leaves a field as it is; tokens and cost are added. checkpoint: JSON text."""
    row = {
        "checkpoint": checkpoint,
        "progress": progress,
        "progress_text": progress_text,
        "tokens": tokens,
        "cost": cost,
    }
    return Effect("patch_state", row)


def send_message(message: NewMessage) -> Effect:
    """A message of the job's agent, if it has one. Nothing is sent where its id, or its key for its agent, is there."""
    return Effect("send_message", message._asdict())


def release_messages(key: str) -> Effect:
    """The wait with this key ends without the messages that it has taken, if it has: they are pending again."""
    return Effect("release_messages", {"key": key})


def look_at_mailbox(mailbox: str | None) -> Effect:
    """A delivery looks at this mailbox: a channel of replies; None: that of the job's agent, if it has one."""
    return Effect("look_at_mailbox", {"mailbox": mailbox})


def open_wait(wait: Wait) -> Effect:
    """The job waits for something. Opened again for the same subject, a wait keeps its answer."""
    row = {"key": wait.key, "kind": wait.kind, "subject_id": wait.subject_id, "until": wait.until}
    return Effect("open_wait", row)


def close_wait(kind: str, key: str) -> Effect:
    """The job no longer waits under this kind and key; what is not open is ignored."""
    return Effect("close_waits", {"kind": kind, "key": key})


def withdraw_approval(approval_id: UUID) -> Effect:
    """The job goes on without this approval: it is closed, if it is not decided."""
    return Effect("withdraw_approvals", {"id": approval_id})


def release_signal(key: str) -> Effect:
    """The wait with this key ends without the signal that it has taken, if it has: that one is pending again."""
    return Effect("release_signals", {"key": key})


def refuse_signal(key: str, error: str) -> Effect:
    """The signal that the wait with this key has taken does not fit. error: why."""
    return Effect("refuse_signals", {"key": key, "error": error})


def bind_signals(key: str) -> tuple[Effect, Effect]:
    """The open waits for signals of this key take those that are pending, the oldest first."""
    return Effect("bind_signals", {"key": key}), Effect("answer_bound", {"key": key})


def await_jobs(key: str, ids: Iterable[UUID]) -> Effect:
    """The wait of kind `child` with this key, opened by the same call, waits for the ends of these jobs. A later call with
    `settle_wait` is needed: one of them may have ended before, or in this moment."""
    return Effect("await_jobs", {"key": key, "child_ids": ",".join(map(str, ids))})


def settle_wait(key: str) -> Effect:
    """Take what has ended out of a wait of kind `child`, and answer it if nothing is left."""
    return Effect("settle_waits", {"key": key})


_SPAWNED = (
    "id",
    "kind",
    "queue",
    "goal",
    "payload",
    "priority",
    "max_retries",
    "run_at",
    "delay",
    "deadline",
    "note",
    "concurrency_key",
    "max_concurrent",
    "tags",
)
"""The fields of a child."""


def spawn_job(job: NewJob) -> Effect:
    """Store a child of the job. Written again, the first one stays. It has no idempotency key, and no origin."""
    return Effect("spawn_job", {name: getattr(job, name) for name in _SPAWNED})


def begin_log(child_id: UUID, events: Sequence[NewEvent]) -> list[Effect]:
    """The log of a child that is stored in the same transaction goes on with these events. Written again, the first ones stay."""
    rows = [
        {"id": child_id, "version": n, "event_id": UUID(event.event_id), "type": event.type, "payload": event.payload}
        for n, event in enumerate(events, 2)
    ]
    effects = [Effect("spawn_event", row) for row in rows]
    return [*effects, Effect("spawn_head", {"id": child_id, "version": 1 + len(rows)})] if rows else []


def spawns(effects: Iterable[Effect]) -> bool:
    """Whether a job is stored by one of these: workers look for it at once."""
    return any(effect.statement == "spawn_job" for effect in effects)


def add_tool_run(run: ToolRun) -> Effect:
    """A run of a coding CLI has ended. Written again for the same attempt, the first one stays."""
    result = run.run
    row = {
        "id": uuid7(),
        "attempt": run.attempt,
        "tool": run.tool,
        "account_id": run.account_id,
        "worker_id": run.worker_id,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "exit_code": result.exit_code,
        "class": result.outcome.value,
        "detail": result.detail,
        "message": result.message,
        "stdout": result.stdout.text,
        "stderr": result.stderr.text,
        "output_files": json.dumps(run.files),
        "tokens_in": result.usage.tokens_in,
        "tokens_out": result.usage.tokens_out,
        "tokens_cached": result.usage.tokens_cached,
        "cost": result.usage.cost,
        "latency_ms": round(result.seconds * 1000),
        "session_id": result.session_id,
        "final_text": result.final_text,
        "sandbox": json.dumps(asdict(result.sandbox)),
    }
    return Effect("add_tool_run", row)


def write_memory(tenant_id: str, new: NewMemory) -> tuple[Effect, ...]:
    """An entry of long-term memory with its terms and its vector. Nothing is written where its id is there."""
    place = {"tenant_id": tenant_id, "id": new.id}
    entry = {
        name: getattr(new, name)
        for name in (
            *(
                "scope",
                "text",
                "tags",
                "source",
                "kind",
                "created_by",
                "tokens",
                "tokeniser",
                "created_at",
                "pinned_at",
            ),
        )
    }
    effects = [
        Effect("memory_scope", {**place, "scope": new.scope, "tokens": new.tokens}),
        Effect("memory_entry", {**place, **entry}),
        Effect("memory_terms", {**place, "terms": new.terms, "length": new.tokens}),
    ]
    if new.vector is not None:
        vectors = {"embedder": new.embedder, "vector": new.vector, "chunks": new.chunks}
        effects.append(Effect("memory_vector", {**place, **vectors}))
    return tuple(effects)


def add_document(tenant_id: str, new: NewDocument) -> Effect:
    """A document. One that is there stays as it is."""
    row = {"tenant_id": tenant_id, "collection": new.collection, "key": new.key, "value": new.value, "body": new.body}
    return Effect("add_document", row)


def remove_range(tenant_id: str, within: DocumentRange) -> Effect:
    """Remove the documents of a range."""
    return Effect("remove_range", {"tenant_id": tenant_id, **within._asdict()})


def spend_budget(tenant_id: str, scope: str, used: Amounts) -> Effect:
    """Count what was used of the budget of an agent or a tenant: tokens, cost, tool_calls."""
    row = {"tokens": used.tokens, "cost": used.cost, "tool_calls": used.tool_calls}
    return Effect("spend_budget", {"tenant_id": tenant_id, "key": scope, **row})


def raise_budget(tenant_id: str, scope: str, extensions: int, more: Amounts) -> Effect:
    """A person has given more to a budget that had so many extensions; later than that nothing changes."""
    row = {"tokens": more.tokens, "cost": more.cost, "tool_calls": more.tool_calls, "children": more.children}
    return Effect("raise_budget", {"tenant_id": tenant_id, "key": scope, "extensions": extensions, **row})


def use_hold(key: str, used: Amounts) -> Effect:
    """A call reports what it used of what it has set aside."""
    return Effect("use_hold", {"key": key, "tokens": used.tokens, "cost": used.cost})


def release_hold(key: str) -> Effect:
    """A call has ended: what it has set aside and not used is free."""
    return Effect("release_hold", {"key": key})
