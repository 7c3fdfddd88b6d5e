"""App: puts settings, stores, handlers, clients and workers together."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload
from weakref import WeakSet

import structlog

from perdure.backend import AppBackend, DatabaseBackend
from perdure.config import BY_NAME as SETTINGS_BY_NAME
from perdure.config import Settings, load_settings
from perdure.event_loop import run
from perdure.handler_types import AsyncDefault, JobDecorator, PlainDefault
from perdure.logs import configure_logs
from perdure.model.agents import Intake, OnBusy
from perdure.model.budgets import Budget
from perdure.model.errors import ConfigError
from perdure.model.stuck import Stuck, StuckJob
from perdure.model.timing import Backoff, Duration
from perdure.model.tool_approvals import ApprovalContext
from perdure.model.tooling import Account, CliRun, TaskSpec
from perdure.model.urls import place_of
from perdure.observe.setup import Observability
from perdure.runtime.agent_handlers import AgentHandler, agent_policy
from perdure.runtime.client.client import Client, client_of
from perdure.runtime.client.shortcuts import Shortcuts
from perdure.runtime.context.blocking import BlockingContext
from perdure.runtime.context.context import JobContext
from perdure.runtime.contexts import ContextManager
from perdure.runtime.embedders import ChosenEmbedder
from perdure.runtime.gc_tuning import tuned_for_worker
from perdure.runtime.message_checks import check_agent
from perdure.runtime.missing_vectors import make_missing_vectors
from perdure.runtime.registry import Handler, Policy, Registry, error_classes
from perdure.runtime.retention import Retention
from perdure.runtime.validation import (
    check_approval_context,
    check_backoff,
    check_budget,
    check_key,
    check_kind,
    check_maximum,
    check_priority,
    check_queue,
    check_retries,
    check_seconds,
    check_stuck,
    check_tags,
    check_version,
    check_word,
)
from perdure.runtime.worker import Worker
from perdure.runtime.worker_options import WorkerOptions
from perdure.stop_signals import StopSignals, end_process, too_many_hung
from perdure.store.protocol import Store
from perdure.tools.service import ToolService

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from perdure.observe.status_server import StatusServer

I = TypeVar("I")  # noqa: E741  the handler's input
O = TypeVar("O")  # noqa: E741  the handler's output


class App(Shortcuts):
    """Your handlers, and the database of their jobs.

    Its parts `jobs`, `approvals`, `limits`, `schedules`, `queues`, `workers` and `database` have all calls; the most frequent
    ones are also short:
    `await app.enqueue(...)`. `acting` gives a client for another actor or tenant.

    database_url: memory:, sqlite:///path or postgresql://...; else PERDURE_DATABASE_URL, perdure.toml, sqlite:///perdure.db.
    migrate: create or upgrade the schema at first use. None (default) does so for memory: and SQLite, except in a file that has
    only tables of other programs, and refuses a PostgreSQL database without a schema (`perdure db migrate` creates it). True does
    so everywhere, also if other programs have tables there. False refuses every database without perdure's schema, and does not
    change it. metrics: your prometheus_client registry, to which perdure's metrics are added. tracer_provider: trace jobs with it
    (the setting `otel` uses the program's own). registry: handlers to begin with, for example those of another App. version: of
    the code of the handlers; workers show it, and a job whose code does not fit what it recorded waits for another one. None:
    that of the distribution the handlers are installed with, else made of the git commit and the files of the handlers.
    approval_context: which tools need the approval of a person, in all jobs of its workers. Nothing
    is opened before the first call that needs it; each event loop that uses the App has its own store."""

    def __init__(
        self,
        database_url: str | None = None,
        *,
        tenant: str | None = None,
        migrate: bool | None = None,
        settings: Settings | None = None,
        via: str = "python",
        metrics: CollectorRegistry | None = None,
        tracer_provider: TracerProvider | None = None,
        registry: Registry | None = None,
        version: str | None = None,
        approval_context: ApprovalContext | None = None,
    ) -> None:
        self._flags = {"database_url": database_url, "tenant": tenant}
        self._given_settings = settings
        self.registry = registry if registry is not None else Registry()
        if approval_context is not None:
            self.registry.approval_context = check_approval_context(approval_context)
        self.registry.choose_embedder = ChosenEmbedder(lambda: self.settings.values)
        self.registry.check_task = self.check_task
        self._tools = ToolService(lambda: self.settings, self.registry)
        self.version = None if version is None else check_version(version)
        """Of their code, as given; None: workers find it out."""
        self._observability = Observability(metrics, tracer_provider, self.registry)
        self.backend: AppBackend = DatabaseBackend(lambda: self.settings, self._observability, migrate=migrate)
        """Opens the stores; a test may replace it."""
        self.client = client_of(self, self.registry, via=via)
        """The client that has the parts `jobs`, `approvals`, `workers` and `database`."""
        self.jobs, self.approvals = self.client.jobs, self.client.approvals
        self.tasks, self.accounts = self.client.tasks, self.client.accounts
        self.workers, self.database = self.client.workers, self.client.database
        self.limits, self.agents, self.schedules = self.client.limits, self.client.agents, self.client.schedules
        self.queues, self.memory = self.client.queues, self.client.memory
        self._made_workers: WeakSet[Worker] = WeakSet()
        self.contexts = ContextManager(
            lambda: [worker.held for worker in list(self._made_workers) if worker.working], self.open
        )
        """The contexts of the jobs that its workers run in this process."""

    @property
    def settings(self) -> Settings:
        """The settings in force: arguments, then environment, files and defaults. Raises ConfigError."""
        if self._given_settings is None:
            self._given_settings = load_settings(self._flags)
        return self._given_settings

    def configure(self, settings: Settings) -> None:
        """Use other settings from now on; for programs that load the App of another module, such as the CLI.

        Raises ConfigError if the store is open already.
        """
        if self.backend.opened:
            raise ConfigError("the App's store is open already: call configure before its first use")
        self._given_settings = settings

    # -- handlers ------------------------------------------------------------------------------------------------------

    @overload
    def job(self, fn: AsyncDefault[I, O], /) -> Handler[I | None, O]: ...
    @overload
    def job(self, fn: Callable[[JobContext], Awaitable[O]], /) -> Handler[None, O]: ...
    @overload
    def job(self, fn: Callable[[JobContext, I], Awaitable[O]], /) -> Handler[I, O]: ...
    @overload
    def job(self, fn: PlainDefault[I, O], /) -> Handler[I | None, O]: ...
    @overload
    def job(self, fn: Callable[[BlockingContext], O], /) -> Handler[None, O]: ...
    @overload
    def job(self, fn: Callable[[BlockingContext, I], O], /) -> Handler[I, O]: ...
    @overload
    def job(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 5,
        max_retries: int = 3,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
        retry_on: type[BaseException] | Sequence[type[BaseException]] = Exception,
        fatal_on: type[BaseException] | Sequence[type[BaseException]] = (),
        on_change: Literal["wait", "fail"] = "wait",
        concurrency_key: str | Callable[[Any], str | None] | None = None,
        max_concurrent: int | None = None,
        max_per_minute: int | None = None,
        tags: Sequence[str] = (),
        budget: Budget | None = None,
        approval_context: ApprovalContext | None = None,
        stuck: Stuck | None = None,
        on_stuck: Callable[[StuckJob], Awaitable[None] | None] | None = None,
    ) -> JobDecorator: ...
    def job(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 5,
        max_retries: int = 3,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
        retry_on: type[BaseException] | Sequence[type[BaseException]] = Exception,
        fatal_on: type[BaseException] | Sequence[type[BaseException]] = (),
        on_change: Literal["wait", "fail"] = "wait",
        concurrency_key: str | Callable[[Any], str | None] | None = None,
        max_concurrent: int | None = None,
        max_per_minute: int | None = None,
        tags: Sequence[str] = (),
        budget: Budget | None = None,
        approval_context: ApprovalContext | None = None,
        stuck: Stuck | None = None,
        on_stuck: Callable[[StuckJob], Awaitable[None] | None] | None = None,
    ) -> Any:
        """Register a handler: an async function (ctx: JobContext) or (ctx, input), or a plain one (ctx: BlockingContext).

        name: the job's kind, default the function's name. timeout: seconds or text per attempt. max_retries: 0-100 failures
        and crashes. retry_on, fatal_on: exception classes. on_change: whether a job whose code does not fit what it recorded
        waits for code that does, or fails. max_concurrent: how many of its jobs run at a time, in all workers together;
        max_per_minute: how many start in any minute.
        concurrency_key: those with the same one are counted together; a text, or a function of the input that returns one or,
        for no limit, None; default the kind. tags: of all its jobs. budget, stuck: of a job that was enqueued without one.
        approval_context: which of its tools need approval; of what the App, the handler and the job say, the strictest counts.
        on_stuck: is called, at least once and usually exactly once, with a job that fails because it is stuck.
        Raises DuplicateHandler, InvalidInput, InvalidPriority.
        """
        check_word(on_change, "on_change", Literal["wait", "fail"])
        policy = Policy(
            queue=check_queue(queue),
            priority=check_priority(priority),
            max_retries=check_retries(max_retries),
            backoff=check_backoff(backoff),
            timeout=None if timeout is None else check_seconds(timeout, "timeout"),
            retry_on=error_classes(retry_on),
            fatal_on=error_classes(fatal_on),
            on_change=on_change,
            concurrency_key=concurrency_key
            if concurrency_key is None or callable(concurrency_key)
            else check_key(concurrency_key),
            max_concurrent=None if max_concurrent is None else check_maximum(max_concurrent),
            max_per_minute=None if max_per_minute is None else check_maximum(max_per_minute, "max_per_minute"),
            tags=check_tags(tags),
            budget=check_budget(budget),
            approval_context=check_approval_context(approval_context),
            stuck=check_stuck(stuck),
            on_stuck=on_stuck,
        )
        local_names = dict(sys._getframe(1).f_locals)

        def register(fn: Callable[..., Any]) -> Handler[Any, Any]:
            kind = check_kind(name or getattr(fn, "__name__", ""))
            handler: Handler[Any, Any] = Handler(fn, kind, policy, local_names=local_names)
            self.registry.add(handler)
            return handler

        return register if fn is None else register(fn)

    def agent(
        self,
        agent_id: str,
        /,
        *,
        name: str | None = None,
        default_session_id: str | None = None,
        meta: dict[str, Any] | None = None,
        queue: str = "default",
        intake: Intake = "each",
        batch: int = 1,
        on_busy: OnBusy = "enqueue",
        max_parallel_jobs: int = 1,
        max_retries: int = 3,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
    ) -> AgentHandler:
        """A handler for the messages of an agent: `@app.agent("reviewer").on_message(Review)`, whose function returns the reply,
        or `@app.agent("reviewer")`. Workers create the agent at their start; one that exists they leave as it is.

        The kind of its jobs is its id; other agents may have the same one. max_retries, backoff, timeout: as for `job`. The rest
        is as in `AgentInstance`. Raises InvalidInput, NotJson.
        """
        agent = check_agent(
            agent_id,
            name=name,
            default_session_id=default_session_id,
            meta=meta or {},
            queue=queue,
            intake=intake,
            batch=batch,
            on_busy=on_busy,
            max_parallel_jobs=max_parallel_jobs,
        )
        return AgentHandler(self.registry, agent, agent_policy(agent, max_retries, backoff, timeout))

    # -- coding CLIs ---------------------------------------------------------------------------------------------------

    def serve_tools(self, *tools: str) -> None:
        """Let workers of this App run the tasks of these coding CLIs; none given: of all that are installed. Under which accounts
        the setting `accounts` says. Raises UnknownTool, ToolMissing, DuplicateHandler."""
        self._tools.serve(*tools)

    async def probe_account(self, account: Account) -> CliRun:
        """See `BackendHolder.probe_account`."""
        return await self._tools.probe(account)

    def check_task(self, task: TaskSpec) -> None:
        """See `BackendHolder.check_task`."""
        self._tools.check_task(task)

    def check_tool(self, tool: str) -> None:
        """See `BackendHolder.check_tool`."""
        self._tools.check_tool(tool)

    # -- clients -------------------------------------------------------------------------------------------------------

    def acting(self, *, actor: str | None = None, via: str | None = None, tenant: str | None = None) -> Client:
        """See `Client.acting`."""
        return self.client.acting(actor=actor, via=via, tenant=tenant)

    # -- store ---------------------------------------------------------------------------------------------------------

    async def open(self) -> Store:
        """The store, opened and its schema checked at first use.

        Raises MalformedUrl, StoreUnreachable, SchemaMissing, ForeignDatabase, SchemaOutdated, SchemaTooNew, MigrationChanged,
        ExtraMissing.
        """
        return await self.backend.open()

    async def close(self) -> None:
        """Finish the writes that have begun and close this event loop's stores. The App may be used again afterwards."""
        await self.backend.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- metrics -------------------------------------------------------------------------------------------------------

    def status_server(self) -> StatusServer | None:
        """The server for `metrics_port`, its port bound; None if that is not set. Call it before the App is opened, so that a
        taken port is found before anything changes; close it at the end. Raises PortTaken, ExtraMissing, ConfigError."""
        return self._observability.server(self.settings)

    @asynccontextmanager
    async def serving(self, server: StatusServer | None, worker: Worker) -> AsyncIterator[None]:
        """The server, if there is one, answers for this worker while the context is open. Raises PerdureError."""
        if server is None:
            yield
            return
        async with self._observability.serving(server, worker, await self.open()):
            yield

    # -- worker --------------------------------------------------------------------------------------------------------

    async def worker(self, **options: Any) -> Worker:
        """A worker for this app's handlers; options named as the settings, which are their defaults."""
        own = ("queues", "concurrency", "lease", "linger", "drain_timeout", "grace", "max_hung", "max_blocked")
        names = (*own, "retention", "retention_status", "retention_keep_logs")
        known = {n: self.settings[n] for n in names}
        if unknown := set(options) - {*names, "chores"}:
            raise ConfigError(
                f"unknown worker options: {', '.join(sorted(unknown))}; known: {', '.join(names)}, chores"
            )
        given_lease = options.get("lease") is not None
        merged = {**known, **{k: v for k, v in options.items() if v is not None}}
        for name in names:
            try:
                merged[name] = SETTINGS_BY_NAME[name].read(merged[name])
            except (ValueError, TypeError) as error:
                raise ConfigError(f"worker option {name} is invalid: {error}") from None
        if "chores" in merged:
            merged["chores"] = check_seconds(merged["chores"], "chores")
            if not merged["chores"]:
                raise ConfigError("worker option chores is invalid: it must be more than 0 seconds")
        age, ends, keep_logs = (merged[n] for n in names[len(own) :])
        retention = None if age is None else Retention(age, ends, keep_logs)
        options = {name: merged[name] for name in (*own, "chores") if name in merged}
        kind_leases = {} if given_lease else self._tools.leases()
        worker_options = WorkerOptions(**options, retention=retention, kind_leases=kind_leases)
        make_missing_vectors(self.registry)
        store, backend = await self.open(), self.backend
        alone = self.settings["database_url"].strip() == "memory:"  # nothing else can open that one
        worker = Worker(
            store,
            self.registry,
            worker_options,
            invoke=backend.invoke,
            observer=backend.observer,
            opener=None if alone else backend,
            version=self.version,
            database=place_of(self.settings["database_url"]),
        )
        self._made_workers.add(worker)
        return worker

    async def work(self, *, once: bool = False, **options: Any) -> None:
        """Run a worker until SIGTERM or SIGINT (a second one stops it at once), or with once=True until nothing is due. If its
        task is cancelled, it stops at once too: jobs that run are interrupted and handed back.

        Raises TooManyHung, after it has handed back its jobs.
        """
        with _closing(self.status_server()) as server:
            worker = await self._work(server, once, options)
        if worker.worn_out:
            raise too_many_hung(worker.hung)

    async def _work(
        self, server: StatusServer | None, once: bool, options: dict[str, Any], *, own_process: bool = False
    ) -> Worker:
        worker = await self.worker(**options)
        if own_process:
            worker.may_end_process()
        with StopSignals(lambda _, count: worker.stop(now=count > 1), last_words=worker.hand_back_blocked) as signals:
            async with self.serving(server, worker):
                await worker.run(once=once)
        if worker.unfinished and len(signals.received) > 1:
            end_process(128 + signals.received[-1])  # the event loop would wait for its handlers
        return worker

    def run_worker(self, **options: Any) -> None:
        """`work` for a script: blocks, on uvloop where it is installed, and closes the store at the end. Log lines go to
        stderr as log_level and log_format say, those of the standard library's logging as well, unless the program has configured
        structlog itself (or, for the latter, its root logger)."""
        if not structlog.is_configured():
            configure_logs(level=self.settings["log_level"], format=self.settings["log_format"], stdlib=True)

        async def main() -> None:
            with _closing(self.status_server()) as server:
                async with self:
                    worker = await self._work(server, options.pop("once", False), options, own_process=True)
            if worker.unfinished:
                end_process(1 if worker.worn_out else 0)  # the event loop would wait for them
            if worker.worn_out:
                raise too_many_hung(worker.hung)

        with tuned_for_worker():
            run(main())


def _closing(server: StatusServer | None) -> AbstractContextManager[StatusServer | None]:
    return nullcontext() if server is None else closing(server)
