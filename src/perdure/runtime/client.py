"""The client: enqueue jobs, look at them, steer them, decide approvals. Holds no state but the store and the registry."""

from __future__ import annotations

import asyncio
import builtins
import getpass
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus, Decide
from perdure.model.errors import (
    ConfigError,
    InvalidInput,
    JobCancelled,
    JobFailed,
    WaitTimeout,
)
from perdure.model.events import Event, NewEvent
from perdure.model.ids import hash_json, hash_token, new_token, uuid7
from perdure.model.jobs import Job, JobFilter, NewJob, Page, RunRecord
from perdure.model.states import FAILURES, Status, parse_status
from perdure.model.timing import Duration
from perdure.model.workers import WorkerCommand, WorkerInfo
from perdure.runtime import codec
from perdure.runtime.checks import (
    check_delay,
    check_event_type,
    check_kind,
    check_max_retries,
    check_moment,
    check_priority,
    check_queue,
    check_seconds,
    check_text,
)
from perdure.runtime.handle import Handle
from perdure.runtime.registry import Handler, Policy, Registry
from perdure.store.protocol import Store, follow

I = TypeVar("I")  # noqa: E741  the handler's input
O = TypeVar("O")  # noqa: E741  the handler's output
JobId = UUID | str
"""A job's id: a UUID, its text, or its last 6 or more hex digits."""


class EnqueueOptions(TypedDict, total=False):
    """How a job is enqueued; what is absent comes from the handler's policy.

    priority: 1-9, 9 is the most urgent. delay: seconds or text. run_at, deadline: timezone-aware. deadline: after it the job
    fails instead of starting or going on. idempotency_key: unique per kind; the same key with the same payload gives the same
    job. goal: a title or message for people. elsewhere: True if the handler lives in another process.
    """

    queue: str
    priority: int
    max_retries: int
    delay: Duration
    run_at: datetime
    deadline: datetime
    idempotency_key: str
    goal: str
    elsewhere: bool


@dataclass(frozen=True, slots=True)
class Request:
    """One job of an `enqueue_many`."""

    job: Handler[Any, Any] | str
    input: Any = None
    options: EnqueueOptions | None = None


class Client:
    """Everything a program does with jobs. `door` and `actor` go into the audit of what it changes."""

    def __init__(
        self, store: Store | None, registry: Registry | None = None, *, door: str = "python", actor: str | None = None
    ) -> None:
        self._store = store
        self.registry = registry if registry is not None else Registry()
        self.door = door
        self.actor = actor or _user()

    async def open(self) -> Store:
        """The open store; `App` opens it at first use."""
        if self._store is None:
            raise ConfigError("this client has no store")
        return self._store

    # -- enqueue -------------------------------------------------------------------------------------------------------

    @overload
    async def enqueue(self, job: Handler[None, O], /, **options: Unpack[EnqueueOptions]) -> Handle[O]: ...
    @overload
    async def enqueue(self, job: Handler[I, O], input: I, /, **options: Unpack[EnqueueOptions]) -> Handle[O]: ...
    @overload
    async def enqueue(self, job: str, input: Any = None, /, **options: Unpack[EnqueueOptions]) -> Handle[Any]: ...
    async def enqueue(
        self, job: Handler[Any, Any] | str, input: Any = None, /, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]:
        """Store a job; once this returns it is never lost.

        Raises UnknownHandler, NotJson, TooLarge (over 1 MiB), InvalidPriority, NegativeDelay, InvalidInput,
        IdempotencyConflict, StoreUnreachable; whatever it raises, nothing was written.
        """
        new, output_type = self._new_job(job, input, options)
        stored = await (await self.open()).enqueue(new)
        return Handle(self, stored.id, output_type, created=stored.created)

    async def enqueue_many(self, requests: Iterable[Request]) -> list[Handle[Any]]:
        """Store several jobs in one transaction, in order: all or none. Raises as `enqueue`."""
        built = [self._new_job(r.job, r.input, r.options or {}) for r in requests]
        stored = await (await self.open()).enqueue_many([new for new, _ in built])
        return [Handle(self, s.id, output, created=s.created) for s, (_, output) in zip(stored, built, strict=True)]

    def _new_job(self, job: Handler[Any, Any] | str, input: Any, options: EnqueueOptions) -> tuple[NewJob, Any]:
        handler = job if isinstance(job, Handler) else self.registry.find(job)
        if isinstance(job, Handler):
            kind = job.name
        else:
            kind = job
            if handler is None and len(self.registry) and not options.get("elsewhere"):
                self.registry.get(job)  # raises, with the nearest name
        check_kind(kind)
        if handler is not None and not handler.takes_input and input is not None:
            raise InvalidInput(f"handler '{kind}' takes no input, but one was given")
        policy = handler.policy if handler else Policy()
        payload = codec.encode(input, f"the payload of job '{kind}'")
        if handler is not None and handler.takes_input and handler.input_type is not None:
            codec.decode(payload, handler.input_type, f"the payload of job '{kind}'")
        new = NewJob(
            id=uuid7(),
            kind=kind,
            payload=payload,
            payload_hash=hash_json(payload),
            queue=check_queue(options.get("queue", policy.queue)),
            goal=check_text(options.get("goal"), "goal", 2000),
            priority=check_priority(options.get("priority", policy.priority)),
            max_retries=check_max_retries(options.get("max_retries", policy.max_retries)),
            delay=check_delay(options.get("delay", 0)),
            run_at=check_moment(options.get("run_at"), "run_at"),
            deadline=check_moment(options.get("deadline"), "deadline"),
            idempotency_key=check_text(options.get("idempotency_key"), "idempotency_key", 500),
            note=self._note(None),
        )
        if new.run_at is not None and new.delay:
            raise InvalidInput("give either delay or run_at, not both")
        return new, handler.output_type if handler else None

    # -- look ----------------------------------------------------------------------------------------------------------

    def handle(self, job_id: JobId, output_type: Any = None) -> Handle[Any]:
        """A handle on a job by its full id; nothing is looked up."""
        return Handle(self, job_id if isinstance(job_id, UUID) else UUID(job_id), output_type)

    async def get(self, job_id: JobId) -> Job:
        """The job as it stands. Raises JobNotFound, AmbiguousId."""
        return await (await self.open()).get_job(await self._id(job_id))

    async def list(
        self,
        *,
        status: str | Status | Sequence[str | Status] = (),
        kind: str | Sequence[str] = (),
        queue: str | Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        search: str | None = None,
        idempotency_key: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Job]:
        """Jobs, newest first; filters are combined with AND, several values of one with OR. Raises InvalidInput."""
        wanted = job_filter(status, kind, queue, since, until, search, idempotency_key)
        if not 1 <= limit <= 1000:
            raise InvalidInput(f"limit must be between 1 and 1000, got {limit}")
        return await (await self.open()).list_jobs(wanted, limit=limit, cursor=cursor)

    async def count(self, *, by: Literal["status", "kind", "queue"] = "status", **filters: Any) -> dict[str, int]:
        """How many jobs, grouped; filters as in `list`."""
        names = ("status", "kind", "queue", "since", "until", "search", "idempotency_key")
        if unknown := set(filters) - set(names):
            raise InvalidInput(f"unknown filter {', '.join(sorted(unknown))}; known: {', '.join(names)}")
        defaults: dict[str, Any] = {"status": (), "kind": (), "queue": ()}
        return await (await self.open()).count_jobs(job_filter(*({**defaults, **filters}.get(n) for n in names)), by=by)

    async def runs(self, job_id: JobId) -> builtins.list[RunRecord]:
        """The finished attempts, first to last."""
        return await (await self.open()).list_runs(await self._id(job_id))

    async def events(self, job_id: JobId, *, after: int = 0) -> builtins.list[Event]:
        """All events with a version above `after`, in order. Raises JobNotFound."""
        store, id = await self.open(), await self._id(job_id)
        found: list[Event] = []
        while page := await store.list_events(id, after=after):
            found += page
            after = page[-1].version
        if not found and after == 0:
            await store.get_job(id)  # a job has at least one event: raises if there is none
        return found

    async def watch(self, job_id: JobId, from_version: int = 0) -> AsyncIterator[Event]:
        """The events after `from_version` as they are committed, none twice and none skipped, on every store and across
        processes; ends after the event that finishes the job. Raises JobNotFound."""
        async for event in follow(await self.open(), await self._id(job_id), after=from_version):
            yield event

    async def wait(self, job_id: JobId, *, timeout: Duration | None = None) -> Job:
        """Wait until the job is finished and return it. Raises WaitTimeout; the job goes on."""
        store, id = await self.open(), await self._id(job_id)
        limit = None if timeout is None else check_seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit), store.listen("news") as news:
                pause = 0.01
                while not (job := await store.get_job(id)).status.terminal:
                    pause = 0.01 if await news.wait(pause) else min(pause * 2, 0.5)
                return job
        except TimeoutError:
            job = await store.get_job(id)
            if job.status.terminal:
                return job
            raise WaitTimeout(
                f"job …{job.short_id} {job.kind} is still {job.status} after {limit:g} s; it goes on",
                hint=f"perdure jobs watch {job.short_id}",
            ) from None

    async def result(self, job_id: JobId, *, timeout: Duration | None = None, output_type: Any = None) -> Any:
        """Wait for the result; see `Handle.result`."""
        job = await self.wait(job_id, timeout=timeout)
        if job.status in FAILURES:
            raise JobFailed(job)
        if job.status is Status.CANCELLED:
            raise JobCancelled(job)
        return codec.decode(json.dumps(job.result), output_type, f"the result of job …{job.short_id}")

    # -- steer ---------------------------------------------------------------------------------------------------------

    async def append(
        self, job_id: JobId, expected_version: int, type: str, payload: Any = None, *, event_id: UUID | None = None
    ) -> int:
        """Append an event of your own to a job that no worker holds, if its head is `expected_version`; return the new one.

        Raises JobLeased, VersionMismatch, IllegalTransition (terminal), JobNotFound, InvalidInput, NotJson, TooLarge. The
        same event_id twice is one event.
        """
        check_event_type(type)
        text = codec.encode({} if payload is None else payload, f"event '{type}'")
        return await (await self.open()).append(
            await self._id(job_id), expected_version, NewEvent(type, text, event_id or uuid7())
        )

    async def cancel(self, job_id: JobId, reason: str | None = None, *, force: bool = False) -> Status:
        """Cancel in any state; return the status afterwards.

        A running handler is stopped by its worker within a second; if the worker does not answer for 10 s, or with
        force=True, it is fenced off. Cancelled already is fine; finished otherwise raises IllegalTransition.
        """
        return await (await self.open()).cancel(await self._id(job_id), note=self._note(reason), force=force)

    async def retry_now(self, job_id: JobId, reason: str | None = None) -> None:
        """Make a job in backoff, or one delayed, due now. Raises IllegalTransition in other states."""
        await (await self.open()).retry_now(await self._id(job_id), note=self._note(reason))

    async def rerun(self, job_id: JobId, reason: str | None = None) -> Handle[Any]:
        """A new job with the same input, linked to the old one; the old one is left as it is. Raises JobNotFound."""
        old = await self.get(job_id)
        payload = codec.encode(old.payload, "the payload")
        new = NewJob(
            id=uuid7(),
            kind=old.kind,
            payload=payload,
            payload_hash=hash_json(payload),
            queue=old.queue,
            goal=old.goal,
            priority=old.priority,
            max_retries=old.max_retries,
            origin_id=old.id,
            origin_kind="rerun",
            note=self._note(reason, origin=str(old.id)),
        )
        stored = await (await self.open()).enqueue(new)
        handler = self.registry.find(old.kind)
        return Handle(self, stored.id, handler.output_type if handler else None)

    # -- approvals -----------------------------------------------------------------------------------------------------

    async def approvals(
        self,
        *,
        status: str | Sequence[str] = ("PENDING",),
        job_id: JobId | None = None,
        assignee: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Approval]:
        """Approvals, newest first; by default those that wait for somebody. An empty status means all."""
        words = (status,) if isinstance(status, str) else tuple(status)
        try:
            statuses = tuple(ApprovalStatus(w.upper()) for w in words)
        except ValueError:
            raise InvalidInput(f"unknown approval status; known: {', '.join(ApprovalStatus)}") from None
        job = None if job_id is None else await self._id(job_id)
        return await (await self.open()).list_approvals(
            statuses=statuses, job_id=job, assignee=assignee, limit=limit, cursor=cursor
        )

    async def approval(self, approval_id: JobId) -> Approval:
        """One approval; a job's id means its pending one. Raises ApprovalNotFound, AmbiguousId."""
        return await (await self.open()).get_approval(await self._approval_id(approval_id))

    async def approve(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        edited: Any = ...,
        expected_digest: str | None = None,
    ) -> Approval:
        """Approve by id (an operator) or by token (whoever holds the link); `edited` replaces the payload.

        A question (kind `question`) needs `edited`: {"outcome": "happened", "result": ...} or {"outcome": "retry"}.
        expected_digest refuses if the payload is not the one looked at. Raises ApprovalNotFound, WrongToken, AlreadyDecided,
        ApprovalExpired, ApprovalChanged, NotAssigned, InvalidInput, NotJson, TooLarge.
        """
        text = None if edited is ... else codec.encode(edited, "the edited payload")
        return await self._decide("approve", approval_id, token, by, comment, text, expected_digest)

    async def deny(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> Approval:
        """Deny; the job fails, or goes on with `Denied` raised in it, as it asked for. Raises as `approve`."""
        return await self._decide("deny", approval_id, token, by, comment, None, None)

    async def new_token(self, approval_id: JobId) -> str:
        """A fresh token for a pending approval, shown this once; the former one stops working. Raises AlreadyDecided, ..."""
        token = new_token()
        await (await self.open()).replace_token(await self._approval_id(approval_id), hash_token(token))
        return token

    async def _decide(
        self,
        verdict: Literal["approve", "deny"],
        approval_id: JobId | None,
        token: str | None,
        by: str | None,
        comment: str | None,
        edited: str | None,
        expected_digest: str | None,
    ) -> Approval:
        if (approval_id is None) == (token is None):
            raise InvalidInput("decide by the approval's id or by its token: give exactly one of them")
        decision = Decide(
            verdict=verdict,
            by=check_text(by, "by", 200) or ("link holder" if token is not None else self.actor),
            door=self.door if token is None else f"{self.door}:link",
            approval_id=None if approval_id is None else await self._approval_id(approval_id),
            token_hash=None if token is None else hash_token(token),
            comment=check_text(comment, "comment", 4000),
            edited_payload=edited,
            expected_digest=expected_digest,
        )
        return await (await self.open()).decide(decision)

    # -- workers -------------------------------------------------------------------------------------------------------

    async def workers(self, *, include_stopped: bool = False) -> builtins.list[WorkerInfo]:
        """The workers that share this database."""
        return await (await self.open()).list_workers(include_stopped=include_stopped)

    async def command_worker(self, worker_id: str, command: WorkerCommand) -> None:
        """Ask a worker to drain or stop. Raises WorkerNotFound, AmbiguousId."""
        await (await self.open()).command_worker(worker_id, command)

    # -- helpers -------------------------------------------------------------------------------------------------------

    async def _id(self, job_id: JobId) -> UUID:
        return job_id if isinstance(job_id, UUID) else await (await self.open()).find_job(job_id)

    async def _approval_id(self, approval_id: JobId) -> UUID:
        return await (await self.open()).find_approval(str(approval_id))

    def _note(self, reason: str | None, **more: str) -> str:
        note: dict[str, Any] = {"actor": self.actor, "door": self.door, **more}
        if reason:
            note["reason"] = check_text(reason, "reason", 4000)
        return json.dumps(note, ensure_ascii=False)


def job_filter(
    status: Any,
    kind: Any,
    queue: Any,
    since: Any = None,
    until: Any = None,
    search: Any = None,
    idempotency_key: Any = None,
) -> JobFilter:
    """A filter from what a person wrote: single values or sequences, statuses in any spelling. Raises InvalidInput."""
    try:
        statuses = tuple(s if isinstance(s, Status) else parse_status(s) for s in _several(status))
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    return JobFilter(
        statuses=statuses,
        kinds=tuple(_several(kind)),
        queues=tuple(_several(queue)),
        since=check_moment(since, "since"),
        until=check_moment(until, "until"),
        search=search or None,
        idempotency_key=idempotency_key,
    )


def _several(value: Any) -> Iterable[Any]:
    return (value,) if isinstance(value, str) else (value or ())


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
