"""What all of the client's rooms share: the store, the registry, and who is acting through which door."""

from __future__ import annotations

import getpass
import json
from typing import Any, TypeAlias
from uuid import UUID

from perdure.model.errors import ConfigError
from perdure.runtime.observer import Observer
from perdure.runtime.registry import Registry
from perdure.runtime.validation import check_text
from perdure.store.protocol import Store

JobId: TypeAlias = UUID | str
"""A job's id: a UUID, its text, or its last 6 or more hex digits."""


class Base:
    """The ground the client's roles stand on."""

    def __init__(
        self, store: Store | None, registry: Registry | None = None, *, door: str = "python", actor: str | None = None
    ) -> None:
        self._store = store
        self.registry = registry if registry is not None else Registry()
        self.door = door
        self.actor = actor or _user()
        self.observer: Observer | None = None
        """Hears of the jobs that are enqueued here; `App` sets it where metrics or traces are wanted."""

    async def open(self) -> Store:
        """The open store; `App` opens it at first use."""
        if self._store is None:
            raise ConfigError("this client has no store")
        return self._store

    async def _id(self, job_id: JobId) -> UUID:
        return job_id if isinstance(job_id, UUID) else await (await self.open()).jobs.find_job(job_id)

    def _note(self, reason: str | None, **more: str) -> str:
        note: dict[str, Any] = {"actor": self.actor, "door": self.door, **more}
        if reason:
            note["reason"] = check_text(reason, "reason", 4000)
        return json.dumps(note, ensure_ascii=False)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
