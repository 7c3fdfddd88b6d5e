"""A store that says how long its calls take and how they end."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from perdure.model.errors import JobLeased, LeaseLost, PerdureError, StoreError, VersionMismatch
from perdure.store.protocol import Store

if TYPE_CHECKING:
    from perdure.observe.metrics import Metrics

OPERATIONS = tuple(name for name, member in inspect.getmembers(Store) if inspect.iscoroutinefunction(member))
"""Every call of the protocol that is awaited."""

CONFLICTS = (VersionMismatch, JobLeased, LeaseLost)


def observed(store: Store, metrics: Metrics) -> Store:
    """The store, its calls timed and its errors counted; what it returns and raises is left as it is."""
    return store if isinstance(store, _Observed) else cast("Store", _Observed(store, metrics))


class _Observed:
    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self.tenant, self.clock = store.tenant, store.clock  # asked for often
        more: dict[str, Callable[..., None]] = {"heartbeat": self._heartbeat, "reap": self._reap}
        for op in OPERATIONS:
            setattr(self, op, self._timed(op, getattr(store, op), more.get(op)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _timed(self, op: str, call: Callable[..., Any], heard: Callable[..., None] | None) -> Callable[..., Any]:
        metrics = self._metrics

        async def timed(*args: Any, **kwargs: Any) -> Any:
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
                raise  # an answer
            except Exception as error:
                metrics.failed(op, type(error).__name__)
                raise
            finally:
                metrics.took(op, time.perf_counter() - began)
            if heard is not None:
                heard(result, *args)
            return result

        return timed

    def _heartbeat(self, kept: Any, leases: Any) -> None:
        self._metrics.renewed(len(kept), len(leases) - len(kept))

    def _reap(self, reaped: Any) -> None:
        for job in reaped:
            self._metrics.reaped(job.kind, job.status)
