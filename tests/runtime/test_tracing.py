"""Traces: what hangs on what, across waits, crashes and processes."""

import asyncio
import contextvars
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanContext, SpanKind, StatusCode
from prometheus_client import CollectorRegistry

from perdure import App, BlockingContext, Client, Fail, JobContext, Request, Status
from perdure.model.errors import ConfigError, IdempotencyConflict
from perdure.sync import Client as SyncClient
from tests.runtime.conftest import Place
from tests.runtime.support import (
    LONG,
    NOW,
    PATIENCE,
    check_every_job,
    ended,
    only,
    pending,
    reached,
    take_away,
    types,
    until,
    working,
)

NAP = 1.0
"""Seconds a job sleeps for, too long for a worker that does not linger."""


class Spans:
    """A tracer provider, as a process has one, and the spans that it has exported."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def of(self, name: str) -> list[ReadableSpan]:
        """Those of this name, in the order they began."""
        return sorted((s for s in self.all if s.name == name), key=lambda s: s.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """The only one of this name."""
        [span] = self.of(name)
        return span


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def id_of(span: ReadableSpan) -> int:
    return context_of(span).span_id


def trace_of(span: ReadableSpan) -> int:
    return context_of(span).trace_id


def links_of(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def report(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, dict(event.attributes or {})) for event in span.events]


@asynccontextmanager
async def traced(place: Place, spans: Spans) -> AsyncIterator[App]:
    """An App of a process of its own, as far as traces can tell."""
    async with App(place.url, tenant=place.tenant, migrate=True, tracer_provider=spans.provider) as app:
        yield app
        await check_every_job(app)


async def whole(spans: Spans, name: str, number: int = 1) -> list[ReadableSpan]:
    """So many spans of this name, once they have ended."""
    found: list[ReadableSpan] = await until(lambda: len(f := spans.of(name)) >= number and f, what=f"{number} {name}")
    return found


async def test_a_job_from_its_producer_to_its_steps(place: Place) -> None:
    spans = Spans()
    async with traced(place, spans) as app:

        @app.job
        async def work(ctx: JobContext, secret: str) -> str:
            first = await ctx.step("think", str.upper, secret)
            for n in range(2):
                await ctx.options(key=f"part {n}").step("read", str, n)
            return await ctx.tool("post", str.lower, first)

        async with working(app) as worker:
            handle = await app.enqueue(work, "Hush")
            assert await handle.result(PATIENCE) == "hush"
            [process] = await whole(spans, "process default")
        send, think, post = spans.one("send default"), spans.one("step think"), spans.one("execute_tool post")
        assert (send.kind, process.kind, think.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.INTERNAL)
        assert send.parent is None
        assert parent_of(process) == id_of(send)
        assert links_of(process) == [id_of(send)]
        steps = [think, *spans.of("step read"), post]
        assert [parent_of(step) for step in steps] == [id_of(process)] * 4
        assert {trace_of(span) for span in spans.all} == {trace_of(send)}
        assert facts(send) == {
            "messaging.system": "perdure",
            "messaging.operation.type": "send",
            "messaging.operation.name": "enqueue",
            "messaging.destination.name": "default",
            "messaging.message.id": str(handle.id),
            "perdure.job.id": str(handle.id),
            "perdure.job.kind": "work",
        }
        assert facts(process) == {
            "messaging.system": "perdure",
            "messaging.operation.type": "process",
            "messaging.operation.name": "run",
            "messaging.destination.name": "default",
            "messaging.message.id": str(handle.id),
            "perdure.job.id": str(handle.id),
            "perdure.job.kind": "work",
            "perdure.job.attempt": 1,
            "perdure.job.version": 2,
            "perdure.job.outcome": "COMPLETED",
            "perdure.worker.id": worker.id,
        }
        assert [facts(s)["perdure.step.key"] for s in steps] == ["think", "read[part 0]", "read[part 1]", "post"]
        assert [facts(s)["perdure.step.sequence"] for s in steps] == [1, 2, 3, 4]
        assert facts(post)["gen_ai.tool.name"] == facts(post)["perdure.step.name"] == "post"
        assert not any("Hush" in span.to_json() or "HUSH" in span.to_json() for span in spans.all)
        assert (await handle.get()).payload == "Hush"
        assert types(await handle.events())[-1] == "job_completed"
        assert "attempt_traced" not in types(await handle.events()), "no attempt comes after this one"


async def test_a_job_that_waits_has_no_open_span_and_goes_on_linked(place: Place) -> None:
    """Parked, then asked: three attempts on two processes, one trace."""
    here, there = Spans(), Spans()

    def define(app: App) -> Any:
        @app.job
        async def work(ctx: JobContext) -> str | None:
            await ctx.step("before", str, 1)
            await ctx.sleep("nap", NAP)
            decision = await ctx.approve("ok", title="Ok?", payload={"n": 1})
            await ctx.step("after", str, 2)
            return decision.by

        return work

    async with traced(place, here) as app:
        work = define(app)
        async with working(app, linger=0):
            handle = await app.enqueue(work)
            await reached(handle, Status.WAITING_FOR_APPROVAL)
            first, second = await whole(here, "process default", 2)
        send = here.one("send default")
        approval = await pending(app, handle)
        if place.url == "memory:":  # it has no second process
            return
        async with traced(place, there) as other:
            define(other)
            await other.approve(approval.id, by="ann")
            async with working(other):
                assert await other.jobs.result(handle.id, timeout=PATIENCE) == "ann"
                [third] = await whole(there, "process default")
        assert [facts(s)["perdure.job.outcome"] for s in (first, second, third)] == [
            "PARKED",
            "WAITING_FOR_APPROVAL",
            "COMPLETED",
        ]
        assert [facts(s).get("perdure.resume_reason") for s in (first, second, third)] == [None, "timer", "approval"]
        assert [parent_of(s) for s in (first, second, third)] == [id_of(send)] * 3
        assert [links_of(s) for s in (first, second, third)] == [
            [id_of(send)],
            [id_of(send), id_of(first)],
            [id_of(send), id_of(second)],
        ]
        assert {trace_of(s) for s in (*here.all, *there.all)} == {trace_of(send)}
        assert (first.end_time or 0) <= (second.start_time or 0)
        assert (second.end_time or 0) <= (third.start_time or 0)
        replayed = ("perdure.step.replayed", {"perdure.step.name": "before", "perdure.step.key": "before"})
        for span, events in (
            (first, []),
            (second, [replayed, ("perdure.approval.requested", {"perdure.approval.id": str(approval.id)})]),
        ):
            assert [
                (n, {k: v for k, v in f.items() if k != "perdure.step.sequence"}) for n, f in report(span)
            ] == events
        [again, decided] = report(third)
        assert again[0] == "perdure.step.replayed"
        assert decided[0] == "perdure.approval.decided"
        assert decided[1].pop("perdure.approval.wait_seconds") > 0
        assert decided[1] == {
            "perdure.approval.id": str(approval.id),
            "perdure.approval.decision": "APPROVED",
            "perdure.approval.channel": "python",
        }
        assert len(here.of("step before")) == 1, "a replayed step has no span"
        assert there.of("step before") == []
        assert parent_of(there.one("step after")) == id_of(third)
        traced_events = [e for e in await handle.events() if e.type == "attempt_traced"]
        assert len(traced_events) == 2
        assert f"{id_of(first):016x}" in traced_events[0].payload["traceparent"]


async def test_a_crashed_attempt_and_its_successor(place: Place) -> None:
    here, there = Spans(), Spans()
    entered = asyncio.Event()

    def define(app: App, *, hangs: bool) -> Any:
        @app.job(backoff=NOW)
        async def work(ctx: JobContext) -> str:
            await ctx.step("one", str, 1)
            return await ctx.step("two", hang if hangs else quick)

        return work

    async def hang() -> str:
        entered.set()
        await asyncio.sleep(3600)
        return "never"

    async def quick() -> str:
        return "done"

    async with traced(place, here) as app:
        work = define(app, hangs=True)
        async with working(app, queues=("slow",)):
            handle = await app.enqueue(work, queue="slow")
            await asyncio.wait_for(entered.wait(), PATIENCE)
            await take_away(await app.open(), handle)
            lost, *_ = await whole(here, "process slow")
        assert facts(lost)["error.type"] == "lease_lost"
        assert lost.status.status_code is StatusCode.ERROR
        [cut_off] = [s for s in here.of("step two") if parent_of(s) == id_of(lost)]
        assert facts(cut_off)["error.type"] == "cancelled"
        if place.url == "memory:":
            await app.jobs.cancel(handle.id, force=True)
            return
        async with traced(place, there) as other:
            define(other, hangs=False)
            async with working(other, queues=("slow",)):
                assert await other.jobs.result(handle.id, timeout=PATIENCE) == "done"
                [again] = await whole(there, "process slow")
        send = here.one("send slow")
        assert parent_of(again) == id_of(send)
        assert id_of(send) in links_of(again)
        assert trace_of(again) == trace_of(send)
        assert facts(again)["perdure.job.attempt"] > 1
        assert facts(again)["perdure.resume_reason"] in {"lease_expired", "worker_stopped", "worker_drained"}
        assert [name for name, _ in report(again)] == ["perdure.step.replayed"]


async def test_attempts_of_an_untraced_producer_find_each_other(place: Place) -> None:
    spans = Spans()
    async with App(place.url, tenant=place.tenant, migrate=True) as silent, traced(place, spans) as app:

        @app.job(backoff=NOW)
        async def work(ctx: JobContext) -> int:
            if ctx.retry_count < 2:
                raise ConnectionError("not yet")
            return ctx.retry_count

        producer = app if place.url == "memory:" else silent
        if producer is app:
            handle = await Client(await app.open(), app.registry).enqueue(work)  # it has no observer
        else:
            handle = await silent.enqueue("work")
        assert "traceparent" not in json.dumps((await app.jobs.get(handle.id)).note)
        async with working(app):
            assert await app.jobs.result(handle.id, timeout=PATIENCE) == 2
            first, second, third = await whole(spans, "process default", 3)
        assert first.parent is None
        assert links_of(first) == []
        assert (parent_of(second), links_of(second)) == (id_of(first), [id_of(first)])
        assert (parent_of(third), links_of(third)) == (id_of(first), [id_of(first), id_of(second)])
        assert [facts(s)["error.type"] for s in (first, second)] == ["app", "app"]
        assert first.status.status_code is StatusCode.ERROR
        assert "not yet" in (first.status.description or "")
        assert third.status.status_code is StatusCode.UNSET


async def test_what_a_handler_enqueues_hangs_on_the_step_that_does(place: Place) -> None:
    spans = Spans()
    async with traced(place, spans) as app:

        @app.job
        async def child(ctx: JobContext) -> str:
            return "child"

        @app.job
        async def parent(ctx: JobContext) -> str:
            return await ctx.step("spawn", spawn)

        async def spawn() -> str:
            return str((await app.enqueue(child, queue="children")).id)

        async with working(app, queues=("default", "children")):
            id = await (await app.enqueue(parent)).result(PATIENCE)
            await app.jobs.wait(id, timeout=PATIENCE)
            [process] = await whole(spans, "process children")
        send = spans.one("send children")
        assert parent_of(send) == id_of(spans.one("step spawn"))
        assert parent_of(process) == id_of(send)


async def test_plain_handlers_and_their_threads(place: Place) -> None:
    spans = Spans()
    inside: list[Any] = []
    async with traced(place, spans) as app:
        tracer = spans.provider.get_tracer("mine")

        @app.job
        def plain(ctx: BlockingContext) -> str:
            with tracer.start_as_current_span("of the handler"):
                return ctx.step("say", speak)

        def speak() -> str:
            with tracer.start_as_current_span("of the step") as span:
                inside.append(span)
            return "hello"

        async with working(app):
            assert await (await app.enqueue(plain)).result(PATIENCE) == "hello"
            [process] = await whole(spans, "process default")
        of_handler, step = spans.one("of the handler"), spans.one("step say")
        assert parent_of(of_handler) == id_of(process)
        assert parent_of(step) == id_of(of_handler)
        assert parent_of(spans.one("of the step")) == id_of(step)


async def test_many_jobs_at_once_have_one_send(place: Place) -> None:
    spans = Spans()
    async with traced(place, spans) as app:

        @app.job
        async def work(ctx: JobContext) -> None:
            return None

        assert await app.enqueue_many([]) == []
        handles = await app.enqueue_many([Request(work) for _ in range(3)])
        async with working(app):
            for handle in handles:
                await ended(app, handle)
            processes = await whole(spans, "process default", 3)
        send = spans.one("send default")
        assert facts(send)["messaging.batch.message_count"] == 3
        assert [links_of(p) for p in processes] == [[id_of(send)]] * 3


async def test_a_rerun_has_a_send_of_its_own(place: Place) -> None:
    spans = Spans()
    async with traced(place, spans) as app:

        @app.job
        async def work(ctx: JobContext) -> None:
            return None

        async with working(app):
            handle = await app.enqueue(work)
            await ended(app, handle)
            await ended(app, await app.jobs.rerun(handle.id))
            one, two = await whole(spans, "process default", 2)
        assert [parent_of(p) for p in (one, two)] == [id_of(s) for s in spans.of("send default")]
        assert trace_of(one) != trace_of(two)


async def test_a_fork_has_one_too_and_none_of_its_origins(place: Place) -> None:
    spans = Spans()
    async with traced(place, spans) as app:

        @app.job
        async def work(ctx: JobContext) -> None:
            await ctx.step("one", str, 1)
            await ctx.sleep("nap", NAP)
            await ctx.step("two", str, 2)

        async with working(app, linger=0):
            handle = await app.enqueue(work)
            await ended(app, handle)
            await whole(spans, "process default", 2)
            await ended(app, await app.jobs.fork(handle.id, "two"))
            last = (await whole(spans, "process default", 3))[-1]
        assert parent_of(last) == id_of(spans.of("send default")[-1])
        assert links_of(last) == [id_of(spans.of("send default")[-1])]
        assert [name for name, _ in report(last)] == ["perdure.step.replayed"]


async def test_a_job_of_the_callers_own_transaction(tmp_path: Path) -> None:
    """Its send ends when the statement is done; commit or not is the caller's."""
    spans, registry = Spans(), CollectorRegistry()
    url = f"sqlite:///{tmp_path}/perdure.db"
    async with App(url, tracer_provider=spans.provider, metrics=registry) as app:

        @app.job
        async def work(ctx: JobContext, n: int) -> None:
            return None

        await app.database.now()
        made = ("perdure_jobs_created_total", {"kind": "work"})
        with closing(sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)) as caller:
            caller.execute("begin")
            await app.enqueue_many([Request(work, n) for n in range(2)], tx=caller)
            handle = await app.enqueue(work, 2, tx=caller, idempotency_key="k")
            again = await app.enqueue(work, 2, tx=caller, idempotency_key="k")
            with pytest.raises(IdempotencyConflict):
                await app.enqueue(work, 3, tx=caller, idempotency_key="k")
            caller.execute("commit")
        assert again.id == handle.id
        assert registry.get_sample_value(*made) == 3
        async with working(app):
            await ended(app, handle)
            processes = await whole(spans, "process default", 3)
        batch, single, _, refused = spans.of("send default")
        parents = {facts(p)["perdure.job.id"]: parent_of(p) for p in processes}
        assert parents.pop(str(handle.id)) == id_of(single)
        assert list(parents.values()) == [id_of(batch)] * 2
        assert facts(refused)["error.type"] == "idempotency-conflict"


def test_a_synchronous_program_is_traced_too(tmp_path: Path) -> None:
    spans = Spans()
    tracer = spans.provider.get_tracer("mine")
    app = App(f"sqlite:///{tmp_path}/perdure.db", tracer_provider=spans.provider)

    @app.job
    async def work(ctx: JobContext) -> None:
        return None

    with SyncClient(app) as client:
        client.jobs.count()
        with (
            closing(sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)) as caller,
            tracer.start_as_current_span("the program's"),
        ):
            client.enqueue(work)
            caller.execute("begin")
            client.enqueue(work, tx=caller)
            caller.execute("commit")
    assert [parent_of(s) for s in spans.of("send default")] == [id_of(spans.one("the program's"))] * 2


async def test_errors_are_reported_where_they_happened(place: Place) -> None:
    spans = Spans()
    async with traced(place, spans) as app:

        @app.job
        async def work(ctx: JobContext, how: str) -> None:
            if how == "fail":
                raise Fail("no such account")
            await ctx.step("breaks", breaks)

        async def breaks() -> None:
            raise KeyError("a bug")

        async with working(app):
            for how in ("fail", "break"):
                await ended(app, await app.enqueue(work, how, max_retries=0))
            failed, dead = await whole(spans, "process default", 2)
        assert (facts(failed)["perdure.job.outcome"], facts(failed)["error.type"]) == ("FAILED", "fatal")
        assert (facts(dead)["perdure.job.outcome"], facts(dead)["error.type"]) == ("DEADLETTER", "app")
        step = spans.one("step breaks")
        assert (step.status.status_code, facts(step)["error.type"]) == (StatusCode.ERROR, "KeyError")
        assert [event.name for event in step.events] == ["exception"]
        await app.enqueue(work, "fail", idempotency_key="k", delay=LONG)
        with pytest.raises(IdempotencyConflict):
            await app.enqueue(work, "break", idempotency_key="k", delay=LONG)
        refused = spans.of("send default")[-1]
        assert (refused.status.status_code, facts(refused)["error.type"]) == (StatusCode.ERROR, "idempotency-conflict")
        [left] = (await app.jobs.list(status="pending")).items
        await app.jobs.cancel(left.id)


class BrokenStart(SpanProcessor):
    """An exporter of the program that raises."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("on_start")


class BrokenEnd(SpanProcessor):
    """Another one."""

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("on_end")


@pytest.mark.parametrize("broken", [BrokenStart, BrokenEnd])
async def test_a_broken_exporter_breaks_no_job(place: Place, broken: type[SpanProcessor]) -> None:
    spans = Spans()
    spans.provider.add_span_processor(broken())
    async with traced(place, spans) as app:

        @app.job
        async def work(ctx: JobContext) -> str:
            await ctx.sleep("nap", NAP)
            await ctx.step("one", str, 1)
            return await ctx.tool("two", str, 2)

        async with working(app, linger=0):
            assert await (await app.enqueue(work)).result(PATIENCE) == "2"


async def test_what_the_producer_does_not_sample_is_not_recorded(place: Place) -> None:
    spans = Spans(sampler=ParentBased(ALWAYS_OFF))
    async with traced(place, spans) as app:

        @app.job
        async def work(ctx: JobContext) -> str:
            await ctx.sleep("nap", NAP)
            return await ctx.step("one", str, 1)

        async with working(app, linger=0):
            handle = await app.enqueue(work)
            await handle.result(PATIENCE)
        log = await handle.events()
        flags = int(only(log, "job_created").payload["traceparent"].rpartition("-")[2], 16)
        assert flags & 1 == 0, "later attempts learn that this trace is not sampled"
        assert "attempt_traced" not in types(log)
        assert spans.all == ()


@pytest.mark.parametrize("payload", [{"traceparent": "rubbish"}, {"traceparent": 7}, {"traceparent": "00-0-0-00"}, []])
async def test_an_invalid_trace_is_replaced_by_a_new_one(place: Place, payload: Any) -> None:
    """The note of a job that was inserted by SQL may hold anything."""
    spans = Spans()
    async with traced(place, spans) as app:

        @app.job
        async def work(ctx: JobContext) -> None:
            return None

        new = app.jobs.prepared(work, None, {})._replace(note=json.dumps(payload) if payload else "{}")
        await (await app.open()).jobs.enqueue(new)
        handle = app.jobs.handle(new.id)
        async with working(app):
            await ended(app, handle)
            [process] = await whole(spans, "process default")
        assert process.parent is None
        assert links_of(process) == []


async def test_a_handlers_context_variables_end_with_it(app: App) -> None:
    """The next job must not show in the trace, or with the bound log fields, of the one before."""
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine", default="nobody's")
    seen: list[tuple[str, dict[str, Any]]] = []

    @app.job
    async def work(ctx: JobContext, n: int) -> None:
        seen.append((mine.get(), structlog.contextvars.get_contextvars()))
        mine.set(f"job {n}")
        structlog.contextvars.bind_contextvars(user=n)

    async with working(app, concurrency=1):
        for handle in await app.enqueue_many([Request(work, n) for n in range(5)]):
            await ended(app, handle)
    assert seen == [("nobody's", {})] * 5


def test_the_setting_needs_nothing_else_and_costs_nothing_when_off(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from perdure import App, JobContext\n"
        "app = App('sqlite:///perdure.db')\n"
        "@app.job\n"
        "async def work(ctx: JobContext) -> None: ...\n"
        "async def main():\n"
        "    async with app:\n"
        "        handle = await app.enqueue(work)\n"
        "        await app.work(once=True)\n"
        "        note = (await handle.events())[0].payload\n"
        "    print(any(m.split('.')[0] in ('opentelemetry', 'prometheus_client') for m in sys.modules), 'traceparent' in note)\n"
        "asyncio.run(main())\n"
    )
    for env, said in (
        ({}, "False False"),
        ({"PERDURE_OTEL": "1"}, "True False"),
        ({"PERDURE_OTEL": "off"}, "False False"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=True,
        )
        # with the API alone no provider is set, so there is nothing to pass on
        assert done.stdout.splitlines()[-1] == said, done.stderr


async def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith(("opentelemetry", "perdure.observe.tracing"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setenv("PERDURE_OTEL", "true")
    with pytest.raises(ConfigError) as refused:
        await App("memory:").open()
    assert refused.value.code == "extra-missing"
    assert refused.value.hint == "pip install 'perdure[otel]'"
