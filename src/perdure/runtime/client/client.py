"""The client: what a program does with jobs, approvals, workers and the database, an object for each."""

from __future__ import annotations

from perdure.runtime.client.accounts import Accounts
from perdure.runtime.client.agents import Agents
from perdure.runtime.client.approvals import Approvals
from perdure.runtime.client.backend import BackendHolder, OpenStore
from perdure.runtime.client.base import Scope, login_name
from perdure.runtime.client.database import Database
from perdure.runtime.client.jobs import Jobs
from perdure.runtime.client.limits import Limits
from perdure.runtime.client.memories import Memories
from perdure.runtime.client.queues import Queues
from perdure.runtime.client.schedules import Schedules
from perdure.runtime.client.shortcuts import Shortcuts
from perdure.runtime.client.tasks import Tasks
from perdure.runtime.client.workers import Workers
from perdure.runtime.registry import Registry
from perdure.runtime.validation import check_text
from perdure.store.protocol import Store


class Client(Shortcuts):
    """Everything a program does with jobs, for one actor and one tenant. Immutable, without connections or locks of its own.

    `actor` and `via` go into the audit of what it changes. Get one from `App.acting`, or make one from an open store.
    """

    def __init__(
        self, store: Store | None, registry: Registry | None = None, *, via: str = "python", actor: str | None = None
    ) -> None:
        registry = registry if registry is not None else Registry()
        self._begin(Scope(OpenStore(store), registry, actor or login_name(), via))

    def _begin(self, scope: Scope) -> None:
        self._scope = scope
        self.jobs = Jobs(scope)
        self.approvals = Approvals(scope)
        self.tasks = Tasks(scope, self.jobs)
        self.accounts = Accounts(scope)
        self.agents = Agents(scope)
        self.limits = Limits(scope)
        self.schedules = Schedules(scope, self.jobs)
        self.queues = Queues(scope)
        self.memory = Memories(scope)
        self.workers = Workers(scope)
        self.database = Database(scope)

    @property
    def actor(self) -> str:
        """Who acts: by default the operating system's user."""
        return self._scope.actor

    @property
    def via(self) -> str:
        """Through what it acts: `python`, `cli`, ..."""
        return self._scope.via

    @property
    def tenant(self) -> str | None:
        """Whose jobs it sees; None: those of the tenant in the settings."""
        return self._scope.tenant

    async def open(self) -> Store:
        """The store of its tenant, opened at first use. Raises as `App.open`."""
        return await self._scope.holder.backend.open(self._scope.tenant)

    def acting(self, *, actor: str | None = None, via: str | None = None, tenant: str | None = None) -> Client:
        """A client that acts for another actor or tenant, or via something else; None keeps what this client has.

        It costs a few objects and opens nothing, so a web request may make one. Raises InvalidInput.
        """
        scope = self._scope
        return client_in(
            Scope(
                scope.holder,
                scope.registry,
                check_text(actor, "actor", 200) or scope.actor,
                check_text(via, "via", 200) or scope.via,
                check_text(tenant, "tenant", 200) or scope.tenant,
            )
        )


def client_of(holder: BackendHolder, registry: Registry, *, via: str) -> Client:
    """A client on the backend of an App."""
    return client_in(Scope(holder, registry, login_name(), via))


def client_in(scope: Scope) -> Client:
    """A client for calls of this scope."""
    client = Client.__new__(Client)
    client._begin(scope)
    return client
