"""An agent whose jobs take messages and signals while they run, and whether each was taken once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

from perdure.app import App
from perdure.chaos.clients import OPEN, Requested
from perdure.chaos.jobs import LISTENER, MANY_RETRIES, QUEUE
from perdure.chaos.report import Report
from perdure.model.errors import AgentNotFound, SignalTimeout, StoreUnreachable
from perdure.model.jobs import Job
from perdure.model.messages import Message
from perdure.model.signals import AgentSignal
from perdure.model.states import Status
from perdure.model.timing import Backoff
from perdure.runtime.client.client import Client
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.wait_any import OnMessage, OnSignal, OnTime

MOST_OPEN = 8
ROUNDS = 2


def add_listener(app: App, backoff: Backoff) -> None:
    """Its handler returns which messages and which signals it got."""

    @app.agent(LISTENER, queue=QUEUE, max_parallel_jobs=3, max_retries=MANY_RETRIES, backoff=backoff)
    async def listen(ctx: JobContext, message: Message) -> dict[str, Any]:
        messages, signals = [message.payload], []
        for number in range(ROUNDS):
            first = await ctx.wait_any(OnSignal("call", str), OnMessage("news", limit=3), OnTime("pause", 0.4))
            if first.name == "call":
                signals.append(first.value)
            elif first.name == "news":
                messages += [each.payload for each in first.value]
            await ctx.step("note", str, number)
            messages += [each.payload for each in await ctx.receive("news", limit=3, timeout=0.2)]
            signals += [signal.payload for signal in await ctx.receive_signals()]
        with suppress(SignalTimeout):
            signals.append(await ctx.wait_signal("call", str, timeout=0.2))
        signals += [signal.payload for signal in await ctx.receive_signals()]
        return {"messages": messages, "signals": signals}


class Caller:
    """Sends messages and signals to that agent, some signals twice with the same id, and some that expire soon."""

    def __init__(self, client: Client, requested: Requested, report: Report, seed: int) -> None:
        self._client = client
        self._requested = requested
        self._report = report
        self._rng = Random(f"{seed} caller")

    async def call(self) -> None:
        """Until cancelled."""
        number = 0
        while True:
            await asyncio.sleep(0.2)
            number += 1
            try:
                if len((await self._client.jobs.list(status=OPEN, kind=LISTENER, limit=MOST_OPEN)).items) < MOST_OPEN:
                    text = f"news {number}"
                    sent = await self._client.agents.send(LISTENER, text, channel="news", idempotency_key=text)
                    self._requested.messages[text] = sent.id
                await self._signal(f"call {number}")
            except StoreUnreachable:
                self._report.done["refused"] += 1

    async def _signal(self, text: str) -> None:
        key, expires = self._rng.choice(("call", "call", "other")), self._rng.choice((None, None, 0.5))
        sent = await self._client.agents.signal(LISTENER, key, text, id=text, expires_in=expires)
        self._requested.signals[text] = sent.id
        if self._rng.random() < 0.3:
            again = await self._client.agents.signal(LISTENER, key, text, id=text, expires_in=expires)
            if again.id != sent.id:
                self._report.faults.append(f"the id '{text}' made two signals")


class ListenerProof:
    """Whether what was sent to the agent was taken by one job, once. `add` is given every job of it."""

    def __init__(self) -> None:
        self._jobs: dict[UUID, Job] = {}

    def add(self, job: Job) -> None:
        """A job of the agent."""
        self._jobs[job.id] = job

    async def faults(self, client: Client, requested: Requested, report: Report) -> AsyncIterator[str]:
        """What is wrong, one line each."""
        messages: list[Message] = [one async for one in _all(client, "inbox")]
        signals: list[AgentSignal] = [one async for one in _all(client, "signals")]
        report.found["signals"] = len(signals)
        report.found["signals taken"] = sum(signal.state == "consumed" for signal in signals)
        report.found["news"] = len(messages)
        for what, sent, known in (
            ("message", {text: id for text, id in requested.messages.items() if text.startswith("news")}, messages),
            ("signal", requested.signals, signals),
        ):
            stored = Counter(each.id for each in known)
            for text, id in sent.items():
                if stored[id] != 1:
                    yield f"{what} {id} ('{text}') was acknowledged and is stored {stored[id]} times"
        for message in messages:
            if message.consumed_by_job_id is None:
                yield f"message {message.id} to {LISTENER}: it is {message.state}, and no job has got it"
        takers = {message.consumed_by_job_id for message in messages} | {
            signal.consumed_by_job_id for signal in signals
        }
        for got in takers - self._jobs.keys() - {None}:
            yield f"job {got} has got a message or a signal to {LISTENER}, and does not exist"
        by_job = _by_job(messages)
        for job in self._jobs.values():
            if job.status is Status.COMPLETED:
                kept_by = await client.jobs.signals(job.id)
                given = Counter(str(signal.payload) for signal in signals if signal.consumed_by_job_id == job.id)
                kept = Counter(str(signal.payload) for signal in kept_by)
                for text in _of_one(job, by_job.get(job.id, Counter()), given):
                    yield f"job {job.id} ({job.kind}): {text}"
                if kept != given or any(signal.pending for signal in kept_by):
                    yield f"job {job.id} ({job.kind}): it has the signals {sorted(kept)}, and was given {sorted(given)}"


def _of_one(job: Job, messages: Counter[str], signals: Counter[str]) -> Iterator[str]:
    """Its result has each message and each signal that it has got once, and nothing else."""
    result = job.result if isinstance(job.result, dict) else {}
    for name, expected in (("messages", messages), ("signals", signals)):
        said = Counter(map(str, result.get(name, ())))
        if said != expected:
            yield f"its result has the {name} {sorted(said.elements())}, and it got {sorted(expected.elements())}"


def _by_job(messages: list[Message]) -> dict[UUID, Counter[str]]:
    """What the messages say that each job has got."""
    found: dict[UUID, Counter[str]] = {}
    for message in messages:
        if message.consumed_by_job_id is not None:
            found.setdefault(message.consumed_by_job_id, Counter())[str(message.payload)] += 1
    return found


async def _all(client: Client, what: str) -> AsyncIterator[Any]:
    """The messages to the agent, or its signals, newest first."""
    cursor: str | None = None
    while True:
        try:
            page: Any = await getattr(client.agents, what)(LISTENER, limit=500, cursor=cursor)
        except AgentNotFound:
            return
        for one in page.items:
            yield one
        cursor = page.next_cursor
        if cursor is None:
            return
