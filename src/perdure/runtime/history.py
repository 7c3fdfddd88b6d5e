"""What earlier attempts of a job recorded: read once when a later attempt begins, and asked by every keyed call."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from perdure.model.budgets import TYPES as BUDGET_TYPES
from perdure.model.budgets import Use
from perdure.model.conversation import Noted
from perdure.model.events import REPLAY_TYPES, Event
from perdure.model.job_fields import JobFields, checked_fields
from perdure.model.jobs import Wait
from perdure.model.signals import ReceivedSignal, TakenSignals, taken_of
from perdure.model.stuck import NOTICED, SET, StuckRecord
from perdure.model.tool_approvals import tool_of
from perdure.model.waits import APPROVAL, CODE, QUESTION, TIMER
from perdure.store.protocol import Store

_PAGE = 1000

TAKE_SIGNALS = "signals"
"""The kind of the calls of `receive_signals`."""

KindAndKey: TypeAlias = tuple[str, str]
"""The kind of a keyed call (step, tool, timer, approval, ...) and its key: calls of different kinds may have the same key."""


@dataclass(slots=True)
class ToolCalls:
    """The calls of one tool key so far. `open` is True while the last one's outcome is unknown."""

    digest: str
    count: int = 0
    open: bool = False


@dataclass(slots=True)
class OpenedWait:
    """A wait that an earlier attempt began, and the database time it began at (UTC)."""

    payload: dict[str, Any]
    at: datetime


@dataclass(slots=True)
class History:
    """Recorded outcomes by kind and key; empty in a first attempt."""

    finished: dict[KindAndKey, dict[str, Any]] = field(default_factory=dict)
    """node_finished and tool_returned payloads: key, digest, result."""
    failures: dict[KindAndKey, dict[str, Any]] = field(default_factory=dict)
    """failure_caught payloads: the failures that the handler went on from."""
    tools: dict[str, ToolCalls] = field(default_factory=dict)
    waits: dict[KindAndKey, OpenedWait] = field(default_factory=dict)
    answers: dict[KindAndKey, dict[str, Any]] = field(default_factory=dict)
    """wait_completed payloads."""
    rows: dict[KindAndKey, Wait] = field(default_factory=dict)
    """The rows of the open waits, as they were when this attempt began."""
    approvals: dict[KindAndKey, UUID] = field(default_factory=dict)
    notified: set[KindAndKey] = field(default_factory=set)
    spawned: dict[str, dict[str, Any]] = field(default_factory=dict)
    """child_spawned payloads by key."""
    usage: set[str] = field(default_factory=set)
    """The keys whose usage was counted."""
    messages: dict[str, UUID] = field(default_factory=dict)
    """The messages that were sent, by key."""
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """session_read and session_saved payloads by key."""
    unsaved_reads: list[str] = field(default_factory=list)
    """The keys of what was read of the session since it was saved last."""
    conflict: tuple[str, int | None, dict[str, dict[str, Any]]] | None = None
    """A save that another job was before: its key, its attempt, and what had been read. Nothing of that attempt follows yet."""
    conflicts: int = 0
    """Saves that another job was before, since this one saved last."""
    kept_events: dict[UUID, set[UUID]] = field(default_factory=dict)
    """In a fork: the ids of the events of their own that the jobs it was forked from had written before its step."""
    noted: list[Noted] = field(default_factory=list)
    """Messages of the conversation and variables, in the order of the log."""
    use: Use = field(default_factory=Use)
    """Of the job's budget, if it has one."""
    budget_scopes: tuple[str, ...] = ()
    """Of the agents whose jobs this one descends from."""
    fields: JobFields = field(default_factory=JobFields)
    """What the caller said of the job."""
    approval_context: Any = None
    """What the job was enqueued with, as it is stored."""
    asked_tools: dict[str, set[str]] = field(default_factory=dict)
    """The keys of the approvals that were asked for calls of tools, by the key of the call."""
    stuck: StuckRecord = field(default_factory=StuckRecord)
    """When it counts as stuck, and what was done about it."""
    stashed: bool = False
    """Whether a call recorded something for the stash of tools."""
    stashed_inside: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What calls recorded for the stash of tools that another call's function made, by the key of that other call."""
    signals: list[ReceivedSignal] = field(default_factory=list)
    """Those that the job had when it began."""
    taken_signals: dict[str, list[TakenSignals]] = field(default_factory=dict)
    """What calls of `receive_signals` took, by key."""
    checkpoint: Any = None
    """The last one that was saved."""
    progress: float = 0.0
    """The last fraction that was written."""
    unmet: dict[str, set[str]] = field(default_factory=dict)
    """The kinds, by key, of what is recorded and was not yet asked for in this attempt. Empty: it replays no more."""

    @property
    def code_waits(self) -> list[Wait]:
        """The open waits for code that fits."""
        return [wait for (kind, _), wait in self.rows.items() if kind == CODE.name]

    def read(self, events: Iterable[Event]) -> None:
        """Fold events, in order, into this history."""
        for event in events:
            if isinstance(event.payload, dict):
                self._read(event, event.payload)

    def _read(self, event: Event, payload: dict[str, Any]) -> None:
        if event.type == "budget_scopes_set":
            self.budget_scopes = tuple(payload["scopes"])
        if event.type == "fields_set":
            self.fields = checked_fields(payload["fields"])
        if event.type == "approval_context_set":
            self.approval_context = payload["context"]
        if event.type in (SET, NOTICED):
            self.stuck.read(event)
        if event.type in BUDGET_TYPES:
            self.use.read(event)
        if event.type == "event_kept":
            self.kept_events.setdefault(UUID(payload["job"]), set()).add(UUID(payload["event"]))
        if event.type == "signal_received":
            if "payload" in payload:
                text = payload["payload"]
                self.signals.append(ReceivedSignal(UUID(payload["signal"]), payload["subject"], json.loads(text)))
            return
        key = payload.get("key")
        if key is None:
            return
        if self.conflict is not None:
            self._after_conflict(event.attempt)
        match event.type:
            case "node_finished":
                self._finish(("step", key), payload)
            case "tool_called":
                calls = self.tools.setdefault(key, ToolCalls(payload["digest"]))
                calls.count += 1
                calls.open = True
                self._expect(("tool", key))
            case "tool_returned":
                self._finish(("tool", key), payload)
                self.tools.setdefault(key, ToolCalls(payload["digest"])).open = False
            case "tool_failed":
                self.tools[key].open = False
            case "failure_caught":
                self.failures[payload["kind"], key] = payload
                self.finished.pop((payload["kind"], key), None)
                self._expect((payload["kind"], key))
            case "failure_retried":
                self.failures.pop((payload["kind"], key), None)
            case "child_spawned":
                self.spawned[key] = payload
                self._expect(("spawn", key))
            case "wait_started":
                self.waits[_of_wait(payload)] = OpenedWait(payload, event.at)
                self._expect(_of_wait(payload))
            case "wait_completed":
                self.answers[_of_wait(payload)] = payload
                self._expect(_of_wait(payload))
            case "approval_requested":
                self.approvals[_of_wait(payload)] = UUID(payload["approval"])
                self._expect(_of_wait(payload))
            case "approval_notified":
                self.notified.add(("approval", key))
            case "usage_recorded":
                self.usage.add(key)
            case "message_appended" | "variable_set":
                self.noted.append((event.type, payload))
            case "message_sent":
                self.messages[key] = UUID(payload["message"])
            case "signals_taken":
                self.taken_signals.setdefault(key, []).append(taken_of(payload))
                self._expect((TAKE_SIGNALS, key))
            case "session_read":
                self.sessions[key] = payload
                self.unsaved_reads.append(key)
            case "session_saved":
                self.sessions[key] = payload
                self.unsaved_reads.clear()
                self.conflicts = 0
            case "session_conflict":
                self.conflicts += 1
                self.conflict = key, event.attempt, {read: self.sessions.pop(read) for read in self.unsaved_reads}
                self.unsaved_reads.clear()
            case _:
                pass  # trace and lifecycle events: a replay does not need them

    def _after_conflict(self, attempt: int | None) -> None:
        """Where the handler went on from it, a replay does too, with what was read before; else it reads again."""
        assert self.conflict is not None
        key, its_attempt, read = self.conflict
        self.conflict = None
        if attempt == its_attempt:
            self.sessions |= read | {key: {"key": key}}
            self.unsaved_reads += read

    def _finish(self, of: KindAndKey, payload: dict[str, Any]) -> None:
        if "call_id" in payload or "stash" in payload:
            self.stashed = True
            if "inside" in payload:
                self.stashed_inside.setdefault(payload["inside"], []).append(payload)
        self.finished[of] = payload
        self.failures.pop(of, None)
        self._expect(of)

    def _expect(self, of: KindAndKey) -> None:
        kind, key = of
        if kind == APPROVAL.name and (tool := tool_of(key)) is not None:
            self.asked_tools.setdefault(tool, set()).add(key)
        if kind not in (QUESTION.name, CODE.name):  # the handler itself does not ask for these
            self.unmet.setdefault(key, set()).add(kind)

    def meet(self, kind: str, key: str) -> str | None:
        """This attempt calls `key` as this kind. Returns the kind it is recorded as, if it is recorded as another one alone,
        which was not called in this attempt; else None."""
        kinds = self.unmet.get(key)
        if not kinds:
            return None
        if kind not in kinds:
            return min(kinds)
        kinds.discard(kind)
        if not kinds:
            del self.unmet[key]
        return None


def _of_wait(payload: dict[str, Any]) -> KindAndKey:
    """The kind and key of an event of a wait."""
    return str(payload.get("kind", TIMER.name)), payload["key"]


NO_HISTORY = History()
"""The history of every first attempt; it is read and never written."""


async def load_history(store: Store, job_id: UUID) -> History:
    """Read the replay events of a job, page by page, its open waits and its state."""
    history, after = History(), 0
    types = sorted(REPLAY_TYPES)
    while events := await store.jobs.list_events(job_id, after=after, limit=_PAGE, types=types):
        history.read(events)
        after = events[-1].version
        if len(events) < _PAGE:
            break
    job = await store.jobs.get_job(job_id)
    history.rows = {(wait.kind, wait.key): wait for wait in job.waits}
    history.checkpoint, history.progress = job.state.checkpoint, job.state.progress or 0.0
    return history
