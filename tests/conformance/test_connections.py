"""Connections to PostgreSQL: none is left open."""

import asyncio
import dataclasses
import gc
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from perdure.store.open import open_store
from perdure.store.postgres.engine import connections
from perdure.store.postgres.engine.statements import STATEMENTS
from perdure.store.postgres.hints import notifier

OTHERS = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


@pytest.fixture
def no_collection() -> Iterator[None]:
    """A connection that is left open is not closed by the collector before it is counted."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
async def test_opening_that_is_cancelled_leaves_no_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = dataclasses.replace(STATEMENTS["settings_arrived"], sql="select pg_sleep(0.5)")
    monkeypatch.setattr(connections, "STATEMENTS", {**STATEMENTS, "settings_arrived": first})
    look = await asyncpg.connect(postgres_url)
    try:
        opening = asyncio.create_task(open_store(postgres_url))
        async with asyncio.timeout(20):
            while not await look.fetchval(f"{OTHERS} and query like '%pg_sleep%'"):
                await asyncio.sleep(0.01)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            while await look.fetchval(OTHERS):
                await asyncio.sleep(0.01)
    finally:
        await look.close()


@pytest.mark.usefixtures("no_collection")
async def test_a_listener_that_connects_during_a_close_leaves_no_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, closed = asyncio.Event(), asyncio.Event()

    async def connect(*args: Any, **options: Any) -> Any:
        connecting.set()
        await closed.wait()
        return await connections.connect(*args, **options)

    monkeypatch.setattr(notifier, "connect", connect)
    store = await open_store(postgres_url)

    async def listen() -> None:
        async with store.hints.listen("news") as news:
            await news.wait(60)

    listening = asyncio.create_task(listen())
    await connecting.wait()
    await store.close()
    closed.set()
    look = await asyncpg.connect(postgres_url)
    try:
        async with asyncio.timeout(20):
            while await look.fetchval(OTHERS):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert await look.fetchval(OTHERS) == 0
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await look.close()
