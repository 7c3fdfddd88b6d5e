"""Metrics read from the database: unfinished jobs, pending approvals, workers.

They are the same in every process that shows them (take the max, not the sum). A scrape reads them, at most every ten seconds,
and less often if reading takes long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from perdure.model.errors import PerdureError
from perdure.model.figures import Figures
from perdure.model.states import Status
from perdure.model.task_records import AccountInfo
from perdure.model.workers import WorkerInfo
from perdure.observe.labels import Labels
from perdure.runtime.registry import Registry
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.metrics")

KEPT = 10.0
"""Seconds for which values are shown before they are read again."""
MOST_SHARE = 0.02
"""The share of time that is spent on reading, at most."""
RETRY_AFTER = 60.0
"""Seconds until the database is read again after it did not answer, at most."""
SCRAPE_TIMEOUT = 5.0
"""Seconds that a scrape waits for the database; after that it shows only the metrics of this process."""
LOST_FOR = timedelta(hours=1)
"""A worker without a heartbeat that did not stop in order is shown as LOST for this long."""
OVERLAP = timedelta(seconds=10)
"""A decision may be committed this long after its own time."""
MOST_ACCOUNTS = 200
"""At most this many accounts have their own series."""
MOST_DECISIONS = 10_000
LIVE = tuple(s for s in Status if not s.terminal)

_ASKED = (10, 30, 60, 300, 900, 3600, 14400, 43200, 86400, 259200, 604800)


class Snapshot(Collector):
    """The values that were read last; `refresh` reads them again."""

    def __init__(self, registry: CollectorRegistry, kinds: Registry, kind: Labels) -> None:
        self._kinds = kinds
        self._kind = kind
        self._queue = Labels(100)
        self._via = Labels(20)
        self._figures: Figures | None = None
        self._workers: Sequence[WorkerInfo] = ()
        self._accounts: Sequence[AccountInfo] = ()
        self._good_until = 0.0
        self._lock = asyncio.Lock()
        self._counted_from: datetime | None = None
        self._counted: dict[UUID, datetime] = {}
        self._decisions = Counter(
            "perdure_approval_decisions",
            "Answers to approvals, by any process, since this process started.",
            ("decision", "channel"),
            registry=registry,
        )
        self._asked = Histogram(
            "perdure_approval_wait_seconds", "From question to answer.", registry=registry, buckets=_ASKED
        )
        registry.register(self)

    async def begin(self, store: Store) -> None:
        """Count decisions from now on. Raises PerdureError."""
        self._counted_from = await store.now()

    async def refresh(self, store: Store) -> None:
        """Read the values, unless they were read a moment ago. If the database does not answer, they are left out."""
        async with self._lock:
            began = time.monotonic()
            if began < self._good_until:
                return
            try:
                async with asyncio.timeout(SCRAPE_TIMEOUT):
                    figures, workers = await store.figures.snapshot(), await store.workers.list_workers()
                    accounts = await store.accounts.list_accounts()
                    await self._count_decisions(store, figures.at)
                self._figures, self._workers, longest = figures, workers, float("inf")
                self._accounts = accounts
            except (PerdureError, TimeoutError) as error:
                log.warning("the database's figures are left out", error=str(error) or "no answer")
                self._figures, longest = None, RETRY_AFTER
            took = time.monotonic() - began
            self._good_until = began + max(KEPT, min(took / MOST_SHARE, longest))

    async def _count_decisions(self, store: Store, now: datetime) -> None:
        if self._counted_from is None:
            self._counted_from = now
            return
        since = self._counted_from
        for decided in await store.figures.decided(since, limit=MOST_DECISIONS):
            if decided.approval_id not in self._counted:
                self._counted[decided.approval_id] = decided.at
                self._decisions.labels(decided.status, self._via(decided.via or "unknown")).inc()
                self._asked.observe(decided.waited)
        self._counted_from = max(since, now - OVERLAP)
        self._counted = {id: at for id, at in self._counted.items() if at >= self._counted_from}

    # -- as a collector ------------------------------------------------------------------------------------------------

    def describe(self) -> Iterable[Metric]:
        """The names, for the registry."""
        return self._families()

    def collect(self) -> Iterable[Metric]:
        """The values that were read last; none before the first reading, or while the database does not answer."""
        return () if self._figures is None else self._filled(self._figures)

    def _families(self) -> tuple[GaugeMetricFamily, ...]:
        return (
            GaugeMetricFamily("perdure_jobs", "Unfinished jobs.", labels=("kind", "status")),
            GaugeMetricFamily(
                "perdure_oldest_ready_job_age_seconds",
                "How long the job that has been due longest has waited for a worker.",
                labels=("kind", "queue"),
            ),
            GaugeMetricFamily("perdure_approvals_pending", "Approvals that are not decided."),
            GaugeMetricFamily(
                "perdure_oldest_pending_approval_age_seconds", "Since the oldest of them was requested."
            ),
            GaugeMetricFamily(
                "perdure_workers", "Workers that serve a queue; LOST: without a heartbeat for up to an hour.",
                labels=("state", "queue"),
            ),
            GaugeMetricFamily(
                "perdure_worker_heartbeat_age_seconds", "Since the oldest last heartbeat of a worker.", labels=("state",)
            ),
            GaugeMetricFamily(
                "perdure_account_slots_used", "Tasks that run under an account: its live leases.", labels=("account",)
            ),
            GaugeMetricFamily("perdure_account_slots_max", "Tasks that may run under it.", labels=("account",)),
        )  # fmt: skip

    def _filled(self, figures: Figures) -> tuple[GaugeMetricFamily, ...]:
        families = jobs, oldest, pending, oldest_asked, workers, heartbeat, used, most = self._families()
        for info in self._accounts[:MOST_ACCOUNTS]:
            used.add_metric((info.account.id,), info.used)
            most.add_metric((info.account.id,), info.account.max_concurrency if info.account.enabled else 0)
        counts = {(h.name, status): 0 for h in self._kinds for status in LIVE}
        ages = {(h.name, self._queue(h.policy.queue)): 0.0 for h in self._kinds}
        for live in figures.jobs:
            kind, queue = self._kind(live.kind), self._queue(live.queue)
            counts[kind, live.status] = counts.get((kind, live.status), 0) + live.count
            ages[kind, queue] = max(ages.get((kind, queue), 0.0), live.oldest_ready or 0.0)
        for (kind, status), count in counts.items():
            jobs.add_metric((kind, status.value), count)
        for (kind, queue), age in ages.items():
            oldest.add_metric((kind, queue), age)
        pending.add_metric((), figures.approvals_pending)
        oldest_asked.add_metric((), figures.oldest_approval or 0.0)
        serving: dict[tuple[str, str], int] = {}
        silent: dict[str, float] = {}
        for worker, state in self._present(figures.at):
            silent[state] = max(silent.get(state, 0.0), (figures.at - worker.heartbeat_at).total_seconds())
            for queue in {self._queue(queue) for queue in worker.queues}:
                serving[state, queue] = serving.get((state, queue), 0) + 1
        for (state, queue), count in serving.items():
            workers.add_metric((state, queue), count)
        for state, age in silent.items():
            heartbeat.add_metric((state,), age)
        return families

    def _present(self, now: datetime) -> Iterator[tuple[WorkerInfo, str]]:
        for worker in self._workers:
            if worker.alive:
                yield worker, worker.state.value
            elif now - worker.heartbeat_at < LOST_FOR:
                yield worker, "LOST"
