"""Any order of calls: a store and a small model of it live through the same random histories and agree at every step."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from perdure.model.approvals import ApprovalStatus
from perdure.model.effects import close_wait, open_wait, patch_state
from perdure.model.errors import IllegalTransition, JobLeased, LeaseLost, VersionMismatch
from perdure.model.jobs import SUSPECT_AT, Job, Outcome, Wait
from perdure.model.states import TRANSITIONS, Status
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.store_model import ModelJob
from tests.conformance.support import (
    HOUR,
    KINDS,
    NOTE,
    S,
    approve,
    check_job,
    deny,
    event,
    later,
    new_approval,
    new_job,
    outcome,
    run_out,
)

T = TypeVar("T")
MOST_JOBS = 4
ENDS = [s for s in Status if s in TRANSITIONS[S.RUNNING] and not s.leased]
ENDS += [S.RETRY, S.PARKED, S.WAITING_FOR_APPROVAL] * 2  # what goes on is what can still go wrong

picks = st.integers(0, 1000)
tenants = itertools.count(1)


class StoreMachine(RuleBasedStateMachine):
    """`url` is set by the test. A tenant of its own keeps each history apart from those before it in one database."""

    url = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.jobs: list[ModelJob] = []
        self.ended: dict[UUID, Job] = {}
        self.keys = itertools.count(1)
        self.store: Store = self.run(open_store(self.url, tenant=f"t{next(tenants)}"))
        if self.url == "memory:":
            self.run(self.store.schema.migrate())

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def pick(self, n: int, wanted: Callable[[ModelJob], object] = lambda _: True) -> ModelJob | None:
        """One of the jobs that are as wanted."""
        fitting = [job for job in self.jobs if wanted(job)]
        return fitting[n % len(fitting)] if fitting else None

    # Clients ----------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.jobs) - len(self.ended) < MOST_JOBS)
    @rule(priority=st.integers(1, 9), max_retries=st.integers(0, 2), delayed=st.booleans(), several=st.booleans())
    def enqueue(self, priority: int, max_retries: int, delayed: bool, several: bool) -> None:
        delay = HOUR if delayed else 0.0
        new = [new_job(priority=priority, max_retries=max_retries, delay=delay) for _ in range(1 + several)]
        self.run(self.store.jobs.enqueue_many(new) if several else self.store.jobs.enqueue(new[0]))
        self.jobs += [ModelJob(job.id, priority, max_retries, "later" if delayed else "now") for job in new]

    @precondition(lambda self: self.jobs)
    @rule(n=picks, off_by=st.sampled_from([0, 0, 0, -1, 1]))
    def append(self, n: int, off_by: int) -> None:
        job = self.pick(n)
        assert job is not None
        call = self.store.jobs.append(job.id, len(job.types) + off_by, event())
        if job.status.terminal:
            with pytest.raises(IllegalTransition):
                self.run(call)
        elif job.lease is not None:
            with pytest.raises(JobLeased):
                self.run(call)
        elif off_by:
            with pytest.raises(VersionMismatch):
                self.run(call)
        else:
            job.types.append("note")
            assert self.run(call) == len(job.types)

    @precondition(lambda self: self.jobs)
    @rule(n=picks, force=st.booleans())
    def cancel(self, n: int, force: bool) -> None:
        job = self.pick(n)
        assert job is not None
        call = self.store.jobs.cancel(job.id, note=NOTE, force=force)
        if job.status.terminal and job.status is not S.CANCELLED:
            with pytest.raises(IllegalTransition):
                self.run(call)
        elif job.status is S.CANCELLED:
            assert self.run(call) is S.CANCELLED
        else:
            assert self.run(call) is job.cancelled(force=force)

    @precondition(lambda self: self.jobs)
    @rule(n=picks)
    def retry_now(self, n: int) -> None:
        job = self.pick(n)
        assert job is not None
        if job.status in {S.PENDING, S.RETRY}:
            self.run(self.store.jobs.retry_now(job.id, note=NOTE))
            job.made_due()
        else:
            with pytest.raises(IllegalTransition):
                self.run(self.store.jobs.retry_now(job.id, note=NOTE))

    @precondition(lambda self: self.pick(0, lambda job: job.asked))
    @rule(n=picks, denied=st.booleans())
    def decide(self, n: int, denied: bool) -> None:
        job = self.pick(n, lambda job: job.asked)
        assert job is not None
        key, approval = sorted(job.asked.items())[n % len(job.asked)]
        done = self.run(self.store.approvals.decide((deny if denied else approve)(approval)))
        assert done.status is (ApprovalStatus.DENIED if denied else ApprovalStatus.APPROVED)
        job.decided(key, denied=denied)

    # Workers ----------------------------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, MOST_JOBS), worker=st.sampled_from(["ann", "bob"]))
    def claim(self, limit: int, worker: str) -> None:
        due = sorted((job for job in self.jobs if job.due == "now"), key=lambda job: -job.priority)
        taken = self.run(self.store.leases.claim(worker_id=worker, queue="default", kinds=KINDS, limit=limit, ttl=600))
        by_id = {job.id: job for job in due}
        assert len(taken) == min(limit, len(due))
        assert sorted((by_id[t.id].priority for t in taken), reverse=True) == [job.priority for job in due[:limit]]
        for one in taken:
            job = by_id[one.id]
            assert (one.retry_count, one.lost_starts) == (job.retry_count, job.lost_starts)
            job.claimed(one.lease)
            assert one.version == len(job.types)

    @precondition(lambda self: self.pick(0, lambda job: job.lease))
    @rule(n=picks, count=st.integers(0, 3), tokens=st.integers(0, 5), wait=st.sampled_from([None, "now", "later"]))
    def record(self, n: int, count: int, tokens: int, wait: Any) -> None:
        job = self.pick(n, lambda job: job.lease)
        assert job is not None
        assert job.lease is not None
        waits = []
        if wait is not None:
            until = self.run(later(self.store, -1 if wait == "now" else HOUR))
            waits = [Wait(f"timer {next(self.keys)}", "timer", until)]
        events = [event() for _ in range(count)]
        call = self.store.leases.record(
            job.lease, events, effects=[patch_state(tokens=tokens), *(open_wait(w) for w in waits)]
        )
        if job.live is None:
            with pytest.raises(LeaseLost):
                self.run(call)
            return
        done = self.run(call)
        job.recorded(*("note" for _ in events))
        job.tokens += tokens
        job.waits.update({w.key: wait for w in waits})
        assert done == len(job.types)

    @precondition(lambda self: self.pick(0, lambda job: job.live and job.closable))
    @rule(n=picks)
    def close_wait(self, n: int) -> None:
        job = self.pick(n, lambda job: job.live and job.closable)
        assert job is not None
        assert job.lease is not None
        key = job.closable[n % len(job.closable)]
        kind = "approval" if job.waits[key] == "answered" else "timer"
        self.run(self.store.leases.record(job.lease, [event("wait_completed")], effects=[close_wait(kind, key)]))
        job.recorded("wait_completed")
        del job.waits[key]

    @precondition(lambda self: self.pick(0, lambda job: job.live))
    @rule(n=picks)
    def ask(self, n: int) -> None:
        job = self.pick(n, lambda job: job.live)
        assert job is not None
        assert job.lease is not None
        key = f"question {next(self.keys)}"
        job.asked[key] = self.run(self.store.approvals.request_approval(job.lease, new_approval(key))).id
        job.recorded("approval_requested")
        job.waits[key] = "answer"

    @precondition(lambda self: self.pick(0, lambda job: job.live))
    @rule(n=picks)
    def set_waiting(self, n: int) -> None:
        job = self.pick(n, lambda job: job.live)
        assert job is not None
        assert job.lease is not None
        waiting = job.status is S.RUNNING
        self.run(self.store.leases.set_waiting(job.lease, waiting))
        job.waiting(waiting)

    @precondition(lambda self: self.pick(0, lambda job: job.lease))
    @rule(n=picks, status=st.sampled_from(ENDS), uses_retry=st.booleans(), delayed=st.booleans())
    def finish(self, n: int, status: Status, uses_retry: bool, delayed: bool) -> None:
        job = self.pick(n, lambda job: job.lease)
        assert job is not None
        assert job.lease is not None
        if status not in TRANSITIONS[job.status]:
            status = S.PARKED
        end = outcome(status, uses_retry=uses_retry, delay=HOUR if delayed else 0.0)
        if job.live is None:
            with pytest.raises(LeaseLost):
                self.run(self.store.leases.finish(job.lease, end))
        else:
            done = self.run(self.store.leases.finish(job.lease, end))
            assert done is job.finished(status, uses_retry=uses_retry, due="later" if delayed else "now")

    @precondition(lambda self: self.pick(0, lambda job: job.stale))
    @rule(n=picks, status=st.sampled_from(ENDS))
    def write_late(self, n: int, status: Status) -> None:
        job = self.pick(n, lambda job: job.stale)
        assert job is not None
        lease = job.stale[n % len(job.stale)]
        assert self.run(self.store.leases.heartbeat([lease], ttl=600)) == set()
        for call in (
            self.store.leases.record(lease, [event()]),
            self.store.leases.finish(lease, Outcome(status, error="late")),
        ):
            with pytest.raises(LeaseLost):
                self.run(call)

    @precondition(lambda self: self.pick(0, lambda job: job.live))
    @rule(n=picks, begun=st.booleans())
    def lose(self, n: int, begun: bool) -> None:
        job = self.pick(n, lambda job: job.live)
        assert job is not None
        assert job.lease is not None
        self.run(run_out(self.store, job.lease, started=begun))
        job.expired, job.begun = True, job.begun or begun

    @rule()
    def reap(self) -> None:
        lost = [job for job in self.jobs if job.lease and job.expired]
        done = {r.job_id: (r.status, r.worker_id) for r in self.run(self.store.leases.reap(worker_id="reaper"))}
        holders = {job.id: job.lease.worker_id for job in lost if job.lease}
        crowds = {
            worker: [job for job in self.jobs if job.begun and job.lease and job.lease.worker_id == worker]
            for worker in holders.values()
        }
        spared = {job.id: job.spared(crowds[holders[job.id]]) for job in lost}
        assert done == {job.id: (job.reaped(spared=spared[job.id]), holders[job.id]) for job in lost}
        if any(spared.values()):  # they come back one after another
            self.run(asyncio.sleep(sum(1.0 if job.suspicion >= SUSPECT_AT else 0.1 for job in lost if spared[job.id])))

    # At every step ----------------------------------------------------------------------------------------------------

    @invariant()
    def store_and_model_agree(self) -> None:
        for job in self.jobs:
            if job.id not in self.ended:
                self.compare(job)

    def compare(self, model: ModelJob) -> None:
        job, events = self.run(self.store.jobs.get_job(model.id)), self.run(self.store.jobs.list_events(model.id))
        check_job(job, events)
        assert [e.type for e in events] == model.types
        assert (job.status, job.attempt, job.retry_count) == (model.status, model.attempt, model.retry_count)
        assert {w.key for w in job.waits} == set(model.waits)
        assert job.state.tokens == model.tokens
        assert (job.due_at is not None) == (model.due is not None)
        if model.lease is not None:
            assert job.lease is not None
            assert (job.lease.worker_id, job.lease.attempt) == (model.lease.worker_id, model.lease.attempt)
            assert (job.lease.cancel_requested_at is not None) == model.cancel_asked
        if job.status.terminal:
            self.ended[job.id] = job

    @precondition(lambda self: self.ended)
    @rule()
    def nothing_changes_what_has_ended(self) -> None:
        for job_id, job in self.ended.items():
            assert self.run(self.store.jobs.get_job(job_id)) == job


async def prepare(url: str) -> None:
    store = await open_store(url)
    await store.schema.migrate()
    await store.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def examples(request: pytest.FixtureRequest, fresh_store_url: Callable[[str], str]) -> Iterator[int]:
    StoreMachine.url = fresh_store_url(request.param)
    if request.param != "memory":
        asyncio.run(prepare(StoreMachine.url))
    yield {"memory": 100, "sqlite": 50, "postgres": 20}[request.param]
    StoreMachine.url = "memory:"


def test_store_and_model_agree(examples: int) -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
