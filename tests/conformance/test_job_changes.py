"""Changes of several jobs in one transaction, edits, and reruns of many jobs."""

import json
from datetime import timedelta

import pytest

from perdure.model.errors import IllegalTransition, InvalidInput, JobNotFound
from perdure.model.ids import hash_json, uuid7
from perdure.model.job_changes import Cancelling, Editing, MakingDue
from perdure.model.states import LEASED, TERMINAL, Status
from perdure.store.protocol import Store
from tests.conformance.support import HOUR, NOTE, S, checked_log, claim, claimable, enqueue, new_job, own_queue, run_to


async def test_jobs_are_cancelled_together_and_what_cannot_be_is_left_alone(store: Store) -> None:
    waiting, running = await enqueue(store), await run_to(store, S.RUNNING)
    ended, unknown = await run_to(store, S.COMPLETED), uuid7()
    answers = await store.jobs.change_jobs([ended, waiting, unknown, running], Cancelling(), note=NOTE)
    assert [answer.id for answer in answers] == [ended, waiting, unknown, running]
    assert [answer.done for answer in answers] == [False, True, False, True]
    assert isinstance(answers[0].error, IllegalTransition)
    assert isinstance(answers[2].error, JobNotFound)
    assert (await store.jobs.get_job(waiting)).status is S.CANCELLED
    seen = await store.jobs.get_job(running)
    assert seen.lease is not None
    assert seen.lease.cancel_requested_at is not None
    for job_id in (ended, waiting, running):
        await checked_log(store, job_id)


async def test_jobs_are_made_due_together(store: Store) -> None:
    delayed, retrying, due = await enqueue(store, delay=HOUR), await run_to(store, S.RETRY), await enqueue(store)
    answers = await store.jobs.change_jobs([delayed, retrying, due], MakingDue(), note=NOTE)
    assert [(answer.done, answer.error) for answer in answers] == [(True, None), (True, None), (False, None)]
    assert await claimable(store, delayed)
    assert await claimable(store, retrying)
    await checked_log(store, retrying)


async def test_an_edit_is_in_the_log_and_counts(store: Store) -> None:
    queue = own_queue()
    first, edited = await enqueue(store, queue=queue, priority=5), await enqueue(store, queue=queue, priority=1)
    edit = Editing(priority=9, payload='{"n": 2}')
    [answer] = await store.jobs.change_jobs([edited], edit, note=NOTE)
    assert answer.done
    job = await store.jobs.get_job(edited)
    assert (job.priority, job.payload, job.version, job.status) == (9, {"n": 2}, 2, S.PENDING)
    event = (await checked_log(store, edited))[-1]
    assert event.type == "job_edited"
    assert event.payload["changes"] == {"priority": [1, 9], "payload": [hash_json('{"n": 1}'), hash_json('{"n": 2}')]}
    assert {name: event.payload[name] for name in json.loads(NOTE)} == json.loads(NOTE)
    taken = await store.leases.claim(worker_id="w", queue=queue, kinds={"echo": 3}, limit=1, ttl=30)
    assert [(job.id, job.payload) for job in taken] == [(edited, '{"n": 2}')]
    assert await claimable(store, first)


@pytest.mark.parametrize("status", [S.PENDING, S.RETRY])
async def test_the_time_of_a_job_is_edited(store: Store, status: Status) -> None:
    job_id = await run_to(store, status)
    later = await store.now() + timedelta(seconds=2 * HOUR)
    await store.jobs.change_jobs([job_id], Editing(run_at=later), note=NOTE)
    job = await store.jobs.get_job(job_id)
    assert job.due_at == later
    assert later == (job.run_at if status is S.PENDING else job.next_retry_at)
    assert not await claimable(store, job_id)
    await checked_log(store, job_id)
    await store.jobs.change_jobs([job_id], Editing(delay=0), note=NOTE)
    assert await claimable(store, job_id)
    await checked_log(store, job_id)


async def test_an_edit_that_changes_nothing_writes_nothing(store: Store) -> None:
    job_id = await enqueue(store, priority=4)
    [answer] = await store.jobs.change_jobs([job_id], Editing(priority=4, payload='{"n": 1}'), note=NOTE)
    assert (answer.done, answer.error) == (False, None)
    assert (await store.jobs.get_job(job_id)).version == 1


@pytest.mark.parametrize("status", list(Status))
async def test_in_which_states_a_job_can_be_edited(store: Store, status: Status) -> None:
    job_id = await run_to(store, status)
    before = await store.jobs.get_job(job_id)
    edits = {"priority": Editing(priority=9), "time": Editing(delay=60), "payload": Editing(payload='{"n": 2}')}
    possible = []
    for name, edit in edits.items():
        [answer] = await store.jobs.change_jobs([job_id], edit, note=NOTE)
        if answer.done:
            possible.append(name)
        else:
            assert isinstance(answer.error, IllegalTransition), name
    match status:
        case S.PENDING:
            assert possible == ["priority", "time", "payload"]
        case S.RETRY:
            assert possible == ["priority", "time"]
        case _ if status in TERMINAL | LEASED:
            assert possible == []
            assert await store.jobs.get_job(job_id) == before
        case _:
            assert possible == ["priority"]
    await checked_log(store, job_id)


async def test_the_idempotency_key_stands_for_the_new_input(store: Store) -> None:
    key = f"key-{uuid7()}"
    job_id = await enqueue(store, idempotency_key=key)
    await store.jobs.change_jobs([job_id], Editing(payload='{"n": 2}'), note=NOTE)
    again = await store.jobs.enqueue(new_job(idempotency_key=key, payload='{"n": 2}'))
    assert (again.id, again.created) == (job_id, False)


async def test_the_input_of_a_task_is_not_edited(store: Store) -> None:
    job_id = await enqueue(store, kind="cli.codex", payload='{"prompt": "x"}')
    [answer] = await store.jobs.change_jobs([job_id], Editing(payload="{}"), note=NOTE)
    assert isinstance(answer.error, InvalidInput)
    assert (await store.jobs.get_job(job_id)).payload == {"prompt": "x"}


async def test_an_input_changes_only_with_an_event_and_before_the_first_claim(file_store: Store, shell: object) -> None:
    job_id = await enqueue(file_store)
    started = (await claim(file_store, await enqueue(file_store))).id
    run, literal = shell.run, shell.id  # type: ignore[attr-defined]  # a Shell
    for sql in (
        f"update jobs set payload = '2' where id = {literal(job_id)}",
        f"update jobs set payload = '2', version = version + 1 where id = {literal(started)}",
    ):
        with pytest.raises(Exception, match=r"payload of a job cannot be rewritten|moved without an event"):
            await run(sql)
    assert (await file_store.jobs.get_job(job_id)).payload == {"n": 1}


async def test_a_job_is_rerun_once(store: Store) -> None:
    old, other = await run_to(store, S.FAILED), await run_to(store, S.FAILED)
    new = [new_job(origin_id=id, origin_kind="rerun", queue=own_queue()) for id in (old, other)]
    assert await store.jobs.rerun_of([old, other]) == set()
    assert await store.jobs.rerun_jobs(new[:1]) == [True]
    assert await store.jobs.rerun_of([old, other]) == {old}
    again = [job._replace(id=uuid7()) for job in new]
    strange = new_job(origin_id=uuid7(), origin_kind="rerun")
    assert await store.jobs.rerun_jobs([*again, strange]) == [False, True, False]
    assert (await store.jobs.get_job(new[0].id)).origin_id == old
    with pytest.raises(JobNotFound):
        await store.jobs.get_job(again[0].id)
    fork = new_job(origin_id=await run_to(store, S.FAILED), origin_kind="fork")
    await store.jobs.enqueue(fork)
    assert fork.origin_id is not None
    assert await store.jobs.rerun_of([fork.origin_id]) == set()
