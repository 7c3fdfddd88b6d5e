"""What a claim and a look at the mailboxes cost while many agents have more than they can take."""

import asyncio
import json
import time
from typing import NamedTuple
from uuid import UUID

from bench.checks import Incorrect, check
from bench.fill import AGENTS, fill_agents, fill_parked
from bench.handlers import PAYLOAD, RESULT, BenchApp
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, opened, percentile
from perdure import Request
from perdure.model.agents import key_of_agent
from perdure.model.ids import uuid7
from perdure.model.jobs import ClaimedJob, NewJob, Outcome
from perdure.model.states import Status
from perdure.store.protocol import Store

JOBS = 5
"""Of each agent: one runs, the others wait for its slot."""
PORTION = 500
KINDS = {"noop": 3, "busy": 3}
DONE = Outcome(Status.COMPLETED, result=json.dumps(RESULT))


class Times(NamedTuple):
    """Milliseconds of each claim of ten jobs, each look at the mailboxes, and each time that a slot went to the next job."""

    claims: list[float]
    looks: list[float]
    nexts: list[float]


async def full_mailboxes(target: Target, sizes: Sizes) -> Figures:
    """claim(limit=10) of jobs without an agent: with 100,000 parked jobs, 100,000 delayed messages, and 10,000 agents of which
    each has a job that runs and four that wait for it (all times `--scale`), and in a database with none of that. `look`: what a
    worker asks each second, whether a mailbox is to be looked at. `next`: from the end of an agent's job to the claim of its
    next."""
    empty = await _times(target, sizes, 0.0)
    full = await _times(target, sizes, sizes.scale)
    figures = {
        "full_mailboxes.next_p50": percentile(full.nexts, 0.5),
        "full_mailboxes.next_p99": percentile(full.nexts, 0.99),
    }
    for name, many, none in (("claim", full.claims, empty.claims), ("look", full.looks, empty.looks)):
        for figure, share in (("p50", 0.5), ("p99", 0.99)):
            of_many, of_none = percentile(many, share), percentile(none, share)
            figures[f"full_mailboxes.{name}_{figure}"] = of_many
            figures[f"full_mailboxes.{name}_{figure} full/empty"] = of_many / of_none
    return figures


async def _times(target: Target, sizes: Sizes, scale: float) -> Times:
    async with target.fresh() as url, opened(url) as bench:
        store = await bench.app.open()
        agents = max(1, round(AGENTS * scale))  # one in the database that is called empty: its slot goes on as well
        await fill_parked(target, url, scale)
        running = await _fill_agents(store, agents)
        await fill_agents(target, url, scale)
        if target.name == "postgres":
            for table in (
                "jobs",
                "job_events",
                "job_queue",
                "job_claims",
                "agent_jobs",
                "agent_messages",
                "agent_deliveries",
            ):
                await target.sql(url, f"vacuum (analyze) perdure.{table}")  # autovacuum would do this later
        claims = await _claims(bench, store, sizes.samples)
        await check(target, url, "noop", status="COMPLETED", jobs=(sizes.samples + 10) * 10, events=3)
        looks = await _looks(store, sizes.samples)
        nexts = await _nexts(store, list(running.values()), sizes.samples)
    return Times(claims, looks, nexts)


async def _fill_agents(store: Store, agents: int) -> dict[UUID, ClaimedJob]:
    """Agents of which each has a job that runs and some that wait for it."""
    ids = [f"agent-{n}" for n in range(1, agents + 1)]
    payload = json.dumps(PAYLOAD)
    for _ in range(JOBS):
        for first in range(0, agents, PORTION):
            await store.jobs.enqueue_many(
                NewJob(uuid7(), "busy", payload, agent_id=id, concurrency_key=key_of_agent(id), max_concurrent=1)
                for id in ids[first : first + PORTION]
            )
    running: dict[UUID, ClaimedJob] = {}
    while claimed := await _claim(store, 500):
        running |= {job.id: job for job in claimed}
    if len(running) != agents:
        raise Incorrect(f"{len(running)} jobs of {agents} agents run")
    return running


async def _claim(store: Store, limit: int) -> list[ClaimedJob]:
    return await store.leases.claim(worker_id="w-bench", queue="default", kinds=KINDS, limit=limit, ttl=3600)


async def _claims(bench: BenchApp, store: Store, samples: int) -> list[float]:
    await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range((samples + 10) * 10))
    times = []
    for _ in range(samples + 10):
        t = time.perf_counter()
        claimed = await _claim(store, 10)
        times.append((time.perf_counter() - t) * 1000)
        if len(claimed) != 10 or {job.kind for job in claimed} != {"noop"}:
            raise Incorrect(f"claim(10) gave {[job.kind for job in claimed]}")
        await asyncio.gather(*(store.leases.finish(job.lease, DONE) for job in claimed))
    return times[10:]


async def _looks(store: Store, samples: int) -> list[float]:
    times = []
    for _ in range(samples + 10):
        t = time.perf_counter()
        left = await store.agents.next_delivery()
        times.append((time.perf_counter() - t) * 1000)
        if left == 0:
            raise Incorrect("a mailbox is to be looked at, though no message is due")
    return times[10:]


async def _nexts(store: Store, running: list[ClaimedJob], samples: int) -> list[float]:
    """End jobs of agents one after the other, and claim the job that waited for each."""
    times = []
    for job in running[: samples + 2]:
        t = time.perf_counter()
        await store.leases.finish(job.lease, DONE)
        released = await store.leases.release_held()
        claimed = await _claim(store, 10)
        times.append((time.perf_counter() - t) * 1000)
        if released != 1 or [next.kind for next in claimed] != ["busy"]:
            raise Incorrect(f"after the end of one job {released} were let through and {len(claimed)} claimed")
    return times[2:] or times
