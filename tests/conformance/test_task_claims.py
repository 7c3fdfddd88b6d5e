"""Tasks wait in the queue for a slot of an account, over every kind of store: a claim takes them with one, or reads none."""

import json
from datetime import timedelta
from uuid import UUID

import pytest

from perdure.model.account_choice import TaskKind
from perdure.model.effects import add_tool_run
from perdure.model.jobs import ClaimedJob
from perdure.model.task_records import ToolRun
from perdure.model.tooling import Account, CliRun, RunClass
from perdure.store.protocol import Store
from perdure.store.protocol.leases import KindLimit
from tests.conformance.support import S, enqueue, event, outcome, own_queue, passed, run_out

KIND = "cli.codex"


class Tasks:
    """Tasks of codex in a queue of their own, and claims of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.queue = own_queue()

    async def add(self, account: str | None = None, **changes: object) -> UUID:
        """A task for any account, or for one."""
        payload = {"prompt": "do it"} | ({} if account is None else {"account": account})
        return await enqueue(self.store, queue=self.queue, **{"kind": KIND, "payload": json.dumps(payload), **changes})

    async def claim(
        self, limit: int = 10, *, served: tuple[str, ...] | None = None, kinds: tuple[str, ...] = (KIND,)
    ) -> list[ClaimedJob]:
        """What a worker gets that serves codex."""
        limits = {kind: KindLimit(task=TaskKind(kind.removeprefix("cli."), served)) for kind in kinds if "cli" in kind}
        return await self.store.leases.claim(
            worker_id="w", queue=self.queue, kinds=dict.fromkeys(kinds, 3), limit=limit, ttl=60, limits=limits
        )

    async def next_due(self) -> float | None:
        """When a worker that serves codex looks again."""
        return await self.store.leases.next_due([self.queue], [KIND], {KIND: KindLimit(task=TaskKind("codex"))})

    async def used(self) -> dict[str, int]:
        """The slots in use."""
        return {info.account.id: info.used for info in await self.store.accounts.list_accounts()}


@pytest.fixture
async def tasks(store: Store) -> Tasks:
    await store.accounts.add_account(Account("a", "codex", "left", max_concurrency=2))
    return Tasks(store)


async def test_a_claim_takes_as_many_tasks_as_there_are_slots(tasks: Tasks) -> None:
    ids = [await tasks.add() for _ in range(5)]
    got = await tasks.claim()
    assert [(job.id, job.account, job.kind) for job in got] == [(ids[0], "a", KIND), (ids[1], "a", KIND)]
    assert await tasks.used() == {"a": 2}
    assert await tasks.claim() == []
    waiting = await tasks.store.jobs.get_job(ids[2])
    assert (waiting.status, waiting.version) == (S.PENDING, 1), "it waits without an event"
    await tasks.store.leases.finish(got[0].lease, outcome(S.COMPLETED))
    assert [job.id for job in await tasks.claim()] == [ids[2]]


async def test_the_attempt_has_the_account_of_its_claim(tasks: Tasks) -> None:
    await tasks.store.accounts.add_account(Account("b", "codex", max_concurrency=2))
    for _ in range(4):
        await tasks.add()
    got = await tasks.claim()
    assert sorted(job.account or "" for job in got) == ["a", "a", "b", "b"]
    for job in got:
        choice = await tasks.store.accounts.take_account(job.lease, "codex", wanted=None)
        assert choice.account is not None
        assert choice.account.account.id == job.account


async def test_other_jobs_go_on_in_the_order_of_a_claim(tasks: Tasks) -> None:
    kinds = (KIND, "echo")
    await tasks.add()
    assert len(await tasks.claim(1)) == 1
    await tasks.add()
    assert len(await tasks.claim(1)) == 1, "the account is full now"
    waiting = [await tasks.add(priority=9) for _ in range(3)]
    echo = [await tasks.add(kind="echo") for _ in range(2)]
    assert [job.id for job in await tasks.claim(kinds=kinds)] == echo
    await tasks.store.accounts.change_account("a", max_concurrency=4)
    urgent = await tasks.add(kind="echo", priority=9)
    later = await tasks.add(kind="echo", priority=1)
    assert [job.id for job in await tasks.claim(1, kinds=kinds)] == [waiting[0]]
    assert {job.id for job in await tasks.claim(2, kinds=kinds)} == {waiting[1], urgent}
    assert [job.id for job in await tasks.claim(kinds=kinds)] == [later]


async def test_an_urgent_job_comes_before_tasks(tasks: Tasks) -> None:
    task = await tasks.add(priority=5)
    urgent = [await tasks.add(kind="echo", priority=9) for _ in range(2)]
    kinds = (KIND, "echo")
    assert {job.id for job in await tasks.claim(2, kinds=kinds)} == {*urgent}
    assert [job.id for job in await tasks.claim(2, kinds=kinds)] == [task]


async def test_what_frees_an_account_lets_the_next_task_start(tasks: Tasks) -> None:
    store = tasks.store
    for _ in range(9):
        await tasks.add()
    first = await tasks.claim()
    assert len(first) == 2
    await store.accounts.change_account("a", max_concurrency=3)
    assert len(await tasks.claim()) == 1
    await store.accounts.add_account(Account("b", "codex"))
    assert [job.account for job in await tasks.claim()] == ["b"]
    await run_out(store, first[0].lease)
    await store.leases.reap(worker_id="other")
    assert [job.account for job in await tasks.claim()] == ["a"]
    await store.accounts.change_account("a", max_concurrency=1)
    await store.leases.finish(first[1].lease, outcome(S.COMPLETED))
    assert await tasks.claim() == [], "more run than it has slots now"
    await store.accounts.change_account("a", enabled=False)
    await store.accounts.change_account("a", max_concurrency=9)
    assert await tasks.claim() == []
    await store.accounts.change_account("a", enabled=True)
    assert len(await tasks.claim()) == 5, "the four that waited, and the one whose worker was lost"


async def test_a_parked_account_comes_back_at_its_time(tasks: Tasks) -> None:
    await tasks.add()
    await tasks.store.accounts.park_account("a", 0.9, "usage limit")
    assert await tasks.claim() == []
    due = await tasks.next_due()
    assert due is not None
    assert 0 < due <= 0.9
    await passed(tasks.store, await tasks.store.now() + timedelta(seconds=due))
    assert len(await tasks.claim()) == 1
    assert await tasks.next_due() is None


async def test_what_a_waiting_task_waits_for_is_shown(tasks: Tasks) -> None:
    waiting, store = await tasks.add(), tasks.store
    assert (await store.jobs.situation(waiting)).account is None, "it may start"
    [first] = await tasks.claim(1)
    assert first.id == waiting
    [second] = [await tasks.add()]
    await tasks.claim(1)
    third = await tasks.add("left")
    found = (await store.jobs.situation(third)).account
    assert found is not None
    assert (found.tool, found.wanted, found.until, found.holders) == ("codex", "left", None, (first.id, second))
    await store.accounts.park_account("a", 60, "usage limit")
    found = (await store.jobs.situation(third)).account
    assert found is not None
    assert "usage limit" in found.why
    assert found.until is not None


async def test_a_task_that_is_due_later_counts(tasks: Tasks) -> None:
    await tasks.add()
    assert await tasks.next_due() is None, "what is due is waiting for an account, or is claimed"
    await tasks.add(run_at=await tasks.store.now() + timedelta(seconds=40))
    due = await tasks.next_due()
    assert due is not None
    assert 30 < due <= 40
    assert len(await tasks.claim()) == 1


async def test_a_task_for_a_full_account_keeps_no_other(tasks: Tasks) -> None:
    await tasks.store.accounts.add_account(Account("b", "codex", "right"))
    for _ in range(4):
        await tasks.add("a", priority=9)
    right = [await tasks.add("right"), await tasks.add("b")]
    got = await tasks.claim()
    assert [job.account for job in got] == ["a", "a", "b"]
    assert got[2].id == right[0]
    other = await tasks.add(kind="cli.claude")
    assert await tasks.claim(kinds=(KIND, "cli.claude")) == []
    await tasks.store.accounts.add_account(Account("c", "claude"))
    assert [job.id for job in await tasks.claim(kinds=(KIND, "cli.claude"))] == [other]


async def test_a_worker_takes_tasks_of_the_accounts_that_it_serves(tasks: Tasks) -> None:
    await tasks.store.accounts.add_account(Account("b", "codex", "right", max_concurrency=9))
    for wanted in ("a", None, "b", "left"):
        await tasks.add(wanted)
    assert [job.account for job in await tasks.claim(1, served=("left",))] == ["a"]
    assert [job.account for job in await tasks.claim(1, served=("left",))] == ["a"]
    assert await tasks.claim(served=("left",)) == [], "its account is full, and the other is not its own"
    assert await tasks.claim(served=("none",)) == []
    assert [job.account for job in await tasks.claim(served=("right",))] == ["b"]


async def test_a_task_for_an_account_that_does_not_exist_starts_to_fail(tasks: Tasks) -> None:
    id = await tasks.add("nobody")
    [job] = await tasks.claim()
    assert (job.id, job.account) == (id, None)
    assert (await tasks.store.accounts.take_account(job.lease, "codex", wanted="nobody")).fatal


async def test_a_removed_account_lets_its_tasks_fail(tasks: Tasks) -> None:
    await tasks.store.accounts.change_account("a", enabled=False)
    await tasks.add("a")
    assert await tasks.claim() == []
    await tasks.store.accounts.remove_account("a")
    assert [job.account for job in await tasks.claim()] == [None]


async def test_a_task_continues_a_session_under_its_account(tasks: Tasks) -> None:
    store = tasks.store
    await store.accounts.add_account(Account("b", "codex", max_concurrency=9))
    await tasks.add("b")
    [first] = await tasks.claim()
    await end_run(store, first, RunClass.OK, session_id="s-1")
    await store.leases.finish(first.lease, outcome(S.COMPLETED))
    goes_on = await tasks.add(payload=json.dumps({"prompt": "go on", "session": "s-1"}))
    new = await tasks.add()
    assert {job.id: job.account for job in await tasks.claim()} == {goes_on: "b", new: "a"}


async def test_a_refused_task_waits_for_another_account(tasks: Tasks) -> None:
    store = tasks.store
    await store.accounts.add_account(Account("b", "codex", max_concurrency=1))
    await tasks.add("b")
    [holder] = await tasks.claim()
    refused = await tasks.add()
    [job] = await tasks.claim()
    assert job.account == "a"
    await end_run(store, job, RunClass.AUTH)
    await store.leases.finish(job.lease, outcome(S.RETRY, delay=0, uses_retry=False))
    behind = await tasks.add(priority=1)
    assert [(job.id, job.account) for job in await tasks.claim()] == [(behind, "a")]
    await store.leases.finish(holder.lease, outcome(S.COMPLETED))
    assert [(job.id, job.account) for job in await tasks.claim()] == [(refused, "b")]


async def test_a_task_with_a_concurrency_key_needs_both(tasks: Tasks) -> None:
    keyed = [await tasks.add(concurrency_key="k", max_concurrent=1) for _ in range(2)]
    plain = await tasks.add()
    first = await tasks.claim()
    assert [(job.account, job.concurrency_key) for job in first if job.id == keyed[0]] == [("a", "k")]
    assert {job.id for job in [*first, *await tasks.claim()]} == {keyed[0], plain}, "the second one is held"
    [lease] = [job.lease for job in first if job.id == keyed[0]]
    await tasks.store.leases.finish(lease, outcome(S.COMPLETED))
    assert await tasks.store.leases.release_held() == 1
    assert [job.id for job in await tasks.claim()] == [keyed[1]]
    assert await tasks.used() == {"a": 2}


async def test_a_task_that_goes_back_asks_for_the_same_account(tasks: Tasks) -> None:
    await tasks.add("left")
    [job] = await tasks.claim()
    await tasks.store.leases.finish(job.lease, outcome(S.RETRY, delay=0, uses_retry=False))
    await tasks.store.accounts.change_account("a", enabled=False)
    await tasks.store.accounts.add_account(Account("b", "codex"))
    assert await tasks.claim() == []


async def end_run(store: Store, job: ClaimedJob, ended: RunClass, **changes: object) -> None:
    """The record of a run."""
    now = await store.now()
    run = CliRun(ended, **changes)  # type: ignore[arg-type]  # as given
    record = ToolRun(job.id, job.lease.attempt, "codex", job.account, job.lease.worker_id, now, now, (), run)
    await store.leases.record(job.lease, [event("tool_run_ended")], effects=[add_tool_run(record)])
