"""Events: the log of a job, and the types of events that it may hold.

Every type belongs to one class. Replay depends on lifecycle, step, coordination and recorded events only;
trace events may be dropped by an export without changing what a job does. Unknown types are kept as trace; of those that the
handler wrote itself a replay only asks whether they are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from perdure.model.ids import new_event_id
from perdure.model.states import Status


class EventClass(StrEnum):
    """What an event is for; see the module docstring."""

    LIFECYCLE = "lifecycle"
    STEP = "step"
    COORDINATION = "coordination"
    RECORDED = "recorded"
    TRACE = "trace"


@dataclass(frozen=True, slots=True)
class EventType:
    """A type of event: its class, what it says, the keys that its payload always has, and who writes and reads it."""

    cls: EventClass
    says: str
    keys: tuple[str, ...] = ()
    by_holder: bool = False
    """Only the worker that holds the job writes it."""
    replayed: bool = False
    """A later attempt reads it to know what already happened."""
    forked: bool = False
    """A fork copies it from the original job."""
    public: bool = False
    """`append` and `ctx.emit` may write it."""


_L, _S, _C, _R, _T = EventClass
EVENT_TYPES: MappingProxyType[str, EventType] = MappingProxyType(
    {
        "job_created": EventType(_L, "the job was enqueued; always version 1"),
        "run_started": EventType(_L, "a worker claimed the job: a new attempt", ("worker",)),
        "job_completed": EventType(_L, "the handler returned; the result is stored on the job"),
        "job_failed": EventType(_L, "a fatal error, a denial, or an explicit Fail", ("error", "error_kind")),
        "job_cancelled": EventType(_L, "cancelled, by whom and why"),
        "job_deadlettered": EventType(_L, "retries used up", ("error", "error_kind")),
        "job_retrying": EventType(_L, "runs again at next_retry_at; reason says why"),
        "job_waiting": EventType(_L, "suspended while its worker keeps the lease"),
        "job_resumed": EventType(_L, "resumed after a short wait under the same lease"),
        "job_parked": EventType(_L, "suspended without a worker; a timer or an answer wakes it"),
        "job_waiting_for_approval": EventType(_L, "suspended until a person decides"),
        "plan_generated": EventType(_S, "an agent recorded its plan", public=True),
        "node_started": EventType(
            _S, "a step began (written only for steps that take a while)", ("key",), by_holder=True
        ),
        "node_finished": EventType(
            _S, "a step returned; never runs again", ("key", "digest", "result"),
            by_holder=True, replayed=True, forked=True,
        ),
        "tool_called": EventType(
            _S, "a side effect is about to happen; committed before it does", ("key", "digest"),
            by_holder=True, replayed=True, forked=True,
        ),
        "tool_returned": EventType(
            _S, "the side effect's known outcome", ("key", "result"), by_holder=True, replayed=True, forked=True
        ),
        "tool_failed": EventType(
            _S, "the tool raised: a known outcome, it may be called again", ("key", "error"),
            by_holder=True, replayed=True, forked=True,
        ),
        "failure_caught": EventType(
            _S, "the handler went on from a failure; a replay raises it again", ("key", "kind", "digest", "error", "raised"),
            by_holder=True, replayed=True, forked=True,
        ),
        "failure_retried": EventType(
            _S, "a failure ended its attempt after all; the next one calls again", ("key", "kind"),
            by_holder=True, replayed=True, forked=True,
        ),
        "child_spawned": EventType(
            _C, "a child job was stored, in the same transaction", ("key", "child", "kind", "digest"),
            by_holder=True, replayed=True, forked=True,
        ),
        "wait_started": EventType(
            _C, "a wait opened, such as a timer", ("key", "kind"), by_holder=True, replayed=True, forked=True
        ),
        "wait_completed": EventType(
            _C, "the wait ended and its answer is recorded", ("key", "kind"), by_holder=True, replayed=True, forked=True
        ),
        "approval_requested": EventType(
            _C, "a person was asked", ("key", "approval"), by_holder=True, replayed=True
        ),
        "approval_notified": EventType(
            _C, "the link was passed to the notify function", ("key", "approval"), by_holder=True, replayed=True
        ),
        "approval_decided": EventType(_C, "approved, denied or expired: by whom, why, and via what", ("approval",)),
        "signal_received": EventType(
            _C, "a signal came, of `agent` if it was sent to that; `key` names the wait that took it, without one it is pending; "
            "`payload`, a text, is there if it came before the job began", ("signal", "subject"),
            replayed=True,
        ),
        "signal_refused": EventType(
            _C, "the payload of a signal does not fit: the wait goes on", ("key", "signal", "subject", "error"),
            by_holder=True,
        ),
        "signals_taken": EventType(
            _C, "the handler took the signals that were pending for the job and its agent; with `more` others may follow",
            ("key", "more", "signals"), by_holder=True, replayed=True, forked=True,
        ),
        "agent_message": EventType(
            _C, "the wait `key` of the job took a message of its agent", ("key", "message", "channel")
        ),
        "cancel_requested": EventType(_C, "a running job was asked to stop"),
        "job_replaced": EventType(_C, "another enqueue with its unique key replaced its input and time before it started"),
        "made_due": EventType(_C, "the job was made due now"),
        "job_edited": EventType(
            _C, "a job that no worker held was edited; by name the old and the new value, of an input their hashes", ("changes",)
        ),
        "checkpoint_saved": EventType(_R, "the handler saved its state", ("state",), by_holder=True, forked=True),
        "usage_recorded": EventType(
            _R, "tokens and cost were added, once under this key", ("key", "tokens", "cost"),
            by_holder=True, replayed=True, forked=True,
        ),
        "fields_set": EventType(
            _R, "what the caller says of the job: user, title, metadata, ...", ("fields",), replayed=True, forked=True
        ),
        "approval_context_set": EventType(
            _R, "which tools the job may call, and which a person is asked about", ("context",), replayed=True, forked=True
        ),
        "budget_set": EventType(
            _R, "the job has a budget, given by its caller or its handler", ("budget",), replayed=True, forked=True
        ),
        "budget_scopes_set": EventType(
            _R, "the job descends from jobs of agents that have budgets", ("scopes",), replayed=True
        ),
        "stuck_set": EventType(
            _R, "its caller says when the job counts as stuck", ("stuck",), replayed=True, forked=True
        ),
        "stuck_noticed": EventType(
            _R, "the job made no progress: it is nudged, tried again, or fails", ("action", "why", "repairs"),
            by_holder=True, replayed=True,
        ),
        "budget_reserved": EventType(
            _R, "a part of the budget was set aside for a call", ("key",), by_holder=True, replayed=True
        ),
        "budget_settled": EventType(
            _R, "what was set aside is free again; amounts in it were used", ("key",), by_holder=True, replayed=True
        ),
        "budget_extended": EventType(
            _R, "a person has given more", ("key", "by"), by_holder=True, replayed=True
        ),
        "budget_warned": EventType(
            _R, "a part of the budget is almost used up", ("thing", "spent", "limit"), by_holder=True, replayed=True
        ),
        "message_sent": EventType(
            _R, "a message was sent to an agent, once under this key", ("key", "message", "to", "channel"),
            by_holder=True, replayed=True, forked=True,
        ),
        "session_read": EventType(
            _R, "the state of the session was read, at this version", ("key", "version", "state"),
            by_holder=True, replayed=True, forked=True,
        ),
        "session_saved": EventType(
            _R, "the state of the session was saved, once under this key", ("key", "version", "session"),
            by_holder=True, replayed=True, forked=True,
        ),
        "session_conflict": EventType(
            _R, "another job had saved since: what was read is read again", ("key",),
            by_holder=True, replayed=True, forked=True,
        ),
        "message_appended": EventType(
            _R, "a message of the job's conversation; `with` names the step or tool it was committed with", ("key", "message"),
            by_holder=True, replayed=True, forked=True,
        ),
        "variable_set": EventType(
            _R, "a variable of the job got a value; `with` as above", ("key", "name", "value"),
            by_holder=True, replayed=True, forked=True,
        ),
        "event_kept": EventType(
            _R, "in a fork: the old job wrote this event of its own; it is not written again", ("type", "job", "event"),
            replayed=True, forked=True,
        ),
        "tool_run_started": EventType(_T, "a coding CLI is about to run", ("tool", "account"), by_holder=True),
        "tool_run_ended": EventType(_T, "a run of a coding CLI has ended", ("tool", "account", "class"), by_holder=True),
        "step_failed": EventType(_T, "one call of a step's function raised", ("key", "error"), by_holder=True),
        "attempt_traced": EventType(_T, "the trace of an attempt that will be continued later", ("traceparent",)),
    }
)  # fmt: skip


def _types(flag: str) -> frozenset[str]:
    return frozenset(name for name, type in EVENT_TYPES.items() if getattr(type, flag))


LIFECYCLE_TYPES = frozenset(name for name, t in EVENT_TYPES.items() if t.cls is EventClass.LIFECYCLE)
REPLAY_TYPES = _types("replayed")
"""What a later attempt reads to know what already happened."""
FORK_TYPES = _types("forked")
"""What a fork copies."""
HOLDER_TYPES = _types("by_holder")
"""What only the worker that holds a job writes; other types may also come from `append`."""
RESERVED_TYPES = frozenset(EVENT_TYPES) - _types("public")
"""Types only perdure itself writes; the public `append` and `ctx.emit` refuse them."""


def event_class(type: str) -> EventClass:
    """The class of an event type; unknown types are trace."""
    known = EVENT_TYPES.get(type)
    return known.cls if known else EventClass.TRACE


@dataclass(slots=True)
class NewEvent:
    """An event to be written. By its `event_id` the store recognises a repeated write of the same event, as after a connection
    that was lost during the commit.

    Not frozen, because each step makes one and freezing doubles what that costs; but no code changes it.
    """

    type: str
    payload: str = "{}"  # JSON text, exactly as it will be stored
    event_id: str = field(default_factory=new_event_id)  # text of a UUID


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a job's log.

    version: 1, 2, 3, ... within the job, without a gap. at: when it was written, database time, UTC. payload: plain JSON values.
    attempt: the attempt that wrote it; None for an event of a client. previous_status, new_status: of a transition.
    event_id: given by its writer, so that a repeated write is recognised.
    """

    job_id: UUID
    version: int
    type: str
    at: datetime
    payload: Any
    attempt: int | None = None
    previous_status: Status | None = None
    new_status: Status | None = None
    event_id: UUID | None = None

    @property
    def cls(self) -> EventClass:
        """The class of the event's type."""
        return event_class(self.type)
