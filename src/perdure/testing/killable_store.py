"""The store as one worker of a test sees it: the worker can be cut off in the middle of its work, as by SIGKILL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol
from uuid import UUID

from perdure.model.account_choice import AccountChoice
from perdure.model.agents import NewAgent, NewState
from perdure.model.approvals import Approval, NewApproval
from perdure.model.budgets import Amounts
from perdure.model.documents import DocumentRange, NewDocument
from perdure.model.errors import PerdureError, StoreUnreachable
from perdure.model.events import NewEvent
from perdure.model.jobs import ClaimedJob, Lease, Outcome, Reaped
from perdure.model.shared_budgets import Reserved
from perdure.model.signals import TakenSignals
from perdure.model.states import Status
from perdure.model.task_records import NewFile, OutputChunk
from perdure.model.workers import WorkerCommand, WorkerInfo
from perdure.store.errors import lease_lost
from perdure.store.protocol import Store
from perdure.store.protocol.blobs import Readable
from perdure.store.protocol.schedules import Due
from perdure.testing.attempt_monitor import AttemptMonitor
from perdure.testing.store_reads import READS

LAST_CALLS = 1.0
"""Seconds of real time for functions that parallel branches have called to end before a worker is killed: then the test knows
their outcome, although the database does not."""


class KillRule(Protocol):
    """Decides when a worker is killed."""

    def reached(self, job_id: UUID, type: str, key: str | None) -> bool:
        """An attempt of this job has just committed an event of this type, or (`returned`) is about to commit its end. True
        kills its worker now."""
        ...


class KillableStore:
    """A store until `kill` is called; after that nothing its worker still does is written, and what it holds stays leased."""

    def __init__(
        self, store: Store, monitor: AttemptMonitor, rule: KillRule | None, *, on_kill: Callable[[], None]
    ) -> None:
        self.tenant_id, self.clock = store.tenant_id, store.clock
        self.now = store.now
        switch = _KillSwitch(store, monitor, rule, on_kill)
        self._switch = switch
        self._store = store
        self.leases = _KillableLeases(switch, store)
        self.approvals = _KillableApprovals(switch, store)
        self.workers = _KillableWorkers(switch, store)
        self.agents = _KillableAgents(switch, store)
        self.accounts = _KillableAccounts(switch, store)
        self.files = _KillableFiles(switch, store)
        self.tool_runs = _KillableToolRuns(switch, store)
        self.schema = _Reads("schema", store)
        self.jobs = _KillableJobs(switch, store)
        self.children = _KillableChildren(switch, store)
        self.limits = _KillableLimits(switch, store)
        self.signals = _KillableSignals(switch, store)
        self.schedules = _KillableSchedules(store)
        self.queues = _Reads("queues", store)
        self.memories = _KillableMemories(switch, store)
        self.documents = _KillableDocuments(switch, store)
        self.retention = _Reads("retention", store)
        self.figures = _Reads("figures", store)
        self.checks = _Reads("checks", store)
        self.hints = _Reads("hints", store)

    @property
    def killed(self) -> bool:
        """True from the moment nothing more is written."""
        return self._switch.killed

    def kill(self) -> None:
        """Cut the worker off."""
        self._switch.kill()

    async def expire_leases(self, lease: float) -> None:
        """Let the leases of the killed worker expire in `lease` seconds, as after its last heartbeat."""
        await self._store.leases.heartbeat(list(self._switch.held.values()), ttl=lease)


class _KillSwitch:
    """Whether the worker was killed, and what it holds."""

    def __init__(
        self, store: Store, monitor: AttemptMonitor, rule: KillRule | None, on_kill: Callable[[], None]
    ) -> None:
        self.store = store
        self.monitor = monitor
        self.held: dict[UUID, Lease] = {}
        self.killed = False
        self._rule = rule
        self._on_kill = on_kill
        self._cut_off = asyncio.Event()

    def kill(self) -> None:
        """Cut the worker off."""
        if not self._cut_off.is_set():
            self.killed = True
            self._cut_off.set()
            self._on_kill()

    @asynccontextmanager
    async def writing(self, lease: Lease) -> AsyncIterator[None]:
        """A write of this attempt. Raises LeaseLost, at its beginning or its end, if the worker was killed."""
        await self._refuse_killed(lease)
        self.monitor.writing += 1
        self.monitor.activity += 1
        try:
            yield
        finally:
            self.monitor.writing -= 1
            self.monitor.activity += 1
        await self._refuse_killed(lease)

    async def _refuse_killed(self, lease: Lease) -> None:
        if self.killed:
            await self._cut_off.wait()
            raise lease_lost(lease)  # the runtime knows how to end an attempt that may write no more

    async def check_kill(self, lease: Lease, type: str, key: str | None) -> None:
        """An attempt has just committed an event of this type. Raises LeaseLost if its worker is killed now."""
        if self._rule is not None and self._rule.reached(lease.job_id, type, key):
            self.killed = True
            await self.monitor.no_calls(LAST_CALLS)
            self.kill()
            raise lease_lost(lease)


class _Reads:
    """One role of the store, of which only the reads pass."""

    def __init__(self, role: str, store: Store) -> None:
        self._role = role
        self._calls = getattr(store, role)

    def __getattr__(self, name: str) -> Any:
        if name not in READS.get(self._role, ()):
            raise NotImplementedError(f"the store of a worker that may be killed does not know {self._role}.{name}")
        return getattr(self._calls, name)


class _KillableJobs(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("jobs", store)
        self._switch = switch
        self._jobs = store.jobs

    async def cancel(self, job_id: UUID, **options: Any) -> Status:
        """See `protocol.JobStore.cancel`."""
        if self._switch.killed:
            raise StoreUnreachable("this worker was killed")
        return await self._jobs.cancel(job_id, **options)


class _KillableChildren(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("children", store)
        self._switch = switch
        self._children = store.children

    async def forget_cancelled(self, parent_id: UUID) -> None:
        """See `protocol.ChildStore.forget_cancelled`."""
        if not self._switch.killed:
            await self._children.forget_cancelled(parent_id)


class _KillableLimits(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("limits", store)
        self._switch = switch
        self._limits = store.limits

    async def reserve_budget(self, lease: Lease, key: str, scopes: Sequence[str], need: Amounts) -> Reserved:
        """See `protocol.LimitStore.reserve_budget`."""
        async with self._switch.writing(lease):
            return await self._limits.reserve_budget(lease, key, scopes, need)

    async def fold_budgets(self) -> int:
        """See `protocol.LimitStore.fold_budgets`."""
        return 0 if self._switch.killed else await self._limits.fold_budgets()

    async def say_rate(self, key: str, per_minute: int) -> None:
        """See `protocol.LimitStore.say_rate`."""
        if not self._switch.killed:
            await self._limits.say_rate(key, per_minute)


class _KillableSchedules(_Reads):
    def __init__(self, store: Store) -> None:
        super().__init__("schedules", store)

    async def due_schedules(self, **options: Any) -> list[Due]:
        """None: the kit itself fires schedules, as time passes."""
        del options
        return []


class _KillableLeases(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("leases", store)
        self._switch = switch
        self._leases = store.leases

    async def record(self, lease: Lease, events: Sequence[NewEvent], **more: Any) -> int:
        """See `protocol.LeaseStore.record`."""
        async with self._switch.writing(lease):
            recorded = await self._leases.record(lease, events, **more)
        for event in events:
            payload = json.loads(event.payload)
            await self._switch.check_kill(lease, event.type, payload.get("key") if isinstance(payload, dict) else None)
        return recorded

    async def set_waiting(self, lease: Lease, waiting: bool) -> None:
        """See `protocol.LeaseStore.set_waiting`."""
        async with self._switch.writing(lease):
            await self._leases.set_waiting(lease, waiting)

    async def finish(self, lease: Lease, outcome: Outcome, **more: Any) -> Status:
        """See `protocol.LeaseStore.finish`."""
        switch = self._switch
        if not switch.killed and outcome.status.terminal:
            await switch.check_kill(lease, "returned", None)
        async with switch.writing(lease):
            switch.monitor.starting.discard(lease.job_id)  # given back before it began
            status = await self._leases.finish(lease, outcome, **more)
            switch.held.pop(lease.job_id, None)
        return status

    async def finish_many(self, ends: Sequence[tuple[Lease, Outcome]]) -> list[Status | Exception]:
        """See `protocol.LeaseStore.finish_many`. A worker may be killed between any two of them."""
        results: list[Status | Exception] = []
        for lease, outcome in ends:
            try:
                results.append(await self.finish(lease, outcome))
            except PerdureError as error:
                results.append(error)
        return results

    async def claim(self, **options: Any) -> list[ClaimedJob]:
        """See `protocol.LeaseStore.claim`."""
        switch = self._switch
        if switch.killed:
            return []
        switch.monitor.writing += 1
        try:
            claimed = await self._leases.claim(**options)
        finally:
            switch.monitor.writing -= 1
        switch.held |= {job.id: job.lease for job in claimed}
        switch.monitor.starting |= {job.id for job in claimed}
        switch.monitor.activity += bool(claimed)
        return claimed

    async def heartbeat(self, leases: Sequence[Lease], **options: Any) -> set[UUID]:
        """See `protocol.LeaseStore.heartbeat`."""
        return set() if self._switch.killed else await self._leases.heartbeat(leases, **options)

    async def reap(self, **options: Any) -> list[Reaped]:
        """See `protocol.LeaseStore.reap`."""
        return [] if self._switch.killed else await self._leases.reap(**options)

    async def release_held(self, **options: Any) -> int:
        """See `protocol.LeaseStore.release_held`."""
        return 0 if self._switch.killed else await self._leases.release_held(**options)

    async def recheck_held(self) -> int:
        """See `protocol.LeaseStore.recheck_held`."""
        return 0 if self._switch.killed else await self._leases.recheck_held()

    async def expire(self, **options: Any) -> int:
        """See `protocol.LeaseStore.expire`."""
        return 0 if self._switch.killed else await self._leases.expire(**options)


class _KillableApprovals(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("approvals", store)
        self._switch = switch
        self._approvals = store.approvals

    async def request_approval(self, lease: Lease, approval: NewApproval) -> Approval:
        """See `protocol.ApprovalStore.request_approval`."""
        async with self._switch.writing(lease):
            stored = await self._approvals.request_approval(lease, approval)
        await self._switch.check_kill(lease, "approval_requested", approval.key)
        return stored

    async def replace_token(self, approval_id: UUID, token_hash: str) -> Approval:
        """See `protocol.ApprovalStore.replace_token`."""
        if self._switch.killed:
            raise StoreUnreachable("this worker was killed")
        return await self._approvals.replace_token(approval_id, token_hash)


class _KillableWorkers(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("workers", store)
        self._switch = switch
        self._workers = store.workers

    async def register_worker(self, info: WorkerInfo) -> None:
        """See `protocol.WorkerStore.register_worker`."""
        if not self._switch.killed:
            await self._workers.register_worker(info)

    async def beat_worker(self, worker_id: str, **options: Any) -> WorkerCommand | None:
        """See `protocol.WorkerStore.beat_worker`."""
        return None if self._switch.killed else await self._workers.beat_worker(worker_id, **options)


class _KillableAgents(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("agents", store)
        self._switch = switch
        self._agents = store.agents

    async def create_agent(self, agent: NewAgent) -> bool:
        """See `protocol.AgentStore.create_agent`."""
        return not self._switch.killed and await self._agents.create_agent(agent)

    async def save_state(self, lease: Lease, new: NewState) -> int:
        """See `protocol.AgentStore.save_state`."""
        async with self._switch.writing(lease):
            version = await self._agents.save_state(lease, new)
        await self._switch.check_kill(lease, "session_saved", new.key)
        return version

    async def deliver(self, agent_id: str) -> int:
        """See `protocol.AgentStore.deliver`."""
        return 0 if self._switch.killed else await self._agents.deliver(agent_id)


class _KillableSignals(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("signals", store)
        self._switch = switch
        self._signals = store.signals

    async def take_signals(self, lease: Lease, agent_id: str | None, key: str, event_id: str) -> TakenSignals:
        """See `protocol.SignalStore.take_signals`."""
        async with self._switch.writing(lease):
            taken = await self._signals.take_signals(lease, agent_id, key, event_id)
        await self._switch.check_kill(lease, "signals_taken", key)
        return taken


class _KillableDocuments(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("documents", store)
        self._switch = switch
        self._documents = store.documents

    async def change_documents(
        self, *, put: Sequence[NewDocument] = (), remove: Sequence[DocumentRange] = (), lease: Lease | None = None
    ) -> int:
        """See `protocol.DocumentStore.change_documents`."""
        if lease is None:
            return 0 if self._switch.killed else await self._documents.change_documents(put=put, remove=remove)
        async with self._switch.writing(lease):
            return await self._documents.change_documents(put=put, remove=remove, lease=lease)


class _KillableMemories(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("memories", store)
        self._switch = switch
        self._memories = store.memories

    async def change_memories(self, **changes: Any) -> None:
        """See `protocol.MemoryStore.change_memories`."""
        if self._switch.killed:
            raise StoreUnreachable("this worker was killed")
        await self._memories.change_memories(**changes)

    async def index_vectors(self) -> bool:
        """See `protocol.MemoryStore.index_vectors`."""
        return not self._switch.killed and await self._memories.index_vectors()


class _KillableAccounts(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("accounts", store)
        self._switch = switch
        self._accounts = store.accounts

    async def take_account(self, lease: Lease, tool: str, **options: Any) -> AccountChoice:
        """See `protocol.AccountStore.take_account`."""
        async with self._switch.writing(lease):
            return await self._accounts.take_account(lease, tool, **options)

    async def park_account(self, account_id: str, seconds: float, reason: str) -> None:
        """See `protocol.AccountStore.park_account`."""
        if not self._switch.killed:
            await self._accounts.park_account(account_id, seconds, reason)

    async def note_probe(self, account_id: str, *, accepted: bool) -> bool:
        """See `protocol.AccountStore.note_probe`."""
        return not self._switch.killed and await self._accounts.note_probe(account_id, accepted=accepted)


class _KillableFiles(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("files", store)
        self._switch = switch
        self._files = store.files

    async def keep(self, path: str, source: Readable, **options: Any) -> NewFile:
        """See `protocol.FileStore.keep`. Nothing refers to what it keeps."""
        return await self._files.keep(path, source, **options)

    async def add_outputs(self, lease: Lease, files: Sequence[NewFile]) -> None:
        """See `protocol.FileStore.add_outputs`."""
        async with self._switch.writing(lease):
            await self._files.add_outputs(lease, files)


class _KillableToolRuns(_Reads):
    def __init__(self, switch: _KillSwitch, store: Store) -> None:
        super().__init__("tool_runs", store)
        self._switch = switch
        self._runs = store.tool_runs

    async def append_output(self, lease: Lease, chunks: Sequence[OutputChunk]) -> None:
        """See `protocol.ToolRunStore.append_output`."""
        async with self._switch.writing(lease):
            await self._runs.append_output(lease, chunks)
