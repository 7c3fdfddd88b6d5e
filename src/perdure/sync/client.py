"""The blocking client."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from perdure.app import App
from perdure.model.approval_rules import RuleScope
from perdure.model.approvals import Approval
from perdure.model.signals import Signal
from perdure.model.timing import Duration
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.base import JobId
from perdure.runtime.client.client import Client as AsyncClient
from perdure.runtime.client.enqueue import EnqueueOptions, Request
from perdure.runtime.client.signals import HasId
from perdure.runtime.registry import Handler
from perdure.sync.accounts import Accounts
from perdure.sync.agents import Agents
from perdure.sync.approvals import Approvals
from perdure.sync.database import Database
from perdure.sync.handle import Handle
from perdure.sync.jobs import Jobs
from perdure.sync.limits import Limits
from perdure.sync.memories import Memories
from perdure.sync.queues import Queues
from perdure.sync.schedules import Schedules
from perdure.sync.tasks import Tasks
from perdure.sync.workers import Workers

I = TypeVar("I")  # noqa: E741  the handler's input
O = TypeVar("O")  # noqa: E741  the handler's output


class Client:
    """`perdure.Client`, blocking. Thread-safe. Close it, or use it as a context manager, which opens the store.

    app: an App (its handlers give types and policies) or a database URL; None = the settings.
    """

    def __init__(self, app: App | str | None = None) -> None:
        app = app if isinstance(app, App) else App(app)
        self._begin(app, app.acting(), BackgroundLoop())

    def _begin(self, app: App, client: AsyncClient, background: BackgroundLoop) -> None:
        self._app = app
        self._client = client
        self._background = background
        self.jobs = Jobs(client.jobs, background)
        """See `perdure.Client.jobs`."""
        self.approvals = Approvals(client.approvals, background)
        """See `perdure.Client.approvals`."""
        self.tasks = Tasks(client.tasks, background)
        """See `perdure.Client.tasks`."""
        self.accounts = Accounts(client.accounts, background)
        """See `perdure.Client.accounts`."""
        self.agents = Agents(client.agents, background)
        """See `perdure.Client.agents`."""
        self.limits = Limits(client.limits, background)
        """See `perdure.Client.limits`."""
        self.schedules = Schedules(client.schedules, background)
        """See `perdure.Client.schedules`."""
        self.queues = Queues(client.queues, background)
        """See `perdure.Client.queues`."""
        self.memory = Memories(client.memory, background)
        """See `perdure.Client.memory`."""
        self.workers = Workers(client.workers, background)
        """See `perdure.Client.workers`."""
        self.database = Database(client.database, background)
        """See `perdure.Client.database`."""

    @property
    def actor(self) -> str:
        """See `perdure.Client.actor`."""
        return self._client.actor

    @property
    def via(self) -> str:
        """See `perdure.Client.via`."""
        return self._client.via

    @property
    def tenant(self) -> str | None:
        """See `perdure.Client.tenant`."""
        return self._client.tenant

    def acting(self, *, actor: str | None = None, via: str | None = None, tenant: str | None = None) -> Client:
        """See `perdure.Client.acting`. It shares the background thread, and closing one closes both."""
        client = Client.__new__(Client)
        client._begin(self._app, self._client.acting(actor=actor, via=via, tenant=tenant), self._background)
        return client

    @overload
    def enqueue(
        self, job: Handler[None, O], /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[O]: ...
    @overload
    def enqueue(
        self, job: Handler[I, O], input: I, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[O]: ...
    @overload
    def enqueue(
        self, job: str, input: Any = None, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]: ...
    def enqueue(
        self, job: Any, input: Any = None, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]:
        """See `Jobs.enqueue`."""
        return self.jobs.enqueue(job, input, tx=tx, **options)

    def enqueue_many(self, requests: Iterable[Request], *, tx: object = None) -> builtins.list[Handle[Any]]:
        """See `Jobs.enqueue_many`."""
        return self.jobs.enqueue_many(requests, tx=tx)

    def signal(self, job: JobId | HasId, key: str, payload: Any = None, *, id: str | None = None) -> Signal:
        """See `Jobs.signal`."""
        return self.jobs.signal(job, key, payload, id=id)

    def approve(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        edited: Any = ...,
        expected_digest: str | None = None,
        remember: RuleScope | None = None,
        remember_for: Duration | None = None,
    ) -> Approval:
        """See `Approvals.approve`."""
        return self.approvals.approve(
            approval_id,
            token=token,
            by=by,
            comment=comment,
            edited=edited,
            expected_digest=expected_digest,
            remember=remember,
            remember_for=remember_for,
        )

    def deny(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        remember: RuleScope | None = None,
        remember_for: Duration | None = None,
    ) -> Approval:
        """See `Approvals.deny`."""
        return self.approvals.deny(
            approval_id, token=token, by=by, comment=comment, remember=remember, remember_for=remember_for
        )

    def close(self) -> None:
        """Close the store and stop the background thread; calls that still wait in other threads raise StoreUnreachable.
        Calling it twice is fine."""
        self._background.close(self._app.close)

    def __enter__(self) -> Self:
        """Raises as `perdure.App.open`."""
        try:
            self._background.run(self._app.open())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
