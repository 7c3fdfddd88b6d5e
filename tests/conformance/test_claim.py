"""Which jobs a claim takes, in which order, and that no two claims take the same."""

import asyncio
from datetime import timedelta
from itertools import chain
from pathlib import Path

import pytest

from perdure.model.effects import close_wait, open_wait
from perdure.model.ids import uuid7
from perdure.model.jobs import JobFilter, Lease, Outcome, Wait
from perdure.model.states import CLAIMABLE, Status
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell, open_shell
from tests.conformance.support import (
    HOUR,
    KINDS,
    NOTE,
    OTHER,
    WORKER,
    S,
    case,
    checked_log,
    claim,
    claimable,
    enqueue,
    event,
    later,
    new_job,
    outcome,
    own_queue,
    run_to,
    started,
)


async def test_a_claim_hands_over_everything_a_run_needs(store: Store) -> None:
    deadline = await later(store, HOUR)
    asked = new_job(
        payload='{"topic":  "otters"}',
        kind="research",
        queue="deep",
        goal="find out",
        priority=7,
        max_retries=5,
        deadline=deadline,
        idempotency_key="order:42",
    )
    await store.jobs.enqueue(asked)
    [job] = await store.leases.claim(worker_id=WORKER, queue="deep", kinds=KINDS, limit=10, ttl=90)
    assert job.lease == Lease(asked.id, 1, WORKER)
    assert (job.id, job.kind, job.queue, job.goal, job.payload) == (
        asked.id,
        "research",
        "deep",
        "find out",
        asked.payload,
    )
    assert (job.priority, job.version, job.retry_count, job.max_retries, job.lost_starts) == (7, 2, 0, 5, 0)
    assert job.idempotency_key == "order:42"
    assert job.deadline == deadline
    assert (await store.jobs.get_job(job.id)).created_at <= job.claimed_at <= await store.now()
    assert timedelta(seconds=89) < job.expires_at - job.claimed_at < timedelta(seconds=91)

    stands = await store.jobs.get_job(asked.id)
    assert (stands.status, stands.attempt, stands.version) == (S.RUNNING, 1, 2)
    assert stands.started_at is not None
    assert stands.lease is not None
    assert (stands.lease.worker_id, stands.lease.attempt, stands.lease.started) == (WORKER, 1, False)
    assert abs(stands.lease.expires_at - job.expires_at) < timedelta(seconds=1)
    born, began = await checked_log(store, asked.id)
    assert (began.type, began.attempt, began.payload["worker"]) == ("run_started", 1, WORKER)
    assert began.event_id is None or began.event_id != born.event_id


async def test_priority_nine_first_then_the_earliest_due_then_the_id(store: Store) -> None:
    now = await store.now()
    jobs = [
        new_job(priority=priority, run_at=now - timedelta(seconds=waited))
        for priority in (1, 9, 5)
        for waited in (10, 30, 20, 20)
    ]
    await store.jobs.enqueue_many(jobs)
    due = {job.id: job.run_at for job in jobs}
    ranked = sorted(jobs, key=lambda job: (-job.priority, due[job.id], job.id))
    got = []
    for limit in (1, 4, 7):  # over the border of a priority, too
        taken = await store.leases.claim(worker_id=WORKER, queue="default", kinds=KINDS, limit=limit, ttl=30)
        assert len(taken) == limit
        got += [job.id for job in sorted(taken, key=lambda job: (-job.priority, due[job.id] or now, job.id))]
    assert got == [job.id for job in ranked]
    assert await store.leases.claim(worker_id=WORKER, queue="default", kinds=KINDS, limit=1, ttl=30) == []


async def test_what_is_not_due_is_not_taken(store: Store) -> None:
    delayed = await enqueue(store, delay=HOUR, priority=9, queue="q")
    later_on = await enqueue(store, run_at=await later(store, HOUR), priority=9, queue="q")
    due = await enqueue(store, priority=1, queue="q")
    past = await enqueue(store, run_at=await later(store, -HOUR), priority=1, queue="q")
    taken = {job.id for job in await store.leases.claim(worker_id=WORKER, queue="q", kinds=KINDS, limit=10, ttl=30)}
    assert taken == {due, past}
    assert (await store.jobs.get_job(delayed)).status is S.PENDING
    assert (await store.jobs.get_job(later_on)).status is S.PENDING


async def test_a_short_delay_passes_by_database_time(store: Store) -> None:
    job_id = await enqueue(store, delay=0.2)
    while not await claimable(store, job_id):
        job = await store.jobs.get_job(job_id)
        assert job.due_at is not None
        assert await store.now() < job.due_at + timedelta(seconds=30)
    job = await store.jobs.get_job(job_id)
    assert job.started_at is not None
    assert job.started_at >= job.created_at + timedelta(seconds=0.19)


async def test_a_claim_takes_from_its_queue_only(store: Store) -> None:
    mine, other = await enqueue(store, queue="mine"), await enqueue(store, queue="other")
    assert [
        job.id for job in await store.leases.claim(worker_id=WORKER, queue="mine", kinds=KINDS, limit=10, ttl=30)
    ] == [mine]
    assert (await store.jobs.get_job(other)).status is S.PENDING


async def test_a_claim_takes_the_kinds_it_names_and_leaves_the_others(store: Store) -> None:
    queue = own_queue()
    for kind in ("new", "newer"):
        await enqueue(store, queue=queue, kind=kind, priority=9)
    assert await store.leases.claim(worker_id=WORKER, queue=queue, kinds=KINDS, limit=10, ttl=30) == []
    assert await store.leases.claim(worker_id=WORKER, queue=queue, kinds={}, limit=10, ttl=30) == []
    assert await store.leases.next_due([queue], KINDS) is None
    known = await enqueue(store, queue=queue, kind="write", priority=1)
    assert await store.leases.next_due([queue], KINDS) == 0
    taken = await store.leases.claim(worker_id=WORKER, queue=queue, kinds=KINDS, limit=10, ttl=30)
    assert [job.id for job in taken] == [known]
    unknown = (await store.jobs.list_jobs(JobFilter(queues=(queue,), statuses=(S.PENDING,)))).items
    assert {(job.kind, job.version, job.attempt) for job in unknown} == {("new", 1, 0), ("newer", 1, 0)}


@pytest.mark.parametrize("number", [1, 3, 100])
async def test_the_order_holds_over_kinds(store: Store, number: int) -> None:
    kinds = [*KINDS, *(f"other {n}" for n in range(97))][:number]
    now, queue = await store.now(), own_queue()
    places = [(priority, waited) for priority in (1, 9, 5) for waited in (10, 30, 20, 20)]
    jobs = [
        new_job(queue=queue, kind=kind, priority=priority, run_at=now - timedelta(seconds=waited))
        for n, (priority, waited) in enumerate(places * 3)
        for kind in (kinds[n % len(kinds)], kinds[-1])
    ]
    unknown = [new_job(queue=queue, kind="new", priority=priority) for priority in (9, 5, 1)]
    await store.jobs.enqueue_many([*unknown, *jobs])
    due = {job.id: job.run_at for job in jobs}
    ranked = [job.id for job in sorted(jobs, key=lambda job: (-job.priority, due[job.id], job.id))]
    got = []
    for limit in (1, 4, 7, 20, 39, 1, 1000):
        taken = await store.leases.claim(
            worker_id=WORKER, queue=queue, kinds=dict.fromkeys(kinds, 3), limit=limit, ttl=30
        )
        got += [job.id for job in sorted(taken, key=lambda job: (-job.priority, due[job.id] or now, job.id))]
        assert got == ranked[: len(got)]
    assert got == ranked


async def test_what_the_caller_leaves_open_is_decided_at_the_first_claim(store: Store) -> None:
    queue, said = own_queue(), {"echo": 0, "write": 7}
    left_open = [await enqueue(store, queue=queue, kind=kind) for kind in said]
    given = await enqueue(store, queue=queue, max_retries=2)
    assert [(await store.jobs.get_job(id)).max_retries for id in (*left_open, given)] == [None, None, 2]
    taken = await store.leases.claim(worker_id=WORKER, queue=queue, kinds=said, limit=10, ttl=30)
    assert {job.id: job.max_retries for job in taken} == {left_open[0]: 0, left_open[1]: 7, given: 2}
    assert [(await store.jobs.get_job(id)).max_retries for id in (*left_open, given)] == [0, 7, 2]
    leases = {job.id: job.lease for job in taken}
    assert await store.leases.finish(leases[left_open[0]], outcome(S.RETRY, uses_retry=True)) is S.DEADLETTER
    assert await store.leases.finish(leases[left_open[1]], outcome(S.RETRY, uses_retry=True, delay=0.0)) is S.RETRY
    [again] = await store.leases.claim(worker_id=WORKER, queue=queue, kinds={"write": 1}, limit=10, ttl=30)
    assert (again.max_retries, again.retry_count) == (7, 1), "the first claim has decided it"


async def test_one_kind_alone_decides_it_too(store: Store) -> None:
    queue = own_queue()
    lone = await enqueue(store, queue=queue)
    [job] = await store.leases.claim(worker_id=WORKER, queue=queue, kinds={"echo": 0, "write": 7}, limit=10, ttl=30)
    assert (job.id, job.max_retries) == (lone, 0)
    assert (await store.jobs.get_job(lone)).max_retries == 0


async def test_retries_that_sql_counted_before_any_claim(file_store: Store, shell: Shell) -> None:
    """It was started and failed by hand, as the design documents do it: no claim has decided how many retries it has."""
    job_id = await enqueue(file_store, queue="q")
    for change in ("status = 'RUNNING'", "status = 'RETRY', retry_count = 2, next_retry_at = run_at"):
        await shell.run(f"update jobs set {change} where id = {shell.id(job_id)}")
    [job] = await file_store.leases.claim(worker_id=WORKER, queue="q", kinds={"echo": 0}, limit=10, ttl=30)
    assert (job.max_retries, job.retry_count) == (2, 2), "no more than were used"
    assert await file_store.leases.finish(job.lease, outcome(S.RETRY, uses_retry=True)) is S.DEADLETTER


async def test_a_job_started_by_hand_is_taken_over_without_a_limit_of_retries(file_store: Store, shell: Shell) -> None:
    job_id = await enqueue(file_store, queue="q")
    await shell.run(f"update jobs set status = 'RUNNING' where id = {shell.id(job_id)}")
    await shell.run(f"update job_claims set started = {'true' if shell.postgres else 1}")
    [reaped] = await file_store.leases.reap(worker_id=OTHER)
    assert (reaped.job_id, reaped.status) == (job_id, S.RETRY)
    job = await file_store.jobs.get_job(job_id)
    assert (job.retry_count, job.max_retries) == (1, None)


async def test_a_delay_keeps_its_kind_from_nothing(store: Store) -> None:
    queue = own_queue()
    for kind in KINDS:
        await enqueue(store, queue=queue, kind=kind, priority=9, delay=HOUR)
    due = [await enqueue(store, queue=queue, kind=kind, priority=3) for kind in KINDS]
    taken = await store.leases.claim(worker_id=WORKER, queue=queue, kinds=KINDS, limit=10, ttl=30)
    assert {job.id for job in taken} == {*due}


async def test_a_kind_set_by_hand_in_the_queue_gives_no_worker_a_job_it_does_not_know(
    file_store: Store, shell: Shell
) -> None:
    changed = await enqueue(file_store, queue="q", kind="new", priority=9)
    good = await enqueue(file_store, queue="q")
    await shell.run(f"update job_queue set kind = 'echo' where job_id = {shell.id(changed)}")
    claimed = await file_store.leases.claim(worker_id=WORKER, queue="q", kinds=KINDS, limit=10, ttl=30)
    assert [job.id for job in claimed] == [good]
    assert (await file_store.jobs.get_job(changed)).status is S.PENDING


async def test_claimable_is_what_has_a_due_queue_row(store: Store) -> None:
    for status in Status:
        with case(status):
            job_id = await run_to(store, status)
            if status is S.RETRY:
                await store.jobs.retry_now(job_id, note=NOTE)
            expected = status in {S.PENDING, S.RETRY}
            assert await claimable(store, job_id) == expected
            assert status in CLAIMABLE or not expected


async def test_every_claim_is_a_new_attempt(store: Store) -> None:
    lease = await started(store)
    for attempt in (2, 3, 4):
        await store.leases.finish(lease, Outcome(S.RETRY))
        lease = (await claim(store, lease.job_id)).lease
        assert lease.attempt == attempt
    await store.leases.finish(lease, Outcome(S.PARKED))
    lease = (await claim(store, lease.job_id)).lease
    assert lease.attempt == 5
    job = await store.jobs.get_job(lease.job_id)
    assert (job.attempt, job.retry_count) == (5, 0), "an attempt fences; only failures count against max_retries"
    first = next(e.at for e in await checked_log(store, job.id) if e.type == "run_started")
    assert job.started_at is not None
    assert abs(job.started_at - first) < timedelta(seconds=0.1), "started_at is the first start"


async def test_a_released_job_is_due_at_once_and_costs_nothing(store: Store) -> None:
    """What a worker does with prefetched jobs at its graceful end: no lease has to expire."""
    lease = await started(store, max_retries=0)
    await store.leases.finish(lease, Outcome(S.RETRY, delay=0, uses_retry=False, started=False, reason="worker stops"))
    job = await store.jobs.get_job(lease.job_id)
    assert (job.status, job.retry_count, job.attempt) == (S.RETRY, 0, 1)
    assert await store.jobs.list_runs(job.id) == []
    again = await claim(store, job.id, worker_id=OTHER)
    assert (again.lease.attempt, again.retry_count, again.lost_starts) == (2, 0, 0)


async def test_a_claim_after_a_park_keeps_the_open_waits(store: Store) -> None:
    """The handler re-checks what woke it; the waits are its own to close."""
    lease = await started(store)
    nap = Wait("nap", "timer", await later(store, -1))
    await store.leases.record(
        lease, [event("wait_started", '{"key": "nap", "kind": "timer"}')], effects=[open_wait(nap)]
    )
    await store.leases.finish(lease, Outcome(S.PARKED))
    again = (await claim(store, lease.job_id)).lease
    assert [wait.key for wait in (await store.jobs.get_job(lease.job_id)).waits] == ["nap"]
    await store.leases.record(
        again, [event("wait_completed", '{"key": "nap", "kind": "timer"}')], effects=[close_wait("timer", "nap")]
    )
    assert (await store.jobs.get_job(lease.job_id)).waits == ()


async def take_all(store: Store, worker_id: str) -> list[Lease]:
    held: list[Lease] = []
    while taken := await store.leases.claim(worker_id=worker_id, queue="default", kinds=KINDS, limit=7, ttl=30):
        held += [job.lease for job in taken]
    return held


async def test_concurrent_claimers_share_the_jobs_without_overlap(store: Store) -> None:
    await store.jobs.enqueue_many([new_job(kind=[*KINDS][n % 3], priority=1 + n % 9) for n in range(200)])
    held = await asyncio.gather(*(take_all(store, f"worker-{n}") for n in range(8)))
    ids = [lease.job_id for lease in chain.from_iterable(held)]
    assert len(ids) == len(set(ids)) == 200


async def test_claimers_of_two_instances_share_the_jobs_without_overlap(file_store: Store, twin: Store) -> None:
    await file_store.jobs.enqueue_many([new_job(kind=[*KINDS][n % 3], priority=1 + n % 9) for n in range(200)])
    held = await asyncio.gather(*(take_all(s, f"{n}-{s is twin}") for n in range(2) for s in (file_store, twin)))
    ids = [lease.job_id for lease in chain.from_iterable(held)]
    assert len(ids) == len(set(ids)) == 200
    for lease in chain.from_iterable(held):
        info = (await twin.jobs.get_job(lease.job_id)).lease
        assert info is not None
        assert info.worker_id == lease.worker_id


async def test_a_locked_job_is_skipped_not_waited_for(file_store: Store, shell: Shell) -> None:
    if not shell.postgres:
        pytest.skip("SQLite locks the database, not rows")
    first, second = await enqueue(file_store, queue="q"), await enqueue(file_store, queue="q")
    await shell.run("begin")
    await shell.run(f"select 1 from jobs where id = {shell.id(first)} for update")
    async with asyncio.timeout(2):
        taken = await file_store.leases.claim(worker_id=WORKER, queue="q", kinds=KINDS, limit=10, ttl=30)
    assert [job.id for job in taken] == [second]
    await shell.run("rollback")
    assert await claimable(file_store, first)


async def test_a_job_inserted_by_hand_is_a_job(file_store: Store, shell: Shell) -> None:
    plain, deep = uuid7(), uuid7()
    await shell.run(f"insert into jobs (id, kind) values ({shell.id(plain)}, 'echo')")
    await shell.run(f"insert into jobs (id, kind, queue, payload) values ({shell.id(deep)}, 'echo', 'deep', '[1]')")
    [job] = await file_store.leases.claim(worker_id=WORKER, queue="default", kinds=KINDS, limit=10, ttl=30)
    assert (job.id, job.payload) == (plain, "null")
    [job] = await file_store.leases.claim(worker_id=WORKER, queue="deep", kinds=KINDS, limit=10, ttl=30)
    assert (job.id, job.payload) == (deep, "[1]")
    for job_id in (plain, deep):
        await checked_log(file_store, job_id)


async def test_a_priority_changed_by_hand_counts_at_once(file_store: Store, shell: Shell) -> None:
    first, second = await enqueue(file_store, queue="q"), await enqueue(file_store, queue="q")
    await shell.run(f"update jobs set priority = 9 where id = {shell.id(second)}")
    assert (await claim(file_store, second)).priority == 9
    assert (await claim(file_store, first)).priority == 5


async def test_a_lease_left_behind_by_hand_stops_no_claim(file_store: Store, shell: Shell) -> None:
    ids = [await enqueue(file_store, queue="q") for _ in range(3)]
    await shell.run(
        "insert into job_claims (job_id, attempt, version, worker_id, expires_at)"
        f" values ({shell.id(ids[1])}, 7, 9, 'gone', {shell.ago(1)})"
    )
    claimed = await file_store.leases.claim(worker_id=WORKER, queue="q", kinds=KINDS, limit=10, ttl=30)
    assert {job.id for job in claimed} == {*ids}
    assert {(job.lease.attempt, job.version) for job in claimed} == {(1, 2)}
    assert await file_store.leases.heartbeat([job.lease for job in claimed], ttl=30) == {*ids}


async def test_a_claim_of_nothing(store: Store) -> None:
    assert await store.leases.claim(worker_id=WORKER, queue="empty", kinds=KINDS, limit=5, ttl=30) == []


async def test_jobs_survive_closing_and_opening_again(file_store_url: str) -> None:
    store = await open_store(file_store_url)
    await store.schema.migrate()
    job_id = await enqueue(store)
    lease = await started(store)
    await store.close()
    store = await open_store(file_store_url)
    await store.schema.check_schema()
    assert (await claim(store, job_id)).id == job_id
    assert await store.leases.finish(lease, outcome(S.COMPLETED)) is S.COMPLETED, "the lease outlives the connection"
    await store.close()
    await store.close()


async def test_next_due_is_the_front_of_the_queues(store: Store) -> None:
    assert await store.leases.next_due(["default", "other"], KINDS) is None
    await store.jobs.enqueue(new_job(delay=100, priority=9))
    await store.jobs.enqueue(new_job(delay=50, queue="other"))
    left = await store.leases.next_due(["default"], KINDS)
    assert left is not None
    assert 90 < left <= 100
    left = await store.leases.next_due(["default", "other"], KINDS)
    assert left is not None
    assert 40 < left <= 50
    await store.jobs.enqueue(new_job())
    assert await store.leases.next_due(["default"], KINDS) == 0


async def test_a_time_that_no_program_can_read_stops_no_other_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'perdure.db'}"
    store = await open_store(url)
    try:
        await store.schema.migrate()
        async with open_shell(url) as shell:
            await shell.run("pragma ignore_check_constraints = on")
            await shell.run(
                "insert into jobs (kind, deadline) values ('strange', 9000000000000000000), ('plain', null)"
            )
        claimed = await store.leases.claim(
            worker_id=WORKER, queue="default", kinds={"strange": 3, "plain": 3}, limit=10, ttl=30
        )
        assert len(claimed) == 2
        assert len((await store.jobs.list_jobs(JobFilter())).items) == 2
    finally:
        await store.close()


async def test_a_text_that_is_not_utf_8_stops_no_other_job(tmp_path: Path) -> None:
    """SQLite keeps whatever bytes it is given as text; they are read with U+FFFD where they say nothing."""
    url = f"sqlite:///{tmp_path / 'perdure.db'}"
    store = await open_store(url)
    try:
        await store.schema.migrate()
        async with open_shell(url) as shell:
            await shell.run(
                "insert into jobs (kind, goal) values ('strange', cast(x'6f6bff' as text)), ('plain', null)"
            )
        [strange] = (await store.jobs.list_jobs(JobFilter(kinds=("strange",)))).items
        assert strange.goal == (await store.jobs.get_job(strange.id)).goal == "ok\ufffd"
        for searched in (JobFilter(search="OK"), JobFilter(search="ok\ufffd", statuses=(S.PENDING,))):
            assert [job.kind for job in (await store.jobs.list_jobs(searched)).items] == ["strange"]
            assert await store.jobs.count_jobs(searched, by="kind") == {"strange": 1}
        claimed = await store.leases.claim(
            worker_id=WORKER, queue="default", kinds={"strange": 3, "plain": 3}, limit=10, ttl=30
        )
        assert {job.goal for job in claimed} == {"ok\ufffd", None}
    finally:
        await store.close()


async def test_the_queues_in_which_jobs_wait(store: Store) -> None:
    async def waiting() -> dict[str, bool]:
        return await store.leases.waiting_queues(KINDS)

    assert await waiting() == {}
    await store.jobs.enqueue(new_job(queue="slow"))
    await store.jobs.enqueue(new_job(queue="slow", priority=9, delay=HOUR))
    await store.jobs.enqueue(new_job(queue="late", delay=HOUR))
    await store.jobs.enqueue(new_job(queue="unknown", kind="unheard-of"))
    await store.jobs.enqueue(new_job(queue="taken"))
    assert await waiting() == {"late": False, "slow": True, "taken": True}
    assert await store.leases.waiting_queues(()) == {}
    assert len(await store.leases.claim(worker_id=WORKER, queue="taken", kinds=KINDS, limit=1, ttl=30)) == 1
    assert await waiting() == {"late": False, "slow": True}


async def test_the_queues_of_other_tenants_are_not_among_them(file_store: Store, neighbour: Store) -> None:
    await file_store.jobs.enqueue(new_job(queue="own"))
    await neighbour.jobs.enqueue(new_job(queue="theirs"))
    assert await file_store.leases.waiting_queues(KINDS) == {"own": True}
    assert await neighbour.leases.waiting_queues(KINDS) == {"theirs": True}
