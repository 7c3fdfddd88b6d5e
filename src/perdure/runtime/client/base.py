"""The base class of the parts of a client: for whom they act, and on which store."""

from __future__ import annotations

import getpass
import json
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from perdure.runtime.client.backend import BackendHolder
from perdure.runtime.observer import Observer
from perdure.runtime.registry import Registry
from perdure.runtime.validation import check_text
from perdure.store.protocol import Store

JobId: TypeAlias = UUID | str
"""A job's id: a UUID, its text, or its last 6 or more hex digits."""


@dataclass(frozen=True, slots=True)
class Scope:
    """For whom a client acts: `actor` and `via` go into the audit of what it changes, `tenant` says whose jobs it sees."""

    holder: BackendHolder
    registry: Registry
    actor: str
    via: str
    tenant: str | None = None
    """None: the tenant of the settings, or of the store."""

    def note(self, reason: str | None, **more: str) -> str:
        """The note of a change, as JSON text. Raises InvalidInput."""
        note: dict[str, Any] = {"actor": self.actor, "via": self.via, **more}
        if reason:
            note["reason"] = check_text(reason, "reason", 4000)
        return json.dumps(note, ensure_ascii=False)


class ClientPart:
    """Base class of the parts of a client. A part has no state of its own and opens nothing before its first call."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def _observer(self) -> Observer | None:
        return self._scope.holder.backend.observer

    async def _store(self) -> Store:
        return await self._scope.holder.backend.open(self._scope.tenant)

    async def _id(self, job_id: JobId) -> UUID:
        """The id of a job. A full id is not looked up: the call that follows does that. Raises JobNotFound, AmbiguousId."""
        if isinstance(job_id, UUID):
            return job_id
        if len(job_id) == 36:
            try:
                return UUID(job_id)
            except ValueError:
                pass  # the store raises what is wrong with it
        return await (await self._store()).jobs.find_job(job_id)


def login_name() -> str:
    """The name of the operating system's user: the actor if none is given."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
