"""All roles of a store together: what `open_store` returns."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from perdure.model.timing import Clock
from perdure.store.protocol.accounts import AccountStore
from perdure.store.protocol.agents import AgentStore
from perdure.store.protocol.approvals import ApprovalStore
from perdure.store.protocol.checks import CheckStore
from perdure.store.protocol.children import ChildStore
from perdure.store.protocol.documents import DocumentStore
from perdure.store.protocol.figures import FigureStore
from perdure.store.protocol.files import FileStore
from perdure.store.protocol.hints import HintStore
from perdure.store.protocol.jobs import JobStore
from perdure.store.protocol.leases import LeaseStore
from perdure.store.protocol.limits import LimitStore
from perdure.store.protocol.memories import MemoryStore
from perdure.store.protocol.queues import QueueStore
from perdure.store.protocol.retention import RetentionStore
from perdure.store.protocol.schedules import ScheduleStore
from perdure.store.protocol.schema import SchemaStore
from perdure.store.protocol.signals import SignalStore
from perdure.store.protocol.tool_runs import ToolRunStore
from perdure.store.protocol.workers import WorkerStore


class Store(Protocol):
    """One tenant's view of a database, as one object per role. Views share connections; a view is cheap and immutable."""

    @property
    def schema(self) -> SchemaStore:
        """The schema."""
        ...

    @property
    def jobs(self) -> JobStore:
        """What clients do with jobs."""
        ...

    @property
    def leases(self) -> LeaseStore:
        """What workers do with jobs."""
        ...

    @property
    def approvals(self) -> ApprovalStore:
        """Approvals and questions to people."""
        ...

    @property
    def signals(self) -> SignalStore:
        """Signals to jobs."""
        ...

    @property
    def agents(self) -> AgentStore:
        """Agents and their messages."""
        ...

    @property
    def accounts(self) -> AccountStore:
        """The accounts of coding CLIs."""
        ...

    @property
    def files(self) -> FileStore:
        """The input and output files of jobs."""
        ...

    @property
    def tool_runs(self) -> ToolRunStore:
        """The runs of coding CLIs."""
        ...

    @property
    def workers(self) -> WorkerStore:
        """The rows of workers."""
        ...

    @property
    def children(self) -> ChildStore:
        """Jobs that jobs have spawned."""
        ...

    @property
    def limits(self) -> LimitStore:
        """The limits of concurrency keys."""
        ...

    @property
    def schedules(self) -> ScheduleStore:
        """Jobs that are started by themselves."""
        ...

    @property
    def queues(self) -> QueueStore:
        """Pauses of queues."""
        ...

    @property
    def memories(self) -> MemoryStore:
        """Long-term memory."""
        ...

    @property
    def documents(self) -> DocumentStore:
        """Documents: what the adapters of other libraries keep."""
        ...

    @property
    def retention(self) -> RetentionStore:
        """Deleting finished jobs, and the leaders of chores."""
        ...

    @property
    def figures(self) -> FigureStore:
        """Figures for dashboards and alerts."""
        ...

    @property
    def checks(self) -> CheckStore:
        """What fsck reads and repairs."""
        ...

    @property
    def hints(self) -> HintStore:
        """Hints between processes."""
        ...

    @property
    def tenant_id(self) -> str:
        """The tenant whose rows this view reads and writes."""
        ...

    @property
    def clock(self) -> Clock:
        """Runs at the same rate as database time: callers measure with it how far away a moment of database time is."""
        ...

    def tenant(self, tenant_id: str) -> Store:
        """The view of another tenant, over the same connections. It takes no connection and no lock, so there may be many."""
        ...

    async def now(self) -> datetime:
        """Database time, UTC: the clock by which leases, timers, backoff and expiry are judged."""
        ...

    async def close(self) -> None:
        """Finish the writes that have begun, then release every connection, of all views. A second call does nothing."""
        ...
