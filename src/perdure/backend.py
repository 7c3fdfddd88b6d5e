"""The backend of an App: it opens a store per event loop and tenant, and checks the schema at first use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from perdure.config import BY_NAME as SETTINGS_BY_NAME
from perdure.config import Settings
from perdure.model.errors import ConfigError, InvalidInput, PerdureError, StoreUnreachable
from perdure.model.jobs import Job
from perdure.observe.setup import Observability
from perdure.runtime.client.backend import Backend
from perdure.runtime.client.wait import wait_for_end
from perdure.runtime.invoke import invoke
from perdure.runtime.observer import Observer
from perdure.runtime.run import Invoke
from perdure.store.open import open_store
from perdure.store.protocol import Migration, SchemaStatus, Store
from perdure.store.protocol.blobs import ContentSettings


class AppBackend(Backend):
    """Opens and closes the stores of an App, and calls its handlers. It is in `App.backend`, where tests replace it."""

    invoke: Invoke
    """Calls a handler."""

    @property
    def opened(self) -> bool:
        """True if a store is open."""
        raise NotImplementedError

    async def close(self) -> None:
        """Finish the writes that have begun and close the stores of this event loop."""
        raise NotImplementedError


class DatabaseBackend(AppBackend):
    """Opens the database that the settings name.

    settings: called when a store is opened. migrate: see `App`.
    """

    invoke: Invoke = staticmethod(invoke)

    def __init__(self, settings: Callable[[], Settings], observability: Observability, *, migrate: bool | None) -> None:
        self._settings = settings
        self._observability = observability
        self._migrate = migrate
        self._loops: dict[asyncio.AbstractEventLoop, _LoopStores] = {}

    @property
    def observer(self) -> Observer | None:
        """See `Backend.observer`."""
        return self._observability.observer

    @property
    def opened(self) -> bool:
        """See `AppBackend.opened`."""
        return any(loop.stores for loop in self._loops.values())

    async def open(self, tenant: str | None = None) -> Store:
        """See `Backend.open`. Raises as `App.open`."""
        stores = self._here()
        if tenant in stores.checked:
            return stores.checked[tenant]
        async with stores.opening:
            if tenant not in stores.checked:
                store = await self._connected(
                    stores, tenant, creates=self._migrate is not False, allow_other_tables=self._migrate is True
                )
                try:
                    await self._check(store)
                except BaseException:
                    stores.stores.pop(self._name(tenant), None)
                    await store.close()
                    raise
                stores.checked[tenant] = store
            return stores.checked[tenant]

    async def schema_status(self) -> SchemaStatus:
        """See `Backend.schema_status`."""
        stores = self._here()
        async with stores.opening:
            return await (await self._connected(stores)).schema.schema_status()

    async def backup(self, file: str, *, overwrite: bool) -> int:
        """See `Backend.backup`."""
        stores = self._here()
        path = self._settings()["database_url"].strip().removeprefix("sqlite:///")
        if ":" not in path and not os.path.exists(path):  # noqa: ASYNC240, PTH110  a look, and pathlib is slow to load
            raise StoreUnreachable(f"there is no database at {path}", hint="check the URL with perdure config ls")
        async with stores.opening:
            store = await self._connected(stores, allow_other_tables=True)
        return await store.schema.backup(file, overwrite=overwrite)

    async def migrate(self) -> list[Migration]:
        """See `Backend.migrate`."""
        stores = self._here()
        async with stores.opening:
            return await (await self._connected(stores, allow_other_tables=True)).schema.migrate()

    async def wait(self, store: Store, job_id: UUID, seconds: float | None) -> Job:
        """See `Backend.wait`."""
        return await wait_for_end(store, job_id, seconds)

    async def close(self) -> None:
        """See `AppBackend.close`."""
        stores = self._loops.pop(asyncio.get_running_loop(), None)
        if stores is not None:
            for store in stores.stores.values():
                await store.close()

    def _here(self) -> _LoopStores:
        loop = asyncio.get_running_loop()
        stores = self._loops.get(loop)
        if stores is None:
            stores = self._loops[loop] = _LoopStores()
        return stores

    def _name(self, tenant: str | None) -> str:
        if tenant is None:
            name: str = self._settings()["tenant"]
            return name
        try:
            checked: str = SETTINGS_BY_NAME["tenant"].read(tenant)
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"tenant: {error}") from None
        return checked

    async def _connected(
        self, stores: _LoopStores, tenant: str | None = None, *, creates: bool = True, allow_other_tables: bool = False
    ) -> Store:
        """The store, its schema not checked; called under the lock `opening`. creates, allow_other_tables: see `open_store`."""
        name = self._name(tenant)
        if name not in stores.stores:
            settings = self._settings()
            await self._close_abandoned(settings["database_url"])
            self._observability.begin(settings)
            store = await open_store(
                settings["database_url"],
                tenant=name,
                creates=creates,
                allow_other_tables=allow_other_tables,
                contents=_contents(settings),
            )
            stores.stores[name] = self._observability.store(store, settings)
        return stores.stores[name]

    async def _check(self, store: Store) -> None:
        embedded = not self._settings()["database_url"].strip().startswith("postgres")
        if self._migrate or (self._migrate is None and embedded):
            await store.schema.migrate(allow_other_tables=self._migrate is True)
        else:
            await store.schema.check_schema()

    async def _close_abandoned(self, url: str) -> None:
        """Close the stores of event loops that have ended: a former asyncio.run without `close`."""
        others = [loop for loop in self._loops if loop is not asyncio.get_running_loop()]
        if url.strip() == "memory:" and any(self._loops[loop].stores for loop in others):
            raise ConfigError(
                "a memory: store was opened in another event loop, and can be used only there",
                hint="use one asyncio.run, or sqlite:///path",
            )
        for loop in [loop for loop in others if loop.is_closed()]:
            for store in self._loops.pop(loop).stores.values():
                try:
                    async with asyncio.timeout(2):
                        await store.close()
                except (RuntimeError, OSError, TimeoutError, PerdureError):
                    continue  # without its loop it may be unable to close its connections; the sockets close with the objects


def _contents(settings: Settings) -> ContentSettings:
    directory = settings["cli_blob_dir"]
    return ContentSettings(
        None if directory is None else Path(directory), settings["cli_inline_threshold"], settings["cli_files_limit"]
    )


class _LoopStores:
    """The stores of one event loop."""

    def __init__(self) -> None:
        self.stores: dict[str, Store] = {}
        """By the name of the tenant."""
        self.checked: dict[str | None, Store] = {}
        """Those whose schema was checked or migrated, by the tenant that `open` was called with."""
        self.opening = asyncio.Lock()
