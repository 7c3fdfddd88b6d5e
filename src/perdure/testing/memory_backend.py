"""The backend of a TestApp: one store in memory, which all event loops use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import cast
from uuid import UUID

from perdure.backend import AppBackend
from perdure.model.errors import ConfigError
from perdure.model.jobs import Job
from perdure.runtime.observer import Observer
from perdure.runtime.run import Invoke
from perdure.store.open import open_store
from perdure.store.protocol import Migration, SchemaStatus, Store
from perdure.testing.clock import ManualClock
from perdure.testing.other_loop_store import OtherLoopStore


class MemoryBackend(AppBackend):
    """Makes the store at first use, between `begin` and `end`.

    invoke: calls a handler. wait: see `Backend.wait`; it runs the workers that the job needs.
    """

    observer: Observer | None = None

    def __init__(
        self, clock: ManualClock, invoke: Invoke, wait: Callable[[UUID, float | None], Awaitable[Job]]
    ) -> None:
        self.invoke = invoke
        self._clock = clock
        self._wait = wait
        self._home: tuple[asyncio.AbstractEventLoop, Store] | None = None
        self._making = threading.Lock()
        self._begun = False

    @property
    def opened(self) -> bool:
        """See `AppBackend.opened`."""
        return self._home is not None

    def begin(self) -> None:
        """Allow the store to be opened."""
        self._begun = True

    def end(self) -> None:
        """Close the store, whatever event loop it was used from."""
        self._begun = False
        if self._home is not None:
            # its event loop may be running or closed: another thread has a loop of its own
            closing = threading.Thread(target=asyncio.run, args=(self._home[1].close(),), name="perdure-test-close")
            closing.start()
            closing.join()
            self._home = None

    async def open(self, tenant: str | None = None) -> Store:
        """The store in memory, made at first use; it belongs to the event loop that makes it, and others may use it too.
        Raises ConfigError outside of `with` or `async with`, and for a tenant of its own."""
        if not self._begun:
            raise ConfigError("a TestApp is open inside `with` or `async with` only")
        loop = asyncio.get_running_loop()
        if self._home is None:
            store = await open_store("memory:", clock=self._clock)
            await store.schema.migrate()
            with self._making:
                if self._home is None:
                    self._home = loop, store
            if self._home[1] is not store:  # another thread was faster
                await store.close()
        home, store = self._home
        if tenant is not None and tenant != store.tenant_id:
            raise ConfigError(f"a TestApp has the tenant '{store.tenant_id}', not '{tenant}'")
        return store if home is loop else cast("Store", OtherLoopStore(store))

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
        del store  # the one of `open`
        return await self._wait(job_id, seconds)

    async def close(self) -> None:
        """Nothing: what is in memory stays until the end of the `with` block, also where the App is closed earlier."""
