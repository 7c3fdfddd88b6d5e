"""The proof: every job of a run, read back from the database and held against what must be."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

from perdure.chaos.actors import Books
from perdure.chaos.expected import Effects, misdeeds, read_effects
from perdure.chaos.invariants import Case, problems, read_case
from perdure.chaos.report import Report
from perdure.model.approvals import ApprovalStatus
from perdure.runtime.client.client import Client

PAGE = 200
AT_ONCE = 8


async def prove(client: Client, books: Books, report: Report, place: Path) -> None:
    """Check every job; what is wrong goes into `report.faults`, the figures into `report.found`. Streams: it holds a page
    of jobs at a time. Then `fsck` has its say, which looks at the same jobs in another way."""
    effects = await asyncio.to_thread(read_effects, place)
    seen: Counter[str] = Counter()
    ids: set[UUID] = set()
    async for case in _cases(client):
        seen[case.job.goal or ""] += 1
        ids.add(case.job.id)
        _count(case, report)
        for what in (*problems(case), *misdeeds(case, effects, books.cancelled)):
            report.faults.append(_line(case, what))
    _compare(books, seen, ids, effects, report)
    await check(client, report)


async def check(client: Client, report: Report, when: str = "") -> None:
    """What `fsck` finds goes into `report.faults`; it may be asked at any moment."""
    async for finding in client.database.fsck():
        line = f"fsck {when}{finding.code}: {finding.text}"
        if not finding.note and line not in report.faults:
            report.faults.append(line)


async def _cases(client: Client) -> AsyncIterator[Case]:
    cursor: str | None = None
    while True:
        page = await client.jobs.list(limit=PAGE, cursor=cursor)
        for start in range(0, len(page.items), AT_ONCE):
            for case in await asyncio.gather(*(read_case(client, j.id) for j in page.items[start : start + AT_ONCE])):
                yield case
        cursor = page.next_cursor
        if cursor is None:
            return


def _compare(books: Books, seen: Counter[str], ids: set[UUID], effects: Effects, report: Report) -> None:
    """What was acknowledged is there once, and nothing is there that nobody asked for."""
    for goal, id in books.jobs.items():
        if id not in ids:
            report.faults.append(f"job {id} ({goal}) was acknowledged, and is lost")
    for goal, number in seen.items():
        if number > 1:
            report.faults.append(f"'{goal}' was enqueued once, and stored {number} times")
        if goal not in books.jobs and goal not in books.unsure:
            report.faults.append(f"'{goal}' was never enqueued")
    if strangers := set(effects) - ids:
        report.faults.append(f"jobs did something that do not exist: {', '.join(map(str, sorted(strangers)[:5]))}")


def _count(case: Case, report: Report) -> None:
    found = report.found
    report.checked += 1
    report.jobs[case.job.status] += 1
    found["events"] += len(case.events)
    found["attempts"] += case.job.attempt
    for event in case.events:
        match event.type:
            case "node_finished":
                found["steps"] += 1
            case "tool_called":
                found["tool calls"] += 1
            case "job_retrying" | "job_deadlettered" if event.payload.get("reason") == "lease_expired":
                found["taken over"] += 1
            case _:
                pass
    for approval in case.approvals:
        found["approvals decided"] += approval.status in (ApprovalStatus.APPROVED, ApprovalStatus.DENIED)
        found["approvals expired"] += approval.status is ApprovalStatus.EXPIRED


def _line(case: Case, what: str) -> str:
    job = case.job
    return f"job {job.id} ({job.kind}, {job.goal}): {json.dumps(what, ensure_ascii=False)[1:-1]}"
