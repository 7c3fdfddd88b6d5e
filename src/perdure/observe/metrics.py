"""Metrics for Prometheus: what this process does.

`snapshot` has the metrics that are read from the database; `observed_store` measures how long the database takes. No label is an
id, a key or a text of a job, and the number of values of each is limited.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from perdure.model.approvals import Approval
from perdure.model.errors import ConfigError
from perdure.model.jobs import ClaimedJob, Enqueued, NewJob, Outcome
from perdure.model.states import Status
from perdure.model.stuck import StuckAction
from perdure.model.task_records import ToolRun
from perdure.model.tooling import RunClass
from perdure.observe.labels import Labels, call_name
from perdure.observe.snapshot import MOST_ACCOUNTS, Snapshot
from perdure.runtime.observer import Call, Sent
from perdure.runtime.registry import Registry
from perdure.runtime.worker import Worker
from perdure.store.protocol import Store

T = TypeVar("T")

MOST_NAMES = 200
"""At most this many names of steps and tools have their own series."""
MOST_KINDS = 100
"""At most this many kinds without a handler in this process have their own series."""

_WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400)
_RUNS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
_OPERATIONS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def new_registry() -> CollectorRegistry:
    """A registry for a worker's own endpoint, with the metrics of its process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class Metrics:
    """An observer that counts; see `runtime.observer.Observer` for its methods."""

    def __init__(self, registry: CollectorRegistry, kinds: Registry, *, version: str, store: str) -> None:
        """Register everything; version and store are for build_info.

        Raises ConfigError if another App's metrics are in this registry already.
        """
        self.registry = registry
        kind = Labels(MOST_KINDS, lambda name: kinds.find(name) is not None)
        name = Labels(MOST_NAMES)
        try:
            self._build_info = _Series(Gauge, registry, "build_info", "Always 1.", ("version", "store"))
            self._made = _Series(
                Counter, registry, "jobs_created", "Jobs enqueued by this process.", ("kind",), (kind,)
            )
            self._done = _Series(
                Counter, registry, "jobs_finished", "Jobs ended by this process.", ("kind", "outcome"), (kind,)
            )
            self._queue_wait = _Series(
                Histogram, registry, "job_queue_wait_seconds", "From due to the start of an attempt.",
                ("kind",), (kind,), buckets=_WAITS,
            )  # fmt: skip
            self._ran = _Series(
                Histogram, registry, "job_duration_seconds", "How long attempts ran.",
                ("kind", "outcome"), (kind,), buckets=_RUNS,
            )  # fmt: skip
            self._retries = _Series(
                Counter, registry, "job_retries", "Attempts that used a retry.", ("kind", "reason"), (kind,)
            )
            self._stuck = _Series(
                Counter,
                registry,
                "jobs_stuck",
                "Jobs that made no progress, by what was done.",
                ("kind", "action"),
                (kind,),
            )
            self._steps = _Series(Counter, registry, "steps", "Steps, by how they went.", ("name", "outcome"), (name,))
            self._step_ran = _Series(
                Histogram, registry, "step_duration_seconds", "How long steps ran, with their retries.",
                ("name",), (name,), buckets=_RUNS,
            )  # fmt: skip
            self._tools = _Series(
                Counter, registry, "tool_calls", "Calls of tools, by how they went.", ("name", "outcome"), (name,)
            )
            self._renewals = _Series(Counter, registry, "lease_renewals", "Leases to be renewed.", ("outcome",))
            self._expired = _Series(
                Counter, registry, "leases_expired", "Jobs this process took from lost workers.", ("outcome",)
            )
            self._conflicts = _Series(
                Counter, registry, "event_append_conflicts", "Writes to a log that were refused.", ("outcome",)
            )
            self._tokens = _Series(Counter, registry, "tokens", "Tokens reported by ctx.usage.", ("kind",), (kind,))
            self._cost = _Series(Counter, registry, "cost_usd", "Cost reported by ctx.usage.", ("kind",), (kind,))
            self._cli_runs = _Series(
                Counter, registry, "cli_runs", "Runs of coding CLIs, by class.", ("tool", "class"), (Labels(50),)
            )
            self._cli_ran = _Series(
                Histogram, registry, "cli_run_duration_seconds", "How long they ran.",
                ("tool",), (Labels(50),), buckets=_RUNS,
            )  # fmt: skip
            self._throttled = _Series(
                Counter, registry, "account_throttled", "Runs that met a limit of their account.",
                ("account",), (Labels(MOST_ACCOUNTS),),
            )  # fmt: skip
            self._operations = _Series(
                Histogram, registry, "store_op_duration_seconds", "How long calls of the store took.",
                ("op",), buckets=_OPERATIONS,
            )  # fmt: skip
            self._errors = _Series(
                Counter, registry, "store_errors", "Calls of the store that failed.", ("op", "error")
            )
            self._slots = Gauge("perdure_worker_slots_max", "Jobs this worker runs at once.", registry=registry)
            self._slots_used = Gauge("perdure_worker_slots_used", "Jobs it runs now.", registry=registry)
            self._hung = Gauge(
                "perdure_worker_hung_calls", "Calls that go on though their attempt has ended.", registry=registry
            )
            self._blocked = Gauge(
                "perdure_worker_loop_blocks", "How often the event loop of this worker stood still.", registry=registry
            )
            self._starved = Gauge(
                "perdure_worker_thread_wait_seconds",
                "How long plain functions have waited for a thread while none became free.",
                registry=registry,
            )
            self.snapshot = Snapshot(registry, kinds, kind)
        except ValueError as error:
            raise ConfigError(
                f"the metrics of another App are in this registry already: {error}",
                hint="give each App a CollectorRegistry of its own",
            ) from None
        self._build_info(version, store).set(1)
        for outcome in ("renewed", "lost"):
            self._renewals(outcome)
        for status in (Status.RETRY, Status.DEADLETTER, Status.CANCELLED):
            self._expired(status)

    def watch(self, worker: Worker) -> None:
        """Show the slots and the hanging calls of this worker."""
        self._slots.set(worker.options.concurrency)
        self._slots_used.set_function(lambda: worker.busy)
        self._hung.set_function(lambda: worker.hung)
        self._blocked.set_function(lambda: worker.blocked)
        self._starved.set_function(lambda: worker.starved)

    # -- as an observer ------------------------------------------------------------------------------------------------

    def sending(self, jobs: Sequence[NewJob]) -> tuple[Sequence[NewJob], Sent]:
        def sent(how: Sequence[Enqueued] | BaseException) -> None:
            for job, ack in () if isinstance(how, BaseException) else zip(jobs, how, strict=True):
                if ack.created:
                    self._made(job.kind).inc()

        return jobs, sent

    async def attempt_started(self, claimed: ClaimedJob, store: Store, *, waited: float) -> None:  # noqa: ARG002  protocol
        self._queue_wait(claimed.kind).observe(waited)

    async def attempt_ending(self, claimed: ClaimedJob, outcome: Outcome, store: Store) -> None:
        pass

    def attempt_ended(self, claimed: ClaimedJob, outcome: Outcome | None, status: Status | None) -> None:
        if outcome is None or status is None:
            return  # its lease was lost: counted by the renewals
        if status.terminal:
            self._done(claimed.kind, status).inc()
        elif status is Status.RETRY and outcome.uses_retry:
            self._retries(claimed.kind, outcome.error_kind or "app").inc()
        elif status is Status.RETRY and outcome.reason in ("store_unreachable", "session_changed"):
            self._retries(claimed.kind, outcome.reason).inc()
        if outcome.started:
            self._ran(claimed.kind, status).observe(outcome.ran)

    async def call(self, claimed: ClaimedJob, what: Call, key: str, work: Awaitable[T]) -> T:  # noqa: ARG002  protocol
        cut_off = "cancelled" if what == "step" else "unknown"
        outcome = cut_off
        began = time.perf_counter()
        try:
            value = await work
            outcome = "completed"
        except Exception as error:
            outcome = cut_off if what == "tool" and isinstance(error, TimeoutError) else "failed"
            raise
        finally:
            name = call_name(key)
            if what == "step":
                self._step_ran(name).observe(time.perf_counter() - began)
                self._steps(name, outcome).inc()
            else:
                self._tools(name, outcome).inc()
        return value

    def replayed(self, claimed: ClaimedJob, what: Call, key: str) -> None:  # noqa: ARG002  protocol
        (self._steps if what == "step" else self._tools)(call_name(key), "replayed").inc()

    def approval_requested(self, claimed: ClaimedJob, approval: Approval) -> None:
        pass  # counted by the database: see `snapshot`

    def approval_decided(self, claimed: ClaimedJob, approval: Approval) -> None:
        pass

    def usage(self, claimed: ClaimedJob, tokens: int, cost: Decimal) -> None:
        if tokens:
            self._tokens(claimed.kind).inc(tokens)
        if cost:
            self._cost(claimed.kind).inc(float(cost))

    def stuck(self, claimed: ClaimedJob, action: StuckAction) -> None:
        self._stuck(claimed.kind, action).inc()

    def tool_run(self, claimed: ClaimedJob, run: ToolRun) -> None:  # noqa: ARG002  protocol
        self._cli_runs(run.tool, run.run.outcome).inc()
        self._cli_ran(run.tool).observe(run.run.seconds)
        if run.run.outcome is RunClass.RATE_LIMITED:
            self._throttled(run.account_id or "none").inc()

    # -- what the store does -------------------------------------------------------------------------------------------

    def took(self, op: str, seconds: float) -> None:
        """A call of the store returned or raised."""
        self._operations(op).observe(seconds)

    def failed(self, op: str, error: str) -> None:
        """A call of the store failed, not because of its arguments."""
        self._errors(op, error).inc()

    def conflict(self, outcome: str) -> None:
        """A write to a job's log was refused: `version-mismatch`, `job-leased` or `lease-lost`."""
        self._conflicts(outcome).inc()

    def renewed(self, kept: int, lost: int) -> None:
        """A heartbeat renewed some leases and found others lost."""
        self._renewals("renewed").inc(kept)
        self._renewals("lost").inc(lost)

    def reaped(self, kind: str, status: Status) -> None:
        """A job was taken from a lost worker."""
        self._expired(status).inc()
        if status.terminal:
            self._done(kind, status).inc()
        else:
            self._retries(kind, "lease_lost").inc()


class _Series:
    """One metric; a call returns the child of these label values. It is kept here because Prometheus' own lookup takes a lock."""

    def __init__(
        self,
        type: Callable[..., Any],
        registry: CollectorRegistry,
        name: str,
        says: str,
        labels: tuple[str, ...],
        bounds: tuple[Labels, ...] = (),
        **more: Any,
    ) -> None:
        self._metric = type(f"perdure_{name}", says, labels, registry=registry, **more)
        self._bounds = bounds
        self._children: dict[tuple[str, ...], Any] = {}

    def __call__(self, *values: str) -> Any:
        if self._bounds:
            values = (self._bounds[0](values[0]), *values[1:])
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._metric.labels(*map(str, values))
        return child
