"""Reading jobs: lists, one job with what belongs to it, counts, logs, steps, explanations and differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from perdure.model.actions import Action
from perdure.model.approvals import Approval
from perdure.model.batches import Batch
from perdure.model.children import TreeNode
from perdure.model.comparison import JobDiff
from perdure.model.conversation import ConversationMessage
from perdure.model.errors import AmbiguousId, InvalidInput, JobNotFound
from perdure.model.events import Event
from perdure.model.explanation import Explanation
from perdure.model.jobs import Job, RunRecord
from perdure.model.shared_budgets import SharedBudget
from perdure.model.signals import Signal
from perdure.model.states import Status
from perdure.model.steps import Step, steps_of
from perdure.operations.registry import Role, operation
from perdure.operations.selection import ALL_JOBS, JobSelection

if TYPE_CHECKING:
    from perdure import Client

NO_SUCH_JOB = (JobNotFound, AmbiguousId)
"""What every operation raises that takes the id of a job: a UUID, or its last 6 or more hex digits."""

Part = Literal["events", "runs", "approvals", "signals", "budgets"]


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of a list, newest first. next_cursor: continues it; None: that was all. asks: pending approvals of these jobs."""

    items: tuple[Job, ...]
    next_cursor: str | None
    asks: tuple[Approval, ...] = ()


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job and the parts of its record that were asked for; the others are empty.

    runs: its finished attempts. signals: those that no wait has taken. shared_budgets: of its agents and its tenant, of a job
    that has not ended.
    head: the version of its log now, where the job is shown as it was at an earlier one.
    """

    job: Job
    events: tuple[Event, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    approvals: tuple[Approval, ...] = ()
    signals: tuple[Signal, ...] = ()
    head: int | None = None
    shared_budgets: tuple[SharedBudget, ...] = ()


@operation("jobs.list", role=Role.VIEWER, errors=(InvalidInput,))
async def list_jobs(
    client: Client,
    which: JobSelection = ALL_JOBS,
    *,
    idempotency_key: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
    with_approvals: bool = False,
) -> JobPage:
    """Jobs, newest first. with_approvals: also the pending approvals that these jobs wait for."""
    wanted = which.arguments() | {"idempotency_key": idempotency_key, "agent": agent, "session": session}
    page = await client.jobs.list(**wanted, limit=limit, cursor=cursor)
    asks: tuple[Approval, ...] = ()
    if with_approvals and any(job.status is Status.WAITING_FOR_APPROVAL for job in page.items):
        shown = {job.id for job in page.items}
        asks = tuple(a for a in (await client.approvals.list(limit=200)).items if a.job_id in shown)
    return JobPage(page.items, page.next_cursor, asks)


@operation("jobs.get", role=Role.VIEWER, errors=(*NO_SUCH_JOB, InvalidInput))
async def get_job(client: Client, job_id: str, *, at: int | None = None, include: tuple[Part, ...] = ()) -> JobRecord:
    """A job, with the parts of its record named in `include`.

    at: the job as it was at this version of its log, which does not hold progress, the lease and the due time.
    """
    job = await client.jobs.get(job_id, at=at)
    events = await client.jobs.events(job.id) if "events" in include or at is not None else []
    runs = await client.jobs.runs(job.id) if "runs" in include else []
    if at is not None:
        runs = [r for r in runs if r.attempt < job.attempt or (r.attempt == job.attempt and not job.status.leased)]
        shown = tuple(events[:at]) if "events" in include else ()
        return JobRecord(job, shown, tuple(runs), head=events[-1].version)
    approvals = (await client.approvals.list(job_id=job.id)).items if "approvals" in include and job.waits else ()
    signals = await client.jobs.signals(job.id, pending=True) if "signals" in include else ()
    shared = await client.jobs.shared_budgets(job.id) if "budgets" in include and not job.status.terminal else ()
    return JobRecord(job, tuple(events), tuple(runs), tuple(approvals), tuple(signals), shared_budgets=tuple(shared))


@operation("jobs.count", role=Role.VIEWER, errors=(InvalidInput,))
async def count_jobs(
    client: Client, which: JobSelection = ALL_JOBS, *, by: Literal["status", "kind", "queue"] = "status"
) -> dict[str, int]:
    """How many jobs there are by status, kind or queue; statuses in the order in which a job passes them."""
    found = await client.jobs.count(by=by, **which.arguments())
    return {s.value: found[s] for s in Status if s in found} if by == "status" else found


@operation("jobs.events", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def list_events(client: Client, job_id: str, *, after: int = 0, types: tuple[str, ...] = ()) -> list[Event]:
    """The log of a job: its events with a version above `after`, in order. types: only events of these types."""
    found = await client.jobs.events(job_id, after=after)
    return [event for event in found if not types or event.type in types]


@operation("jobs.steps", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def list_steps(client: Client, job_id: str) -> list[Step]:
    """The steps of a job: what is recorded and never runs again, what runs, what waits."""
    return steps_of(await client.jobs.events(job_id))


@operation("jobs.messages", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def list_messages(client: Client, job_id: str) -> list[ConversationMessage]:
    """The conversation of a job, in order."""
    return await client.jobs.messages(job_id)


@operation("jobs.variables", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def list_variables(client: Client, job_id: str) -> dict[str, Any]:
    """The variables of a job, by name."""
    return await client.jobs.variables(job_id)


@operation("jobs.actions", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def list_actions(client: Client, job_id: str) -> list[Action]:
    """What a job did: the calls of its tools, in order."""
    return await client.jobs.actions(job_id)


@operation("jobs.explain", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def explain_job(client: Client, job_id: str) -> Explanation:
    """Why a job does not move, and what would move it, as of one moment."""
    return await client.jobs.explain(job_id)


@operation("jobs.tree", role=Role.VIEWER, errors=(*NO_SUCH_JOB, InvalidInput))
async def tree_of_job(client: Client, id: str, *, limit: int = 1000) -> list[TreeNode]:
    """A job and the jobs that it spawned, level by level."""
    return await client.jobs.tree(id, limit=limit)


@operation("jobs.batch", role=Role.VIEWER, errors=(*NO_SUCH_JOB, InvalidInput))
async def batch_of_job(client: Client, id: str) -> Batch:
    """The jobs of a batch, by the id of its callback."""
    return await client.jobs.batch(id)


@operation("jobs.diff", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def diff_jobs(client: Client, a: str, b: str) -> JobDiff:
    """What differs between two jobs: input, steps, result and outcome."""
    return await client.jobs.diff(a, b)
