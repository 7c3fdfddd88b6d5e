"""Rows that no program can read: refused where they come in, and where a superuser put one, it stops nothing else."""

import pytest

from perdure.model.errors import InvalidInput
from perdure.model.jobs import JobFilter
from perdure.store.postgres.store import PostgresStore
from perdure.store.protocol import Store
from tests.conformance.healthy_jobs import fsck, stronger
from tests.conformance.sql_shell import Refused, Shell
from tests.conformance.support import KINDS, S, case, claim, enqueue, outcome, run_to

TIMES = {
    True: ["'infinity'", "'-infinity'", "'20000-01-01'", "'4000-01-01 BC'"],
    False: [str(2**62), str(-(2**62)), "253370764800000001"],
}
BAD_IDS = ["0" * 36, "-" * 36, "0190b3a5-0000-7000-8000-00000000-001", "0190B3A5-0000-7000-8000-000000000001"]


async def test_times_that_no_program_can_read_are_refused(file_store: Store, shell: Shell) -> None:
    job_id = await run_to(file_store, S.RETRY)
    id = shell.id(job_id)
    before = await file_store.jobs.get_job(job_id)
    for time in TIMES[shell.postgres]:
        statements = [
            f"insert into jobs (kind, run_at) values ('echo', {time})",
            f"insert into jobs (kind, deadline) values ('echo', {time})",
            f"update jobs set run_at = {time} where id = {id}",
            f"update jobs set deadline = {time} where id = {id}",
        ]
        if shell.postgres:
            statements += [
                f"select perdure.enqueue('echo', run_at => {time})",
                f"select perdure.enqueue('echo', deadline => {time})",
                f"insert into jobs (kind, created_at) values ('echo', {time})",
                f"update jobs set next_retry_at = {time} where id = {id}",
                f"update jobs set status = 'FAILED', finished_at = {time} where id = {id}",
                f"insert into job_waits (job_id, key, kind, until) values ({id}, 'x', 'timer', {time})",
            ]
        for statement in statements:
            with case(statement), pytest.raises((Refused, Exception), match=r"years 2 to 9998|CHECK constraint"):
                await shell.run(statement)
    assert await file_store.jobs.get_job(job_id) == before
    assert await file_store.jobs.count_jobs(JobFilter(), by="status") == {"RETRY": 1}


async def test_ids_that_are_no_uuid_are_refused(file_store: Store, shell: Shell) -> None:
    if shell.postgres:
        pytest.skip("its ids are of type uuid")
    for id in BAD_IDS:
        with case(id), pytest.raises(Refused):
            await shell.run(f"insert into jobs (id, kind) values ('{id}', 'echo')")
    assert await file_store.jobs.count_jobs(JobFilter(), by="status") == {}


@pytest.mark.parametrize("column", ["run_at", "deadline", "updated_at"])
async def test_a_time_that_cannot_be_read_stops_nothing(file_store: Store, shell: Shell, column: str) -> None:
    """Put in where no trigger fires. It is listed, shown by fsck, repaired, and the neighbours run."""
    for time in TIMES[shell.postgres]:
        with case(time):
            bad = await enqueue(file_store, queue="shared")
            good = await enqueue(file_store, queue="shared")
            async with stronger(shell):
                await shell.run(f"update jobs set {column} = {time} where id = {shell.id(bad)}")
                if column != "updated_at":
                    await shell.run(f"update job_queue set {column} = {time} where job_id = {shell.id(bad)}")
            assert {job.id for job in (await file_store.jobs.list_jobs(JobFilter())).items} >= {bad, good}
            assert (await file_store.jobs.get_job(bad)).kind == "echo"
            await file_store.leases.next_due(["shared"], KINDS)
            await file_store.leases.expire()
            await file_store.leases.reap(worker_id="w")
            assert {f.code for f in await fsck(file_store) if f.job_id == bad} >= (
                {"row-time"} if column != "updated_at" else set()
            )
            claimed = await file_store.leases.claim(worker_id="w", queue="shared", kinds=KINDS, limit=10, ttl=30)
            assert good in {job.id for job in claimed}
            for job in claimed:
                await file_store.leases.finish(job.lease, outcome(S.COMPLETED))
            assert [f for f in await fsck(file_store, fix=True) if not f.fixed] == []
            assert await fsck(file_store) == []
            for job in await file_store.leases.claim(worker_id="w", queue="shared", kinds=KINDS, limit=10, ttl=30):
                await file_store.leases.finish(job.lease, outcome(S.COMPLETED))
            for left in (await file_store.jobs.list_jobs(JobFilter())).items:
                if not left.status.terminal:
                    await file_store.jobs.cancel(left.id, note="{}")


async def test_an_id_that_cannot_be_read_stops_no_worker(file_store: Store, shell: Shell) -> None:
    if shell.postgres:
        pytest.skip("its ids are of type uuid")
    good = await enqueue(file_store, queue="shared")
    await shell.run("pragma ignore_check_constraints = on")
    await shell.run(f"insert into jobs (id, kind, queue, priority) values ('{'0' * 36}', 'echo', 'shared', 9)")
    [job] = await file_store.leases.claim(worker_id="w", queue="shared", kinds=KINDS, limit=10, ttl=0.001)
    assert job.id == good
    for _ in range(3):
        await file_store.leases.reap(worker_id="w")
    assert "row-id" in {f.code for f in await fsck(file_store)}


DEEP = "[" * 900 + "]" * 900
LONG = "9" * 5000


@pytest.mark.parametrize("text", [DEEP, LONG, "[" * 5000 + "]" * 5000], ids=["deep", "long", "deeper"])
async def test_json_that_python_cannot_hold_breaks_no_list(store: Store, text: str) -> None:
    if len(text) == 10_000 and not isinstance(store, PostgresStore):
        with pytest.raises(InvalidInput):  # SQLite's own limit
            await enqueue(store, payload=text)
        return
    job_id = await enqueue(store, payload=text)
    lease = (await claim(store, job_id)).lease
    await store.leases.finish(lease, outcome(S.COMPLETED, result=text))
    [listed] = (await store.jobs.list_jobs(JobFilter())).items
    assert listed.id == job_id
    job = await store.jobs.get_job(job_id)
    assert job.payload == job.result == (text if text != DEEP else job.result)
    assert len(await store.jobs.list_events(job_id)) == 3
