"""The database of a run: checked before anything is changed; its jobs are deleted at the end."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.chaos.clients import OPEN
from perdure.chaos.jobs import KINDS
from perdure.model.errors import ConfigError, Conflict, ForeignDatabase, RealJobs
from perdure.runtime.client.client import Client
from perdure.store.open import open_store

BATCH = 500


async def prepare(url: str, *, allow_real_jobs: bool) -> bool:
    """Make sure that the database may be used, and that it has a schema; whether it holds jobs or tables of others.

    Raises RealJobs where it does and that was not allowed, ConfigError for memory:, and what opening a store raises.
    """
    if url.strip() == "memory:":
        raise ConfigError("memory: lives in one process, and chaos needs several", hint="give it sqlite:///path")
    try:
        store = await open_store(url, allow_other_tables=allow_real_jobs)
    except ForeignDatabase as error:
        if allow_real_jobs:
            raise
        raise _not_alone(error.message, "tables") from error
    try:
        status = await store.schema.schema_status()
        tables = await store.schema.other_tables()
        if tables and not allow_real_jobs:
            raise _not_alone(f"this database holds tables that are not perdure's: {_few(tables, 'tables')}", "tables")
        if status.current == 0:
            await store.schema.migrate(allow_other_tables=allow_real_jobs)
        await store.schema.check_schema()
        real = [kind for kind in await store.schema.kinds() if not kind.startswith(KINDS)]
    finally:
        await store.close()
    if real and not allow_real_jobs:
        named = _few([f"'{kind}'" for kind in real], "kinds")
        raise _not_alone(f"this database holds jobs that chaos did not make: {named}", "jobs")
    return bool(tables or real)


def _few(names: Sequence[str], what: str) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more {what}" * (len(names) > 3))


def _not_alone(found: str, what: str) -> RealJobs:
    return RealJobs(
        f"{found}. Nothing was changed",
        hint=f"give it a database of its own (--url), or allow it: --allow-real-jobs. It would not touch those {what}, "
        "but its load and its locks would slow them down",
    )


async def end_all(client: Client) -> None:
    """Cancel the unfinished jobs of a run that was interrupted."""
    while items := (await client.jobs.list(status=OPEN, limit=BATCH)).items:
        for job in items:
            try:
                await client.jobs.cancel(job.id, "chaos was interrupted", force=True)
            except Conflict:
                continue


async def clear(client: Client) -> None:
    """Delete the finished jobs of a run, with their records, and its workers."""
    await client.database.prune(older_than=0)
    await (await client.open()).retention.forget_workers(0)
