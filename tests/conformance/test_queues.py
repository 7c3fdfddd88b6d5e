"""Paused queues: no claim takes a job of one, and nothing else changes."""

from datetime import timedelta

from perdure.model.states import Status
from perdure.store.protocol import Store
from perdure.store.protocol.leases import KindLimit
from tests.conformance.support import HOUR, KINDS, S, approve, claim, enqueue, outcome, own_queue, run_to


async def take(store: Store, queue: str, limit: int = 10) -> list[object]:
    jobs = await store.leases.claim(worker_id="w", queue=queue, kinds=KINDS, limit=limit, ttl=30)
    return [job.id for job in jobs]


async def test_jobs_of_a_paused_queue_are_not_claimed_until_it_is_resumed(store: Store) -> None:
    queue, other = own_queue(), own_queue()
    before = await enqueue(store, queue=queue)
    unpaused = await enqueue(store, queue=other)
    pause = await store.queues.pause_queue(queue, by="ann", via="test", reason="provider down")
    after = await enqueue(store, queue=queue, priority=9)
    assert await take(store, queue) == []
    assert (await store.jobs.get_job(before)).status is S.PENDING
    assert await take(store, other) == [unpaused]
    assert (pause.queue, pause.paused_by, pause.paused_via, pause.reason) == (queue, "ann", "test", "provider down")
    assert pause.resumed_at is None
    ended = await store.queues.resume_queue(queue, by="bob", via="test", reason="up again")
    assert ended is not None
    assert (ended.id, ended.paused_by, ended.resumed_by, ended.resumed_reason) == (pause.id, "ann", "bob", "up again")
    assert await take(store, queue) == [after, before]


async def test_a_paused_queue_keeps_no_worker_awake(store: Store) -> None:
    queue = own_queue()
    await enqueue(store, queue=queue)
    await store.queues.pause_queue(queue, by="ann")
    assert await store.leases.next_due([queue], KINDS) is None
    assert queue not in await store.leases.waiting_queues(KINDS)
    await store.queues.resume_queue(queue, by="ann")
    assert await store.leases.next_due([queue], KINDS) == 0
    assert (await store.leases.waiting_queues(KINDS))[queue]


async def test_a_queue_that_is_paused_stays_as_it_is_when_it_is_paused_again(store: Store) -> None:
    queue = own_queue()
    first = await store.queues.pause_queue(queue, by="ann", reason="one")
    assert await store.queues.pause_queue(queue, by="bob", reason="two") == first
    assert (await store.queues.resume_queue(queue, by="bob")) is not None
    assert await store.queues.resume_queue(queue, by="bob") is None
    second = await store.queues.pause_queue(queue, by="bob", reason="two")
    assert second.id != first.id
    newest, oldest = await store.queues.list_pauses(queue=queue)
    assert newest == second
    assert (oldest.id, oldest.resumed_by) == (first.id, "bob")
    assert await store.queues.list_pauses(queue=queue, only_open=True) == [second]
    assert len(await store.queues.list_pauses(queue=queue, limit=1)) == 1


async def test_jobs_that_are_leased_go_on_in_a_paused_queue(store: Store) -> None:
    queue = own_queue()
    running = await claim(store, await enqueue(store, queue=queue))
    await store.queues.pause_queue(queue, by="ann")
    await store.leases.set_waiting(running.lease, True)
    await store.leases.set_waiting(running.lease, False)
    await store.leases.finish(running.lease, outcome(S.COMPLETED))
    assert (await store.jobs.get_job(running.id)).status is S.COMPLETED


async def test_jobs_of_a_paused_queue_are_cancelled_and_expire(store: Store) -> None:
    queue = own_queue()
    late = await enqueue(store, queue=queue, deadline=await store.now() - timedelta(seconds=HOUR))
    unwanted = await enqueue(store, queue=queue)
    await store.queues.pause_queue(queue, by="ann")
    assert await store.jobs.cancel(unwanted, note="{}") is S.CANCELLED
    await store.leases.expire()
    assert (await store.jobs.get_job(late)).status is S.FAILED


async def test_a_suspended_job_does_not_wake_in_a_paused_queue(store: Store) -> None:
    queue = own_queue()
    parked = await run_to(store, Status.WAITING_FOR_APPROVAL, queue=queue)
    await store.queues.pause_queue(queue, by="ann")
    [asked] = (await store.approvals.list_approvals(job_id=parked)).items
    await store.approvals.decide(approve(asked))
    assert await take(store, queue) == []
    await store.queues.resume_queue(queue, by="ann")
    assert await take(store, queue) == [parked]


async def test_held_jobs_and_those_with_a_key_wait_as_well(store: Store) -> None:
    queue = own_queue()
    await store.queues.pause_queue(queue, by="ann")
    keyed = await enqueue(store, queue=queue, concurrency_key=f"key of {queue}", max_concurrent=1)
    limits = {"echo": KindLimit(max=1)}
    assert await store.leases.claim(worker_id="w", queue=queue, kinds=KINDS, limit=5, ttl=30, limits=limits) == []
    assert not (await store.jobs.get_job(keyed)).held
    await store.queues.resume_queue(queue, by="ann")
    assert await take(store, queue) == [keyed]


async def test_a_pause_is_of_one_tenant(store: Store) -> None:
    queue = own_queue()
    other = store.tenant("other-of-queues")
    await store.queues.pause_queue(queue, by="ann")
    assert await other.queues.list_pauses() == []
    assert await other.queues.resume_queue(queue, by="bob") is None
    theirs = await enqueue(other, queue=queue)
    assert await take(other, queue) == [theirs]


async def test_the_situation_of_a_job_has_the_pause_of_its_queue(store: Store) -> None:
    queue = own_queue()
    job_id = await enqueue(store, queue=queue)
    assert (await store.jobs.situation(job_id)).pause is None
    pause = await store.queues.pause_queue(queue, by="ann")
    assert (await store.jobs.situation(job_id)).pause == pause
