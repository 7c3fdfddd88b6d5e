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
from perdure.model.workers import WorkerCommand
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


class MortalStore:
    """A store until `die` is called; after that nothing its worker still does is written, and what it holds stays leased."""

    def __init__(self, store: Store, watch: Watch, fate: Fate | None, *, died: Callable[[], None]) -> None:
        self._store = store
        self._watch = watch
        self._fate = fate
        self._died = died
        self._held: dict[UUID, Lease] = {}
        self._dead = asyncio.Event()
        self.doomed = False
        """True from the moment nothing more is written."""

    @property
    def leases(self) -> Any:
        """The role, with what its worker writes cut off."""
        return self

    @property
    def approvals(self) -> Any:
        """The role, with what its worker writes cut off."""
        return self

    @property
    def workers(self) -> Any:
        """The role, with what its worker writes cut off."""
        return self

    def __getattr__(self, name: str) -> Any:  # what only reads
        return getattr(self._store, name)

    def die(self) -> None:
        """Cut the worker off."""
        if not self._dead.is_set():
            self.doomed = True
            self._dead.set()
            self._died()

    async def bury(self, lease: float) -> None:
        """Let the leases of the dead run out in so many seconds, as after their last heartbeat."""
        await self._store.leases.heartbeat(list(self._held.values()), ttl=lease)

    # -- what an attempt writes ----------------------------------------------------------------------------------------

    async def record(self, lease: Lease, events: Sequence[NewEvent], **more: Any) -> int:
        """See `protocol.LeaseStore.record`."""
        async with self._writing(lease):
            recorded = await self._store.leases.record(lease, events, **more)
        for event in events:
            payload = json.loads(event.payload)
            await self._tell_fate(lease, event.type, payload.get("key") if isinstance(payload, dict) else None)
        return recorded

    async def request_approval(self, lease: Lease, approval: NewApproval) -> Approval:
        """See `protocol.ApprovalStore.request_approval`."""
        async with self._writing(lease):
            stored = await self._store.approvals.request_approval(lease, approval)
        await self._tell_fate(lease, "approval_requested", approval.key)
        return stored

    async def replace_token(self, approval_id: UUID, token_hash: str) -> Approval:
        """See `protocol.ApprovalStore.replace_token`."""
        if self.doomed:
            raise StoreUnreachable("this worker is dead")
        return await self._store.approvals.replace_token(approval_id, token_hash)

    async def set_waiting(self, lease: Lease, waiting: bool) -> None:
        """See `protocol.LeaseStore.set_waiting`."""
        async with self._writing(lease):
            await self._store.leases.set_waiting(lease, waiting)

    async def finish(self, lease: Lease, outcome: Outcome) -> Status:
        """See `protocol.LeaseStore.finish`."""
        if not self.doomed and outcome.status.terminal:
            await self._tell_fate(lease, "returned", None)
        async with self._writing(lease):
            self._watch.starting.discard(lease.job_id)  # given back before it began
            status = await self._store.leases.finish(lease, outcome)
            self._held.pop(lease.job_id, None)
        return status

    @asynccontextmanager
    async def _writing(self, lease: Lease) -> AsyncIterator[None]:
        await self._refuse_doomed(lease)
        self._watch.writing += 1
        self._watch.stirs += 1
        try:
            yield
        finally:
            self._watch.writing -= 1
            self._watch.stirs += 1
        await self._refuse_doomed(lease)

    async def _refuse_doomed(self, lease: Lease) -> None:
        if self.doomed:
            await self._dead.wait()
            raise lease_lost(lease)  # the runtime knows how to end an attempt that may write no more

    async def _tell_fate(self, lease: Lease, type: str, key: str | None) -> None:
        if self._fate is not None and self._fate.reached(lease.job_id, type, key):
            self.doomed = True
            await self._watch.no_calls(LAST_BREATH)
            self.die()
            raise lease_lost(lease)

    # -- what a worker does --------------------------------------------------------------------------------------------

    async def claim(self, **options: Any) -> list[ClaimedJob]:
        """See `protocol.LeaseStore.claim`."""
        if self.doomed:
            return []
        self._watch.writing += 1
        try:
            claimed = await self._store.leases.claim(**options)
        finally:
            self._watch.writing -= 1
        self._held |= {job.id: job.lease for job in claimed}
        self._watch.starting |= {job.id for job in claimed}
        self._watch.stirs += bool(claimed)
        return claimed

    async def heartbeat(self, leases: Sequence[Lease], **options: Any) -> set[UUID]:
        """See `protocol.LeaseStore.heartbeat`."""
        return set() if self.doomed else await self._store.leases.heartbeat(leases, **options)

    async def reap(self, **options: Any) -> list[Reaped]:
        """See `protocol.LeaseStore.reap`."""
        return [] if self.doomed else await self._store.leases.reap(**options)

    async def expire(self, **options: Any) -> int:
        """See `protocol.LeaseStore.expire`."""
        return 0 if self.doomed else await self._store.leases.expire(**options)

    async def beat_worker(self, worker_id: str, **options: Any) -> WorkerCommand | None:
        """See `protocol.WorkerStore.beat_worker`."""
        return None if self.doomed else await self._store.workers.beat_worker(worker_id, **options)


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
