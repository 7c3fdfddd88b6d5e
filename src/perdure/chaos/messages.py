"""Agents, a schedule and a pause of the queue: what is sent to the agents of a run, and whether each message was got once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

from perdure.app import App
from perdure.chaos.clients import Requested
from perdure.chaos.jobs import BATCHES, ECHO, LISTENER, MANY_RETRIES, QUEUE, TICK
from perdure.chaos.report import Report
from perdure.model.errors import AgentNotFound, Conflict, StoreUnreachable
from perdure.model.jobs import Job
from perdure.model.messages import Message, messages_of_payload
from perdure.model.states import Status
from perdure.model.timing import Backoff
from perdure.runtime.client.client import Client
from perdure.runtime.context.context import JobContext

MOST_OPEN = 12
"""Jobs of the first agent, so that messages do not come faster than they are answered."""
TICK_EVERY = 5.0


def add_agents(app: App, backoff: Backoff) -> None:
    """Their handlers: the first agent passes each message from outside on to the second, which takes several at a time."""

    @app.agent(ECHO, queue=QUEUE, max_parallel_jobs=4, max_retries=MANY_RETRIES, backoff=backoff).on_message(str)
    async def echo(ctx: JobContext, text: str) -> str:
        if ctx.message is not None and ctx.message.from_agent_id is None and ctx.message.reply_channel is None:
            await ctx.send(BATCHES, text)
        return text

    @app.agent(BATCHES, queue=QUEUE, intake="inbox", batch=20, max_retries=MANY_RETRIES, backoff=backoff).on_message(
        str
    )
    async def take(ctx: JobContext, text: str) -> None:
        await ctx.step(text, str)

    @app.job(name=TICK, queue=QUEUE, max_retries=MANY_RETRIES, backoff=backoff)
    async def tick(ctx: JobContext) -> None:
        await ctx.step("tick", str)


class Correspondent:
    """Sends messages to the first agent: now or a little later, and some twice with the same key."""

    def __init__(self, client: Client, requested: Requested, report: Report, seed: int) -> None:
        self._client = client
        self._requested = requested
        self._report = report
        self._rng = Random(f"{seed} correspondent")

    async def write(self) -> None:
        """Until cancelled."""
        number = 0
        with suppress(StoreUnreachable):
            await self._client.schedules.add(TICK, TICK, every=TICK_EVERY, queue=QUEUE, overlap="enqueue")
        while True:
            await asyncio.sleep(0.15)
            try:
                if len((await self._client.jobs.list(status=_OPEN, kind=ECHO, limit=MOST_OPEN)).items) == MOST_OPEN:
                    continue
                number += 1
                await self._send(f"message {number}")
            except StoreUnreachable:
                self._report.done["refused"] += 1

    async def _send(self, text: str) -> None:
        delay = self._rng.choice((0.0, 0.0, 0.3))
        sent = await self._client.agents.send(ECHO, text, delay=delay, idempotency_key=text)
        self._requested.messages[text] = sent.id
        if self._rng.random() < 0.3:
            again = await self._client.agents.send(ECHO, text, delay=delay, idempotency_key=text)
            if again.id != sent.id or again.created:
                self._report.faults.append(f"the key '{text}' made two messages")


_OPEN = tuple(status for status in Status if not status.terminal)


async def stop_schedule(client: Client, requested: Requested) -> None:
    """Let the schedule start nothing more, and the queue go on."""
    await client.queues.resume(QUEUE)
    with suppress(LookupError):
        await client.schedules.pause(TICK)
    for job in (await client.jobs.list(status=Status.PENDING, kind=TICK, limit=100)).items:
        requested.cancelled.add(job.id)
        with suppress(Conflict):
            await client.jobs.cancel(job.id, "chaos")


async def undelivered(client: Client) -> bool:
    """Whether an agent has messages that no job has got."""
    for agent in (ECHO, BATCHES, LISTENER):
        with suppress(AgentNotFound):
            if (await client.agents.inbox(agent, pending=True, limit=1)).items:
                return True
    return False


class MessageProof:
    """Whether each message was got by one job, and answered once. `add` is given every job of an agent."""

    def __init__(self) -> None:
        self._started: Counter[UUID] = Counter()
        """How many jobs were started for each message."""
        self._ends: dict[UUID, Status] = {}
        self._ticks: Counter[str] = Counter()

    def add(self, job: Job) -> None:
        """A job of an agent or of the schedule."""
        self._ends[job.id] = job.status
        self._started.update(message.id for message in messages_of_payload(job.payload))
        if job.kind == TICK:
            self._ticks[job.idempotency_key or ""] += 1

    async def faults(self, client: Client, requested: Requested, report: Report) -> AsyncIterator[str]:
        """What is wrong, one line each."""
        boxes = {agent: [message async for message in _all(client, agent, "inbox")] for agent in (ECHO, BATCHES)}
        replies: Counter[UUID] = Counter()
        for agent in boxes:
            async for message in _all(client, agent, "outbox"):
                if message.reply_to is not None:
                    replies[message.reply_to] += 1
        report.found["messages"] = sum(map(len, boxes.values()))
        report.found["replies"] = sum(replies.values())
        report.found["firings"] = len(self._ticks)
        for messages in boxes.values():
            for message in messages:
                for what in self._of_one(message, replies[message.id]):
                    yield f"message {message.id} to {message.to_agent_id}: {what}"
        known = {message.id for message in boxes[ECHO]}
        for text, id in requested.messages.items():
            if id not in known and text.startswith("message"):
                yield f"message {id} ('{text}') was acknowledged and does not exist"
        for text in _uneven(boxes, self._ends):
            yield text
        for key, times in self._ticks.items():
            if times > 1:
                yield f"the schedule fired {times} times for {key}"

    def _of_one(self, message: Message, replies: int) -> Iterator[str]:
        end = self._ends.get(message.consumed_by_job_id) if message.consumed_by_job_id else None
        if message.consumed_by_job_id is None:
            yield f"it is {message.state}, and no job has got it"
        elif end is None:
            yield f"job {message.consumed_by_job_id} has got it, and does not exist"
        if self._started[message.id] != 1:
            yield f"{self._started[message.id]} jobs were started for it"
        if replies != (message.to_agent_id == ECHO and end is Status.COMPLETED):
            yield f"it has {replies} replies, and its job is {end}"


def _uneven(boxes: Mapping[str, list[Message]], ends: Mapping[UUID, Status]) -> Iterator[str]:
    """Each message from outside is passed on once, if its job was completed."""
    passed = Counter(message.payload for message in boxes[BATCHES])
    for message in boxes[ECHO]:
        outside = message.from_agent_id is None and message.reply_channel is None
        done = message.consumed_by_job_id is not None and ends.get(message.consumed_by_job_id) is Status.COMPLETED
        times = passed[message.payload]
        if outside and (times > 1 or (done and times == 0)):
            yield f"'{message.payload}' was passed on {times} times"


async def _all(client: Client, agent: str, box: str) -> AsyncIterator[Message]:
    """The messages of a mailbox, newest first."""
    cursor: str | None = None
    while True:
        try:
            page: Any = await getattr(client.agents, box)(agent, limit=500, cursor=cursor)
        except AgentNotFound:
            return
        for message in page.items:
            yield message
        cursor = page.next_cursor
        if cursor is None:
            return
