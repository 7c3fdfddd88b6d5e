"""A store that measures how long its calls take, and counts how they end."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from perdure.model.errors import JobLeased, LeaseLost, PerdureError, StoreError, VersionMismatch
from perdure.store.protocol import (
    AccountStore,
    AgentStore,
    ApprovalStore,
    CheckStore,
    ChildStore,
    DocumentStore,
    FigureStore,
    FileStore,
    HintStore,
    JobStore,
    LeaseStore,
    LimitStore,
    MemoryStore,
    QueueStore,
    RetentionStore,
    ScheduleStore,
    SchemaStore,
    SignalStore,
    Store,
    ToolRunStore,
    WorkerStore,
)

if TYPE_CHECKING:
    from perdure.observe.metrics import Metrics

MetricsSource: TypeAlias = "Callable[[], Metrics | None]"
"""The metrics, or None while nothing is measured."""

ROLES: tuple[tuple[str, type], ...] = (
    ("schema", SchemaStore),
    ("jobs", JobStore),
    ("leases", LeaseStore),
    ("approvals", ApprovalStore),
    ("signals", SignalStore),
    ("agents", AgentStore),
    ("accounts", AccountStore),
    ("files", FileStore),
    ("tool_runs", ToolRunStore),
    ("workers", WorkerStore),
    ("children", ChildStore),
    ("limits", LimitStore),
    ("schedules", ScheduleStore),
    ("queues", QueueStore),
    ("memories", MemoryStore),
    ("documents", DocumentStore),
    ("retention", RetentionStore),
    ("figures", FigureStore),
    ("checks", CheckStore),
    ("hints", HintStore),
)
"""The roles of a store by the name of their attribute."""


def operations(role: type) -> tuple[str, ...]:
    """The async methods of a role, which are timed."""
    return tuple(name for name, member in inspect.getmembers(role) if inspect.iscoroutinefunction(member))


def other_calls(role: type) -> tuple[str, ...]:
    """The other methods of a role, which are passed on."""
    return tuple(
        name
        for name, member in inspect.getmembers(role)
        if inspect.isfunction(member) and not inspect.iscoroutinefunction(member) and not name.startswith("_")
    )


CONFLICTS = (VersionMismatch, JobLeased, LeaseLost)


def observed(store: Store, metrics: MetricsSource) -> Store:
    """The store, its calls timed and its errors counted if there are metrics; results and errors do not change."""
    return store if isinstance(store, _Observed) else cast("Store", _Observed(store, metrics))


class _Observed:
    """Passes on only what is in the protocol, so that no call is forgotten."""

    def __init__(self, store: Store, metrics: MetricsSource) -> None:
        self._store = store
        self._metrics = metrics
        self.tenant_id, self.clock = store.tenant_id, store.clock  # read often
        for name, role in ROLES:
            setattr(self, name, _ObservedRole(getattr(store, name), role, metrics))
        own = _ObservedRole(store, Store, metrics)
        self.now, self.close = own.now, own.close

    def tenant(self, tenant_id: str) -> Store:
        """See `protocol.Store.tenant`."""
        return observed(self._store.tenant(tenant_id), self._metrics)


class _ObservedRole:
    now: Callable[..., Any]
    close: Callable[..., Any]

    def __init__(self, calls: Any, role: type, metrics: MetricsSource) -> None:
        self._metrics = metrics
        more: dict[str, Callable[..., None]] = {
            "finish_many": self._finish_many,
            "heartbeat": self._heartbeat,
            "reap": self._reap,
        }
        for op in operations(role):
            setattr(self, op, self._timed(op, getattr(calls, op), more.get(op)))
        for name in other_calls(role):
            setattr(self, name, getattr(calls, name))

    def _timed(self, op: str, call: Callable[..., Any], count: Callable[..., None] | None) -> Callable[..., Any]:
        current = self._metrics

        async def timed(*args: Any, **kwargs: Any) -> Any:
            metrics = current()
            if metrics is None:
                return await call(*args, **kwargs)
            began = time.perf_counter()
            try:
                result = await call(*args, **kwargs)
            except CONFLICTS as refused:
                metrics.conflict(refused.code)
                raise
            except StoreError as error:
                metrics.failed(op, error.code)
                raise
            except PerdureError:
                raise  # refused for its arguments: no failure of the store
            except Exception as error:
                metrics.failed(op, type(error).__name__)
                raise
            finally:
                metrics.took(op, time.perf_counter() - began)
            if count is not None:
                count(metrics, result, *args)
            return result

        return timed

    def _finish_many(self, metrics: Metrics, results: Any, *_: Any) -> None:
        for result in results:
            if isinstance(result, CONFLICTS):
                metrics.conflict(result.code)
            elif isinstance(result, StoreError):
                metrics.failed("finish_many", result.code)

    def _heartbeat(self, metrics: Metrics, kept: Any, leases: Any) -> None:
        metrics.renewed(len(kept), len(leases) - len(kept))

    def _reap(self, metrics: Metrics, reaped: Any) -> None:
        for job in reaped:
            metrics.reaped(job.kind, job.status)
