"""Backends: objects that open stores for clients. An App has one, tests replace it, and `Client(store)` makes one."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from perdure.model.errors import ConfigError
from perdure.model.jobs import Job
from perdure.model.tooling import Account, CliRun, TaskSpec
from perdure.runtime.client.wait import wait_for_end
from perdure.runtime.observer import Observer
from perdure.store.protocol import Migration, SchemaStatus, Store


class Backend(Protocol):
    """Opens stores for clients and workers, and waits for the end of jobs."""

    @property
    def observer(self) -> Observer | None:
        """Called for enqueued jobs and for attempts; None if there are neither metrics nor traces."""
        ...

    async def open(self, tenant: str | None = None) -> Store:
        """The store of a tenant, opened and its schema checked at first use. tenant None: that of the settings."""
        ...

    async def schema_status(self) -> SchemaStatus:
        """See `Database.schema_status`."""
        ...

    async def backup(self, file: str, *, overwrite: bool) -> int:
        """See `Database.backup`."""
        ...

    async def migrate(self) -> list[Migration]:
        """See `Database.migrate`."""
        ...

    async def wait(self, store: Store, job_id: UUID, seconds: float | None) -> Job:
        """See `Jobs.wait`. seconds: None waits without a limit."""
        ...


class BackendHolder(Protocol):
    """An object with a backend. Clients read it at every call, so that tests can replace the backend."""

    @property
    def backend(self) -> Backend:
        """The backend in use."""
        ...

    def check_task(self, task: TaskSpec) -> None:
        """Refuse a task that no adapter can run. Raises UnknownTool, PromptTooLarge."""
        ...

    def check_tool(self, tool: str) -> None:
        """Refuse a tool that has no adapter. Raises UnknownTool."""
        ...

    async def probe_account(self, account: Account) -> CliRun:
        """Run the tool of an account once, on this machine, with a short prompt. Raises ToolRefused."""
        ...


class OpenStore:
    """The backend of a client made from an open store; its own holder."""

    observer: Observer | None = None

    def __init__(self, store: Store | None) -> None:
        self._store = store

    @property
    def backend(self) -> Backend:
        """See `BackendHolder.backend`."""
        return self

    def check_task(self, task: TaskSpec) -> None:
        """See `BackendHolder.check_task`. A client without an App knows no adapters: its tasks are checked when they start."""

    def check_tool(self, tool: str) -> None:
        """See `BackendHolder.check_tool`."""

    async def probe_account(self, account: Account) -> CliRun:
        """See `BackendHolder.probe_account`. Raises ConfigError: a client without an App knows no adapters."""
        raise ConfigError(f"this client has no App, which knows how {account.tool} is run")

    async def open(self, tenant: str | None = None) -> Store:
        """See `Backend.open`. Raises ConfigError without a store, and for another tenant than the store's."""
        if self._store is None:
            raise ConfigError("this client has no store")
        if tenant is not None and tenant != self._store.tenant_id:
            raise ConfigError(f"this client's store is of tenant '{self._store.tenant_id}', not of '{tenant}'")
        return self._store

    async def schema_status(self) -> SchemaStatus:
        """See `Backend.schema_status`."""
        return await (await self.open()).schema.schema_status()

    async def backup(self, file: str, *, overwrite: bool) -> int:
        """See `Backend.backup`."""
        return await (await self.open()).schema.backup(file, overwrite=overwrite)

    async def migrate(self) -> list[Migration]:
        """See `Backend.migrate`."""
        return await (await self.open()).schema.migrate()

    async def wait(self, store: Store, job_id: UUID, seconds: float | None) -> Job:
        """See `Backend.wait`."""
        return await wait_for_end(store, job_id, seconds)
