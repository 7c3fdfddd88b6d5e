"""Taking tasks: jobs that run a coding CLI, each with a slot of an account."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from perdure.model.account_choice import TaskGroup, TaskKind, WaitingTask, assign_accounts, startable_groups
from perdure.model.errors import PerdureError
from perdure.model.jobs import ClaimedJob, lane_of
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.postgres.engine.driver_errors import DAMAGED
from perdure.store.postgres.leases.claim import claimed_jobs_of
from perdure.store.rows import Row, claim_note
from perdure.store.task_rows import account_of

log = structlog.get_logger("perdure.store")


class TaskClaim(NamedTuple):
    """Who claims tasks, where, of which kinds, and for how long. others: the kinds of the same claim that are no tasks."""

    tenant_id: str
    queue: str
    worker_id: str
    tasks: Mapping[str, TaskKind]
    retries: Mapping[str, int]
    others: list[str]
    ttl: float
    version: str | None

    @property
    def lane(self) -> str:
        """The queue of this tenant."""
        return lane_of(self.tenant_id, self.queue)


async def claim_tasks(database: Database, who: TaskClaim, limit: int) -> list[ClaimedJob]:
    """The tasks among the first `limit` due jobs of a queue that get an account. Without tasks that could start it only looks."""
    found = await database.rows("task_groups", lane=who.lane, kinds=[*who.tasks])
    if not found:
        return []
    groups = [TaskGroup(row["kind"], row["wanted"]) for row in found]
    accounts = [account_of(row, CODEC) for row in await database.rows("list_accounts", tenant_id=who.tenant_id)]
    if not startable_groups(groups, accounts, who.tasks, CODEC.time(found[0]["now"])):
        return []
    try:
        return await database.transact(lambda tx: _take(tx, who, groups, limit, []))
    except PerdureError as error:
        if not isinstance(error.__cause__, DAMAGED):
            raise
    return await _take_singly(database, who, groups, limit)


async def _take(
    tx: Transaction, who: TaskClaim, groups: list[TaskGroup], limit: int, tried: list[UUID]
) -> list[ClaimedJob]:
    """tried: where the ids of the tasks are put before they are taken."""
    await tx.rows("lock_accounts", tenant_id=who.tenant_id, tools=[kind.tool for kind in who.tasks.values()])
    accounts = [account_of(row, CODEC) for row in await tx.rows("list_accounts", tenant_id=who.tenant_id)]
    [clock] = await tx.rows("time_of_transaction")
    now = CODEC.time(clock["now"])
    open_groups = startable_groups(groups, accounts, who.tasks, now)
    fronts = await tx.rows(
        "task_fronts",
        tenant_id=who.tenant_id,
        lane=who.lane,
        kinds=[group.kind for group, _ in open_groups],
        wanteds=[group.wanted for group, _ in open_groups],
        numbers=[number for _, number in open_groups],
    )
    waiting = [WaitingTask(TaskGroup(row["kind"], row["wanted"]), row["refused"], row) for row in fronts]
    assigned = assign_accounts(waiting, accounts, who.tasks, limit=limit, now=now)
    assigned = assigned[: await _first_among(tx, who, [task.place for task, _ in assigned], limit)]
    tried[:] = [task.place["job_id"] for task, _ in assigned]
    if not assigned:
        return []
    retries = [who.retries[kind] for kind in who.tasks]
    duration = timedelta(seconds=who.ttl)
    common: dict[str, Any] = {"kinds": [*who.tasks], "retries": retries, "worker_id": who.worker_id, "ttl": duration}
    common |= {"tenant_id": who.tenant_id, "note": claim_note(who.worker_id, who.version)}
    given = {task.place["job_id"]: account for task, account in assigned}
    plain = [task.place["job_id"] for task, _ in assigned if task.place["key"] is None]
    rows = await tx.rows("take_tasks", ids=plain, accounts=[given[id] for id in plain], **common)
    for task, account in assigned:
        if task.place["key"] is not None:
            rows += await _take_with_key(tx, who, task.place["job_id"], account, common)
    if not rows:
        return []
    jobs = claimed_jobs_of(rows, who.retries, queue=who.queue, worker_id=who.worker_id, duration=duration)
    return [job._replace(account=given[job.id]) for job in jobs]


async def _first_among(tx: Transaction, who: TaskClaim, places: list[Row], limit: int) -> int:
    """How many of these tasks are among the first `limit` jobs that a claim of all kinds would take."""
    if not places or not who.others:
        return len(places)
    ahead = await tx.rows(
        "ready_ahead",
        lane=who.lane,
        kinds=who.others,
        priorities=[place["priority"] for place in places],
        times=[place["run_at"] for place in places],
        limit=limit,
    )
    return sum(row["ahead"] + number < limit for number, row in enumerate(ahead))


async def _take_with_key(
    tx: Transaction, who: TaskClaim, job_id: UUID, account: str | None, common: Mapping[str, Any]
) -> list[Row]:
    """A task that has a concurrency key as well: without a slot of the key it is held, and the account's stays free."""
    rows = await tx.rows(
        "claim_limited",
        lane=who.lane,
        queue=who.queue,
        ids=[job_id],
        keys=[None] * len(who.tasks),
        maxes=[None] * len(who.tasks),
        limit=1,
        alone=True,
        **common,
    )
    for row in rows:
        lease = {"job_id": row["id"], "attempt": row["attempt"], "worker_id": who.worker_id}
        await tx.rows("give_account", account_id=account, tenant_id=who.tenant_id, **lease)
    return rows


async def _take_singly(database: Database, who: TaskClaim, groups: list[TaskGroup], limit: int) -> list[ClaimedJob]:
    """One damaged task must not block the others: it is put aside for a while and logged."""
    claimed: list[ClaimedJob] = []
    for _ in range(2 * limit):
        tried: list[UUID] = []
        try:
            got = await database.transact(lambda tx, tried=tried: _take(tx, who, groups, 1, tried))  # type: ignore[misc]  # mypy cannot infer a default
        except PerdureError as error:
            if not tried or not isinstance(error.__cause__, DAMAGED):
                raise
            log.error(  # noqa: TRY400  the error says it all
                "a damaged task cannot be claimed; put aside for 5 minutes", job_id=str(tried[0]), error=str(error)
            )
            await database.rows("drop_stale_claim", job_id=tried[0])
            await database.rows("push_back", job_id=tried[0])
            continue
        claimed += got
        if not got or len(claimed) == limit:
            break
    return claimed
