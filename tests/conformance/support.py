"""What the conformance tests share: jobs in every state, leases that run out, and what holds for every job always."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from perdure.model.approvals import Approval, Decide, NewApproval
from perdure.model.effects import open_wait
from perdure.model.events import Event, NewEvent
from perdure.model.fold import fold
from perdure.model.ids import hash_json, hash_token, new_token, uuid7
from perdure.model.jobs import ClaimedJob, Job, Lease, NewJob, Outcome, Wait
from perdure.model.states import FAILURES, TRANSITIONS, Status, transition_event
from perdure.store.protocol import Store

NOTE = '{"actor": "ann", "via": "test", "reason": "because"}'
WORKER = "worker-1"
OTHER = "worker-2"
HOUR = 3600.0
KINDS = {"echo": 3, "research": 3, "write": 3}
"""What the workers of these tests have handlers for, and how many retries each of them allows."""

S = Status
_numbers = itertools.count(1)


def own_queue() -> str:
    """The name of a queue that no other test uses, so that claims take exactly what was meant."""
    return f"queue-{next(_numbers)}"


@contextmanager
def case(*what: object) -> Iterator[None]:
    """One turn of a loop over cases: a failure says in which."""
    try:
        yield
    except BaseException as error:
        error.add_note("in the case: " + ", ".join(map(str, what)))
        raise


def new_job(*, payload: str = '{"n": 1}', **changes: Any) -> NewJob:
    """A job that may start at once; `changes` are fields of NewJob."""
    return NewJob(id=uuid7(), kind="echo", payload=payload)._replace(**changes)


async def enqueue(store: Store, **changes: Any) -> UUID:
    """Enqueue a job, in a queue of its own unless one is named, and return its id."""
    done = await store.jobs.enqueue(new_job(**{"queue": own_queue(), **changes}))
    assert done.created
    return done.id


async def claim(store: Store, job_id: UUID, *, worker_id: str = WORKER, ttl: float = 30.0) -> ClaimedJob:
    """Claim this job, which is due, or about to be, and alone at the head of its queue."""
    found = await store.jobs.get_job(job_id)
    if found.due_at is not None and found.due_at > await store.now():
        await passed(store, found.due_at)
    kinds = {found.kind: KINDS.get(found.kind, 3)}
    [job] = await store.leases.claim(worker_id=worker_id, queue=found.queue, kinds=kinds, limit=1, ttl=ttl)
    assert job.id == job_id
    return job


async def claimable(store: Store, job_id: UUID) -> bool:
    """Whether a claim would take this job, found out by trying."""
    queue = (await store.jobs.get_job(job_id)).queue
    return job_id in {
        job.id for job in await store.leases.claim(worker_id="probe", queue=queue, kinds=KINDS, limit=100, ttl=30)
    }


async def started(store: Store, **changes: Any) -> Lease:
    """A fresh job, RUNNING under the lease that is returned."""
    return (await claim(store, await enqueue(store, **changes))).lease


async def lease_of(store: Store, job_id: UUID) -> Lease:
    """The live lease of a job, as its holder knows it."""
    info = (await store.jobs.get_job(job_id)).lease
    assert info is not None
    return Lease(job_id, info.attempt, info.worker_id)


async def run_to(store: Store, status: Status, **changes: Any) -> UUID:
    """A fresh job brought to this state by the store's methods: PARKED by a timer `nap`, or by an approval `ok`."""
    job_id = await enqueue(store, **changes)
    if status is S.PENDING:
        return job_id
    lease = (await claim(store, job_id)).lease
    match status:
        case S.RUNNING:
            pass
        case S.WAITING:
            await store.leases.set_waiting(lease, True)
        case S.PARKED:
            await store.leases.record(lease, [], effects=[open_wait(Wait("nap", "timer", await later(store, HOUR)))])
            await store.leases.finish(lease, Outcome(S.PARKED))
        case S.WAITING_FOR_APPROVAL:
            await store.approvals.request_approval(lease, new_approval())
            await store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))
        case _:
            await store.leases.finish(lease, outcome(status))
    assert (await store.jobs.get_job(job_id)).status is status
    return job_id


def outcome(status: Status, **changes: Any) -> Outcome:
    """How an attempt ends in this state, with what the state demands."""
    needs: dict[str, Any] = {}
    if status is S.COMPLETED:
        needs = {"result": '{"answer": 42}'}
    elif status in FAILURES:
        needs = {"error": "it broke", "error_kind": "fatal"}
    elif status is S.RETRY:
        needs = {"error": "try later", "error_kind": "transient", "delay": HOUR}
    return Outcome(status, **{**needs, **changes})


async def later(store: Store, seconds: float) -> datetime:
    """That many seconds from database time."""
    return await store.now() + timedelta(seconds=seconds)


def near(moment: datetime | None, expected: datetime, *, within: float = 1.0) -> bool:
    """Whether a moment is there and about the one expected."""
    return moment is not None and abs(moment - expected) < timedelta(seconds=within)


async def passed(store: Store, moment: datetime | None) -> None:
    """Wait until database time is past a moment that is about to come."""
    assert moment is not None
    assert moment - await store.now() < timedelta(seconds=1), "tests do not wait that long"
    while await store.now() <= moment:
        pass


async def run_out(store: Store, *leases: Lease, started: bool = True) -> None:
    """Let leases expire by database time; `started` tells whether user code had begun under them."""
    ids = [lease.job_id for lease in leases]
    assert await store.leases.heartbeat(leases, ttl=0.001, started=ids if started else []) == set(ids)
    for lease in leases:
        info = (await store.jobs.get_job(lease.job_id)).lease
        assert info is not None
        await passed(store, info.expires_at)


def event(type: str = "note", payload: str = "{}") -> NewEvent:
    """An event with an id of its own."""
    return NewEvent(type, payload)


def new_approval(key: str = "ok", *, token: str | None = None, **changes: Any) -> NewApproval:
    """A question with a token that is its holder's secret."""
    payload = changes.pop("payload", '{"publish": "draft 1"}')
    asked = NewApproval(
        id=uuid7(),
        key=key,
        title="Publish this?",
        payload=payload,
        payload_digest=hash_json(payload),
        requester="echo",
        token_hash=hash_token(token or new_token()),
    )
    return replace(asked, **changes)


def approve(approval: Approval | UUID, **changes: Any) -> Decide:
    """Ann says yes, addressing the approval by its id."""
    approval_id = approval if isinstance(approval, UUID) else approval.id
    return replace(Decide("approve", by="ann", via="test", approval_id=approval_id), **changes)


async def asked(store: Store, **changes: Any) -> Approval:
    """A question of a job that is RUNNING."""
    return await store.approvals.request_approval(await started(store), new_approval(**changes))


def by_token(token: str, **changes: Any) -> Decide:
    """The holder of the link approves."""
    return replace(Decide("approve", by="the holder", via="link", token_hash=hash_token(token)), **changes)


def deny(approval: Approval | UUID, **changes: Any) -> Decide:
    """Ann says no."""
    return approve(approval, verdict="deny", comment="not like this", **changes)


async def checked_log(store: Store, job_id: UUID) -> list[Event]:
    """The log of a job at rest, after checking it against the job's row."""
    events = await store.jobs.list_events(job_id, limit=100_000)
    check_job(await store.jobs.get_job(job_id), events)
    return events


def check_fold(job: Job, events: list[Event]) -> None:
    """The log adds up to the row, also where SQL was typed by hand."""
    folded = fold(events)
    for name in (
        "version",
        "status",
        "attempt",
        "retry_count",
        "note",
        "created_at",
        "updated_at",
        "started_at",
        "finished_at",
        "error_message",
        "error_kind",
        "next_retry_at",
    ):
        assert getattr(folded, name) == getattr(job, name), f"{name} is the fold of its log"


def check_job(job: Job, events: list[Event]) -> None:
    """What holds for every job at all times, whatever happened to it."""
    assert [e.version for e in events] == list(range(1, job.version + 1)), "versions are dense and end at the head"
    assert all(e.job_id == job.id for e in events)
    status: Status | None = None
    for e in events:
        if e.new_status is not None:
            assert status is None or e.new_status in TRANSITIONS[status]
            assert e.previous_status is status, "each transition leaves the state the one before entered"
            assert e.type == transition_event(status, e.new_status)
            status = e.new_status
    assert job.status is status, "the row is the fold of its log"
    check_fold(job, events)
    ends = [n for n, e in enumerate(events, 1) if e.new_status is not None and e.new_status.terminal]
    assert ends in ([], [len(events)]), "nothing follows the end"
    assert (job.lease is not None) == job.status.leased, "a claim exists while a worker holds the job, and only then"
    assert (job.finished_at is not None) == job.status.terminal
    assert (job.error_message is not None) == (job.status in FAILURES)
    assert (job.next_retry_at is not None) == (job.status is S.RETRY)
    assert job.result is None or job.status is S.COMPLETED
    assert 0 <= job.retry_count <= (100 if job.max_retries is None else job.max_retries)
    if job.status.leased or job.status.terminal:
        assert job.due_at is None, "no queue row while it is held or after its end"
    elif job.status in {S.PENDING, S.RETRY}:
        assert job.due_at is not None, "it starts by itself"
    if job.status.terminal:
        assert job.waits == ()
