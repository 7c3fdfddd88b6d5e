"""`client.limits`, blocking."""

from __future__ import annotations

import builtins

from perdure.model.limits import Limit
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.limits import Limits as AsyncLimits


class Limits:
    """See `perdure.Client.limits`."""

    def __init__(self, limits: AsyncLimits, background: BackgroundLoop) -> None:
        self._limits = limits
        self._background = background

    def list(self) -> builtins.list[Limit]:
        """See `Limits.list`."""
        return self._background.run(self._limits.list())

    def get(self, key: str) -> Limit:
        """See `Limits.get`."""
        return self._background.run(self._limits.get(key))

    def set(self, key: str, max: int | None = None, *, per_minute: int | None = None) -> Limit:
        """See `Limits.set`."""
        return self._background.run(self._limits.set(key, max, per_minute=per_minute))

    def unset(self, key: str) -> Limit:
        """See `Limits.unset`."""
        return self._background.run(self._limits.unset(key))
