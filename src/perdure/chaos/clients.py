"""The clients of a run: one enqueues jobs, one decides approvals, one sends signals, one cancels jobs and makes them due."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from perdure.chaos.jobs import FAILING, FLEETING, QUEUE
from perdure.chaos.report import Report
from perdure.chaos.script import requests
from perdure.model.approvals import Approval
from perdure.model.errors import Conflict, NotPermitted, PerdureError, StoreUnreachable
from perdure.model.states import Status
from perdure.runtime.client.client import Client
from perdure.runtime.client.enqueue import Request

OPEN = tuple(status for status in Status if not status.terminal)
BY_PEOPLE = ("cancel", "force", "due", "pause", "edit", "retry", "rerun", "delete")
"""What a `Controller` can do."""
MOST_RERUNS = 200
NEWEST = 60
"""A job is picked from this many of the newest."""


class Requested:
    """What the clients asked for, and what of it was acknowledged."""

    def __init__(self) -> None:
        self.jobs: dict[str, UUID] = {}
        """Acknowledged jobs, by goal."""
        self.unacknowledged: set[str] = set()
        """Goals of jobs whose enqueue was not acknowledged: they may exist."""
        self.messages: dict[str, UUID] = {}
        """Acknowledged messages to the first agent, by what they say."""
        self.signals: dict[str, UUID] = {}
        """Acknowledged signals to an agent, by what they say."""
        self.fleeting: set[UUID] = set()
        """Acknowledged jobs that may be deleted once they have ended."""
        self.deleting = False
        """Whether those were to be deleted, whether or not it worked."""
        self.rerunning = False
        """Whether jobs were to be rerun, whether or not it worked."""
        self.cancelled: set[UUID] = set()
        """Jobs that were to be cancelled, whether or not it worked."""
        self.forks: dict[UUID, tuple[str, str]] = {}
        """Acknowledged forks, each with the kind and key of a question that was answered before."""
        self.forked: set[UUID] = set()
        """Jobs that were to be forked, whether or not it worked."""

    @property
    def latest(self) -> list[UUID]:
        """The newest jobs."""
        return list(itertools.islice(reversed(self.jobs.values()), NEWEST))


class Producer:
    """Enqueues jobs, one by one and several at once, with and without a key; a key is sometimes used twice."""

    def __init__(self, client: Client, requested: Requested, report: Report, seed: int) -> None:
        self._client = client
        self._requested = requested
        self._report = report
        self._requests = requests(seed)
        self._rng = Random(f"{seed} producer")

    async def keep(self, most: int) -> None:
        """Keep about this many jobs unfinished, until cancelled."""
        while True:
            try:
                self._report.open = len((await self._client.jobs.list(status=OPEN, limit=most)).items)
            except StoreUnreachable:
                self._report.done["refused"] += 1
                continue
            if self._report.open < most:
                await self.enqueue(min(most - self._report.open, self._rng.randint(1, 8)))
            else:
                await asyncio.sleep(0.1)

    async def enqueue(self, number: int) -> None:
        """Enqueue the next jobs."""
        batch = list(itertools.islice(self._requests, number))
        self._report.enqueued += number
        if self._rng.random() < 0.5:
            await self._together(batch)
        else:
            await asyncio.gather(*(self._together([request]) for request in batch))

    async def _together(self, batch: Sequence[Request]) -> None:
        goals = [(request.options or {}).get("goal", "") for request in batch]
        self._requested.unacknowledged.update(goals)  # also if this is cancelled before the answer
        try:
            handles = await self._client.enqueue_many(batch) if len(batch) > 1 else [await self._one(batch[0])]
        except StoreUnreachable:
            self._report.done["refused"] += 1
            return
        self._requested.unacknowledged.difference_update(goals)
        for request, goal, handle in zip(batch, goals, handles, strict=True):
            self._requested.jobs[goal] = handle.id
            if request.job == FLEETING:
                self._requested.fleeting.add(handle.id)

    async def _one(self, request: Request) -> Any:
        options = request.options or {}
        handle = await self._client.enqueue(request.job, request.input, **options)
        if "idempotency_key" in options and request.job != FAILING and self._rng.random() < 0.3:
            again = await self._client.enqueue(request.job, request.input, **options)
            if again.id != handle.id or again.created:
                self._report.faults.append(f"the key '{options['idempotency_key']}' made two jobs")
        return handle


class Approver:
    """Decides approvals, each as its payload says: by id or by the link's token, and sometimes twice. Some of the jobs are forked
    right after that."""

    def __init__(self, client: Client, requested: Requested, report: Report, directory: Path) -> None:
        self._client = client
        self._requested = requested
        self._report = report
        self._directory = directory

    async def answer_all(self) -> None:
        """Until cancelled."""
        while True:
            try:
                asked = (await self._client.approvals.list(limit=500)).items
                await asyncio.gather(*(self._answer(approval) for approval in asked))
            except StoreUnreachable:
                self._report.done["refused"] += 1
            await asyncio.sleep(0.1)

    async def _answer(self, asked: Approval) -> None:
        if asked.job_status not in ("WAITING_FOR_APPROVAL", "PARKED"):
            return
        if asked.kind == "approval" and asked.payload["answer"] == "nothing":
            return
        chance = asked.id.int
        try:
            await self._decide(asked, chance, by="approver")
        except (Conflict, LookupError):
            return  # decided, expired or cancelled at this moment
        except NotPermitted as error:
            self._report.faults.append(f"approval {asked.id} of job {asked.job_id}, by its last link: {error.message}")
            return
        if chance % 7 == 0 and asked.job_id not in self._requested.forks:
            self._requested.forked.add(asked.job_id)
            fork = await self._client.jobs.fork(asked.job_id, reason="chaos")
            self._requested.forks[fork.id] = asked.kind, asked.key
            self._report.done["forks"] += 1
        if chance % 5:
            return
        try:
            await self._decide(asked, chance, by="another approver")
        except Conflict:
            return
        self._report.faults.append(f"approval {asked.id} of job {asked.job_id} was decided twice")

    async def _decide(self, asked: Approval, chance: int, *, by: str) -> None:
        if asked.kind == "question":
            outcome = "happened" if chance % 2 else "retry"
            await self._client.approve(asked.id, by=by, edited={"outcome": outcome, "result": asked.payload["tool"]})
            return
        who: dict[str, Any] = {"approval_id": asked.id}
        link = self._directory / f"token-{asked.id}"
        if chance % 3 and link.exists() and (token := link.read_text()):
            who = {"token": token}
        match asked.payload["answer"]:
            case "no":
                await self._client.deny(by=by, **who)
            case "edit":
                changed = {**asked.payload, "value": f"{asked.payload['value']} edited"}
                await self._client.approve(by=by, edited=changed, **who)
            case _:
                await self._client.approve(by=by, **who)


class Sender:
    """Sends the signals that jobs wait for, or will: early or late, and often twice."""

    def __init__(self, client: Client, report: Report, seed: int) -> None:
        self._client = client
        self._report = report
        self._rng = Random(f"{seed} sender")

    async def send_all(self) -> None:
        """Until cancelled."""
        while True:
            try:
                jobs = (await self._client.jobs.list(status=OPEN, kind="chaos.ops", limit=500)).items
                wanted = [(job.id, op["name"]) for job in jobs for op in job.payload["ops"] if op["do"] == "signal"]
                await asyncio.gather(*(self._send(*each) for each in wanted if self._rng.random() < 0.3))
            except StoreUnreachable:
                self._report.done["refused"] += 1
            await asyncio.sleep(0.1)

    async def _send(self, job_id: UUID, key: str) -> None:
        try:
            await self._client.signal(job_id, key, key, id=key)
        except (Conflict, LookupError):
            return  # it has ended, or was deleted


class Controller:
    """Cancels jobs, and makes those due that wait for their next attempt."""

    def __init__(self, client: Client, requested: Requested, report: Report) -> None:
        self._client = client
        self._requested = requested
        self._report = report

    async def control(self, what: str, choice: float) -> None:
        """Cancel one of the newest jobs (`cancel`, `force`), make it due (`due`), give all that have not started another priority
        (`edit`), pause the queue for a moment (`pause`), make all due that wait for their next attempt (`retry`), run all again
        that failed and were not (`rerun`), or delete all of a kind that have ended (`delete`)."""
        jobs = self._requested.latest
        if not jobs:
            return
        id = jobs[int(choice * len(jobs))]
        try:
            if what == "pause":
                await self._client.queues.pause(QUEUE, "chaos")
                await asyncio.sleep(choice / 2)
                await self._client.queues.resume(QUEUE)
                self._report.done["pauses"] += 1
                return
            if what == "edit":
                changed = await self._client.jobs.edit_many("chaos", priority=1 + int(choice * 9), kind="chaos.ops")
                self._report.done["edits"] += changed.done
                return
            if what in ("retry", "rerun", "delete"):
                await self._of_all(what)
                return
            if what == "due":
                await self._client.jobs.retry_now(id, "chaos")
                self._report.done["made due"] += 1
                return
            self._requested.cancelled.add(id)  # before it is known whether it is done
            await self._client.jobs.cancel(id, "chaos", force=what == "force")
            self._report.done["cancels"] += 1
        except Conflict:
            return  # it has ended, or waits for something else
        except PerdureError:
            self._report.done["refused"] += 1

    async def _of_all(self, what: str) -> None:
        jobs, done = self._client.jobs, self._report.done
        if what == "retry":
            done["made due"] += (await jobs.retry_many("chaos", kind="chaos.ops")).done
        elif what == "delete":
            self._requested.deleting = True
            done["deleted"] += (await jobs.delete_many("chaos", kind=FLEETING)).done
        elif done["reruns"] < MOST_RERUNS:
            self._requested.rerunning = True
            done["reruns"] += (await jobs.rerun_many("chaos", kind=FAILING)).done
