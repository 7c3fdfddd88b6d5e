"""Enqueueing by a client: check a job, then store it. A rerun is a new job."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, TypedDict, TypeVar, Unpack, overload
from uuid import UUID

from perdure.model.agents import AgentInstance
from perdure.model.budgets import Budget
from perdure.model.errors import InvalidInput, JobPruned
from perdure.model.events import NewEvent
from perdure.model.ids import uuid7
from perdure.model.jobs import Enqueued, NewJob
from perdure.model.stuck import Stuck
from perdure.model.timing import Duration
from perdure.model.tool_approvals import ApprovalContext
from perdure.model.unique import Unique
from perdure.runtime import codec
from perdure.runtime.client.base import JobId
from perdure.runtime.client.control import JobControl
from perdure.runtime.client.first_events import first_events, first_events_of, key_to_take, unique_to_take
from perdure.runtime.client.new_jobs import again, of_agent
from perdure.runtime.client.queries import JobQueries
from perdure.runtime.client.signals import JobSignals
from perdure.runtime.handle import Handle
from perdure.runtime.message_checks import check_agent_id, check_session
from perdure.runtime.observer import Sending
from perdure.runtime.payload import payload_of
from perdure.runtime.registry import Handler, Policy
from perdure.runtime.validation import (
    check_delay,
    check_key,
    check_kind,
    check_maximum,
    check_moment,
    check_priority,
    check_queue,
    check_retries,
    check_tags,
    check_text,
    check_unique,
)
from perdure.store.protocol.jobs import JobStore
from perdure.store.tx_enqueue.caller_connection import PreparedEnqueue

I = TypeVar("I")  # noqa: E741  the handler's input
O = TypeVar("O")  # noqa: E741  the handler's output


class EnqueueOptions(TypedDict, total=False):
    """How a job is enqueued; what is not given comes from the handler's policy: queue and priority as this process knows it,
    max_retries as the worker knows it that claims the job first.

    priority: 1-9, 9 is the most urgent. delay: seconds or text. run_at, deadline: timezone-aware. deadline: after it the job
    fails instead of starting or continuing. idempotency_key: unique per kind; the same key with the same payload gives the same
    job. goal: a title or message for people. concurrency_key: jobs with the same key run at most max_concurrent at a time; where
    they are not given, the key is that of the handler as this process knows it, and the maximum that of the handler as the worker
    knows it that claims the job. max_per_minute: how many jobs of the key start in any minute, by default as the handler says;
    of what was said of a key, the last counts. agent: whose job it is; it need not have been created, but if it was, the job
    takes a slot of it, and belongs to its default session unless one is given as session. tags: by which it is listed and
    counted, besides those of its handler. budget: what it may use at most; stuck: when it counts as stuck; else those of its
    handler. approval_context: which of its tools need approval, besides what its handler and the App of its worker say. user_id
    to extra_env: see `JobContext.fields`. unique: a key that at most one job of the kind has while it is active; see
    `Unique` for a period, and for what is done where another job has it. elsewhere: True if this process does not have the
    handler.
    """

    queue: str
    priority: int
    max_retries: int
    delay: Duration
    run_at: datetime
    deadline: datetime
    idempotency_key: str
    goal: str
    concurrency_key: str
    max_concurrent: int
    max_per_minute: int
    agent: str
    session: str
    tags: Sequence[str]
    budget: Budget
    approval_context: ApprovalContext
    stuck: Stuck
    user_id: str
    requester_id: str
    conversation_id: UUID | str
    title: str
    description: str
    category: str
    budget_token: str
    bid_amount: Decimal | int | str
    estimated_cost: Decimal | int | str
    estimated_duration: Duration
    metadata: dict[str, Any]
    timezone: str
    extra_env: dict[str, str]
    unique: str | Unique
    elsewhere: bool


_OPTIONS = frozenset(EnqueueOptions.__annotations__)
_NO_ID = UUID(int=0)
_MOST_SAID = 10_000
"""Keys whose rates a client knows that it has said."""
_REST = NewJob._fields.index("queue")


@dataclass(frozen=True, slots=True)
class Request:
    """One job of an `enqueue_many`. options: a dict of what `enqueue` takes as keywords: {"priority": 7, "delay": "5m"}."""

    job: Handler[Any, Any] | str
    input: Any = None
    options: EnqueueOptions | None = None


@dataclass(frozen=True, slots=True)
class _Form:
    """A checked job without its input: the same for all jobs of one kind that have no options of their own."""

    kind: str
    handler: Handler[Any, Any] | None
    rest: tuple[Any, ...]
    """The fields of a NewJob from `queue` on."""
    key_of: Callable[[Any], str | None] | None
    """Makes its concurrency key of its input."""
    per_minute: int | None = None
    """The rate of its key."""

    @property
    def output_type(self) -> Any:
        """What its handler is annotated to return; None if that is not known."""
        return self.handler.output_type if self.handler else None

    def with_input(self, input: Any) -> NewJob:
        """The job with this input. Raises NotJson, TooLarge, InvalidInput."""
        job = NewJob(uuid7(), self.kind, payload_of(self.kind, self.handler, input), *self.rest)
        if self.key_of is None:
            return job
        key = self.key_of(input)
        if key is None:
            return job._replace(max_concurrent=None)
        return job._replace(concurrency_key=check_key(key))


@dataclass(frozen=True, slots=True)
class EnqueueInTransaction:
    """An enqueue that is ready to be done on the caller's connection."""

    prepared: PreparedEnqueue
    sending: Sending
    handles: Callable[[Sequence[Enqueued]], list[Handle[Any]]]

    def run(self) -> list[Handle[Any]]:
        """Do it in this thread."""
        with self.sending:
            return self.handles(self.sending.stored(self.prepared.run()))

    async def run_async(self) -> list[Handle[Any]]:
        """Do it in this event loop."""
        with self.sending:
            return self.handles(self.sending.stored(await self.prepared.run_async()))


class JobEnqueue(JobQueries, JobControl, JobSignals):
    """See `jobs.Jobs`."""

    @overload
    async def enqueue(
        self, job: Handler[None, O], /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[O]: ...
    @overload
    async def enqueue(
        self, job: Handler[I, O], input: I, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[O]: ...
    @overload
    async def enqueue(
        self, job: str, input: Any = None, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]: ...
    async def enqueue(
        self,
        job: Handler[Any, Any] | str,
        input: Any = None,
        /,
        *,
        tx: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[Any]:
        """Store a job. When this returns, the job is committed.

        tx: a connection, cursor or session of yours (psycopg 3, asyncpg, SQLAlchemy 2, sqlite3, aiosqlite) in the App's
        database. The job is then stored by your transaction: it exists once you have committed, and never if you roll back.
        The statement on a sqlite3 connection blocks the event loop. Errors of your connection are its driver's own.

        Raises UnknownHandler, NotJson, TooLarge (more than 1 MiB), InvalidPriority, NegativeDelay, InvalidInput,
        IdempotencyConflict, UniqueConflict, StoreUnreachable; with tx also UnsupportedTransaction, NoTransaction, OtherDatabase.
        If it raises, nothing was written.
        """
        if tx is not None:
            [handle] = await self.enqueue_many([Request(job, input, options)], tx=tx)
            return handle
        form = self._form(job, options) if options else self._cached_form(job)
        new = form.with_input(input)
        if new.agent_id is not None:
            new = of_agent(new, await self._agents_of([new.agent_id]))
        if form.per_minute is not None:
            await self._say_rates([(new, form.per_minute)])
        stored = await self._send(new, self._writing((await self._store()).jobs, first_events(options)))
        return Handle(self, stored.id, form.output_type, created=stored.created)

    async def enqueue_many(self, requests: Iterable[Request], *, tx: object = None) -> list[Handle[Any]]:
        """Store several jobs in one transaction, in order: all or none. tx: as for `enqueue`. Raises as `enqueue`."""
        if tx is not None:
            return await (await self.prepare_in_transaction(requests, tx)).run_async()
        store, wanted = await self._store(), list(requests)
        handles: list[Handle[Any]] = []
        agents = await self._agents_of((request.options or {}).get("agent") for request in wanted)
        await self._say_rates_of(wanted, agents)

        def built() -> Iterator[NewJob]:
            for new, output in self._built(wanted, agents):
                handles.append(Handle(self, new.id, output))  # here, while the database stores the ones before
                yield new

        stored: Sequence[Enqueued]
        if any(first := [first_events(request.options or {}) for request in wanted]):
            with Sending(self._observer, list(built())) as sending:
                begun = list(zip(sending.jobs, first, strict=True))
                stored = sending.stored(await store.jobs.enqueue_many_recorded(begun))
        elif self._observer is None:
            stored = await store.jobs.enqueue_many(built())
        else:
            with Sending(self._observer, list(built())) as sending:
                stored = sending.stored(await store.jobs.enqueue_many(sending.jobs))
        for handle, acknowledged in zip(handles, stored, strict=True):
            if not acknowledged.created:
                handle.id, handle.created = acknowledged
        return handles

    async def prepare_in_transaction(self, requests: Iterable[Request], tx: object) -> EnqueueInTransaction:
        """`enqueue_many(requests, tx=tx)` up to the point where it uses your connection; for `perdure.sync`, which does that
        in your thread. Raises as `enqueue`."""
        wanted = list(requests)
        agents = await self._agents_of((request.options or {}).get("agent") for request in wanted)
        await self._say_rates_of(wanted, agents)
        built = list(self._built(wanted, agents))
        begun = ((new.id, first_events(request.options or {})) for (new, _), request in zip(built, wanted, strict=True))
        first = {id: events for id, events in begun if events}
        store = await self._store()
        with Sending(self._observer, [new for new, _ in built]) as sending:
            prepared = await store.jobs.prepare_enqueue(tx, sending.jobs, first)
        return EnqueueInTransaction(
            prepared, sending, lambda stored: self._handles(stored, [output for _, output in built])
        )

    def prepared(self, job: Handler[Any, Any] | str, input: Any, options: EnqueueOptions) -> NewJob:
        """The job that `enqueue` would store, checked; nothing is stored. Raises as `enqueue`."""
        return self._form(job, options).with_input(input)

    def rate_of(self, job: Handler[Any, Any] | str, options: EnqueueOptions) -> int | None:
        """How many jobs of the key of such a job start in any minute, as the options or its handler say."""
        return self._form(job, options).per_minute

    async def enqueue_prepared(self, job: NewJob, options: EnqueueOptions) -> Enqueued:
        """Store a job that `prepared` made with these options. Raises as `enqueue`."""
        if job.agent_id is not None:
            job = of_agent(job, await self._agents_of([job.agent_id]))
        return await self._send(job, self._writing((await self._store()).jobs, first_events(options)))

    @cached_property
    def _said(self) -> dict[str, int]:
        """The rates that this client has said, by their keys."""
        return {}

    async def _say_rates(self, jobs: Iterable[tuple[NewJob, int | None]]) -> None:
        """Store the rates of the keys of jobs that are to be stored, before they are."""
        for job, per_minute in jobs:
            key = job.concurrency_key
            if key is None or per_minute is None or self._said.get(key) == per_minute:
                continue
            await (await self._store()).limits.say_rate(key, per_minute)
            if len(self._said) >= _MOST_SAID:
                self._said.clear()
            self._said[key] = per_minute

    async def _say_rates_of(self, requests: Sequence[Request], agents: Mapping[str, AgentInstance]) -> None:
        """As `_say_rates`; most requests have none, and are looked at only for that."""
        rated: list[tuple[NewJob, int | None]] = []
        for request in requests:
            options = request.options or {}
            handler = request.job if isinstance(request.job, Handler) else self._scope.registry.find(request.job)
            if "max_per_minute" in options or (handler is not None and handler.policy.max_per_minute is not None):
                form = self._form(request.job, options)
                new = form.with_input(request.input)
                rated.append((of_agent(new, agents) if new.agent_id is not None else new, form.per_minute))
        await self._say_rates(rated)

    async def _agents_of(self, ids: Iterable[object]) -> dict[str, AgentInstance]:
        """Those of these agents that were created."""
        agents: dict[str, AgentInstance] = {}
        for id in dict.fromkeys(id for id in ids if isinstance(id, str)):
            agent = await (await self._store()).agents.get_agent(id)
            if agent is not None:
                agents[id] = agent
        return agents

    def _built(self, requests: Iterable[Request], agents: Mapping[str, AgentInstance]) -> Iterator[tuple[NewJob, Any]]:
        """The jobs of some requests, and the types of their outputs. What requests have in common is checked once."""
        forms: dict[Handler[Any, Any] | str, _Form] = {}
        for request in requests:
            form = None if request.options else forms.get(request.job)
            if form is None:
                form = self._form(request.job, request.options or {})
                if not request.options:
                    forms[request.job] = form
            new = form.with_input(request.input)
            yield (of_agent(new, agents) if new.agent_id is not None else new), form.output_type

    def _handles(self, stored: Sequence[Enqueued], outputs: list[Any]) -> list[Handle[Any]]:
        return [Handle(self, s.id, output, created=s.created) for s, output in zip(stored, outputs, strict=True)]

    @cached_property
    def _forms(self) -> dict[Handler[Any, Any], tuple[Policy, _Form]]:
        """The forms of jobs without options, with the policy each was made from: checking one costs as much as storing it."""
        return {}

    def _cached_form(self, job: Handler[Any, Any] | str) -> _Form:
        if isinstance(job, str):
            return self._form(job, {})  # another handler may be registered under the name
        kept = self._forms.get(job)
        if kept is None or kept[0] != job.policy:
            kept = self._forms[job] = job.policy, self._form(job, {})
        return kept[1]

    def _form(self, job: Handler[Any, Any] | str, options: EnqueueOptions) -> _Form:
        if not options.keys() <= _OPTIONS:  # tx= in the wrong place must not enqueue outside of the transaction
            unknown = ", ".join(sorted(options.keys() - _OPTIONS))
            raise InvalidInput(f"unknown options of enqueue: {unknown}", hint=f"known: {', '.join(sorted(_OPTIONS))}")
        handler = job if isinstance(job, Handler) else self._scope.registry.find(job)
        if isinstance(job, Handler):
            kind = job.name
        else:
            kind = job
            if handler is None and len(self._scope.registry) and not options.get("elsewhere"):
                self._scope.registry.get(job)  # raises, with the nearest name
        policy = handler.policy if handler else Policy()
        limit = policy.limit(kind)
        key = options.get("concurrency_key", None if limit is None else limit.key)
        key_of = policy.concurrency_key if key is None and callable(policy.concurrency_key) else None
        blank = NewJob(
            id=_NO_ID,
            kind=check_kind(kind),
            payload="",
            queue=check_queue(options.get("queue", policy.queue)),
            goal=check_text(options.get("goal"), "goal", 2000),
            priority=check_priority(options.get("priority", policy.priority)),
            max_retries=check_retries(options["max_retries"]) if "max_retries" in options else None,
            delay=check_delay(options.get("delay", 0)),
            run_at=check_moment(options.get("run_at"), "run_at"),
            deadline=check_moment(options.get("deadline"), "deadline"),
            idempotency_key=check_text(options.get("idempotency_key"), "idempotency_key", 500),
            note=self._scope.note(None),
            concurrency_key=None if key is None else check_key(key),
            max_concurrent=check_maximum(options["max_concurrent"]) if "max_concurrent" in options else None,
            agent_id=check_agent_id(options["agent"]) if "agent" in options else None,
            session_id=check_session(options.get("session")),
            tags=_tags_as_text(policy.tags, options),
            unique=check_unique(options["unique"]) if "unique" in options else None,
        )
        if blank.session_id is not None and blank.agent_id is None:
            raise InvalidInput("session needs an agent", hint="give agent= as well")
        if blank.max_concurrent is not None and key is None and key_of is None:
            raise InvalidInput(
                "max_concurrent needs a concurrency_key", hint="jobs with the same key are counted together"
            )
        if blank.unique is not None and blank.idempotency_key is not None:
            raise InvalidInput("give either unique or idempotency_key, not both")
        if blank.run_at is not None and blank.delay:
            raise InvalidInput("give either delay or run_at, not both")
        per_minute = policy.max_per_minute
        if "max_per_minute" in options:
            per_minute = check_maximum(options["max_per_minute"], "max_per_minute")
            if key is None and key_of is None:
                raise InvalidInput(
                    "max_per_minute needs a concurrency_key", hint="jobs with the same key are counted together"
                )
        return _Form(kind, handler, blank[_REST:], key_of, per_minute)

    async def rerun(self, job_id: JobId, reason: str | None = None) -> Handle[Any]:
        """A new job with the same input, linked to the old one. If that is FAILED, DEADLETTER or CANCELLED and has an idempotency
        key, the new one takes the key over, and a second rerun at the same time gives the same job; else the old one does not
        change. A unique key of such a job is taken over too, from whichever job of the key has ended; where one that has not
        ended has it, that one is given, with `created` False.

        Raises JobNotFound, AmbiguousId, JobPruned.
        """
        old = await self.get(job_id)
        if old.pruned_at is not None:
            raise JobPruned(old)
        payload = codec.encode(old.payload, "the payload")
        new = again(old, payload, "rerun", self._scope.note(reason, origin=str(old.id)))
        store = await self._store()
        jobs = store.jobs
        events = await first_events_of(jobs, old.id)
        write = self._writing(jobs, events)
        if (key := key_to_take(old)) is not None:
            new = new._replace(idempotency_key=key)
        elif old.unique_key is not None:
            new = new._replace(unique=unique_to_take(old, await store.now()))
        if new.idempotency_key is not None or new.unique is not None:
            write = lambda job: jobs.enqueue_recorded(job, events)  # noqa: E731  another way of the same call
        stored = await self._send(new, write)
        handler = self._scope.registry.find(old.kind)
        return Handle(self, stored.id, handler.output_type if handler else None, created=stored.created)

    def _writing(self, jobs: JobStore, events: Sequence[NewEvent]) -> Callable[[NewJob], Awaitable[Enqueued]]:
        """Stores a job whose log begins with these events."""
        return jobs.enqueue if not events else lambda job: jobs.enqueue_recorded(job, events)

    async def _send(self, new: NewJob, write: Callable[[NewJob], Awaitable[Enqueued]]) -> Enqueued:
        if self._observer is None:
            return await write(new)
        with Sending(self._observer, [new]) as sending:
            [job] = sending.jobs
            [stored] = sending.stored([await write(job)])
            return stored

    def handle(self, job_id: JobId, output_type: Any = None) -> Handle[Any]:
        """A handle on a job by its full id; nothing is looked up."""
        return Handle(self, job_id if isinstance(job_id, UUID) else UUID(job_id), output_type)


def _tags_as_text(own: tuple[str, ...], options: EnqueueOptions) -> str | None:
    """The tags of a handler and those of a job, as JSON."""
    tags = check_tags([*own, *check_tags(options["tags"])]) if "tags" in options else own
    return json.dumps(tags, ensure_ascii=False) if tags else None
