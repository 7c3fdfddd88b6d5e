"""What a handler reports of itself, counted once however often it is replayed: usage, events of its own, progress."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

from perdure.model.effects import Effect, patch_state
from perdure.model.errors import InvalidInput
from perdure.model.events import NewEvent
from perdure.model.ids import keyed_event_id, new_event_id
from perdure.runtime import codec
from perdure.runtime.context.budget import Ledger
from perdure.runtime.context.current_call import RunningCall, running_call
from perdure.runtime.context.names import Keys
from perdure.runtime.history import NO_HISTORY
from perdure.runtime.run import Run
from perdure.runtime.validation import check_cost, check_event_type, check_tokens

_PAGE = 1000


class Reports:
    """The reports of one attempt.

    Between the steps a report has a key, counted like those of steps; what an earlier attempt wrote under it is not written
    again. Inside the function of a step or tool each call counts: the function was really called again."""

    def __init__(self, run: Run, keys: Keys, budget: Ledger | None) -> None:
        self._run = run
        self._budget = budget
        self._keys = keys
        self._written: dict[str, set[UUID]] = {}
        """By type: the ids of the events that the job's log had when this attempt began."""
        self._reading = asyncio.Lock()

    async def usage(self, key: str | None, tokens: int, cost: Decimal | float | str) -> None:
        """See `JobContext.usage`. key: of its options."""
        await self._run.enter()
        check_tokens(tokens)
        exact = check_cost(cost)
        call = self._call()
        its_key = self._keys.next("usage", "usage", key) if call is None else call.key_of("usage")
        if its_key in self._run.history.usage:
            return
        payload: dict[str, Any] = {"key": its_key, "tokens": tokens, "cost": f"{exact:f}"}
        also, effects = list[NewEvent](), list[Effect]()
        if self._budget is not None:
            more, also, effects = self._budget.usage(tokens, exact)
            payload |= more
        events = [NewEvent("usage_recorded", json.dumps(payload)), *also]
        await self._run.record(events, patch_state(tokens=tokens, cost=exact), *effects)
        if self._run.observer is not None:
            self._run.observer.usage(self._run.claimed, tokens, exact)

    async def emit(self, key: str | None, type: str, payload: Any) -> None:
        """See `JobContext.emit`. key: of its options."""
        await self._run.enter()
        check_event_type(type)
        text = codec.encode({} if payload is None else payload, f"event '{type}'")
        if self._call() is not None:
            event_id = new_event_id()
        else:
            its_key = self._keys.next("event", type, key)
            event_id = keyed_event_id(self._run.lease.job_id, its_key)
            if await self._was_written(type, its_key, UUID(event_id)):
                return
        await self._run.record([NewEvent(type, text, event_id)])

    async def progress(self, fraction: float, text: str | None) -> None:
        """See `JobContext.progress`."""
        await self._run.enter()
        if not 0 <= fraction <= 1:
            raise InvalidInput(f"progress is a fraction between 0 and 1, got {fraction!r}")
        history = self._run.history
        if history.unmet and fraction < history.progress:
            return
        figure = patch_state(progress=float(fraction), progress_text=None if text is None else text[:500])
        self._run.progress.note(figure)

    def _call(self) -> RunningCall | None:
        """The call of this attempt that the running code belongs to."""
        call = running_call.get(None)
        return call if call is not None and call.lease == self._run.lease else None

    async def _was_written(self, type: str, key: str, event_id: UUID) -> bool:
        history = self._run.history
        if history is NO_HISTORY:
            return False
        if any(UUID(keyed_event_id(job_id, key)) in ids for job_id, ids in history.kept_events.items()):
            return True
        async with self._reading:
            if type not in self._written:
                self._written[type] = await self._ids_of(type)
        return event_id in self._written[type]

    async def _ids_of(self, type: str) -> set[UUID]:
        found: set[UUID] = set()
        jobs, job_id, after = self._run.store.jobs, self._run.lease.job_id, 0
        with self._run.busy():
            while events := await jobs.list_events(job_id, after=after, limit=_PAGE, types=[type]):
                found.update(event.event_id for event in events if event.event_id is not None)
                after = events[-1].version
                if len(events) < _PAGE:
                    break
        return found
