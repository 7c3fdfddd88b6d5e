"""Metrics: every event is counted once, under labels that cannot multiply without end."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from perdure import App, Fail, JobContext, Request, Retry, Status, __version__
from perdure.model.errors import ConfigError, JobLeased, LeaseLost, StoreUnreachable, VersionMismatch
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease
from perdure.observe import snapshot as snapshots
from perdure.observe.labels import OTHER, Labels, call_name
from perdure.observe.metrics import MOST_NAMES, Metrics
from perdure.observe.observed_store import ROLES, observed, operations
from perdure.store.protocol import Store
from tests.conformance.support import later, passed
from tests.runtime.conftest import Place
from tests.runtime.support import (
    LONG,
    NOW,
    PATIENCE,
    check_every_job,
    ended,
    pending,
    reached,
    take_away,
    until,
    working,
)

NAP = 1.0
"""Seconds a job sleeps for, too long for a worker that does not linger."""


class Meters:
    """A registry and what it says."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def __call__(self, name: str, /, **labels: str) -> float | None:
        """A sample; None where there is no such series."""
        return self.registry.get_sample_value(f"perdure_{name}", labels)

    def series(self, name: str) -> dict[tuple[str, ...], float]:
        """The values of all samples of this name, by their labels."""
        samples = (s for metric in self.registry.collect() for s in metric.samples if s.name == f"perdure_{name}")
        return {tuple(s.labels.values()): s.value for s in samples}


@pytest.fixture
def meters() -> Meters:
    return Meters()


@pytest.fixture
async def metered(place: Place, meters: Meters) -> AsyncIterator[App]:
    """As `app`, with metrics."""
    async with App(place.url, tenant=place.tenant, migrate=True, metrics=meters.registry) as app:
        yield app
        await check_every_job(app)


def metrics_of(app: App) -> Metrics:
    """The one observer of an App that has no traces."""
    observer = app.backend.observer
    assert isinstance(observer, Metrics)
    return observer


async def test_what_becomes_of_jobs(metered: App, meters: Meters) -> None:
    app = metered

    @app.job(backoff=NOW)
    async def work(ctx: JobContext, how: str) -> str:
        if how == "retries" and ctx.retry_count < 2:
            raise Retry("again", after=0)
        if how == "fails":
            raise Fail("no")
        if how == "dies":
            raise ValueError("a bug")
        return how

    @app.job(timeout=0.05, max_retries=1, backoff=NOW)
    async def slow(ctx: JobContext) -> None:
        await asyncio.sleep(60)

    async with working(app):
        for how in ("works", "works", "retries", "fails"):
            await ended(app, await app.enqueue(work, how))
        await ended(app, await app.enqueue(work, "dies", max_retries=0))
        await ended(app, await app.enqueue(slow))
        same = [await app.enqueue(work, "works", idempotency_key="k") for _ in range(2)]
        await ended(app, same[0])
        assert meters.series("jobs_created_total") == {("work",): 6, ("slow",): 1}
        await until(lambda: sum(meters.series("jobs_finished_total").values()) == 7)
    assert meters.series("jobs_finished_total") == {
        ("work", "COMPLETED"): 4,
        ("work", "FAILED"): 1,
        ("work", "DEADLETTER"): 1,
        ("slow", "DEADLETTER"): 1,
    }
    assert meters.series("job_retries_total") == {("work", "app"): 2, ("slow", "timeout"): 1}
    assert meters.series("job_queue_wait_seconds_count") == {("work",): 8, ("slow",): 2}
    assert meters.series("job_duration_seconds_count") == {
        ("work", "COMPLETED"): 4,
        ("work", "RETRY"): 2,
        ("work", "FAILED"): 1,
        ("work", "DEADLETTER"): 1,
        ("slow", "RETRY"): 1,
        ("slow", "DEADLETTER"): 1,
    }
    assert (meters("job_duration_seconds_sum", kind="slow", outcome="RETRY") or 0) >= 0.05


async def test_the_wait_for_a_worker_is_measured_from_due(metered: App, meters: Meters) -> None:
    @metered.job
    async def work(ctx: JobContext) -> None:
        return None

    handle = await metered.enqueue(work, delay=0.3)
    async with working(metered, concurrency=1):
        await ended(metered, handle)
    waited = meters("job_queue_wait_seconds_sum", kind="work")
    job = await handle.get()
    assert job.started_at is not None
    assert waited is not None
    assert (job.started_at - job.run_at).total_seconds() - 0.002 <= waited < 20
    assert job.run_at - job.created_at >= timedelta(seconds=0.29)


async def test_jobs_that_wait_in_the_buffer_wait_for_a_worker_too(metered: App, meters: Meters) -> None:
    release = asyncio.Event()

    @metered.job
    async def work(ctx: JobContext, n: int) -> None:
        if n == 0:
            await release.wait()

    handles = await metered.enqueue_many([Request(work, n) for n in range(2)])
    async with working(metered, concurrency=1) as worker:
        await until(lambda: worker.busy == 1)
        assert meters("worker_slots_used") == 0, "shown where a worker is served"
        await asyncio.sleep(0.3)
        release.set()
        for handle in handles:
            await ended(metered, handle)
    assert (meters("job_queue_wait_seconds_sum", kind="work") or 0) >= 0.29


async def test_steps_and_tools(metered: App, meters: Meters) -> None:
    app = metered

    @app.job(max_retries=0)
    async def work(ctx: JobContext, how: str) -> None:
        await ctx.step("one", str, 1)
        await ctx.options(key="a").step("read", str, 1)
        await ctx.options(key="b").step("read", str, 1)
        await ctx.step("one", str, 1)
        await ctx.sleep("nap", NAP)
        await ctx.tool("post", str, 1)
        if how == "fails":
            await ctx.step("breaks", breaks)
        if how == "tool":
            await ctx.tool("send", breaks)
        if how == "late":
            await ctx.options(timeout=0.05).tool("slow", asyncio.sleep, 60)

    async def breaks() -> None:
        raise ValueError("a bug")

    async with working(app, linger=0):
        for how in ("works", "fails", "tool", "late"):
            await ended(app, await app.enqueue(work, how))
    steps = meters.series("steps_total")
    assert {k: v for k, v in steps.items() if k[1] != "replayed"} == {
        ("one", "completed"): 8,
        ("read", "completed"): 8,
        ("breaks", "failed"): 1,
    }
    assert steps["one", "replayed"] == steps["read", "replayed"] == 8
    assert meters("step_duration_seconds_count", name="read") == 8, "a replay takes no time"
    assert meters.series("tool_calls_total") == {
        ("post", "completed"): 4,
        ("send", "failed"): 1,
        ("slow", "unknown"): 1,
    }


async def test_a_step_that_is_cut_off_is_no_failure(metered: App, meters: Meters) -> None:
    entered = asyncio.Event()

    @metered.job
    async def work(ctx: JobContext) -> None:
        await ctx.step("hangs", hang)

    async def hang() -> None:
        entered.set()
        await asyncio.sleep(3600)

    async with working(metered):
        handle = await metered.enqueue(work)
        await asyncio.wait_for(entered.wait(), PATIENCE)
        await handle.cancel()
        await ended(metered, handle)
        await until(lambda: meters("jobs_finished_total", kind="work", outcome="CANCELLED") == 1)
    assert meters.series("steps_total") == {("hangs", "cancelled"): 1}


async def test_tokens_and_cost(metered: App, meters: Meters) -> None:
    @metered.job
    async def work(ctx: JobContext) -> None:
        await ctx.usage(tokens=100, cost=0.25)
        await ctx.usage(tokens=20)

    async with working(metered):
        await ended(metered, await metered.enqueue(work))
    assert meters.series("tokens_total") == {("work",): 120}
    assert meters.series("cost_usd_total") == {("work",): 0.25}


async def test_leases(metered: App, meters: Meters) -> None:
    entered, taken = asyncio.Event(), asyncio.Event()

    @metered.job(backoff=NOW)
    async def work(ctx: JobContext) -> str:
        del ctx
        if not taken.is_set():  # a loaded machine may lose the lease by itself
            entered.set()
            await asyncio.sleep(3600)
        return "done"

    store = await metered.open()
    async with working(metered, lease=1):
        handle = await metered.enqueue(work)
        await asyncio.wait_for(entered.wait(), PATIENCE)
        await until(lambda: (meters("lease_renewals_total", outcome="renewed") or 0) >= 2, what="heartbeats")
        taken.set()
        lease = await take_away(store, handle)
        assert await store.leases.heartbeat([lease], ttl=1) == set()
        assert await handle.result(PATIENCE) == "done"
    assert (meters("lease_renewals_total", outcome="lost") or 0) >= 1
    expired = meters("leases_expired_total", outcome="RETRY")
    assert expired
    assert meters("job_retries_total", kind="work", reason="lease_lost") == expired
    assert meters("jobs_finished_total", kind="work", outcome="COMPLETED") == 1


async def test_writes_that_are_refused(metered: App, meters: Meters) -> None:
    app = metered
    entered = asyncio.Event()

    @app.job
    async def work(ctx: JobContext) -> None:
        entered.set()
        await asyncio.sleep(3600)

    delayed = await app.enqueue(work, delay=LONG)
    with pytest.raises(VersionMismatch):
        await app.jobs.append(delayed.id, 7, "mine")
    async with working(app):
        handle = await app.enqueue(work)
        await asyncio.wait_for(entered.wait(), PATIENCE)
        with pytest.raises(JobLeased):
            await app.jobs.append(handle.id, 2, "mine")
        await app.jobs.cancel(handle.id, force=True)
        stale = Lease(handle.id, 1, "somebody")
        with pytest.raises(LeaseLost):
            await (await app.open()).leases.record(stale, [NewEvent("mine")])
    await app.jobs.cancel(delayed.id)
    conflicts = meters.series("event_append_conflicts_total")
    assert (conflicts["version-mismatch",], conflicts["job-leased",]) == (1, 1)
    assert conflicts["lease-lost",] >= 1
    assert meters.series("store_errors_total") == {}, "an answer is no error"


async def test_the_store_is_timed_and_its_errors_counted(
    metered: App, meters: Meters, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await metered.open()
    await store.now()
    [job] = [await metered.enqueue("work", elsewhere=True)]
    assert meters("store_op_duration_seconds_count", op="now") == 1
    assert meters("store_op_duration_seconds_count", op="enqueue") == 1
    assert (meters("store_op_duration_seconds_sum", op="enqueue") or 0) > 0
    await job.cancel()
    bare: Store = store._store  # type: ignore[attr-defined]  # the one beneath

    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnreachable("gone")

    monkeypatch.setattr(bare.jobs, "list_jobs", away)
    other = metrics_of(metered)
    with pytest.raises(StoreUnreachable):
        await observed(bare, lambda: other).jobs.list_jobs(None, limit=1)  # type: ignore[arg-type]  # it does not get that far
    assert meters.series("store_errors_total") == {("list_jobs", "store-unreachable"): 1}
    monkeypatch.undo()
    timed = {name for _, role in ROLES for name in operations(role)} | set(operations(Store))
    assert {"claim", "finish", "heartbeat", "record", "snapshot", "migrate", "now", "close"} <= timed
    assert "listen" not in timed
    assert observed(store, lambda: other) is store, "no call is timed twice"


async def test_what_only_the_database_knows(metered: App, meters: Meters, monkeypatch: pytest.MonkeyPatch) -> None:
    app, store = metered, await metered.open()
    shown = metrics_of(app).snapshot

    @app.job
    async def asks(ctx: JobContext) -> None:
        await ctx.approve("ok", title="Ok?")

    assert meters.series("jobs") == {}, "nothing is said before it was asked"
    await shown.begin(store)
    async with working(app, queues=("default", "more")) as worker:
        handle = await app.enqueue(asks)
        approval = await pending(app, handle)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        await app.enqueue("elsewhere", queue="far", elsewhere=True)
        await passed(store, await later(store, 0.005))
        await shown.refresh(store)
        assert meters("jobs", kind="asks", status="WAITING_FOR_APPROVAL") == 1
        assert meters("jobs", kind="asks", status="RUNNING") == 0, "a kind that is known is never absent"
        assert meters("jobs", kind="elsewhere", status="PENDING") == 1
        assert meters("approvals_pending") == 1
        assert 0 < (meters("oldest_pending_approval_age_seconds") or 0) < 60
        assert meters("oldest_ready_job_age_seconds", kind="asks", queue="default") == 0
        assert 0 < (meters("oldest_ready_job_age_seconds", kind="elsewhere", queue="far") or 0) < 60
        assert meters.series("workers") == {("RUNNING", "default"): 1, ("RUNNING", "more"): 1}
        assert 0 <= (meters("worker_heartbeat_age_seconds", state="RUNNING") or -1) < 15
        assert meters("approval_wait_seconds_count") == 0

        await app.approve(approval.id, by="ann")
        await ended(app, handle)
        await shown.refresh(store)
        assert meters("approvals_pending") == 1, "kept for ten seconds"
        monkeypatch.setattr(shown, "_good_until", 0.0)
        await shown.refresh(store)
        assert meters("approvals_pending") == 0
        assert meters.series("approval_decisions_total") == {("APPROVED", "python"): 1}
        monkeypatch.setattr(shown, "_good_until", 0.0)
        await shown.refresh(store)
        assert meters.series("approval_decisions_total") == {("APPROVED", "python"): 1}, "each is counted once"
        assert meters("approval_wait_seconds_count") == 1
        [left] = (await app.jobs.list(kind="elsewhere")).items
        await app.jobs.cancel(left.id)
    assert not worker.working
    monkeypatch.setattr(shown, "_good_until", 0.0)
    await shown.refresh(store)
    assert meters.series("workers") == {}


async def test_a_database_that_does_not_answer_leaves_the_rest(
    metered: App, meters: Meters, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await metered.open()
    shown = metrics_of(metered).snapshot

    @metered.job
    async def work(ctx: JobContext) -> None:
        return None

    await shown.refresh(store)
    assert meters.series("jobs") != {}

    async def away() -> None:
        raise StoreUnreachable("gone")

    async def silent() -> None:
        await asyncio.sleep(3600)

    for figures in (away, silent):
        monkeypatch.setattr(snapshots, "SCRAPE_TIMEOUT", 0.05)
        monkeypatch.setattr(store.figures, "snapshot", figures)
        monkeypatch.setattr(shown, "_good_until", 0.0)
        await shown.refresh(store)
        assert meters.series("jobs") == {}, "what is old is not shown as if it were new"
        assert meters("build_info", version=__version__, store=place_of(metered)) == 1
    monkeypatch.undo()
    monkeypatch.setattr(shown, "_good_until", 0.0)
    await shown.refresh(store)
    assert meters.series("jobs") != {}


def place_of(app: App) -> str:
    return str(app.settings["database_url"]).partition(":")[0]


def test_labels_do_not_multiply() -> None:
    labels = Labels(2, lambda value: value == "known")
    assert [labels(v) for v in ("a", "b", "c", "a", "known", "d")] == ["a", "b", OTHER, "a", "known", OTHER]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("search", "search"),
        ("search#2", "search"),
        ("read[part 1]", "read"),
        ("read[a[0]]#12", "read"),
        ("read[line 1\nline 2]", "read"),
        ("tag #2 later", "tag #2 later"),
        ("[x] first", "[x] first"),
        ("[x] first[1]", OTHER),
    ],
)
def test_the_name_of_a_call(key: str, name: str) -> None:
    assert call_name(key) == name


async def test_step_names_made_of_data_do_not_multiply(metered: App, meters: Meters) -> None:
    @metered.job
    async def work(ctx: JobContext) -> None:
        for n in range(MOST_NAMES + 50):
            await ctx.step(f"read {n}", str, n)

    async with working(metered):
        await ended(metered, await metered.enqueue(work))
    steps = meters.series("steps_total")
    assert len(steps) == MOST_NAMES + 1
    assert steps[OTHER, "completed"] == 50


async def test_one_registry_has_room_for_one_app(meters: Meters) -> None:
    async with App("memory:", metrics=meters.registry):
        with pytest.raises(ConfigError, match="another App"):
            await App("memory:", metrics=meters.registry).open()


async def test_what_is_not_installed_is_named(meters: Meters, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith(("prometheus_client", "perdure.observe."))]:
        if name not in ("perdure.observe.setup", "perdure.observe.tracing"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError) as refused:
        await App("memory:", metrics=meters.registry).open()
    assert refused.value.code == "extra-missing"
    assert refused.value.hint == "pip install 'perdure[metrics]'"
