"""The checks at the end: every job of a run is read from the database and compared with what it must be."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

from perdure.chaos.clients import Requested
from perdure.chaos.expected import Effects, read_effects, violations
from perdure.chaos.invariants import JobData, problems, read_job
from perdure.chaos.jobs import BATCHES, ECHO, LISTENER, TICK
from perdure.chaos.listener import ListenerProof
from perdure.chaos.messages import MessageProof
from perdure.chaos.rates import RateProof
from perdure.chaos.report import Report
from perdure.model.approvals import ApprovalStatus
from perdure.model.waits import CODE, QUESTION
from perdure.runtime.client.client import Client

PAGE = 200
AT_ONCE = 8


async def prove(client: Client, requested: Requested, report: Report, directory: Path) -> None:
    """Check every job; what is wrong goes into `report.faults`, the figures into `report.found`. Streams: it holds a page
    of jobs at a time. Then `fsck` checks the same jobs in another way."""
    effects = await asyncio.to_thread(read_effects, directory)
    seen: Counter[str] = Counter()
    ids: set[UUID] = set()
    reruns: Counter[UUID] = Counter()
    messages, listener, rates = MessageProof(), ListenerProof(), RateProof()
    async for data in _all_jobs(client):
        rates.add(data)
        if data.job.kind in (ECHO, BATCHES, TICK):
            messages.add(data.job)
        elif data.job.kind == LISTENER:
            listener.add(data.job)
        elif data.job.origin_kind == "rerun" and data.job.origin_id is not None:
            reruns[data.job.origin_id] += 1
        elif data.job.origin_id is None:
            seen[data.job.goal or ""] += 1
        else:
            report.faults.extend(_line(data, what) for what in _of_a_fork(data, requested))
        ids.add(data.job.id)
        _count(data, report)
        for what in (*problems(data), *violations(data, effects, requested.cancelled)):
            report.faults.append(_line(data, what))
    _compare(requested, seen, ids, effects, report)
    _of_reruns(requested, reruns, report)
    report.faults.extend(rates.faults(report))
    report.faults.extend([fault async for fault in listener.faults(client, requested, report)])
    report.faults.extend([fault async for fault in messages.faults(client, requested, report)])
    await check(client, report)


async def check(client: Client, report: Report, when: str = "") -> None:
    """Run `fsck`, and compare the slots of concurrency keys with their maxima; what is wrong goes into `report.faults`.

    It may run at any moment.
    """
    async for finding in client.database.fsck():
        line = f"fsck {when}{finding.code}: {finding.text}"
        if not finding.note and line not in report.faults:
            report.faults.append(line)
    for limit in await client.limits.list():
        report.found["slots in use"] = max(report.found["slots in use"], limit.in_use)
        if limit.max is not None and limit.in_use > limit.max:
            report.faults.append(
                f"limits {when}{limit.in_use} leases hold slots of {limit.key!r}, whose maximum is {limit.max}"
            )


async def _all_jobs(client: Client) -> AsyncIterator[JobData]:
    cursor: str | None = None
    while True:
        page = await client.jobs.list(limit=PAGE, cursor=cursor)
        for start in range(0, len(page.items), AT_ONCE):
            for data in await asyncio.gather(*(read_job(client, j.id) for j in page.items[start : start + AT_ONCE])):
                yield data
        cursor = page.next_cursor
        if cursor is None:
            return


def _compare(requested: Requested, seen: Counter[str], ids: set[UUID], effects: Effects, report: Report) -> None:
    """What was acknowledged exists once, and nothing else exists."""
    gone = 0
    for goal, id in requested.jobs.items():
        if id in requested.fleeting and requested.deleting and id not in ids:
            gone += 1
        elif id not in ids:
            report.faults.append(f"job {id} ({goal}) was acknowledged and does not exist")
    uncounted = sum(report.done[name] for name in ("refused", "cuts", "answers lost", "sessions ended", "restarts"))
    if gone > report.done["deleted"] and not uncounted:  # where an answer was lost, more may be deleted than it said
        report.faults.append(f"{gone} jobs are gone, and {report.done['deleted']} were deleted")
    for id in requested.forks:
        if id not in ids:
            report.faults.append(f"fork {id} was acknowledged and does not exist")
    for goal, number in seen.items():
        if number > 1:
            report.faults.append(f"'{goal}' was enqueued once, and stored {number} times")
        if goal not in requested.jobs and goal not in requested.unacknowledged:
            report.faults.append(f"'{goal}' was never enqueued")
    if unknown := set(effects) - ids:
        report.faults.append(f"jobs did something that do not exist: {', '.join(map(str, sorted(unknown)[:5]))}")


def _of_reruns(requested: Requested, reruns: Counter[UUID], report: Report) -> None:
    """No job was rerun twice, and each rerun that was acknowledged exists."""
    report.found["reruns"] = reruns.total()
    for id, number in reruns.items():
        if number > 1:
            report.faults.append(f"job {id} was rerun {number} times")
    if reruns and not requested.rerunning:
        report.faults.append(f"{reruns.total()} jobs were rerun, and no client asked for it")
    if reruns.total() < report.done["reruns"]:
        report.faults.append(f"{report.done['reruns']} reruns were acknowledged, and {reruns.total()} exist")


def _of_a_fork(data: JobData, requested: Requested) -> Iterator[str]:
    """It was asked for, and no question that was answered before is asked again."""
    if data.job.origin_id not in requested.forked:
        yield "it is a fork that was not asked for"
    answered = requested.forks.get(data.job.id)
    if answered in {(approval.kind, approval.key) for approval in data.approvals}:
        yield f"it asks again what was answered: {answered}"


def _count(data: JobData, report: Report) -> None:
    found = report.found
    report.checked += 1
    report.jobs[data.job.status] += 1
    found["events"] += len(data.events)
    found["attempts"] += data.job.attempt
    for event in data.events:
        match event.type:
            case "node_finished":
                found["steps"] += 1
            case "tool_called":
                found["tool calls"] += 1
            case "job_retrying" | "job_deadlettered" if event.payload.get("reason") == "lease_expired":
                found["taken over"] += 1
            case "failure_caught":
                found["caught failures"] += 1
            case "wait_started" if event.payload["kind"] == CODE.name:
                found["waits for code"] += 1
            case _:
                pass
    for approval in data.approvals:
        found["questions"] += approval.kind == QUESTION.name
        found["approvals decided"] += approval.status in (ApprovalStatus.APPROVED, ApprovalStatus.DENIED)
        found["approvals expired"] += approval.status is ApprovalStatus.EXPIRED


def _line(data: JobData, what: str) -> str:
    job = data.job
    return f"job {job.id} ({job.kind}, {job.goal}): {json.dumps(what, ensure_ascii=False)[1:-1]}"
