"""How long a parked job takes to go on: after a signal, after a message, after the end of its child."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.checks import Incorrect
from bench.handlers import BenchApp
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, opened, percentile, working
from perdure import Handle, JobContext, Status

WAKES = 200
AGENT = "listener"


async def wake_up(target: Target, sizes: Sizes) -> Figures:
    """Milliseconds from the call of signal or send, or from the return of the child, to the code behind the wait. `start`, from
    the call of enqueue to the first line of a new job, is what they are compared with. One worker, in this process, parks at
    once; one job after the other."""
    wakes = max(5, round(WAKES * sizes.part))
    samples: dict[str, list[float]] = {"start": [], "signal": [], "message": [], "child": []}
    async with target.fresh() as url, opened(url) as bench:
        rounds = await _rounds(bench, samples)
        async with working(bench, linger=0):
            for number in range(wakes + 2):
                for one in rounds:
                    await one()
                if number == 1:  # statements and handlers are used once
                    for times in samples.values():
                        times.clear()
    if any(len(times) != wakes for times in samples.values()):
        raise Incorrect(f"{wakes} jobs of each sort went on {[len(times) for times in samples.values()]} times")
    median = {name: percentile(times, 0.5) for name, times in samples.items()}
    return (
        {f"wake_up.{name}_p50": median[name] for name in samples}
        | {f"wake_up.{name}_p99": percentile(times, 0.99) for name, times in samples.items()}
        | {f"wake_up.{name}/start": median[name] / median["start"] for name in samples if name != "start"}
    )


async def _rounds(bench: BenchApp, samples: dict[str, list[float]]) -> list[Callable[[], Awaitable[None]]]:
    """What makes one sample of each sort."""
    app = bench.app
    ended = 0

    def sample(sort: str, since: int) -> None:
        samples[sort].append((time.monotonic_ns() - since) / 1e6)

    @app.job
    async def start(ctx: JobContext, called: int) -> None:
        sample("start", called)

    @app.job
    async def signalled(ctx: JobContext) -> None:
        sample("signal", await ctx.wait_signal("go", int))

    @app.job
    async def receiver(ctx: JobContext) -> None:
        (message,) = await ctx.receive(timeout="1h")
        sample("message", message.payload)

    @app.job
    async def child(ctx: JobContext) -> None:
        nonlocal ended
        ended = time.monotonic_ns()

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.wait_for(await ctx.spawn(child))
        sample("child", ended)

    await app.agents.create(AGENT, kind="receiver", intake="inbox")

    async def started() -> None:
        await (await app.enqueue(start, time.monotonic_ns())).result(timeout=60)

    async def by_signal() -> None:
        waiting = await app.enqueue(signalled)
        await _parked(waiting)
        await waiting.signal("go", time.monotonic_ns())
        await waiting.result(timeout=60)

    async def by_message() -> None:
        waiting = await app.enqueue(receiver, agent=AGENT)
        await _parked(waiting)
        await app.agents.send(AGENT, time.monotonic_ns())
        await waiting.result(timeout=60)

    async def by_child() -> None:
        await (await app.enqueue(parent)).result(timeout=60)

    return [started, by_signal, by_message, by_child]


async def _parked(handle: Handle[Any]) -> None:
    async with asyncio.timeout(60):
        async for event in handle.watch():
            if event.new_status is Status.PARKED:
                return
