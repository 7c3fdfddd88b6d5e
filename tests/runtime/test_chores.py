"""A chore is one line of `CHORES`: tests add some, for every worker and for a leader."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import structlog

from perdure import App
from perdure.model.errors import StoreError
from perdure.runtime import chores
from perdure.runtime.chores import CHORES, Chore, ChoreContext, Chores, RunBy
from tests.conformance.sql_shell import open_shell

HOUR = 3600.0


def counting(done: Counter[str], portions: int = 1) -> Callable[[ChoreContext], Callable[[], Awaitable[bool]]]:
    """A chore of some portions, which counts by worker what it does."""

    def start(context: ChoreContext) -> Callable[[], Awaitable[bool]]:
        done[f"{context.worker_id} started"] += 1
        left = portions

        async def portion() -> bool:
            nonlocal left
            left -= 1
            done[context.worker_id] += 1
            return left == 0

        return portion

    return start


async def test_a_chore_of_every_worker(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    done: Counter[str] = Counter()
    monkeypatch.setattr(chores, "CHORES", (*CHORES, Chore("count", counting(done))))
    await (await app.worker()).run(once=True)
    assert sum(done.values()) == 2, "a worker with once=True does one round when it starts"
    store = await app.open()
    one, two = Chores(store, "w-1"), Chores(store, "w-2")
    for worker in (one, two, one):
        await worker.run_once()
    assert (done["w-1"], done["w-2"]) == (2, 1)


async def test_a_chore_of_the_leader(file_app: App, file_store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: Counter[str] = Counter()
    monkeypatch.setattr(chores, "CHORES", (Chore("count", counting(done, portions=2), RunBy.LEADER, lambda _: HOUR),))
    store = await file_app.open()
    one, two = Chores(store, "w-1"), Chores(store, "w-2")
    for worker in (one, two, one, two, one):
        await worker.run_once()
    assert done == {"w-1 started": 1, "w-1": 2}, "finished in two portions; the next start is an hour later"
    async with open_shell(file_store_url) as shell:
        assert await shell.run("select chore, holder from leaders") == [{"chore": "count", "holder": "w-1"}]
        await shell.run(f"update leaders set expires_at = {shell.ago(1)}")
    await Chores(store, "w-3").run_once()
    assert done["w-3"] == 1


async def test_a_leader_that_was_replaced_begins_again(
    file_app: App, file_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: Counter[str] = Counter()
    short = 0.001
    monkeypatch.setattr(chores, "CHORES", (Chore("count", counting(done, portions=3), RunBy.LEADER, lambda _: short),))
    one = Chores(await file_app.open(), "w-1")
    await one.run_once()
    async with open_shell(file_store_url) as shell:
        await shell.run(f"update leaders set holder = 'w-2', expires_at = {shell.ago(-HOUR)}")
        await one.run_once()
        assert done == {"w-1 started": 1, "w-1": 1}
        await shell.run(f"update leaders set expires_at = {shell.ago(1)}")
    await asyncio.sleep(2 * short)
    await one.run_once()
    assert done == {"w-1 started": 2, "w-1": 2}


async def test_a_chore_that_this_worker_does_not_do(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    done: Counter[str] = Counter()
    monkeypatch.setattr(chores, "CHORES", (Chore("count", counting(done), interval=lambda _: None),))
    await Chores(await app.open(), "w-1").run_once()
    assert not done


async def test_a_chore_that_fails_is_named_and_the_others_go_on(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    done: Counter[str] = Counter()

    def start(context: ChoreContext) -> Callable[[], Awaitable[bool]]:
        async def portion() -> bool:
            raise StoreError("the database is away")

        return portion

    monkeypatch.setattr(chores, "CHORES", (Chore("fail", start), Chore("count", counting(done))))
    with structlog.testing.capture_logs() as lines:
        await Chores(await app.open(), "w-1").run_once()
    assert done["w-1"] == 1
    assert [(line["event"], line["chore"]) for line in lines] == [("a chore failed", "fail")]


async def test_a_chore_that_fails_in_an_unknown_way_is_logged_and_done_again(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over a row that cannot be read: no chore may end unseen, or keep the others from their turn."""
    done: Counter[str] = Counter()

    async def fail() -> bool:
        done["failed"] += 1
        raise OverflowError("date value out of range")

    monkeypatch.setattr(chores, "CHORES", (Chore("broken", lambda _: fail), Chore("count", counting(done))))
    worker = Chores(await app.open(), "w-1")
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            await worker.run_once()
    assert (done["failed"], done["w-1"]) == (2, 2)
    assert [(line["log_level"], line["chore"]) for line in logs] == [("error", "broken")] * 2
