"""The metrics and traces of one App, made from its settings. The extras are imported only if they are wanted."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from perdure.config import Settings
from perdure.model.errors import ExtraMissing
from perdure.observe.job_log import JobLog
from perdure.runtime.observer import Observer
from perdure.runtime.registry import Registry
from perdure.runtime.worker import Worker
from perdure.store.protocol import Store
from perdure.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from perdure.observe.metrics import Metrics
    from perdure.observe.status_server import StatusServer
    from perdure.observe.tracing import Tracing


class Observability:
    """The metrics and traces of one App; neither exists before `begin`."""

    def __init__(self, registry: CollectorRegistry | None, provider: TracerProvider | None, kinds: Registry) -> None:
        self._registry = registry
        self._provider = provider
        self._kinds = kinds
        self._metrics: Metrics | None = None
        self._tracing: Tracing | None = None
        self._job_log = JobLog()
        self.observer: Observer | None = None
        """The observer of all jobs, after `begin`; None if no metrics, traces or log of jobs are wanted."""

    def begin(self, settings: Settings) -> None:
        """Make the wanted metrics and traces, unless they exist already. Raises ExtraMissing, ConfigError."""
        found: list[Observer] = []
        if self._registry is not None:
            found.append(self._begin_metrics(self._registry, settings))
        if self._provider is not None or settings["otel"]:
            found.append(self._begin_tracing())
        if settings["log_jobs"]:
            found.append(self._job_log)
        if found:
            from perdure.observe.combined import combined

            self.observer = combined(found)

    def _begin_metrics(self, registry: CollectorRegistry, settings: Settings) -> Metrics:
        if self._metrics is None:
            try:
                from perdure.observe.metrics import Metrics
            except ModuleNotFoundError as error:
                raise _extra_missing(error, "metrics") from error
            kind_of_store = settings["database_url"].strip().partition(":")[0]
            self._metrics = Metrics(registry, self._kinds, version=__version__, store=kind_of_store)
        return self._metrics

    def _begin_tracing(self) -> Tracing:
        if self._tracing is None:
            try:
                from perdure.observe.tracing import Tracing
            except ModuleNotFoundError as error:
                raise _extra_missing(error, "otel") from error
            self._tracing = Tracing(self._provider, __version__)
        return self._tracing

    def store(self, store: Store, settings: Settings) -> Store:
        """The store to use. If there may be metrics, its calls are timed as soon as there are."""
        if self._registry is None and settings["metrics_port"] is None:
            return store
        from perdure.observe.observed_store import observed

        return observed(store, lambda: self._metrics)

    def server(self, settings: Settings) -> StatusServer | None:
        """A server for `metrics_port`, its port bound; None if that is not set. Metrics begin with it, also those of
        stores that are open already. Raises PortTaken, ExtraMissing, ConfigError.
        """
        if settings["metrics_port"] is None:
            return None
        try:
            from perdure.observe.metrics import new_registry
            from perdure.observe.status_server import StatusServer
        except ModuleNotFoundError as error:
            raise _extra_missing(error, "metrics") from error
        server = StatusServer(settings["metrics_host"], settings["metrics_port"])
        if self._registry is None:
            self._registry = new_registry()
        try:
            self.begin(settings)
        except BaseException:
            server.close()
            raise
        return server

    def serving(self, server: StatusServer, worker: Worker, store: Store) -> AbstractAsyncContextManager[None]:
        """The server answers for this worker while the context is open. Raises PerdureError."""
        assert self._metrics is not None
        return server.serving(worker, store, self._metrics)


def _extra_missing(error: ModuleNotFoundError, extra: str) -> Exception:
    module = (error.name or "").partition(".")[0]
    if module not in ("prometheus_client", "opentelemetry"):
        return error
    what = "metrics need" if extra == "metrics" else "traces need"
    return ExtraMissing(f"{what} the package {module}, which is not installed", hint=f"pip install 'perdure[{extra}]'")
