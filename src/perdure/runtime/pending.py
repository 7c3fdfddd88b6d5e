"""What is written together with the next write of an attempt: caught failures, and the end of waits for code that fits."""

from __future__ import annotations

import json
from collections.abc import Sequence

import structlog

from perdure.model.current_attempt import attempt_ids
from perdure.model.effects import Effect, close_wait
from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease, Wait
from perdure.model.states import Status
from perdure.runtime.failures import Failures
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.run")

Write = tuple[Sequence[NewEvent], Sequence[Effect]]


class Pending:
    """Of one attempt. code_waits: its open waits for code that fits; it writes something, so its code fits."""

    def __init__(self, lease: Lease, code_waits: Sequence[Wait] = ()) -> None:
        self._lease = lease
        self.failures = Failures(lease)
        self._code_waits = code_waits

    def keep_code_waits(self) -> Sequence[Wait]:
        """The code of this attempt does not fit either: those of its waits that it has not ended in the log."""
        waits, self._code_waits = self._code_waits, ()
        return waits

    def added_to(self, events: Sequence[NewEvent], effects: Sequence[Effect]) -> Write:
        """What is pending and what is written now, in one write."""
        closed, closing = self._closed()
        return [*self.failures.take(), *closed, *events], [*closing, *effects]

    def give_back(self, events: Sequence[NewEvent]) -> None:
        """These could not be written."""
        self.failures.give_back(event for event in events if event.type == "failure_caught")

    async def write_last(self, store: Store, status: Status) -> None:
        """Write what was not written with anything else, before the attempt ends in this status. If that fails, the next attempt
        calls again what failed in this one."""
        events, effects = self.failures.last_events(), list[Effect]()
        if status in (Status.PARKED, Status.WAITING_FOR_APPROVAL):
            closed, effects = self._closed()
            events += closed
        if events:
            try:
                await store.leases.record(self._lease, events, effects=effects)
            except PerdureError as error:
                log.warning("the last events of an attempt not written", **attempt_ids(), error=str(error))

    def _closed(self) -> tuple[list[NewEvent], list[Effect]]:
        waits, self._code_waits = self._code_waits, ()
        events = [NewEvent("wait_completed", json.dumps({"key": wait.key, "kind": wait.kind})) for wait in waits]
        return events, [close_wait(wait.kind, wait.key) for wait in waits]
