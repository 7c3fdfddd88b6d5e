"""Finding jobs: filters, pages, counts, short ids; and that another tenant's jobs do not exist."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest

from perdure.model.effects import open_wait, patch_state
from perdure.model.errors import (
    AmbiguousId,
    ApprovalNotFound,
    InvalidInput,
    JobNotFound,
    LeaseLost,
    WorkerNotFound,
    WrongToken,
)
from perdure.model.ids import hash_token, new_token
from perdure.model.jobs import JobFilter, Lease, Outcome, Wait
from perdure.model.retention import PruneFilter
from perdure.model.states import FAILURES, Status
from perdure.model.workers import WorkerCommand
from perdure.store.follow import follow
from perdure.store.protocol import Store
from tests.conformance.support import (
    KINDS,
    NOTE,
    OTHER,
    WORKER,
    S,
    approve,
    case,
    claim,
    enqueue,
    event,
    new_approval,
    new_job,
    run_to,
    started,
)


async def listed(store: Store, **filter: Any) -> list[UUID]:
    return [job.id for job in (await store.jobs.list_jobs(JobFilter(**filter))).items]


async def test_newest_first(store: Store) -> None:
    ids = [await enqueue(store) for _ in range(5)]
    assert await listed(store) == ids[::-1]


async def test_each_status_finds_its_jobs(store: Store) -> None:
    """Live and failed jobs are looked up elsewhere than history: the answer must be the same."""
    jobs = {status: [await run_to(store, status) for _ in range(2)][::-1] for status in Status}
    jobs[S.PENDING].insert(0, await enqueue(store, delay=60))
    for status, ids in jobs.items():
        assert await listed(store, statuses=(status,)) == ids
    assert await listed(store, statuses=tuple(FAILURES)) == jobs[S.DEADLETTER] + jobs[S.FAILED]
    live = [s for s in Status if not s.terminal]
    assert sorted(await listed(store, statuses=tuple(live))) == sorted(i for s in live for i in jobs[s])
    assert sorted(await listed(store, statuses=(S.RUNNING, S.FAILED, S.COMPLETED))) == sorted(
        jobs[S.RUNNING] + jobs[S.FAILED] + jobs[S.COMPLETED]
    )
    assert len(await listed(store)) == 21
    assert await store.jobs.count_jobs(JobFilter(), by="status") == {str(s): len(ids) for s, ids in jobs.items()}
    for statuses in (
        *((s,) for s in Status),
        tuple(FAILURES),
        tuple(live),
        (S.RUNNING, S.FAILED, S.COMPLETED),
        (S.PENDING, S.PARKED),
    ):
        counted = await store.jobs.count_jobs(JobFilter(statuses=statuses), by="status")
        assert counted == {str(s): len(jobs[s]) for s in statuses}, statuses


async def test_filters_narrow_and_combine(store: Store) -> None:
    a = await enqueue(store, kind="research", queue="deep", goal="Otters of the north", idempotency_key="order:1")
    b = await enqueue(store, kind="research", queue="fast", goal="100% sure_thing")
    c = await enqueue(store, kind="write", queue="deep", goal="水獺 report")
    lease = await started(store, kind="write", queue="lone")
    await store.leases.finish(lease, Outcome(S.FAILED, error="Connection RESET by peer", error_kind="fatal"))
    d = lease.job_id
    assert await listed(store, kinds=("research",)) == [b, a]
    assert await listed(store, kinds=("research", "write"), queues=("deep",)) == [c, a]
    assert await listed(store, queues=("nowhere",)) == []
    assert await listed(store, idempotency_key="order:1") == [a]
    assert await listed(store, idempotency_key="order") == []
    for search, found in {
        "otters": [a],
        "WRITE": [d, c],
        "水獺": [c],
        "reset": [d],
        "%": [b],
        "sure_t": [b],
        "sureXt": [],
    }.items():
        assert await listed(store, search=search) == found, search
    assert await listed(store, search="research", queues=("fast",), statuses=(S.PENDING,)) == [b]


async def test_since_is_inclusive_and_until_is_not(store: Store) -> None:
    ids = [await enqueue(store) for _ in range(3)]
    middle = (await store.jobs.get_job(ids[1])).created_at
    after = middle + timedelta(microseconds=1)
    assert ids[1] in await listed(store, since=middle)
    assert ids[1] not in await listed(store, since=middle + timedelta(milliseconds=1))
    assert ids[1] not in await listed(store, until=middle)
    assert ids[1] in await listed(store, until=after + timedelta(milliseconds=1))
    assert ids[0] not in await listed(store, since=await store.now() + timedelta(seconds=60))


@pytest.mark.parametrize("statuses", [(), (S.PENDING,), (S.PENDING, S.FAILED)], ids=["all", "live", "mixed"])
async def test_pages_have_no_gaps_or_repeats_while_jobs_arrive(store: Store, statuses: tuple[Status, ...]) -> None:
    wanted = [done.id for done in await store.jobs.enqueue_many([new_job() for _ in range(50)])]
    seen: list[UUID] = []
    cursor: str | None = None
    while True:
        page = await store.jobs.list_jobs(JobFilter(statuses=statuses), limit=7, cursor=cursor)
        seen += [job.id for job in page.items]
        assert len(page.items) == 7 or page.next_cursor is None
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
        await store.jobs.enqueue_many([new_job() for _ in range(3)])
    assert seen == wanted[::-1]


async def test_the_last_page_says_so_even_when_it_is_full(store: Store) -> None:
    await store.jobs.enqueue_many([new_job() for _ in range(10)])
    page = await store.jobs.list_jobs(JobFilter(), limit=10)
    assert len(page.items) == 10
    if page.next_cursor is not None:  # an extra page is allowed, a wrong one is not
        assert (await store.jobs.list_jobs(JobFilter(), limit=10, cursor=page.next_cursor)).items == ()


async def test_a_job_of_a_list_is_what_get_job_gives(store: Store) -> None:
    ids = [await run_to(store, status) for status in Status]
    lease = await started(store)
    for key in ("a", "b"):
        await store.leases.record(lease, [event("node_finished", f'{{"key": "{key}", "result": 1}}')])
    until = await store.now() + timedelta(seconds=60)
    waits = [open_wait(Wait(key, "timer", until)) for key in ("nap", "doze")]
    await store.leases.record(lease, [], effects=waits)
    ids.append(lease.job_id)
    jobs = {id: await store.jobs.get_job(id) for id in ids}
    assert jobs[lease.job_id].state.cursor == "b"
    assert len(jobs[lease.job_id].waits) == 2
    for filter in (JobFilter(), JobFilter(kinds=("echo",)), *(JobFilter(statuses=(status,)) for status in Status)):
        with case(filter):
            listed = {job.id: job for job in (await store.jobs.list_jobs(filter, limit=100)).items}
            assert listed == {
                id: job for id, job in jobs.items() if not filter.statuses or job.status in filter.statuses
            }


async def test_a_cursor_that_is_none_is_refused(store: Store) -> None:
    for cursor in ("", "next", "00000000", "'; drop table jobs"):
        with case(cursor):
            with pytest.raises(InvalidInput):
                await store.jobs.list_jobs(JobFilter(), cursor=cursor)
            with pytest.raises(InvalidInput):
                await store.approvals.list_approvals(cursor=cursor)


@pytest.mark.parametrize(
    ("by", "counted"),
    [
        ("status", {"PENDING": 3, "RUNNING": 1}),
        ("kind", {"echo": 1, "research": 3}),
        ("queue", {"deep": 2, "fast": 2}),
    ],
)
async def test_counts(store: Store, by: Literal["status", "kind", "queue"], counted: dict[str, int]) -> None:
    for kind, queue in (("research", "deep"), ("research", "fast"), ("research", "deep")):
        await enqueue(store, kind=kind, queue=queue)
    await started(store, kind="research", queue="lone")
    await enqueue(store, kind="echo", queue="fast")
    assert await store.jobs.count_jobs(JobFilter(queues=("deep", "fast")), by="kind") == {"echo": 1, "research": 3}
    if by == "status":
        assert await store.jobs.count_jobs(JobFilter(), by=by) == {"PENDING": 4, "RUNNING": 1}
    else:
        assert await store.jobs.count_jobs(JobFilter(queues=("deep", "fast")), by=by) == counted
    assert await store.jobs.count_jobs(JobFilter(kinds=("nothing",)), by=by) == {}


async def test_an_id_is_found_by_its_end(store: Store) -> None:
    job_id = await enqueue(store)
    await enqueue(store)
    for text in (str(job_id), job_id.hex, str(job_id).upper(), job_id.hex[-6:], job_id.hex[-8:], f"…{job_id.hex[-8:]}"):
        assert await store.jobs.find_job(text) == job_id
    assert await store.jobs.find_job(f"  {job_id.hex[-12:].upper()} ") == job_id


async def test_an_end_shared_by_two_is_ambiguous(store: Store) -> None:
    first, second = new_job(), new_job()
    twin = UUID(second.id.hex[:-8] + first.id.hex[-8:])
    await store.jobs.enqueue_many([first, new_job(id=twin)])
    with pytest.raises(AmbiguousId):
        await store.jobs.find_job(first.id.hex[-8:])
    assert await store.jobs.find_job(first.id.hex[-14:]) == first.id
    assert await store.jobs.find_job(str(twin)) == twin


async def test_too_few_digits_and_unknown_ends(store: Store) -> None:
    job_id = await enqueue(store)
    with pytest.raises(AmbiguousId):
        await store.jobs.find_job(job_id.hex[-5:])
    for text in (str(uuid4()), "000000" if not job_id.hex.endswith("000000") else "ffffff"):
        with pytest.raises(JobNotFound):
            await store.jobs.find_job(text)


async def test_unknown_jobs_are_not_found(store: Store) -> None:
    unknown = uuid4()
    for call in (
        store.jobs.get_job(unknown),
        store.jobs.cancel(unknown, note=NOTE),
        store.jobs.cancel(unknown, note=NOTE, force=True),
        store.jobs.retry_now(unknown, note=NOTE),
    ):
        with pytest.raises(JobNotFound):
            await call
    assert await store.jobs.list_runs(unknown) == []


# Other tenants --------------------------------------------------------------------------------------------------------


async def test_a_neighbour_sees_and_touches_nothing(file_store: Store, neighbour: Store) -> None:
    job_id = await run_to(file_store, S.RETRY, queue="q", idempotency_key="order:1")
    held = await started(file_store, queue="q")
    token = new_token()
    asked = await file_store.approvals.request_approval(held, new_approval(token=token, expires_in=0.001))
    refused: list[tuple[type[Exception], Callable[[], Awaitable[object]]]] = [
        (JobNotFound, lambda: neighbour.jobs.get_job(job_id)),
        (JobNotFound, lambda: neighbour.jobs.find_job(str(job_id))),
        (JobNotFound, lambda: neighbour.jobs.find_job(job_id.hex[-8:])),
        (JobNotFound, lambda: neighbour.jobs.append(job_id, 3, event())),
        (JobNotFound, lambda: neighbour.jobs.cancel(job_id, note=NOTE)),
        (JobNotFound, lambda: neighbour.jobs.cancel(held.job_id, note=NOTE, force=True)),
        (JobNotFound, lambda: neighbour.jobs.retry_now(job_id, note=NOTE)),
        (JobNotFound, lambda: anext(follow(neighbour, job_id))),
        (ApprovalNotFound, lambda: neighbour.approvals.get_approval(asked.id)),
        (ApprovalNotFound, lambda: neighbour.approvals.find_approval(asked.id.hex[-8:])),
        (ApprovalNotFound, lambda: neighbour.approvals.find_approval(held.job_id.hex[-8:])),
        (ApprovalNotFound, lambda: neighbour.approvals.replace_token(asked.id, hash_token("x"))),
        (ApprovalNotFound, lambda: neighbour.approvals.decide(approve(asked))),
        (
            WrongToken,
            lambda: neighbour.approvals.decide(approve(asked, approval_id=None, token_hash=hash_token(token))),
        ),
        (WorkerNotFound, lambda: neighbour.workers.command_worker(WORKER, WorkerCommand.STOP)),
    ]
    before = [await file_store.jobs.get_job(i) for i in (job_id, held.job_id)]
    for error, call in refused:
        with pytest.raises(error):
            await call()
    assert (await neighbour.jobs.list_jobs(JobFilter())).items == ()
    assert (await neighbour.jobs.list_jobs(JobFilter(statuses=(S.RETRY, S.RUNNING)))).items == ()
    assert await neighbour.jobs.count_jobs(JobFilter(), by="status") == {}
    assert await neighbour.jobs.list_runs(job_id) == []
    assert await neighbour.jobs.list_events(job_id) == []
    assert (await neighbour.approvals.list_approvals()).items == ()
    assert (await neighbour.approvals.list_approvals(job_id=held.job_id)).items == ()
    assert await neighbour.leases.expire() == 0
    assert await neighbour.leases.reap(worker_id=OTHER) == []
    assert (await neighbour.retention.list_prunable(PruneFilter(0))).jobs == ()
    assert await neighbour.retention.prune([job_id, held.job_id]) == 0
    assert await neighbour.retention.prune([job_id, held.job_id], keep_logs=True) == 0
    assert await neighbour.leases.cancel_requests(WORKER) == []
    assert [await file_store.jobs.get_job(i) for i in (job_id, held.job_id)] == before


WRITES: dict[str, Callable[[Store, Lease], Awaitable[object]]] = {
    "record": lambda store, lease: store.leases.record(lease, [event()]),
    "record several": lambda store, lease: store.leases.record(
        lease, [event(), event()], effects=[patch_state(tokens=1)]
    ),
    "complete": lambda store, lease: store.leases.finish(lease, Outcome(S.COMPLETED, result="1")),
    "retry": lambda store, lease: store.leases.finish(lease, Outcome(S.RETRY)),
    "set_waiting": lambda store, lease: store.leases.set_waiting(lease, True),
    "request_approval": lambda store, lease: store.approvals.request_approval(lease, new_approval("other")),
}


async def test_a_lease_is_worth_nothing_at_a_neighbour(file_store: Store, neighbour: Store) -> None:
    for name, write in WRITES.items():
        with case(name):
            lease = await started(file_store)
            before = await file_store.jobs.get_job(lease.job_id), await file_store.jobs.list_events(lease.job_id)
            with pytest.raises(LeaseLost):
                await write(neighbour, lease)
            assert await neighbour.leases.heartbeat([lease], ttl=600) == set()
            assert (
                await file_store.jobs.get_job(lease.job_id),
                await file_store.jobs.list_events(lease.job_id),
            ) == before


async def test_a_queue_of_one_name_is_two_queues_for_two_tenants(file_store: Store, neighbour: Store) -> None:
    mine, theirs = await enqueue(file_store, queue="q"), await enqueue(neighbour, queue="q")
    assert [j.id for j in await neighbour.leases.claim(worker_id=OTHER, queue="q", kinds=KINDS, limit=10, ttl=30)] == [
        theirs
    ]
    assert (await claim(file_store, mine)).id == mine
    assert (await neighbour.jobs.get_job(theirs)).tenant_id == "neighbour"
    assert (await neighbour.jobs.get_job(theirs)).queue == "q"
