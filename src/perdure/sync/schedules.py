"""`client.schedules`, blocking."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any, Unpack

from perdure.model.schedules import Schedule
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.schedules import ScheduleOptions
from perdure.runtime.client.schedules import Schedules as AsyncSchedules
from perdure.runtime.registry import Handler
from perdure.sync.handle import Handle


class Schedules:
    """See `perdure.Client.schedules`."""

    def __init__(self, schedules: AsyncSchedules, background: BackgroundLoop) -> None:
        self._schedules = schedules
        self._background = background

    def add(
        self, id: str, job: Handler[Any, Any] | str, input: Any = None, /, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """See `Schedules.add`."""
        return self._background.run(self._schedules.add(id, job, input, **options))

    def get(self, id: str) -> Schedule:
        """See `Schedules.get`."""
        return self._background.run(self._schedules.get(id))

    def list(self, *, limit: int = 1000, after: str | None = None) -> builtins.list[Schedule]:
        """See `Schedules.list`."""
        return self._background.run(self._schedules.list(limit=limit, after=after))

    def next(self, id: str, count: int = 5) -> builtins.list[datetime]:
        """See `Schedules.next`."""
        return self._background.run(self._schedules.next(id, count))

    def pause(self, id: str) -> Schedule:
        """See `Schedules.pause`."""
        return self._background.run(self._schedules.pause(id))

    def resume(self, id: str) -> Schedule:
        """See `Schedules.resume`."""
        return self._background.run(self._schedules.resume(id))

    def trigger(self, id: str) -> Handle[Any]:
        """See `Schedules.trigger`."""
        return Handle(self._background.run(self._schedules.trigger(id)), self._background)

    def backfill(self, id: str, start: datetime, end: datetime, *, dry_run: bool = False) -> builtins.list[datetime]:
        """See `Schedules.backfill`."""
        return self._background.run(self._schedules.backfill(id, start, end, dry_run=dry_run))

    def remove(self, id: str) -> None:
        """See `Schedules.remove`."""
        self._background.run(self._schedules.remove(id))
