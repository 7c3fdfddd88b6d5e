"""The contract of a store, a file per role. Every method's docstring is its specification; `tests/conformance` tests each store
against it.

Promises common to all methods
- A method that changes anything has committed when it returns, and has changed nothing when it raises. If the connection is
  lost during the commit, the method looks whether it committed; its docstring says how.
- One transaction per transition: status, event, lease, queue row, run row, waits and approvals change together.
- Times are database time, UTC. Durations are seconds. JSON is passed as text and is stored as that exact text.
- A store serves one tenant; rows of other tenants do not exist for it.
- Writes of a worker carry its `Lease` in their WHERE; if the lease is not the live one they raise `LeaseLost`.
- `note` is JSON text saying who, via what and why: {"actor": ..., "via": ..., "reason": ...}.
"""

from __future__ import annotations

from perdure.store.protocol.accounts import AccountStore
from perdure.store.protocol.agents import AgentStore
from perdure.store.protocol.approvals import ApprovalStore
from perdure.store.protocol.checks import CheckStore
from perdure.store.protocol.children import ChildStore
from perdure.store.protocol.documents import DocumentStore
from perdure.store.protocol.figures import FigureStore
from perdure.store.protocol.files import FileStore
from perdure.store.protocol.hints import HintStore, Listener, Topic
from perdure.store.protocol.jobs import JobStore
from perdure.store.protocol.leases import LeaseStore
from perdure.store.protocol.limits import LimitStore
from perdure.store.protocol.memories import MemoryStore
from perdure.store.protocol.queues import QueueStore
from perdure.store.protocol.retention import RetentionStore
from perdure.store.protocol.schedules import ScheduleStore
from perdure.store.protocol.schema import Migration, SchemaStatus, SchemaStore
from perdure.store.protocol.signals import SignalStore
from perdure.store.protocol.store import Store
from perdure.store.protocol.tool_runs import ToolRunStore
from perdure.store.protocol.workers import WorkerStore

__all__ = [
    "AccountStore",
    "AgentStore",
    "ApprovalStore",
    "CheckStore",
    "ChildStore",
    "DocumentStore",
    "FigureStore",
    "FileStore",
    "HintStore",
    "JobStore",
    "LeaseStore",
    "LimitStore",
    "Listener",
    "MemoryStore",
    "Migration",
    "QueueStore",
    "RetentionStore",
    "ScheduleStore",
    "SchemaStatus",
    "SchemaStore",
    "SignalStore",
    "Store",
    "ToolRunStore",
    "Topic",
    "WorkerStore",
]
