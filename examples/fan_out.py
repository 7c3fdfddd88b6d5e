"""A fan-out and its join: a job spawns 1,000 children, waits for all of them, and adds up what they found.

    python examples/fan_out.py                 # in perdure.db of this directory; with a worker in this process
    PERDURE_DATABASE_URL=postgresql://localhost/mine python examples/fan_out.py 3000000

While it waits the parent has no worker and no slot, and the last of its children wakes it, once. Kill the program at any
moment and start it again with the same number: the children that have ended do not run again.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from perdure import App, BlockingContext, ChildError, JobContext

PARTS = 1000

app = App()


@dataclass(frozen=True)
class Numbers:
    """The input of a child: from first to last, without the last."""

    first: int
    last: int


@app.job
def count_primes(_: BlockingContext, numbers: Numbers) -> int:
    """How many of these are primes. A plain function, so it runs in a thread."""
    return sum(n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(numbers.first, numbers.last))


@app.job
async def primes_below(ctx: JobContext, limit: int) -> int:
    """How many primes are below the limit. A spawn has a key, as parallel ones come in any order."""
    size = -(-limit // PARTS)
    parts = [Numbers(first, min(first + size, limit)) for first in range(0, limit, size)]
    children = await asyncio.gather(*(ctx.spawn(count_primes, part, key=f"from {part.first}") for part in parts))
    found = 0
    for count in await ctx.gather(*children, return_exceptions=True):
        if isinstance(count, ChildError):
            raise count  # or go on without it: count.child_id, count.error
        found += count
    return found


async def main(limit: int) -> int:
    """Enqueue it, or find the job of an earlier call, and run a worker until it has ended."""
    async with app:
        worker = asyncio.create_task(app.work(concurrency=20))
        try:
            job = await app.enqueue(primes_below, limit, idempotency_key=str(limit))
            return await job.result(follow=True)
        finally:
            worker.cancel()
            await asyncio.wait([worker])


if __name__ == "__main__":
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    print(asyncio.run(main(limit)), "primes below", limit)
