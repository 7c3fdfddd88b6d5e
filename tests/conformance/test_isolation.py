"""One job in trouble is one job in trouble: locks, rows damaged by hand and silent connections keep no other from going on."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from perdure.model.approvals import ApprovalStatus
from perdure.model.errors import ApprovalNotFound, InvalidInput
from perdure.model.ids import new_token, uuid7
from perdure.model.jobs import ClaimedJob, Outcome
from perdure.store.group_commit.limits import chunks
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import (
    HOUR,
    KINDS,
    S,
    approve,
    asked,
    by_token,
    claim,
    deny,
    enqueue,
    event,
    later,
    lease_of,
    new_approval,
    new_job,
    outcome,
    passed,
    run_out,
    run_to,
    started,
)


async def damage(shell: Shell, job_id: UUID, version: int) -> None:
    """Another session writes an event with the version of the next transition's own."""
    await shell.run(f"insert into job_events (job_id, version, type) values ({shell.id(job_id)}, {version}, 'by hand')")


# Locks -----------------------------------------------------------------------------------------------------------------


async def test_a_lock_of_another_session_costs_no_lease(file_store: Store, shell: Shell) -> None:
    if not shell.postgres:
        pytest.skip("SQLite locks the database")
    locked, *free = leases = [await started(file_store) for _ in range(4)]
    gone = await started(file_store)
    await file_store.leases.finish(gone, outcome(S.COMPLETED))
    await shell.run("begin")
    await shell.run(f"update jobs set status = 'CANCELLED' where id = {shell.id(locked.job_id)}")
    async with asyncio.timeout(2):
        held = await file_store.leases.heartbeat([*leases, gone], ttl=HOUR)
    assert held == {lease.job_id for lease in leases}, "the locked one is live, the finished one is not"
    expiry = {}
    for lease in leases:
        info = (await file_store.jobs.get_job(lease.job_id)).lease
        assert info is not None
        expiry[lease] = info.expires_at
    far = await later(file_store, HOUR / 2)
    assert all(expiry[lease] > far for lease in free)
    assert expiry[locked] < far, "what is locked is not renewed"
    await shell.run("rollback")
    assert await file_store.leases.heartbeat([locked], ttl=HOUR) == {locked.job_id}
    info = (await file_store.jobs.get_job(locked.job_id)).lease
    assert info is not None
    assert info.expires_at > far


async def test_a_locked_lease_that_is_not_live_is_lost(file_store: Store, shell: Shell) -> None:
    if not shell.postgres:
        pytest.skip("SQLite locks the database")
    dead, taken = await started(file_store), await started(file_store)
    await run_out(file_store, dead)
    await file_store.leases.finish(taken, outcome(S.RETRY, delay=0))
    await claim(file_store, taken.job_id)
    await shell.run("begin")
    await shell.run("select 1 from job_claims for update")
    assert await file_store.leases.heartbeat([dead, taken], ttl=30) == set()
    await shell.run("rollback")


async def test_our_own_writes_cost_no_lease(store: Store) -> None:
    leases = [await started(store) for _ in range(20)]
    writing = asyncio.gather(*(store.leases.record(lease, [event(), event()]) for lease in leases for _ in range(10)))
    while not writing.done():
        assert len(await store.leases.heartbeat(leases, ttl=30)) == len(leases)
    await writing


# Damage ----------------------------------------------------------------------------------------------------------------


async def test_a_damaged_job_is_put_aside_and_the_others_are_claimed(file_store: Store, shell: Shell) -> None:
    bad = [await enqueue(file_store, queue="q", priority=9) for _ in range(2)]
    good = {await enqueue(file_store, queue="q") for _ in range(3)}
    for job_id in bad:
        await damage(shell, job_id, 2)
    claimed = await file_store.leases.claim(worker_id="w", queue="q", kinds=KINDS, limit=10, ttl=30)
    assert {job.id for job in claimed} == good
    for job_id in bad:
        job = await file_store.jobs.get_job(job_id)
        assert (job.status, job.version) == (S.PENDING, 1)
        assert job.due_at is not None
        assert job.due_at > await later(file_store, 200)
    assert await file_store.leases.claim(worker_id="w", queue="q", kinds=KINDS, limit=10, ttl=30) == []


async def test_a_damaged_job_keeps_no_other_of_its_key_waiting(file_store: Store, shell: Shell) -> None:
    keyed: dict[str, Any] = {"queue": "q", "concurrency_key": "k", "max_concurrent": 1}
    first = await enqueue(file_store, **keyed, priority=9)
    bad, good = await enqueue(file_store, **keyed, priority=8), await enqueue(file_store, **keyed)

    async def claimed() -> list[ClaimedJob]:
        await file_store.leases.release_held()
        return await file_store.leases.claim(worker_id="w", queue="q", kinds=KINDS, limit=10, ttl=30)

    [running] = await claimed()
    assert running.id == first
    await damage(shell, bad, 2)
    await file_store.leases.finish(running.lease, outcome(S.COMPLETED))
    assert [job.id for job in [*await claimed(), *await claimed()]] == [good]


async def test_a_row_of_the_queue_without_a_job_is_not_taken_for_the_damaged_one(
    file_store: Store, shell: Shell
) -> None:
    ghost = shell.id(uuid7())
    columns = "insert into job_queue (job_id, lane, kind, priority, run_at)"
    await shell.run(f"{columns} values ({ghost}, 'q', 'echo', 9, {shell.ago(100)})")
    bad = await enqueue(file_store, queue="q", priority=8)
    good = await enqueue(file_store, queue="q")
    await damage(shell, bad, 2)
    claimed: list[ClaimedJob] = []
    for _ in range(2):
        if claimed := await file_store.leases.claim(worker_id="w", queue="q", kinds=KINDS, limit=1, ttl=30):
            break
    assert [job.id for job in claimed] == [good]
    due_at = (await file_store.jobs.get_job(bad)).due_at
    assert due_at is not None
    assert due_at > await later(file_store, 200)


async def test_an_id_that_json_cannot_spell_does_not_stop_its_lane(file_store: Store, shell: Shell) -> None:
    if shell.postgres:
        pytest.skip("an id is a uuid there")
    await shell.run(
        "insert into job_queue (job_id, lane, kind, priority, run_at) values ('a' || char(0) || 'b', 'q', 'echo', 9, 0)"
    )
    good = await enqueue(file_store, queue="q")
    claimed: list[ClaimedJob] = []
    for limit in (1, 10):
        if claimed := await file_store.leases.claim(worker_id="w", queue="q", kinds=KINDS, limit=limit, ttl=30):
            break
    assert [job.id for job in claimed] == [good]


async def test_a_lane_set_by_hand_gives_no_tenant_anothers_job(
    file_store: Store, neighbour: Store, shell: Shell
) -> None:
    moved = await enqueue(file_store, queue="q")
    own = await enqueue(neighbour, queue="q")
    [row] = await shell.run(f"select lane from jobs where id = {shell.id(own)}")
    await shell.run(f"update jobs set lane = '{row['lane']}' where id = {shell.id(moved)}")
    claimed: list[ClaimedJob] = []
    for _ in range(2):
        claimed += await neighbour.leases.claim(worker_id="w", queue="q", kinds=KINDS, limit=1, ttl=30)
    assert [job.id for job in claimed] == [own], "nor does it stop theirs"
    assert (await file_store.jobs.get_job(moved)).status is S.PENDING


async def test_a_damaged_job_does_not_keep_the_others_from_being_reaped(file_store: Store, shell: Shell) -> None:
    leases = [await started(file_store) for _ in range(3)]
    await run_out(file_store, *leases)
    await damage(shell, leases[1].job_id, 3)
    reaped = await file_store.leases.reap(worker_id="r")
    assert {r.job_id for r in reaped} == {leases[0].job_id, leases[2].job_id}
    assert (await file_store.jobs.get_job(leases[1].job_id)).status is S.RUNNING
    assert await file_store.leases.reap(worker_id="r") == []


async def test_damaged_jobs_do_not_keep_others_from_expiring(file_store: Store, shell: Shell) -> None:
    deadline = await later(file_store, 0.5)
    late = [await enqueue(file_store, delay=HOUR, deadline=deadline) for _ in range(3)]
    await damage(shell, late[0], 2)
    questions = []
    for _ in range(3):
        lease = await started(file_store)
        questions.append(await file_store.approvals.request_approval(lease, new_approval(expires_in=0.2)))
        await file_store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))
    await damage(shell, questions[1].job_id, (await file_store.jobs.get_job(questions[1].job_id)).version + 1)
    await passed(file_store, deadline)
    for question in questions:
        await passed(file_store, question.expires_at)
    assert await file_store.leases.expire() == 4
    assert [(await file_store.jobs.get_job(id)).status for id in late] == [S.PENDING, S.FAILED, S.FAILED]
    statuses = [(await file_store.approvals.get_approval(question.id)).status for question in questions]
    assert statuses == [ApprovalStatus.EXPIRED, ApprovalStatus.PENDING, ApprovalStatus.EXPIRED]
    assert await file_store.leases.expire() == 0


# Questions -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [None, "{}", '"retry"', '["retry"]', '{"outcome": "maybe"}', '{"outcome": []}', "no"]
)
async def test_approving_a_question_needs_an_answer(store: Store, answer: str | None) -> None:
    token = new_token()
    question = await asked(store, token=token, kind="question")
    for decision in (approve(question, edited_payload=answer), by_token(token, edited_payload=answer)):
        with pytest.raises(InvalidInput) as refused:
            await store.approvals.decide(decision)
        assert '{"outcome": "retry"}' in str(refused.value.hint)
    assert (await store.approvals.get_approval(question.id)).pending


async def test_answers_to_questions(store: Store) -> None:
    for answer in ('{"outcome": "happened", "result": 1}', '{"outcome": "retry"}'):
        question = await asked(store, kind="question")
        decided = await store.approvals.decide(approve(question, edited_payload=answer))
        assert (decided.status, decided.edited) == (ApprovalStatus.APPROVED, True)
        token = new_token()
        await asked(store, kind="question", token=token)
        assert (await store.approvals.decide(by_token(token, edited_payload=answer))).status is ApprovalStatus.APPROVED
    question = await asked(store, kind="question")
    await store.leases.finish(await lease_of(store, question.job_id), Outcome(S.WAITING_FOR_APPROVAL))
    assert (await store.approvals.decide(deny(question))).status is ApprovalStatus.DENIED
    assert (await store.jobs.get_job(question.job_id)).status is S.FAILED


async def test_finding_an_approval_by_full_ids(store: Store) -> None:
    job_id = await run_to(store, S.WAITING_FOR_APPROVAL)
    [approval] = (await store.approvals.list_approvals(job_id=job_id)).items
    for id in (approval.id, job_id):
        assert await store.approvals.find_approval(str(id)) == approval.id
        assert await store.approvals.find_approval(id.hex.upper()) == approval.id
    await store.approvals.decide(approve(approval))
    for id in (approval.id, job_id):
        assert await store.approvals.find_approval(str(id)) == approval.id
    with pytest.raises(ApprovalNotFound):
        await store.approvals.find_approval(str(uuid7()))


# Sizes -----------------------------------------------------------------------------------------------------------------


async def test_many_large_jobs_are_stored_together(file_store: Store) -> None:
    payload = '"' + "x" * 1_000_000 + '"'
    jobs = [new_job(payload=payload) for _ in range(20)]
    portions = list(chunks(jobs))
    assert [job for portion in portions for job in portion] == jobs
    assert [len(portion) for portion in portions] == [8, 8, 4]
    assert all(done.created for done in await file_store.jobs.enqueue_many(jobs))
    more = await asyncio.gather(*(file_store.jobs.enqueue(new_job(payload=payload)) for _ in range(20)))
    assert all(done.created for done in more)


# Silence ---------------------------------------------------------------------------------------------------------------


class Road:
    """A way to the server that can fall silent: bytes are lost without an error, and new connections work."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.silent: list[asyncio.Event] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.writers: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self.host, self.port)
        silent = asyncio.Event()
        self.silent.append(silent)
        self.writers += writer, there[1]
        for source, target in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self.carry(source, target, silent))
            self.tasks.add(task)

    async def carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, silent: asyncio.Event) -> None:
        try:
            while data := await source.read(65536):
                if not silent.is_set():
                    target.write(data)
            if not silent.is_set():
                target.close()
        except OSError:
            pass

    def fall_silent(self) -> None:
        for silent in self.silent:
            silent.set()


@asynccontextmanager
async def road_to(url: str) -> AsyncIterator[tuple[str, Road]]:
    """The URL of a database by way of a road."""
    before, _, rest = url.rpartition("@")
    place, _, name = rest.partition("/")
    host, _, port = place.partition(":")
    road = Road(host, int(port))
    server = await asyncio.start_server(road.accept, "127.0.0.1", 0)
    try:
        yield f"{before}@127.0.0.1:{server.sockets[0].getsockname()[1]}/{name}", road
    finally:
        server.close()
        for task in road.tasks:
            task.cancel()
        await asyncio.gather(*road.tasks, return_exceptions=True)
        for writer in road.writers:
            writer.transport.abort()
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in road.writers), return_exceptions=True)


async def test_a_silent_connection_costs_no_lease(fresh_store_url: Callable[[str], str]) -> None:
    async with road_to(fresh_store_url("postgres")) as (url, road):
        store = await open_store(url)
        lease = await started(store)
        other = await enqueue(store)
        assert await store.leases.heartbeat([lease], ttl=6) == {lease.job_id}
        road.fall_silent()
        before = time.monotonic()
        assert await store.leases.heartbeat([lease], ttl=6) == {lease.job_id}
        assert time.monotonic() - before < 4
        queue = "some queue"
        assert await store.leases.claim(worker_id="w", queue=queue, kinds=KINDS, limit=1, ttl=6) == [], (
            "by the new connection"
        )
        assert time.monotonic() - before < 5
        asking = asyncio.create_task(store.jobs.get_job(other))  # by the pool
        await asyncio.sleep(0.2)
        asking.cancel()
        async with asyncio.timeout(1):
            await asyncio.wait([asking])
        assert asking.cancelled() or asking.result().id == other, "the pool may have another connection by now"
        assert (await store.jobs.get_job(other)).status is S.PENDING, "what was given up was cut and replaced"
        await store.close()
