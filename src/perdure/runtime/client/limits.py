"""`client.limits`: how many jobs of a concurrency key may run at a time."""

from __future__ import annotations

import builtins

from perdure.model.limits import Limit
from perdure.runtime.client.base import ClientPart
from perdure.runtime.validation import check_key, check_maximum


class Limits(ClientPart):
    """How many jobs of a concurrency key may run at a time, and how many do."""

    async def list(self) -> builtins.list[Limit]:
        """The keys that jobs hold slots of, and those that were set by hand; at most 1,000."""
        return await (await self._store()).limits.list_limits()

    async def get(self, key: str) -> Limit:
        """One key, with the jobs that hold its slots. Raises InvalidInput."""
        return await (await self._store()).limits.get_limit(check_key(key, "key"))

    async def set(self, key: str, max: int) -> Limit:
        """Let at most `max` jobs of this key run from now on, whatever code says; 0: none.

        A lower maximum ends no job: it holds once so many have ended. Raises InvalidInput.
        """
        store = await self._store()
        key, max = check_key(key, "key"), check_maximum(max, "max", least=0)
        await store.limits.set_limit(key, max, by=self._scope.actor)
        return await store.limits.get_limit(key)

    async def unset(self, key: str) -> Limit:
        """Let code say again how many jobs of this key run. It does nothing if nothing was set. Raises InvalidInput."""
        store = await self._store()
        key = check_key(key, "key")
        await store.limits.unset_limit(key)
        return await store.limits.get_limit(key)
