"""The database a run takes place on: checked before anything is changed, and left as it was."""

from __future__ import annotations

from perdure.chaos.jobs import KINDS
from perdure.chaos.people import OPEN
from perdure.model.errors import ConfigError, Conflict, RealJobs
from perdure.runtime.client.client import Client
from perdure.store.open import open_store

BATCH = 500


async def prepare(url: str, *, allow_real_jobs: bool) -> bool:
    """Make sure that the database may be used, and that it has a schema; whether it holds real jobs.

    Raises RealJobs where it does and that was not allowed, ConfigError for memory:, and what opening a store raises.
    """
    if url.strip() == "memory:":
        raise ConfigError("memory: lives in one process, and chaos needs several", hint="give it sqlite:///path")
    store = await open_store(url)
    try:
        if (await store.schema_status()).current == 0:
            await store.migrate()
        await store.check_schema()
        real = [kind for kind in await store.kinds() if not kind.startswith(KINDS)]
    finally:
        await store.close()
    if real and not allow_real_jobs:
        named = ", ".join(f"'{kind}'" for kind in real[:3]) + (f" and {len(real) - 3} more kinds" * (len(real) > 3))
        raise RealJobs(
            f"this database holds jobs that chaos did not make: {named}. Nothing was changed",
            hint="give it a database of its own (--url), or allow it: --allow-real-jobs. It would not touch those jobs, "
            "but its load and its locks would be felt",
        )
    return bool(real)


async def end_all(client: Client) -> None:
    """Cancel whatever is left of a run that was broken off."""
    while items := (await client.list(status=OPEN, limit=BATCH)).items:
        for job in items:
            try:
                await client.cancel(job.id, "chaos was broken off", force=True)
            except Conflict:
                continue


async def clear(client: Client) -> None:
    """Delete the finished jobs of a run, with all that belongs to them, and its workers."""
    await client.prune(older_than=0)
    await (await client.open()).forget_workers(0)
