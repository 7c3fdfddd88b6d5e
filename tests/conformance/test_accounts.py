"""Accounts of coding CLIs, and the slots that attempts take of them, over every kind of store."""

import asyncio

import pytest

from perdure.model.errors import AccountExists, AccountNotFound, InvalidAccount, LeaseLost
from perdure.model.jobs import Lease
from perdure.model.tooling import Account
from perdure.model.workers import WorkerInfo, WorkerState
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import claim, enqueue, started

KIND = "cli.codex"


async def leased(store: Store, number: int = 1) -> list[Lease]:
    """Leases of jobs that a worker has claimed."""
    return [await started(store, kind=KIND) for _ in range(number)]


async def test_an_account_is_stored_as_it_was_given(store: Store) -> None:
    account = Account(
        "codex-main", "codex", "main", name="ours", env={"CODEX_API_KEY": "env:KEY"}, cred_ref="/c", max_concurrency=4
    )
    await store.accounts.add_account(account)
    for text in ("codex-main", "main"):
        assert (await store.accounts.get_account(text)).account == account
    assert [info.account.id for info in await store.accounts.list_accounts()] == ["codex-main"]
    assert await store.tenant("other").accounts.list_accounts() == []


@pytest.mark.parametrize(("id", "group"), [("a", "new"), ("new", "a")])
async def test_an_id_and_a_group_name_are_taken_once(store: Store, id: str, group: str) -> None:
    await store.accounts.add_account(Account("a", "codex"))
    with pytest.raises(AccountExists):
        await store.accounts.add_account(Account(id, "codex", group))
    await store.tenant("other").accounts.add_account(Account(id, "codex", group))


async def test_an_account_changes_and_goes(store: Store) -> None:
    await store.accounts.add_account(Account("a", "codex"))
    assert not (await store.accounts.change_account("a", enabled=False)).account.enabled
    changed = (await store.accounts.change_account("a", max_concurrency=7)).account
    assert (changed.enabled, changed.max_concurrency) == (False, 7)
    await store.accounts.remove_account("a")
    for call in (
        store.accounts.get_account("a"),
        store.accounts.change_account("a", enabled=True),
        store.accounts.remove_account("a"),
    ):
        with pytest.raises(AccountNotFound):
            await call


async def test_a_worker_shows_whose_slots_it_takes(store: Store) -> None:
    now = await store.now()
    info = WorkerInfo("w", "host", 1, ("default",), (), 9, WorkerState.RUNNING, now, now, alive=True)
    await store.workers.register_worker(info)
    for id, number in (("a", 2), ("b", 1)):
        await store.accounts.add_account(Account(id, "codex", max_concurrency=9))
        for _ in range(number):
            lease = (await claim(store, await enqueue(store, kind=KIND), worker_id="w")).lease
            assert (await store.accounts.take_account(lease, "codex", wanted=id)).account is not None
    await claim(store, await enqueue(store, kind=KIND), worker_id="w")
    [worker] = await store.workers.list_workers()
    assert (worker.held, worker.accounts) == (4, {"a": 2, "b": 1})


def test_a_number_of_slots_is_checked() -> None:
    for wrong in (-1, 10_001, True, "4"):
        with pytest.raises(InvalidAccount):
            Account("a", "codex", max_concurrency=wrong)  # type: ignore[arg-type]  # what is refused


async def test_a_slot_is_taken_by_the_lease(store: Store) -> None:
    await store.accounts.add_account(Account("a", "codex", max_concurrency=2))
    await store.accounts.add_account(Account("b", "codex", max_concurrency=1))
    jobs = await leased(store, 4)
    taken = [await store.accounts.take_account(job, "codex", wanted=None) for job in jobs]
    assert [choice.account and choice.account.account.id for choice in taken] == ["a", "b", "a", None]
    assert "in use" in taken[3].why
    again = await store.accounts.take_account(jobs[0], "codex", wanted=None)
    assert again.account is not None, "an attempt that asks again does not count itself"


async def test_two_attempts_never_take_the_same_slot(store: Store) -> None:
    await store.accounts.add_account(Account("a", "codex", max_concurrency=3))
    jobs = await leased(store, 12)
    taken = await asyncio.gather(*(store.accounts.take_account(j, "codex", wanted="a") for j in jobs))
    assert sum(choice.account is not None for choice in taken) == 3


async def test_an_account_that_is_disabled_parked_or_not_served_is_not_taken(store: Store) -> None:
    for id in ("a", "b", "c", "d"):
        await store.accounts.add_account(Account(id, "codex", max_concurrency=9))
    await store.accounts.change_account("a", enabled=False)
    await store.accounts.park_account("b", 60, "usage limit")
    [job] = await leased(store)

    async def take(**options: object) -> str | None:
        choice = await store.accounts.take_account(job, "codex", **{"wanted": None, **options})  # type: ignore[arg-type]  # as given
        return None if choice.account is None else choice.account.account.id

    assert await take() == "c"
    assert await take(served=("d",)) == "d"
    assert await take(avoid=("c",)) == "d"
    assert await take(wanted="c", avoid=("c",)) == "c"
    assert await take(wanted="a") is None
    parked = await store.accounts.take_account(job, "codex", wanted="b")
    assert parked.until is not None
    assert "usage limit" in parked.why
    missing = await store.accounts.take_account(job, "codex", wanted="x")
    assert missing.fatal


async def test_a_lost_lease_takes_no_slot(store: Store) -> None:
    await store.accounts.add_account(Account("a", "codex"))
    [job] = await leased(store)
    with pytest.raises(LeaseLost):
        await store.accounts.take_account(job._replace(attempt=9), "codex", wanted=None)


async def test_the_view_counts_live_leases(file_store: Store, shell: Shell) -> None:
    store = file_store
    await store.accounts.add_account(Account("a", "codex", max_concurrency=2))
    [job] = await leased(store)
    await store.accounts.take_account(job, "codex", wanted=None)
    rows = await shell.run("select scope, max_concurrent, current_concurrent from concurrency_limits")
    assert [tuple(dict(row).values()) for row in rows] == [("account:a", 2, 1)]


async def test_the_second_refusal_in_a_row_disables_an_account(store: Store) -> None:
    await store.accounts.add_account(Account("a", "codex"))
    assert not await store.accounts.note_probe("a", accepted=False)
    await store.accounts.note_probe("a", accepted=True)
    assert not await store.accounts.note_probe("a", accepted=False)
    assert (await store.accounts.get_account("a")).account.enabled
    assert await store.accounts.note_probe("a", accepted=False)
    assert not (await store.accounts.get_account("a")).account.enabled
    assert not await store.accounts.note_probe("a", accepted=False), "it was disabled already"
    assert (await store.accounts.change_account("a", enabled=True)).failed_probes == 0
    assert not await store.accounts.note_probe("missing", accepted=False)
