"""The App that `perdure dev` runs where no --app is given: one job with steps, one that retries, one that asks."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import App, Backoff, JobContext

app = App()


@app.job
async def research(ctx: JobContext, topic: str) -> dict[str, Any]:
    """Three steps with progress, and a short sleep that frees the worker."""
    sources = await ctx.step("search", search, topic)
    await ctx.progress(0.4, f"found {len(sources)} sources")
    await ctx.sleep("settle", "2s")
    notes = [await ctx.step(f"read {number}", read, source) for number, source in enumerate(sources, 1)]
    await ctx.progress(0.9, "writing")

    async def write_report() -> str:
        report = await write(notes)
        await ctx.usage(tokens=1840, cost=0.02)  # in the step: it counts once for each time the step runs
        return report

    return {"topic": topic, "report": await ctx.step("write", write_report)}


@app.job(max_retries=3, backoff=Backoff(base=2, cap=10, jitter=0))
async def flaky(ctx: JobContext) -> str:
    """Fails twice, then works."""
    await asyncio.sleep(0.5)
    if ctx.retry_count < 2:
        raise ConnectionError(f"the connection was closed (attempt {ctx.retry_count + 1})")
    return "worked in the third attempt"


@app.job
async def publish(ctx: JobContext, draft: str) -> str:
    """Asks before it does something that cannot be undone."""
    decision = await ctx.approve("publish", title="Publish this draft?", payload={"draft": draft}, expires_in="1h")
    return await ctx.tool("post", post, decision.payload["draft"])


async def search(topic: str) -> list[str]:
    """Look for sources."""
    await asyncio.sleep(0.6)
    return [f"{topic} {number}" for number in (1, 2, 3)]


async def read(source: str) -> str:
    """Read one source."""
    await asyncio.sleep(0.5)
    return f"what '{source}' says"


async def write(notes: list[str]) -> str:
    """Write it up."""
    await asyncio.sleep(0.6)
    return f"a report from {len(notes)} notes"


async def post(draft: str) -> str:
    """The side effect."""
    await asyncio.sleep(0.2)
    return f"published {len(draft)} characters"
