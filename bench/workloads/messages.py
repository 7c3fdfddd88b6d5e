"""Messages to agents that take them from their inboxes."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.checks import Incorrect
from bench.handlers import PAYLOAD, BenchApp
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, ended, opened, working
from perdure import JobContext

MESSAGES = 4_000
AGENTS = 100
SENDERS = 32
BATCH = 50
TO_ONE = 400


async def messages(target: Target, sizes: Sizes) -> Figures:
    """Messages a second, from the first send by 32 callers until each message was consumed by a job that has completed. The
    agents have `intake="inbox"`: a hundred that take one message at a time; `batch`, as many that take up to 50; `to_one`, a
    single agent that takes one at a time. `/jobs` compares the first with as many jobs that are enqueued by as many callers.
    The worker is in this process."""
    number, to_one = max(20, round(MESSAGES * sizes.part)), max(10, round(TO_ONE * sizes.part))
    agents = min(AGENTS, number)
    one_each = number / await _messages(target, number, agents, 1)
    return {
        "messages": one_each,
        "messages/jobs": one_each / (number / await _jobs(target, number)),
        "messages.batch": number / await _messages(target, number, agents, BATCH),
        "messages.to_one": to_one / await _messages(target, to_one, 1, 1),
    }


async def _messages(target: Target, number: int, agents: int, batch: int) -> float:
    """Seconds."""
    got: list[int] = []
    done = asyncio.Event()
    async with target.fresh() as url, opened(url) as bench:
        app = bench.app

        @app.job
        async def handle(ctx: JobContext) -> None:
            got.extend(message.payload["number"] for message in ctx.agent_messages)
            if len(got) >= number:
                done.set()

        for agent in range(agents):
            await app.agents.create(f"agent-{agent}", kind="handle", intake="inbox", batch=batch)

        async def send(n: int) -> None:
            await app.agents.send(f"agent-{n % agents}", {**PAYLOAD, "number": n})

        seconds = await _all(bench, number, send, done, "handle")
        p = target.prefix
        consumed = await target.sql(url, f"select count(consumed_by_job_id), count(*) from {p}agent_messages")
        if sorted(got) != list(range(number)) or tuple(consumed) != (number, number):
            raise Incorrect(f"{number} messages: {len(got)} came, {len(set(got))} of them once, {consumed} consumed")
    return seconds


async def _jobs(target: Target, number: int) -> float:
    """Seconds of as many jobs without messages."""
    got: list[int] = []
    done = asyncio.Event()
    async with target.fresh() as url, opened(url) as bench:

        @bench.app.job
        async def plain(ctx: JobContext, payload: dict[str, object]) -> None:
            got.append(1)
            if len(got) == number:
                done.set()

        async def enqueue(n: int) -> None:
            await bench.app.enqueue(plain, {**PAYLOAD, "number": n})

        return await _all(bench, number, enqueue, done, "plain")


async def _all(
    bench: BenchApp, number: int, send: Callable[[int], Awaitable[None]], done: asyncio.Event, kind: str
) -> float:
    """Seconds until all were sent and all jobs of the kind have ended."""

    async def sender(first: int) -> None:
        for n in range(first, number, SENDERS):
            await send(n)

    async with working(bench):
        began = time.perf_counter()
        await asyncio.gather(*(sender(first) for first in range(SENDERS)))
        async with asyncio.timeout(300):
            await done.wait()
        await ended(bench, kind)
        return time.perf_counter() - began
