"""The store as one worker of a test sees it: it can be cut off from it in the middle of its work, as by SIGKILL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol
from uuid import UUID

from perdure.model.approvals import Approval, NewApproval
from perdure.model.errors import StoreUnreachable
from perdure.model.events import NewEvent
from perdure.model.jobs import ClaimedJob, Lease, Outcome, Reaped
from perdure.model.states import Status
from perdure.model.workers import WorkerCommand, WorkerInfo
from perdure.store.errors import lease_lost
from perdure.store.protocol import Store, Topic
from perdure.testing.attempt_monitor import Watch

LAST_BREATH = 1.0
"""Seconds of real time a worker that is to die lets functions end that parallel branches have called: so their outcome is known
to us, although not to the database."""


class Fate(Protocol):
    """Decides when a worker dies."""

    def reached(self, job_id: UUID, type: str, key: str | None) -> bool:
        """An attempt of this job has just committed an event of this type, or (`returned`) is about to commit its end. True
        kills its worker now."""
        ...


_READS: dict[str, frozenset[str]] = {
    "schema": frozenset({"check_schema", "schema_status"}),
    "jobs": frozenset({"get_job", "find_job", "list_jobs", "count_jobs", "list_runs", "list_events", "standing"}),
    "leases": frozenset({"next_due", "cancel_requests", "read_wait"}),
    "approvals": frozenset({"get_approval", "find_approval", "list_approvals"}),
    "workers": frozenset({"list_workers"}),
    "retention": frozenset({"list_prunable"}),
    "figures": frozenset({"snapshot", "decided", "sizes"}),
    "hints": frozenset({"listen"}),
}
"""The calls of each role that only read: they pass. A write that is not written out below is refused."""


class MortalStore:
    """A store until `die` is called; after that nothing its worker still does is written, and what it holds stays leased."""

    def __init__(self, store: Store, watch: Watch, fate: Fate | None, *, died: Callable[[], None]) -> None:
        self.tenant_id, self.clock = store.tenant_id, store.clock
        self.now = store.now
        life = _Life(store, watch, fate, died)
        self._life = life
        self._store = store
        self.leases = _MortalLeases(life, store)
        self.approvals = _MortalApprovals(life, store)
        self.workers = _MortalWorkers(life, store)
        self.schema = _Reads("schema", store)
        self.jobs = _Reads("jobs", store)
        self.retention = _Reads("retention", store)
        self.figures = _Reads("figures", store)
        self.hints = _Reads("hints", store)

    @property
    def doomed(self) -> bool:
        """True from the moment nothing more is written."""
        return self._life.doomed

    def die(self) -> None:
        """Cut the worker off."""
        self._life.die()

    async def bury(self, lease: float) -> None:
        """Let the leases of the dead run out in so many seconds, as after their last heartbeat."""
        await self._store.leases.heartbeat(list(self._life.held.values()), ttl=lease)


class _Life:
    """Whether the worker is still alive, and what it holds."""

    def __init__(self, store: Store, watch: Watch, fate: Fate | None, died: Callable[[], None]) -> None:
        self.store = store
        self.watch = watch
        self.held: dict[UUID, Lease] = {}
        self.doomed = False
        self._fate = fate
        self._died = died
        self._dead = asyncio.Event()

    def die(self) -> None:
        """Cut the worker off."""
        if not self._dead.is_set():
            self.doomed = True
            self._dead.set()
            self._died()

    @asynccontextmanager
    async def writing(self, lease: Lease) -> AsyncIterator[None]:
        """A write of this attempt. Raises LeaseLost, at its beginning or its end, if the worker is dead."""
        await self._refuse_doomed(lease)
        self.watch.writing += 1
        self.watch.stirs += 1
        try:
            yield
        finally:
            self.watch.writing -= 1
            self.watch.stirs += 1
        await self._refuse_doomed(lease)

    async def _refuse_doomed(self, lease: Lease) -> None:
        if self.doomed:
            await self._dead.wait()
            raise lease_lost(lease)  # the runtime knows how to end an attempt that may write no more

    async def tell_fate(self, lease: Lease, type: str, key: str | None) -> None:
        """An attempt has just committed an event of this type. Raises LeaseLost if its worker is killed now."""
        if self._fate is not None and self._fate.reached(lease.job_id, type, key):
            self.doomed = True
            await self.watch.no_calls(LAST_BREATH)
            self.die()
            raise lease_lost(lease)


class _Reads:
    """What only reads, of one role."""

    def __init__(self, role: str, store: Store) -> None:
        self._role = role
        self._calls = getattr(store, role)

    def __getattr__(self, name: str) -> Any:
        if name not in _READS[self._role]:
            raise NotImplementedError(f"the store of a worker that may be killed does not know {self._role}.{name}")
        return getattr(self._calls, name)


class _MortalLeases(_Reads):
    def __init__(self, life: _Life, store: Store) -> None:
        super().__init__("leases", store)
        self._life = life
        self._leases = store.leases

    async def record(self, lease: Lease, events: Sequence[NewEvent], **more: Any) -> int:
        """See `protocol.LeaseStore.record`."""
        async with self._life.writing(lease):
            recorded = await self._leases.record(lease, events, **more)
        for event in events:
            payload = json.loads(event.payload)
            await self._life.tell_fate(lease, event.type, payload.get("key") if isinstance(payload, dict) else None)
        return recorded

    async def set_waiting(self, lease: Lease, waiting: bool) -> None:
        """See `protocol.LeaseStore.set_waiting`."""
        async with self._life.writing(lease):
            await self._leases.set_waiting(lease, waiting)

    async def finish(self, lease: Lease, outcome: Outcome, **more: Any) -> Status:
        """See `protocol.LeaseStore.finish`."""
        life = self._life
        if not life.doomed and outcome.status.terminal:
            await life.tell_fate(lease, "returned", None)
        async with life.writing(lease):
            life.watch.starting.discard(lease.job_id)  # given back before it began
            status = await self._leases.finish(lease, outcome, **more)
            life.held.pop(lease.job_id, None)
        return status

    async def claim(self, **options: Any) -> list[ClaimedJob]:
        """See `protocol.LeaseStore.claim`."""
        life = self._life
        if life.doomed:
            return []
        life.watch.writing += 1
        try:
            claimed = await self._leases.claim(**options)
        finally:
            life.watch.writing -= 1
        life.held |= {job.id: job.lease for job in claimed}
        life.watch.starting |= {job.id for job in claimed}
        life.watch.stirs += bool(claimed)
        return claimed

    async def heartbeat(self, leases: Sequence[Lease], **options: Any) -> set[UUID]:
        """See `protocol.LeaseStore.heartbeat`."""
        return set() if self._life.doomed else await self._leases.heartbeat(leases, **options)

    async def reap(self, **options: Any) -> list[Reaped]:
        """See `protocol.LeaseStore.reap`."""
        return [] if self._life.doomed else await self._leases.reap(**options)

    async def expire(self, **options: Any) -> int:
        """See `protocol.LeaseStore.expire`."""
        return 0 if self._life.doomed else await self._leases.expire(**options)


class _MortalApprovals(_Reads):
    def __init__(self, life: _Life, store: Store) -> None:
        super().__init__("approvals", store)
        self._life = life
        self._approvals = store.approvals

    async def request_approval(self, lease: Lease, approval: NewApproval) -> Approval:
        """See `protocol.ApprovalStore.request_approval`."""
        async with self._life.writing(lease):
            stored = await self._approvals.request_approval(lease, approval)
        await self._life.tell_fate(lease, "approval_requested", approval.key)
        return stored

    async def replace_token(self, approval_id: UUID, token_hash: str) -> Approval:
        """See `protocol.ApprovalStore.replace_token`."""
        if self._life.doomed:
            raise StoreUnreachable("this worker is dead")
        return await self._approvals.replace_token(approval_id, token_hash)


class _MortalWorkers(_Reads):
    def __init__(self, life: _Life, store: Store) -> None:
        super().__init__("workers", store)
        self._life = life
        self._workers = store.workers

    async def register_worker(self, info: WorkerInfo) -> None:
        """See `protocol.WorkerStore.register_worker`."""
        if not self._life.doomed:
            await self._workers.register_worker(info)

    async def beat_worker(self, worker_id: str, **options: Any) -> WorkerCommand | None:
        """See `protocol.WorkerStore.beat_worker`."""
        return None if self._life.doomed else await self._workers.beat_worker(worker_id, **options)


class StrangersStore:
    """A store for the users in another event loop than its own: they hear no hints, so they poll; and they cannot close it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def hints(self) -> Any:
        """Hints that never come."""
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @asynccontextmanager
    async def listen(self, topic: Topic) -> AsyncIterator[Deaf]:  # noqa: ARG002  there is nothing to hear of any
        """See `protocol.HintStore.listen`."""
        yield Deaf()

    async def close(self) -> None:
        """Leave it open for the others."""


class Deaf:
    """A listener that hears nothing."""

    async def wait(self, timeout: float) -> bool:
        """See `protocol.Listener.wait`."""
        await asyncio.sleep(min(timeout, 0.05))
        return False
