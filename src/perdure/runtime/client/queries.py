"""Reading jobs by a client: one job, lists, logs, and waiting for an end."""

from __future__ import annotations

import builtins
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from perdure.model import budgets
from perdure.model.actions import ACTION_TYPES, Action, actions_of
from perdure.model.children import TreeNode
from perdure.model.comparison import JobDiff, compare
from perdure.model.conversation import CONVERSATION_TYPES, ConversationMessage, messages_of, variables_in
from perdure.model.current_attempt import current_attempt
from perdure.model.errors import InvalidInput, JobCancelled, JobFailed, JobNotFound, JobPruned
from perdure.model.events import Event
from perdure.model.explanation import Explanation
from perdure.model.fold import fold, job_at
from perdure.model.jobs import Job, JobFilter, Page, RunRecord
from perdure.model.partial import PartialResult, partial_of
from perdure.model.partial import line as partial_line
from perdure.model.shared_budgets import TENANT, SharedBudget, plain, scope_of
from perdure.model.states import FAILURES, Status, parse_status
from perdure.model.stuck import NOTICED, SAYS
from perdure.model.timing import Duration, when
from perdure.runtime import codec
from perdure.runtime.client.base import ClientPart, JobId
from perdure.runtime.client.wait import finished_already, is_of
from perdure.runtime.explain.explain import explain
from perdure.runtime.job_log import events_of, pruned_events_of
from perdure.runtime.validation import check_moment, check_seconds, check_word
from perdure.store.follow import follow

_PAGE = 1000


class JobQueries(ClientPart):
    """See `jobs.Jobs`."""

    async def get(self, job_id: JobId, *, at: int | None = None) -> Job:
        """The job as it is, or with `at` as it was at that version of its log. Raises JobNotFound, AmbiguousId.

        With `at`, what the log does not hold is None: progress, the lease and the due time. Raises InvalidInput for a version
        that the log does not have.
        """
        store, id = await self._store(), await self._id(job_id)
        job = await store.jobs.get_job(id)
        if at is None:
            return job
        if type(at) is not int or not 1 <= at <= job.version:
            raise InvalidInput(
                f"job …{job.short_id} has no version {at!r}: its log goes from 1 to {job.version}",
                hint=f"perdure jobs events {job.short_id} shows them",
            )
        events: list[Event] = []
        while page := await store.jobs.list_events(id, after=len(events), limit=min(_PAGE, at - len(events))):
            events += page
        if len(events) < at:
            await store.jobs.get_job(id)  # it was pruned meanwhile: raises
        return job_at(job, fold(events))

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
        tags: str | Sequence[str] = (),
        agent: str | None = None,
        session: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Job]:
        """Jobs, newest first; filters are combined with AND, several values of one with OR. agent, session: of this agent, and of
        this session. Raises InvalidInput."""
        wanted = job_filter(status, kind, queue, since, until, search, idempotency_key, tags)
        wanted = replace(wanted, agent_id=agent, session_id=session)
        if not 1 <= limit <= 1000:
            raise InvalidInput(f"limit must be between 1 and 1000, got {limit}")
        return await (await self._store()).jobs.list_jobs(wanted, limit=limit, cursor=cursor)

    async def count(
        self,
        *,
        by: Literal["status", "kind", "queue"] = "status",
        status: str | Status | Sequence[str | Status] = (),
        kind: str | Sequence[str] = (),
        queue: str | Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        search: str | None = None,
        idempotency_key: str | None = None,
        tags: str | Sequence[str] = (),
    ) -> dict[str, int]:
        """How many jobs, grouped; filters as in `list`. Raises InvalidInput."""
        check_word(by, "by", Literal["status", "kind", "queue"])
        wanted = job_filter(status, kind, queue, since, until, search, idempotency_key, tags)
        return await (await self._store()).jobs.count_jobs(wanted, by=by)

    async def runs(self, job_id: JobId) -> builtins.list[RunRecord]:
        """The finished attempts, first to last. Raises JobNotFound."""
        store, id = await self._store(), await self._id(job_id)
        found = await store.jobs.list_runs(id)
        if not found:
            await store.jobs.get_job(id)  # raises if there is no such job
        return found

    async def events(self, job_id: JobId, *, after: int = 0) -> builtins.list[Event]:
        """All events with a version above `after`, in order. Raises JobNotFound."""
        store, id = await self._store(), await self._id(job_id)
        found: list[Event] = []
        while page := await store.jobs.list_events(id, after=after):
            found += page
            after = page[-1].version
        if not found and after == 0:
            await store.jobs.get_job(id)  # a job has at least one event: raises if there is none
        return found

    async def messages(self, job_id: JobId) -> builtins.list[ConversationMessage]:
        """The conversation of the job: what its handler gave to `ctx.messages.append`, in order. Raises JobNotFound."""
        return messages_of(await self._events_of(job_id, CONVERSATION_TYPES))

    async def variables(self, job_id: JobId) -> dict[str, Any]:
        """The last values that its handler gave to `ctx.vars.set`, by name. Raises JobNotFound."""
        events = await self._events_of(job_id, CONVERSATION_TYPES)
        return variables_in([(event.type, event.payload) for event in events])

    async def actions(self, job_id: JobId) -> builtins.list[Action]:
        """What the job did: the calls of `ctx.tool` in all attempts, in order. Raises JobNotFound."""
        return actions_of(await self._events_of(job_id, ACTION_TYPES))

    async def _events_of(self, job_id: JobId, types: Sequence[str]) -> builtins.list[Event]:
        store, id = await self._store(), await self._id(job_id)
        found = await events_of(store, id, types)
        if not found:
            try:
                await store.jobs.get_job(id)
            except JobNotFound:
                found = await pruned_events_of(store, id, types)
                if not found:
                    raise
        return found

    async def explain(self, job_id: JobId) -> Explanation:
        """Why the job is in its status, and what would move it, as of one moment. Raises JobNotFound, AmbiguousId."""
        store, id = await self._store(), await self._id(job_id)
        found = explain(await store.jobs.situation(id))
        said = {e.type for e in await store.jobs.list_events(id, limit=100, types=["budget_set", NOTICED])}
        shared = [] if found.status.terminal else await self.shared_budgets(id)
        if not said and not shared and found.status not in FAILURES:
            return found
        events = await self.events(id)
        sentence, details = found.sentence, dict(found.details)
        if "budget_set" in said:
            use = budgets.use_of(events)
            sentence += f" Of its budget is left: {budgets.line(use, found.at)}."
            details["budget"] = budgets.summary(use, found.at)
        for budget in shared:
            sentence += f" Of the budget of {budget.line}."
            details.setdefault("shared_budgets", []).append({"agent": budget.agent, "left": _plain(budget.left)})
        if NOTICED in said and found.status not in FAILURES:
            last = [e for e in events if e.type == NOTICED][-1]
            sentence += f" {SAYS[last.payload['action']]} {when(last.at, found.at)}: {last.payload['why']}."
        if found.status in FAILURES:
            job = await self.get(id)
            details["partial"] = partial_line(partial_of(job, events))
        return replace(found, sentence=sentence, details=details)

    async def shared_budgets(self, job_id: JobId) -> builtins.list[SharedBudget]:
        """The budgets of its agent, of the agents whose jobs it descends from, and of its tenant: those that are set, with what
        is left. Raises JobNotFound, AmbiguousId."""
        store = await self._store()
        found = await store.limits.list_budgets()
        if not found:
            return []
        job = await self.get(job_id)
        scopes = {TENANT} if job.agent_id is None else {TENANT, scope_of(job.agent_id)}
        for event in await store.jobs.list_events(job.id, limit=1, types=["budget_scopes_set"]):
            scopes.update(event.payload["scopes"])
        return [budget for budget in found if budget.scope in scopes]

    async def partial_result(self, job_id: JobId) -> PartialResult:
        """What a job has done and used so far, or had when it failed: its last checkpoint or result, its last action, figures.
        It is read from its log. Raises JobNotFound, AmbiguousId."""
        job = await self.get(job_id)
        return partial_of(job, await self.events(job.id))

    async def tree(self, job_id: JobId, *, limit: int = 1000) -> builtins.list[TreeNode]:
        """The job and what descends from it, level by level, at most `limit`. Raises JobNotFound, AmbiguousId, InvalidInput."""
        if limit < 1:
            raise InvalidInput(f"limit must be at least 1, got {limit}")
        store, id = await self._store(), await self._id(job_id)
        found = await store.children.tree(id, limit=limit)
        if not found:
            await store.jobs.get_job(id)  # raises if there is no such job
        return found

    async def diff(self, a: JobId, b: JobId) -> JobDiff:
        """What differs between two jobs: input, steps, result and outcome. Raises JobNotFound, AmbiguousId."""
        one, other = await self.get(a), await self.get(b)
        return compare(one, await self.events(one.id), other, await self.events(other.id))

    async def watch(self, job_id: JobId, from_version: int = 0) -> AsyncIterator[Event]:
        """The events after `from_version` as they are committed, each once and in order, whichever process writes them; ends
        after the event that finishes the job. Raises JobNotFound, AmbiguousId."""
        async for event in follow(await self._store(), await self._id(job_id), after=from_version):
            yield event

    async def wait(self, job_id: JobId, *, timeout: Duration | None = None) -> Job:
        """Wait until the job is finished and return it. Raises WaitTimeout, which does not change the job; WaitInsideJob, in a
        handler and what it calls, where the job is not finished and no timeout is given."""
        limit = None if timeout is None else check_seconds(timeout, "timeout")
        store, id = await self._store(), await self._id(job_id)
        own = current_attempt.get()
        if own is not None and limit is None and await is_of(store, own.id):
            return await finished_already(store, id)
        return await self._scope.holder.backend.wait(store, id, limit)

    async def _followed(self, job_id: JobId, timeout: Duration | None) -> Job:
        """The newest rerun, once it has ended, of a job or of what it was rerun as meanwhile."""
        store, id = await self._store(), await self._id(job_id)
        ends = None if timeout is None else store.clock.monotonic() + check_seconds(timeout, "timeout")
        while True:
            newest = await store.jobs.newest_rerun(id)
            left = None if ends is None else max(0.0, ends - store.clock.monotonic())
            job = await self.wait(newest, timeout=left)
            if await store.jobs.newest_rerun(newest) == newest:
                return job

    async def result(
        self, job_id: JobId, *, timeout: Duration | None = None, output_type: Any = None, follow: bool = False
    ) -> Any:
        """Wait for the result; see `Handle.result`. Raises JobFailed, JobCancelled, JobPruned, WaitTimeout,
        WaitInsideJob, and InvalidInput if it does not fit its type."""
        job = await (self._followed(job_id, timeout) if follow else self.wait(job_id, timeout=timeout))
        if job.status in FAILURES:
            raise JobFailed(job)
        if job.status is Status.CANCELLED:
            raise JobCancelled(job)
        if job.pruned_at is not None:
            raise JobPruned(job)
        return codec.decode(json.dumps(job.result), output_type, f"the result of job …{job.short_id}")


def job_filter(
    status: Any,
    kind: Any,
    queue: Any,
    since: Any = None,
    until: Any = None,
    search: Any = None,
    idempotency_key: Any = None,
    tags: Any = (),
) -> JobFilter:
    """A filter from what a person wrote: single values or sequences, statuses as in `parse_status`. Raises InvalidInput."""
    try:
        statuses = tuple(s if isinstance(s, Status) else parse_status(s) for s in _several(status))
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    except TypeError:
        raise InvalidInput(f"status must be a status or several, got {status!r:.100}") from None
    for name, value in (("search", search), ("idempotency_key", idempotency_key)):
        if value is not None and not isinstance(value, str):
            raise InvalidInput(f"{name} must be text, got {value!r:.100}")
    return JobFilter(
        statuses=statuses,
        kinds=_texts(kind, "kind"),
        queues=_texts(queue, "queue"),
        since=check_moment(since, "since"),
        until=check_moment(until, "until"),
        search=search or None,
        idempotency_key=idempotency_key,
        tags=_texts(tags, "tags"),
    )


def _plain(left: dict[str, Any]) -> dict[str, Any]:
    return {thing: plain(value) for thing, value in left.items()}


def _texts(value: Any, name: str) -> tuple[str, ...]:
    """Text, or several. Raises InvalidInput."""
    try:
        texts = tuple(_several(value))
    except TypeError:
        texts = (value,)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"{name} must be text or a list of texts, got {value!r:.100}")
    return texts


def _several(value: Any) -> Iterable[Any]:
    return (value,) if isinstance(value, str) else (value or ())
