"""Every (from, to) pair through raw SQL: the database itself allows exactly `TRANSITIONS`, and a status that is
changed by hand gives the same log, the same lost lease and the same queue row as perdure's own statements."""

import os
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import pytest
import pytest_asyncio

from perdure.model.errors import LeaseLost
from perdure.model.events import Event
from perdure.model.fsck_faults import Finding
from perdure.model.ids import uuid7
from perdure.model.jobs import Job, Lease, Outcome
from perdure.model.states import FAILURES, TRANSITIONS, Status, transition_event
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Refused, Shell, open_shell
from tests.conformance.support import (
    NOTE,
    OTHER,
    S,
    approve,
    case,
    checked_log,
    claim,
    claimable,
    event,
    lease_of,
    new_approval,
    outcome,
    passed,
    run_to,
)
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALLOWED = [(old, new) for old, targets in TRANSITIONS.items() for new in Status if new in targets]
FORBIDDEN = [(old, new) for old in Status for new in Status if old is not new and new not in TRANSITIONS[old]]
LIVE = [s for s in Status if not s.terminal]


def pairs(these: list[tuple[Status, Status]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("old", "new"), these, ids=[f"{old}-{new}" for old, new in these])


class Database(NamedTuple):
    store: Store
    shell: Shell

    async def set_status(self, job_id: UUID, status: Status) -> None:
        """What a person in a hurry types."""
        await self.shell.run(f"update jobs set status = '{status}' where id = {self.shell.id(job_id)}")


# One database of each dialect serves all the pairs: every job has a queue of its own.
@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Database]:
    server: PostgresServer | None = None
    name = f"perdure_test_{os.getpid()}_transitions"
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        assert server is not None
        url = server.create_database(name, template=request.getfixturevalue("postgres_template"))
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('transitions')}/perdure.db"
    store = await open_store(url)
    await store.schema.migrate()
    async with open_shell(url) as shell:
        yield Database(store, shell)
    await store.close()
    if server is not None:
        server.drop_database(name)


async def look(store: Store, job_id: UUID) -> tuple[Job, list[Event]]:
    return await store.jobs.get_job(job_id), await store.jobs.list_events(job_id)


async def fsck(store: Store, job_id: UUID) -> list[Finding]:
    """What fsck finds at this job."""
    page = await store.checks.check(after=str(UUID(int=job_id.int - 1)), limit=1)
    return [finding for finding in page.findings if finding.job_id == job_id]


@pairs(FORBIDDEN)
async def test_a_forbidden_transition_is_refused_and_changes_nothing(db: Database, old: Status, new: Status) -> None:
    job_id = await run_to(db.store, old)
    before = await look(db.store, job_id)
    with pytest.raises(Refused):
        await db.set_status(job_id, new)
    assert await look(db.store, job_id) == before


@pytest.mark.parametrize("status", list(Status))
async def test_the_same_status_again_is_no_transition(db: Database, status: Status) -> None:
    job_id = await run_to(db.store, status)
    before, events = await look(db.store, job_id)
    await db.set_status(job_id, status)
    after, events_after = await look(db.store, job_id)
    assert events_after == events
    assert (after.status, after.version, after.lease, after.due_at) == (
        before.status,
        before.version,
        before.lease,
        before.due_at,
    )
    assert after.finished_at == before.finished_at
    if status.leased:
        await db.store.leases.record(await lease_of(db.store, job_id), [event()])
        await checked_log(db.store, job_id)


@pairs(ALLOWED)
async def test_an_allowed_transition_is_audited_and_completed(db: Database, old: Status, new: Status) -> None:
    job_id = await run_to(db.store, old)
    before = await db.store.jobs.get_job(job_id)
    await db.set_status(job_id, new)

    # checked_log: finished_at, error_message, next_retry_at, dense versions and the claim fit the new state
    events = await checked_log(db.store, job_id)
    job = await db.store.jobs.get_job(job_id)
    last = events[-1]
    assert job.status is new
    assert job.version == before.version + 1
    assert (last.type, last.previous_status, last.new_status) == (transition_event(old, new), old, new)
    assert last.payload["via"] == "sql", "the log tells a change by hand from perdure's own"
    assert job.updated_at >= before.updated_at
    if new.terminal:
        assert job.finished_at is not None
        assert before.updated_at <= job.finished_at <= await db.store.now()
    if new in FAILURES:
        assert job.error_message
        assert job.error_kind


@pairs([(old, new) for old, new in ALLOWED if new.terminal])
async def test_nothing_runs_after_a_terminal_state(db: Database, old: Status, new: Status) -> None:
    job_id = await run_to(db.store, old)
    await db.set_status(job_id, new)
    assert not await claimable(db.store, job_id)
    failed = await db.shell.run(f"select status from job_failures where job_id = {db.shell.id(job_id)}")
    assert [row["status"] for row in failed] == ([] if new is S.COMPLETED else [new.value])


@pairs([(old, new) for old, new in ALLOWED if new in {S.RETRY, S.PARKED, S.WAITING_FOR_APPROVAL}])
async def test_a_job_suspended_by_hand_without_a_wait_runs_again(db: Database, old: Status, new: Status) -> None:
    job_id = await run_to(db.store, old)
    await db.set_status(job_id, new)
    assert (await claim(db.store, job_id, worker_id=OTHER)).lease.attempt == 2
    await checked_log(db.store, job_id)


@pairs([(old, new) for old, new in ALLOWED if old.leased and not new.leased])
async def test_the_worker_is_fenced(db: Database, old: Status, new: Status) -> None:
    job_id = await run_to(db.store, old)
    lease = await lease_of(db.store, job_id)
    await db.set_status(job_id, new)
    before = await look(db.store, job_id)
    assert await db.store.leases.heartbeat([lease], ttl=30) == set()
    with pytest.raises(LeaseLost):
        await db.store.leases.record(lease, [event()])
    with pytest.raises(LeaseLost):
        await db.store.leases.set_waiting(lease, True)
    for status in (S.COMPLETED, S.RETRY, S.CANCELLED):
        with pytest.raises(LeaseLost):
            await db.store.leases.finish(lease, outcome(status))
    assert await look(db.store, job_id) == before


@pairs([(S.RUNNING, S.WAITING), (S.WAITING, S.RUNNING)])
async def test_between_running_and_waiting_the_lease_stays(db: Database, old: Status, new: Status) -> None:
    job_id = await run_to(db.store, old)
    lease = await lease_of(db.store, job_id)
    await db.set_status(job_id, new)
    recorded = await db.store.leases.record(lease, [event()])
    assert recorded == len(await checked_log(db.store, job_id))
    assert await db.store.leases.finish(lease, outcome(S.FAILED)) is S.FAILED
    await checked_log(db.store, job_id)


@pytest.mark.parametrize("old", [old for old, new in ALLOWED if new is S.RUNNING and not old.leased])
async def test_running_by_hand_gets_a_worker_through_the_reaper(db: Database, old: Status) -> None:
    """No worker runs a job that was set RUNNING at a shell: it must not stay so."""
    job_id = await run_to(db.store, old)
    await db.set_status(job_id, S.RUNNING)
    reaped = {r.job_id: r.status for r in await db.store.leases.reap(worker_id=OTHER, limit=1000)}
    assert reaped[job_id] is S.RETRY
    assert (await claim(db.store, job_id)).retry_count == 0, "it never started, so it costs no retry"
    await checked_log(db.store, job_id)


@pytest.mark.parametrize("status", LIVE)
async def test_a_reason_typed_by_hand_is_kept(db: Database, status: Status) -> None:
    job_id = await run_to(db.store, status)
    await db.shell.run(
        f"update jobs set status = 'FAILED', error_message = 'disk full', error_kind = 'ops', note = '{NOTE}' "
        f"where id = {db.shell.id(job_id)}"
    )
    job = await db.store.jobs.get_job(job_id)
    assert (job.error_message, job.error_kind) == ("disk full", "ops")
    assert (await checked_log(db.store, job_id))[-1].payload["reason"] == "because"


async def test_what_was_written_stands_in_the_event(db: Database) -> None:
    """The statements of the design document: its history holds what they wrote."""
    failed = await run_to(db.store, S.RUNNING)
    retried = await run_to(db.store, S.RUNNING)
    asking = await run_to(db.store, S.RUNNING)
    asked = await db.store.approvals.request_approval(await lease_of(db.store, asking), new_approval())
    for job_id, changes in (
        (failed, "status = 'FAILED', error_message = 'disk full'"),
        (retried, f"status = 'RETRY', retry_count = retry_count + 1, next_retry_at = {db.shell.ago(-60)}"),
        (asking, "status = 'WAITING_FOR_APPROVAL'"),
    ):
        await db.shell.run(f"update jobs set {changes} where id = {db.shell.id(job_id)}")
    due = (await db.store.jobs.get_job(retried)).next_retry_at
    assert due is not None
    for job_id, expected in (
        (failed, {"error": "disk full", "error_kind": "fatal"}),
        (retried, {"retry_count": 1}),
        (asking, {"approval": str(asked.id)}),
    ):
        said = (await checked_log(db.store, job_id))[-1].payload
        assert said.pop("actor")
        assert said.pop("via") == "sql"
        if job_id == retried:
            assert datetime.fromisoformat(said.pop("next_retry_at")) == due
        assert said == expected
        assert await fsck(db.store, job_id) == []


async def test_retries_counted_by_hand_are_in_the_log(db: Database) -> None:
    job_id = await run_to(db.store, S.RETRY)
    await db.shell.run(
        f"update jobs set status = 'DEADLETTER', retry_count = max_retries where id = {db.shell.id(job_id)}"
    )
    assert (await checked_log(db.store, job_id))[-1].payload["retry_count"] == 3
    assert await fsck(db.store, job_id) == []


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("change", ["goal = 'rest'", "max_retries = 9", "priority = 2", "queue = queue || '-b'"])
async def test_updated_at_follows_every_change(db: Database, status: Status, change: str) -> None:
    job_id = await run_to(db.store, status)
    before = await db.store.jobs.get_job(job_id)
    await passed(db.store, before.updated_at + timedelta(milliseconds=1))
    await db.shell.run(f"update jobs set {change} where id = {db.shell.id(job_id)}")
    assert (await db.store.jobs.get_job(job_id)).updated_at > before.updated_at


@pytest.mark.parametrize("status", list(Status))
async def test_payload_and_result_stay(db: Database, status: Status) -> None:
    job_id = await run_to(db.store, status)
    before = await db.store.jobs.get_job(job_id)
    changes = ["payload = '7'", "payload = 'null'", "payload_hash = 'x'", "payload = '7', prev_status = status"]
    if status.terminal:
        changes += ["result = '7'", "result = '7', prev_status = status", "result = null, payload = 'null', goal = 'x'"]
    for change in changes:
        with case(change), pytest.raises(Refused):
            await db.shell.run(f"update jobs set {change} where id = {db.shell.id(job_id)}")
    assert await db.store.jobs.get_job(job_id) == before


async def test_an_insert_by_hand_says_who_and_via_what(db: Database) -> None:
    id = uuid7()
    await db.shell.run(f"insert into jobs (id, kind) values ({db.shell.id(id)}, 'echo')")
    [created] = await checked_log(db.store, id)
    assert created.payload == {"actor": "postgres" if db.shell.postgres else "sql", "via": "sql"}


async def test_one_statement_may_change_many_jobs(db: Database) -> None:
    jobs = {await run_to(db.store, status): status for status in LIVE for _ in range(3)}
    ids = ", ".join(db.shell.id(job_id) for job_id in jobs)
    await db.shell.run(f"update jobs set status = 'CANCELLED' where id in ({ids})")
    for job_id, old in jobs.items():
        last = (await checked_log(db.store, job_id))[-1]
        assert (last.previous_status, last.new_status) == (old, S.CANCELLED)


async def test_one_forbidden_row_refuses_the_whole_statement(db: Database) -> None:
    good, bad = await run_to(db.store, S.PENDING), await run_to(db.store, S.COMPLETED)
    with pytest.raises(Refused):
        await db.shell.run(
            f"update jobs set status = 'CANCELLED' where id in ({db.shell.id(good)}, {db.shell.id(bad)})"
        )
    assert (await db.store.jobs.get_job(good)).status is S.PENDING
    await checked_log(db.store, good)


async def test_several_changes_in_one_transaction(db: Database) -> None:
    job_id = await run_to(db.store, S.RUNNING)
    await db.shell.run("begin")
    for status in (S.WAITING, S.RUNNING, S.RETRY, S.FAILED):
        await db.set_status(job_id, status)
    await db.shell.run("commit")
    moves = [e.new_status for e in await checked_log(db.store, job_id)]
    assert moves[-4:] == [S.WAITING, S.RUNNING, S.RETRY, S.FAILED]


async def test_a_rollback_leaves_no_trace(db: Database) -> None:
    job_id = await run_to(db.store, S.RUNNING)
    before = await look(db.store, job_id)
    await db.shell.run("begin")
    await db.set_status(job_id, S.CANCELLED)
    await db.shell.run("rollback")
    assert await look(db.store, job_id) == before
    await db.store.leases.finish(await lease_of(db.store, job_id), outcome(S.COMPLETED))


async def test_failing_by_hand_closes_the_question(db: Database) -> None:
    job_id = await run_to(db.store, S.WAITING_FOR_APPROVAL)
    await db.set_status(job_id, S.CANCELLED)
    [asked] = (await db.store.approvals.list_approvals(job_id=job_id)).items
    assert asked.status.value == "CANCELLED"
    assert (await db.store.jobs.get_job(job_id)).waits == ()


async def test_an_unknown_status_is_refused(db: Database) -> None:
    job_id = await run_to(db.store, S.PENDING)
    with pytest.raises(Exception, match=r"DONE|illegal"):  # an enum has its own kind of refusal
        await db.shell.run(f"update jobs set status = 'DONE' where id = {db.shell.id(job_id)}")
    assert (await db.store.jobs.get_job(job_id)).status is S.PENDING


async def test_parked_by_hand_with_an_open_question_waits_for_its_answer(db: Database) -> None:
    job_id = await run_to(db.store, S.RUNNING)
    lease: Lease = await lease_of(db.store, job_id)
    asked = await db.store.approvals.request_approval(lease, new_approval())
    await db.set_status(job_id, S.WAITING_FOR_APPROVAL)
    assert not await claimable(db.store, job_id)
    await db.store.approvals.decide(approve(asked))
    assert (await claim(db.store, job_id)).lease.attempt == 2
    with pytest.raises(LeaseLost):
        await db.store.leases.finish(lease, Outcome(S.PARKED))
