"""The failures of steps and tools in one attempt: those that the handler goes on from are recorded, so that a replay raises them
again; one that ended the attempt is tried again by the next.

A failure is written together with what the attempt writes next, which shows that the handler went on. So it needs no commit of
its own, and a failure that ends the attempt is never written, unless a parallel branch wrote in between."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from perdure.model.events import NewEvent
from perdure.model.jobs import Lease
from perdure.runtime.outcomes import describe
from perdure.runtime.raised import as_raised

_MARK = "_perdure_calls"
"""In the attributes of an exception: the attempts and calls that it came from. To keep the exceptions themselves would keep all
that their tracebacks hold."""

_Of = tuple[str, str]
"""Kind and key of a call."""


class Failures:
    """What failed in one attempt."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._unwritten: dict[_Of, NewEvent] = {}
        self._written: set[_Of] = set()
        self._inside: dict[_Of, _Of] = {}
        """The calls that were made by the function of another call, and that other one."""
        self._ended_by: set[_Of] = set()

    def add(self, kind: str, key: str, digest: str, error: Exception, *, inside: _Of | None) -> None:
        """A call failed, and its failure is raised in the handler. inside: the call whose function made it."""
        payload = {"key": key, "digest": digest, "kind": kind, "error": describe(error), "raised": as_raised(error)}
        self._unwritten[kind, key] = NewEvent("failure_caught", json.dumps(payload))
        self._mark(kind, key, error, inside)

    def add_replayed(self, kind: str, key: str, error: Exception, *, inside: _Of | None) -> None:
        """A recorded failure is raised again."""
        self._written.add((kind, key))
        self._mark(kind, key, error, inside)

    def _mark(self, kind: str, key: str, error: Exception, inside: _Of | None) -> None:
        vars(error)[_MARK] = (*vars(error).get(_MARK, ()), (self._lease, (kind, key)))
        if inside is not None:
            self._inside[kind, key] = inside

    def take(self) -> list[NewEvent]:
        """The events to write with what the attempt writes now."""
        events = list(self._unwritten.values())
        self._written.update(self._unwritten)
        self._unwritten.clear()
        return events

    def give_back(self, events: Iterable[NewEvent]) -> None:
        """What `take` gave could not be written."""
        for event in events:
            payload = json.loads(event.payload)
            of = payload["kind"], payload["key"]
            self._written.discard(of)
            self._unwritten.setdefault(of, event)

    def end(self, error: BaseException) -> None:
        """The handler raised this, and the attempt ends with it."""
        self._ended_by = _calls_in(error, self._lease)

    def last_events(self) -> list[NewEvent]:
        """What is to be written before the attempt ends."""
        ended_by = self._ended_by | {of for of in self._inside if not self._ended_by.isdisjoint(self._around(of))}
        for of in ended_by:
            self._unwritten.pop(of, None)
        retried = [
            NewEvent("failure_retried", json.dumps({"key": key, "kind": kind}))
            for kind, key in sorted(ended_by & self._written)
        ]
        return self.take() + retried

    def _around(self, of: _Of) -> Iterable[_Of]:
        seen = {of}
        while (around := self._inside.get(of)) is not None and around not in seen:
            yield around
            seen.add(around)
            of = around


def _calls_in(error: BaseException, lease: Lease) -> set[_Of]:
    """The calls of this attempt whose failures an error is, holds as a group, or was raised for.

    A failed call may have been made while another failure was handled: that one is its __context__, and the handler went on from
    it."""
    found: set[_Of] = set()
    seen: set[int] = set()
    left: list[Any] = [error]
    while left:
        this = left.pop()
        if this is None or id(this) in seen:
            continue
        seen.add(id(this))
        calls = {of for its_lease, of in vars(this).get(_MARK, ()) if its_lease == lease}
        found |= calls
        left.append(this.__cause__)
        if not calls:
            left.append(this.__context__)
        if isinstance(this, BaseExceptionGroup):
            left.extend(this.exceptions)
    return found
