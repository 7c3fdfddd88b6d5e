"""A database that takes no writes for a while, as after a failover to a standby: jobs go on when it does again."""

import asyncio
from collections.abc import Callable

import pytest

from perdure import App, JobContext, StoreUnreachable
from perdure.store.group_commit.retry import Retries
from tests.conformance.sql_shell import Shell, open_shell
from tests.runtime.support import PATIENCE, soon, until, working

SESSIONS = (
    "select pid from pg_stat_activity where datname = current_database() and application_name = 'perdure' "
    "and pid <> pg_backend_pid()"
)


async def begin_spell(shell: Shell) -> None:
    """New sessions take no writes, and all sessions are replaced by such."""
    await shell.run(
        "do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$"
    )
    await shell.run(f"select pg_terminate_backend(pid) from ({SESSIONS}) old")


async def end_spell(shell: Shell) -> None:
    """From now on new sessions take writes; those of the spell never will."""
    await shell.run(
        "do $$ begin execute format('alter database %I reset default_transaction_read_only', current_database()); end $$"
    )


@pytest.fixture
def url(fresh_store_url: Callable[[str], str]) -> str:
    """A PostgreSQL database of its own: the setting is that of a database."""
    return fresh_store_url("postgres")


async def test_sessions_that_take_no_writes_are_replaced_and_jobs_go_on(url: str) -> None:
    async with App(url, migrate=True) as app, open_shell(url) as shell:

        @app.job
        async def steps(ctx: JobContext) -> int:
            await ctx.step("one", one)
            return await ctx.step("two", one)

        async def one() -> int:
            return 1

        async with working(app, lease=30):
            assert await (await app.enqueue(steps)).result(PATIENCE) == 1
            await begin_spell(shell)
            waiting = [asyncio.create_task(app.enqueue(steps)) for _ in range(3)]
            together = asyncio.create_task(app.enqueue_many([]))
            await until(lambda: shell.run(SESSIONS), what="a session of the spell")
            await end_spell(shell)
            for handle in await soon(asyncio.gather(*waiting)):
                assert await handle.result(PATIENCE) == 1
            await soon(together)
            assert await (await app.enqueue(steps)).result(PATIENCE) == 1, "and by all connections"


async def test_a_spell_that_does_not_end_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with App(url, migrate=True) as app, open_shell(url) as shell:

        @app.job
        async def quick(ctx: JobContext) -> None: ...

        await app.enqueue(quick)
        await begin_spell(shell)
        monkeypatch.setattr(Retries.__init__, "__defaults__", (0.2,))
        with pytest.raises(StoreUnreachable, match="read-only transaction"):
            await app.jobs.cancel((await app.jobs.list()).items[0].id)
        await end_spell(shell)
        await app.jobs.cancel((await app.jobs.list()).items[0].id)
