"""Unique keys: one job while it is active, or for a period; and what an enqueue does where another job has the key."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import App, JobContext, Request, Unique
from perdure.model.errors import InvalidInput, UniqueConflict
from perdure.model.job_changes import Editing
from perdure.model.jobs import Enqueued, JobFilter
from perdure.model.states import TERMINAL, Status
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Refused, Shell
from tests.conformance.support import NOTE, S, claim, event, new_job, outcome, own_queue, passed, started

REPLACE = Unique("k", None, "replace")


async def put(store: Store, unique: Unique = Unique("k"), **changes: Any) -> Enqueued:  # noqa: B008  it cannot be changed
    return await store.jobs.enqueue(new_job(unique=unique, **{"queue": own_queue(), **changes}))


async def put_new(store: Store, unique: Unique = Unique("k"), **changes: Any) -> UUID:  # noqa: B008  it cannot be changed
    done = await put(store, unique, **changes)
    assert done.created
    return done.id


async def test_one_job_while_it_is_active(store: Store) -> None:
    one = await put_new(store)
    assert await put(store) == (one, False)
    job = await store.jobs.get_job(one)
    assert (job.unique_key, job.unique_until) == ("k", None)
    lease = (await claim(store, one)).lease
    assert await put(store) == (one, False), "also while it runs"
    await store.leases.finish(lease, outcome(S.RETRY))
    assert await put(store) == (one, False), "and between its attempts"
    await store.jobs.cancel(one, note=NOTE)
    other = await put_new(store)
    assert (await put_new(store, Unique("another")), await put_new(store, kind="other kind")) != (other, other)
    theirs = await store.tenant("another").jobs.enqueue(new_job(unique=Unique("k")))
    assert theirs.created, "each tenant has its own keys"


@pytest.mark.parametrize("end", sorted(TERMINAL))
async def test_every_end_frees_the_key(store: Store, end: Status) -> None:
    one = await put_new(store)
    if end is S.CANCELLED:
        await store.jobs.cancel(one, note=NOTE)
    else:
        await store.leases.finish((await claim(store, one)).lease, outcome(end))
    assert (await put(store)).created


async def test_one_job_for_a_period(store: Store) -> None:
    hourly = Unique("k", 3600.0)
    one = await put_new(store, hourly)
    job = await store.jobs.get_job(one)
    assert job.unique_until is not None
    assert abs(job.unique_until - job.created_at - timedelta(hours=1)) < timedelta(seconds=1)
    await store.jobs.cancel(one, note=NOTE)
    assert await put(store, hourly) == (one, False), "whatever becomes of it"
    short = Unique("short", 0.05)
    first = await put_new(store, short)
    until = (await store.jobs.get_job(first)).unique_until
    assert until is not None
    await passed(store, until)
    second = await put_new(store, short, delay=60.0)
    assert second != first
    await store.jobs.cancel(first, note=NOTE)
    until = (await store.jobs.get_job(second)).unique_until
    assert until is not None


async def test_refuse_names_the_other_job(store: Store) -> None:
    one = await put_new(store)
    with pytest.raises(UniqueConflict, match="'k'") as refused:
        await put(store, Unique("k", None, "refuse"))
    assert refused.value.job_id == one
    with pytest.raises(UniqueConflict):
        await store.jobs.enqueue_many([new_job(kind="side"), new_job(unique=Unique("k", None, "refuse"))])
    assert (await store.jobs.list_jobs(JobFilter(kinds=("side",)))).items == (), "all or none"


async def test_replace_changes_the_one_that_has_not_started(store: Store) -> None:
    one = await put_new(store, REPLACE, payload='{"n": 1}', delay=3600.0)
    before = await store.jobs.get_job(one)
    note = '{"actor": "ann", "via": "test"}'
    again = await put(store, REPLACE, payload='{"n": 2}', delay=60.0, priority=9, goal="newer", note=note)
    assert again == (one, False)
    job = await store.jobs.get_job(one)
    assert (job.payload, job.priority, job.goal, job.status, job.version) == ({"n": 2}, 9, "newer", S.PENDING, 2)
    assert job.due_at == job.run_at < before.run_at - timedelta(minutes=50)
    [_, event] = await store.jobs.list_events(one)
    assert (event.type, event.payload) == ("job_replaced", {"actor": "ann", "via": "test"})
    await put(store, REPLACE, payload='{"n": 3}')
    claimed = await claim(store, one)
    assert claimed.payload == '{"n": 3}'
    # It has started: the new one has the key, and the old one goes on.
    later = await put_new(store, REPLACE, payload='{"n": 4}')
    await store.leases.finish(claimed.lease, outcome(S.COMPLETED))
    assert await put(store) == (later, False)


async def test_a_repeated_call_is_one_job(store: Store) -> None:
    """As after an answer that was lost; also if the job has ended meanwhile and another one has the key."""
    for unique in (Unique("a"), Unique("b", None, "replace"), Unique("c", None, "refuse")):
        job = new_job(unique=unique, queue=own_queue())
        assert (await store.jobs.enqueue(job)).created
        assert (await store.jobs.enqueue(job)).id == job.id
        await store.jobs.cancel(job.id, note=NOTE)
        assert (await store.jobs.enqueue(job)).id == job.id
        other = await put_new(store, unique)
        assert (await store.jobs.enqueue(job)).id == job.id
        assert (await store.jobs.get_job(other)).version == 1, "it was not replaced"


async def test_a_job_that_begins_with_events(store: Store) -> None:
    one = new_job(unique=Unique("k"))
    assert (await store.jobs.enqueue_recorded(one, [event()])).created
    assert await store.jobs.enqueue_recorded(new_job(unique=Unique("k")), [event()]) == (one.id, False)
    assert await put(store) == (one.id, False)


async def test_many_at_once(store: Store) -> None:
    jobs = [new_job(unique=Unique(f"k{n % 3}", None, "replace"), payload=f'{{"n": {n}}}') for n in range(9)]
    done = await store.jobs.enqueue_many([*jobs, new_job()])
    assert [d.created for d in done] == [True] * 3 + [False] * 6 + [True]
    assert [d.id for d in done[:9]] == [job.id for job in jobs[:3]] * 3
    assert [(await store.jobs.get_job(job.id)).payload for job in jobs[:3]] == [{"n": 6}, {"n": 7}, {"n": 8}]


async def test_concurrent_enqueues_of_several_processes(file_store: Store, twin: Store) -> None:
    """Of all that ask at once, one stores its job; then again after its end."""
    for round in range(3):
        stores = [file_store, twin] * 20
        done = await asyncio.gather(*(s.jobs.enqueue(new_job(unique=Unique("k"), queue="own")) for s in stores))
        assert len({d.id for d in done}) == 1, round
        assert sum(d.created for d in done) == 1
        await file_store.jobs.cancel(done[0].id, note=NOTE)
    done = await asyncio.gather(
        *(s.jobs.enqueue(new_job(unique=REPLACE, payload=f"{n}")) for n, s in enumerate([file_store, twin] * 20))
    )
    assert len({d.id for d in done}) == 1
    job = await file_store.jobs.get_job(done[0].id)
    assert job.version == 40, "each of the others replaced it once"
    assert [event.version for event in await file_store.jobs.list_events(job.id)] == [*range(1, 41)]


async def test_keys_in_another_order_do_not_block_each_other(file_store: Store, twin: Store) -> None:
    async def many(store: Store, numbers: range) -> list[Enqueued]:
        return await store.jobs.enqueue_many([new_job(unique=Unique(f"k{n}")) for n in numbers])

    one, other = await asyncio.gather(many(file_store, range(200)), many(twin, range(199, -1, -1)))
    assert {d.id for d in one} == {d.id for d in other}
    assert sum(d.created for d in [*one, *other]) == 200


async def test_replaced_while_it_is_claimed(file_store: Store, twin: Store) -> None:
    """Either the claim comes first and a new job is stored, or the job that is claimed has the newest input."""
    for n in range(20):
        queue = own_queue()
        await file_store.jobs.enqueue(new_job(unique=REPLACE, payload="1", queue=queue))
        claimed, done = await asyncio.gather(
            twin.leases.claim(worker_id="w", queue=queue, kinds={"echo": 3}, limit=1, ttl=30),
            file_store.jobs.enqueue(new_job(unique=REPLACE, payload="2", queue=queue)),
        )
        if not claimed:  # the job was locked
            claimed = await twin.leases.claim(worker_id="w", queue=queue, kinds={"echo": 3}, limit=1, ttl=30)
        assert (claimed[0].payload == "1") == done.created, n
        for job in claimed:
            await twin.leases.finish(job.lease, outcome(S.COMPLETED))
        if done.created:
            await file_store.jobs.cancel(done.id, note=NOTE)


async def test_replaced_while_it_is_edited(file_store: Store, twin: Store) -> None:
    """What locks the job for a moment does not make it look as if it had started."""
    queue = own_queue()
    one = await put_new(file_store, REPLACE, queue=queue, delay=3600.0)

    async def edit(n: int) -> None:
        await twin.jobs.change_jobs([one], Editing(1 + n % 9), note=NOTE)

    async def replace() -> Enqueued:
        return await put(file_store, REPLACE, queue=queue, delay=3600.0)

    created = 0
    for n in range(40):
        _, _, done = await asyncio.gather(edit(n), edit(n + 1), replace())
        created += done.created
        one = done.id
    assert created <= 2, "a machine under load may hold a lock for long"


async def test_only_such_jobs_have_rows(file_store: Store, shell: Shell) -> None:
    held = "select key, job_id, until is null as active from unique_keys order by key"
    await started(file_store)
    one, hourly = await put_new(file_store), await put_new(file_store, Unique("p", 3600.0))
    assert [(r["key"], bool(r["active"])) for r in await shell.run(held)] == [("k", True), ("p", False)]
    await shell.run(f"update jobs set status = 'CANCELLED' where id in ('{one}', '{hourly}')")
    assert [r["key"] for r in await shell.run(held)] == ["p"], "also an end by hand frees it"
    assert await file_store.retention.prune([one, hourly]) == 2
    assert await shell.run(held) == []


async def test_sql_typed_by_hand_keeps_to_it(file_store: Store, shell: Shell) -> None:
    insert = "insert into jobs (kind, payload, unique_key, on_conflict) values ('echo', '{}', 'k', '{}')"
    first = await put_new(file_store, REPLACE, payload="1")
    await shell.run(insert.format(2, "return"))
    assert (await file_store.jobs.get_job(first)).payload == 1
    await shell.run(insert.format(2, "replace"))
    assert (await file_store.jobs.get_job(first)).payload == 2
    assert len((await file_store.jobs.list_jobs(JobFilter())).items) == 1
    for wrong in (
        "insert into jobs (kind, unique_key, idempotency_key) values ('echo', 'x', 'y')",
        "insert into jobs (kind, unique_key) values ('echo', '')",
        "insert into jobs (kind, on_conflict) values ('echo', 'return')",
        f"update jobs set payload = '7' where id = '{first}'",
        f"update jobs set payload = '7', version = version + 1 where id = '{first}'",
    ):
        with pytest.raises(Refused):
            await shell.run(wrong)


async def test_the_client(store_url: str) -> None:
    async with App(store_url, migrate=True) as app:

        @app.job
        async def report(ctx: JobContext, n: int) -> int:
            return n

        one = await app.enqueue(report, 1, unique="monthly", delay="1h")
        again = await app.enqueue(report, 2, unique="monthly")
        assert (again.id, again.created) == (one.id, False)
        many = await app.enqueue_many(
            [Request(report, 3, {"unique": Unique("monthly", on_conflict="replace")}), Request(report, 4)]
        )
        assert [(handle.id == one.id, handle.created) for handle in many] == [(True, False), (False, True)]
        assert (await one.get()).payload == 3
        with pytest.raises(UniqueConflict):
            await app.enqueue(report, 1, unique=Unique("monthly", "2h", "refuse"))
        rerun = await app.jobs.rerun(one.id)
        assert (await rerun.get()).unique_key is None
        wrong: tuple[Any, ...] = (
            "",
            7,
            Unique("k", -1),
            Unique("k", 0),
            Unique("k", None, "ignore"),  # type: ignore[arg-type]  # what callers without a checker may pass
            Unique("k", "1h", "replace"),
        )
        for unique in wrong:
            with pytest.raises(InvalidInput):
                await app.enqueue(report, 1, unique=unique)
        with pytest.raises(InvalidInput, match="not both"):
            await app.enqueue(report, 1, unique="k", idempotency_key="k")
