"""Traces for OpenTelemetry: a span `send` for an enqueue, `process` for each attempt, and `step` and `execute_tool` in it.

A job that waits has no open span. The database connects the attempts: the note of `job_created` has the context of `send`, and an
`attempt_traced` event that of an attempt that will be continued. So all attempts are in the trace of the producer, linked to it
and to the attempt before, also after restarts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import structlog
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from perdure.model.approvals import Approval
from perdure.model.errors import PerdureError
from perdure.model.events import Event, NewEvent
from perdure.model.jobs import ClaimedJob, Enqueued, Lease, NewJob, Outcome
from perdure.model.states import Status
from perdure.model.stuck import StuckAction
from perdure.model.task_records import ToolRun
from perdure.observe import conventions as names
from perdure.observe.labels import call_name
from perdure.runtime.observer import Call, Sent
from perdure.store.protocol import Store

T = TypeVar("T")
Attributes = dict[str, str | int | float]

log = structlog.get_logger("perdure.tracing")

TRACED = "attempt_traced"
LOG_TIMEOUT = 2.0
"""Seconds that an attempt waits for the database because of its trace."""

_RESUMED = {"job_parked": "timer", "job_waiting_for_approval": "approval"}
_REASONS = {
    "failed",
    "lease_expired",
    "worker_stopped",
    "worker_drained",
    "claimed_too_early",
    "runs_alone",
    "store_unreachable",
    "session_changed",
}
_RELEVANT = ("job_created", "job_retrying", *_RESUMED, TRACED)
_PAGE = 1000
_W3C = TraceContextTextMapPropagator()


@dataclass(slots=True)
class _Segment:
    """The trace of a running attempt."""

    span: Span
    calls: int = 0


@dataclass(slots=True)
class _Past:
    """What the log has of a job's traces: that of its producer (or first traced attempt) and of the last attempt."""

    root: SpanContext | None = None
    previous: SpanContext | None = None
    reason: str | None = None

    def read(self, event: Event) -> None:
        """Read the next event."""
        payload = event.payload if isinstance(event.payload, dict) else {}
        if event.type == TRACED:
            self.previous = _context_in(payload) or self.previous
            self.root = self.root or self.previous
        elif event.type == "job_created":
            self.root = _context_in(payload)
        elif event.type == "job_retrying":
            reason = payload.get("reason")
            self.reason = reason if reason in _REASONS else "retry"
        else:
            self.reason = _RESUMED[event.type]


class Tracing:
    """An observer that traces; see `runtime.observer.Observer` for its methods."""

    def __init__(self, provider: TracerProvider | None, version: str) -> None:
        """provider None: the program's own, also if it is set later."""
        self._tracer = trace.get_tracer(names.SCOPE, version, provider, names.SCHEMA)
        self._segments: dict[Lease, _Segment] = {}

    def sending(self, jobs: Sequence[NewJob]) -> tuple[Sequence[NewJob], Sent]:
        if not jobs:
            return jobs, lambda _: None
        queues = {job.queue for job in jobs}
        attributes: Attributes = {
            names.SYSTEM: "perdure",
            names.OPERATION_TYPE: "send",
            names.OPERATION_NAME: "enqueue",
        }
        if len(queues) == 1:
            attributes[names.DESTINATION] = jobs[0].queue
        if len(jobs) == 1:
            attributes |= {
                names.MESSAGE_ID: str(jobs[0].id),
                names.JOB_ID: str(jobs[0].id),
                names.JOB_KIND: jobs[0].kind,
            }
        else:
            attributes[names.BATCH_COUNT] = len(jobs)
        name = names.SEND.format(queue=jobs[0].queue if len(queues) == 1 else "(several)")
        span = self._start(name, SpanKind.PRODUCER, attributes)
        carrier = _carrier(span)

        def sent(how: Sequence[Enqueued] | BaseException) -> None:
            _end(span, how if isinstance(how, BaseException) else None)

        return [job._replace(note=_with(job.note, carrier)) for job in jobs], sent

    async def attempt_started(self, claimed: ClaimedJob, store: Store, *, waited: float) -> None:  # noqa: ARG002  protocol
        past = await _past_of(claimed, store)
        parent = contexts.Context()
        if past.root is not None:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(past.root), parent)
        linked = {c.span_id: Link(c) for c in (past.root, past.previous) if c is not None}
        attributes: Attributes = {
            names.SYSTEM: "perdure",
            names.OPERATION_TYPE: "process",
            names.OPERATION_NAME: "run",
            names.DESTINATION: claimed.queue,
            names.MESSAGE_ID: str(claimed.id),
            names.JOB_ID: str(claimed.id),
            names.JOB_KIND: claimed.kind,
            names.JOB_ATTEMPT: claimed.lease.attempt,
            names.JOB_VERSION: claimed.version,
            names.WORKER_ID: claimed.lease.worker_id,
        }
        if past.reason is not None:
            attributes[names.RESUME_REASON] = past.reason
        name = names.PROCESS.format(queue=claimed.queue)
        span = self._start(name, SpanKind.CONSUMER, attributes, parent, list(linked.values()))
        self._segments[claimed.lease] = _Segment(span)
        contexts.attach(trace.set_span_in_context(span))  # until the task of the attempt ends

    async def attempt_ending(self, claimed: ClaimedJob, outcome: Outcome, store: Store) -> None:
        segment = self._segments.get(claimed.lease)
        continued = outcome.started and not outcome.status.terminal
        if segment is None or not continued or not segment.span.get_span_context().trace_flags.sampled:
            return
        event = NewEvent(TRACED, json.dumps(_carrier(segment.span)))
        try:
            async with asyncio.timeout(LOG_TIMEOUT):
                await store.leases.record(claimed.lease, [event])
        except (PerdureError, TimeoutError) as error:  # writing the end of the attempt will raise it again
            log.warning("the next attempt will not be linked to this one", error=str(error) or "no answer")

    def attempt_ended(self, claimed: ClaimedJob, outcome: Outcome | None, status: Status | None) -> None:
        segment = self._segments.pop(claimed.lease, None)
        if segment is None:
            return
        span = segment.span
        if outcome is None or status is None:
            span.set_attribute(names.ERROR_TYPE, "lease_lost")
            span.set_status(StatusCode.ERROR, "the lease was lost")
        else:
            span.set_attribute(names.JOB_OUTCOME, status.value)
            if outcome.error is not None:
                span.set_attribute(names.ERROR_TYPE, outcome.error_kind or "app")
                span.set_status(StatusCode.ERROR, outcome.error)
        _end(span)

    async def call(self, claimed: ClaimedJob, what: Call, key: str, work: Awaitable[T]) -> T:
        name = call_name(key)
        attributes: Attributes = {names.STEP_NAME: name, names.STEP_KEY: key, names.STEP_SEQUENCE: self._count(claimed)}
        if what == "tool":
            attributes |= {
                names.GEN_AI_OPERATION: "execute_tool",
                names.TOOL_NAME: name,
                names.TOOL_CALL_ID: f"{claimed.id}:{key}",
                names.TOOL_TYPE: "function",
            }
        pattern = names.STEP if what == "step" else names.EXECUTE_TOOL
        return await _within(self._start(pattern.format(name=name), SpanKind.INTERNAL, attributes), work)

    def replayed(self, claimed: ClaimedJob, what: Call, key: str) -> None:
        facts: Attributes = {
            names.STEP_NAME: call_name(key),
            names.STEP_KEY: key,
            names.STEP_SEQUENCE: self._count(claimed),
        }
        self._note(claimed, names.STEP_REPLAYED if what == "step" else names.TOOL_REPLAYED, facts)

    def approval_requested(self, claimed: ClaimedJob, approval: Approval) -> None:
        self._note(claimed, names.APPROVAL_REQUESTED, {names.APPROVAL_ID: str(approval.id)})

    def approval_decided(self, claimed: ClaimedJob, approval: Approval) -> None:
        facts: Attributes = {
            names.APPROVAL_ID: str(approval.id),
            names.APPROVAL_DECISION: approval.status.value,
            names.APPROVAL_CHANNEL: approval.decided_via or "unknown",
        }
        if approval.decided_at is not None:
            facts[names.APPROVAL_WAIT] = (approval.decided_at - approval.requested_at).total_seconds()
        self._note(claimed, names.APPROVAL_DECIDED, facts)

    def usage(self, claimed: ClaimedJob, tokens: int, cost: Decimal) -> None:
        pass  # the span of the model call has it

    def stuck(self, claimed: ClaimedJob, action: StuckAction) -> None:
        self._note(claimed, names.JOB_STUCK, {names.STUCK_ACTION: action})

    def tool_run(self, claimed: ClaimedJob, run: ToolRun) -> None:
        pass  # the attempt's span has its time

    # -- spans ---------------------------------------------------------------------------------------------------------

    def _start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        context: contexts.Context | None = None,
        links: Sequence[Link] = (),
    ) -> Span:
        try:
            return self._tracer.start_span(name, context, kind, attributes, links)
        except Exception as error:  # noqa: BLE001  the program's span processor raised: that must not fail the job
            log.warning("a span could not be started", span=name, error=repr(error))
            return trace.INVALID_SPAN

    def _count(self, claimed: ClaimedJob) -> int:
        segment = self._segments.get(claimed.lease)
        if segment is None:
            return 0
        segment.calls += 1
        return segment.calls

    def _note(self, claimed: ClaimedJob, event: str, facts: Attributes) -> None:
        if segment := self._segments.get(claimed.lease):
            segment.span.add_event(event, facts)


async def _within(span: Span, work: Awaitable[T]) -> T:
    """Await the work with this span as the current one, and end it."""
    token = contexts.attach(trace.set_span_in_context(span))
    error: BaseException | None = None
    try:
        return await work
    except BaseException as raised:
        error = raised
        raise
    finally:
        contexts.detach(token)
        _end(span, error)


def _end(span: Span, error: BaseException | None = None) -> None:
    if isinstance(error, Exception):
        span.record_exception(error)
        span.set_attribute(names.ERROR_TYPE, error.code if isinstance(error, PerdureError) else type(error).__name__)
        span.set_status(StatusCode.ERROR, str(error))
    elif error is not None:
        span.set_attribute(names.ERROR_TYPE, "cancelled")
    try:
        span.end()
    except Exception as broken:  # noqa: BLE001  as above
        log.warning("a span could not be ended", error=repr(broken))


async def _past_of(claimed: ClaimedJob, store: Store) -> _Past:
    """Read from the log; empty if it cannot be read now."""
    past = _Past()
    first = claimed.lease.attempt == 1
    after = 0
    try:
        async with asyncio.timeout(LOG_TIMEOUT):
            while True:
                limit, types = (1, None) if first else (_PAGE, _RELEVANT)
                events = await store.jobs.list_events(claimed.id, after=after, limit=limit, types=types)
                for event in events:
                    past.read(event)
                    after = event.version
                if first or len(events) < _PAGE:
                    return past
    except (PerdureError, TimeoutError) as error:
        log.warning("this attempt begins a new trace", error=str(error) or "no answer")
        return past


def _carrier(span: Span) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, contexts.Context()))
    return carrier


def _context_in(payload: Mapping[str, Any]) -> SpanContext | None:
    carrier = {name: payload[name] for name in ("traceparent", "tracestate") if isinstance(payload.get(name), str)}
    found = trace.get_current_span(_W3C.extract(carrier, contexts.Context())).get_span_context()
    return found if found.is_valid else None


def _with(note: str, carrier: Mapping[str, str]) -> str:
    return json.dumps({**json.loads(note), **carrier}, ensure_ascii=False) if carrier else note
