"""Checks and folds the log of one job: its events are read in order, one row at a time, so a log may have any length."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from perdure.model.cost import ZERO, add_cost, cost_of
from perdure.model.events import HOLDER_TYPES, LIFECYCLE_TYPES
from perdure.model.jobs import Wait
from perdure.model.states import TRANSITIONS, Status, transition_event
from perdure.model.waits import TIMER, answers, opened_wait
from perdure.store.rows import Row

HEAD = 4000
"""Characters of a payload that are read."""

# A payload may be huge, and PostgreSQL cannot parse one that holds \u0000. So only its beginning is read, where perdure itself
# writes the key first: {"key": ..., "digest": ...}.
_KEY = re.compile(r'\s*\{\s*"key"\s*:\s*("(?:[^"\\]|\\.)*")(?:\s*,\s*"digest"\s*:\s*"(\w*)")?')
_BATCH = re.compile(r'\s*\{\s*"key"\s*:\s*"batch"\s*,\s*"kind"\s*:\s*"child"\s*,\s*"subject"\s*:\s*"batch ')
"""What the callback of a batch waits for from its birth on."""
_SIGNAL = re.compile(r'"signal"\s*:\s*"([^"]+)"')
_MESSAGE = re.compile(r'"message"\s*:\s*"([^"]+)"')
_APPROVAL = re.compile(r'"approval"\s*:\s*"([0-9a-fA-F-]{36})"')
_DECISION = re.compile(r'"decision"\s*:\s*"(\w+)"')
_RETRIES = re.compile(r'"retry_count"\s*:\s*(\d+)')
_WORKER = re.compile(r'"(?:lost_)?worker"\s*:')


class Log:
    """The log of one job, folded.

    `inherits`: the job is a fork, which begins with events copied from another job.
    """

    def __init__(self, *, inherits: bool = False) -> None:
        self.count = 0
        self.head = 0
        self.moved = 0
        """The version of the last transition."""
        self.created_at: Any = None
        """The time of version 1, as the dialect writes it."""
        self.status: Status | None = None
        self.attempt = 0
        self.began = False
        """Whether this attempt has written anything."""
        self.ends: dict[int, Status] = {}
        """The status each attempt ended in."""
        self.ran: set[int] = set()
        """The attempts that ended after they had written something, whether a worker or a reaper ended them."""
        self.retries: int | None = 0
        """The retries that were counted; None if that cannot be read."""
        self.waits: dict[tuple[str, str], Wait] = {}
        """The waits that have begun and not ended."""
        self.answered: set[tuple[str, str]] = set()
        """The kinds and keys of the waits that were answered."""
        self.asked: set[UUID] = set()
        self.decided: Counter[UUID] = Counter()
        self.decisions: dict[UUID, str] = {}
        """The decisions that the log has."""
        self.signals: set[UUID] = set()
        """The signals that came."""
        self.messages: set[tuple[str, UUID]] = set()
        """The messages that its waits have taken, with the keys of the waits."""
        self.tokens = 0
        self.cost = ZERO
        self.checkpoint: int | None = None
        """The version of the last checkpoint."""
        self.kept = False
        """Whether there must be a row of `job_state`."""
        self.unreadable = False
        """Whether a payload could not be read, so that waits and approvals are not known."""
        self._inherits = inherits
        self._recorded: dict[tuple[str, str], tuple[int, str | None]] = {}
        self._ids: set[Any] = set()
        self._faults: dict[str, list[str]] = {}
        self._more: Counter[str] = Counter()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Code and text of the faults of the log itself; of several with one code the first."""
        for code, [text] in self._faults.items():
            more = self._more[code] - 1
            yield code, text + (f" (and {more} more like it)" if more else "")

    def read(self, row: Row) -> None:
        """Read the next event: version, type, from_status, to_status, attempt, event_id, created_at, head of its payload."""
        version: int = row["version"]
        if version != self.head + 1:
            self._fault("log-gap", f"its log has no version {self.head + 1}")
        if version == 1:
            self.created_at = row["created_at"]
        if row["created_at"] is None:
            self._fault("log-time", f"version {version} is of a time beyond the years 2 to 9998, and cannot be read")
        begins = (row["type"], row["from_status"], row["to_status"])
        if self.count == 0 and begins != ("job_created", None, "PENDING"):
            self._fault("log-first", f"its log begins with {row['type']}")
        if self.status is not None and self.status.terminal:
            self._fault("log-after-end", f"version {version} ({row['type']}) was written after it was {self.status}")
        self.head = version
        self.count += 1
        if row["event_id"] is not None:
            if row["event_id"] in self._ids:
                self._fault("event-twice", f"version {version} ({row['type']}) is in its log twice")
            self._ids.add(row["event_id"])
        of_batch = row["type"] == "wait_started" and _BATCH.match(row["head"] or "") is not None
        inherited = self._inherits and self.attempt == 0
        if row["to_status"] is not None:
            self._move(row)
        elif row["type"] in LIFECYCLE_TYPES:
            self._fault("log-type", f"version {version} is called {row['type']} and moves nothing")
        elif row["type"] in HOLDER_TYPES and not (inherited or of_batch) and self.status and not self.status.leased:
            self._fault("log-unleased", f"version {version} ({row['type']}) was written while it was {self.status}")
        if row["attempt"] is not None and row["attempt"] != self.attempt and not inherited:
            self._fault(
                "log-attempt", f"version {version} ({row['type']}) is of attempt {row['attempt']}, not {self.attempt}"
            )
        self.began = self.began or row["type"] in HOLDER_TYPES
        self._add_up(row["type"], version, row["head"] or "", inherited)

    def _fault(self, code: str, text: str) -> None:
        self._faults.setdefault(code, [text])
        self._more[code] += 1

    def _move(self, row: Row) -> None:
        old, new = status_of(row["from_status"]), status_of(row["to_status"])
        if self.count > 1:
            self._check_move(row, old, new)
        if new is Status.RUNNING and old is not Status.WAITING:
            self.attempt += 1
            self.began = False
        if self.status is not None and self.status.leased and new is not None and not new.leased:
            self.ends[self.attempt] = new
            if self.began and _WORKER.search(row["head"] or ""):
                self.ran.add(self.attempt)
        if self.count > 1:
            self._retry(row["type"], row["head"] or "")
        self.status = new
        self.moved = row["version"]

    def _retry(self, type: str, head: str) -> None:
        """After a very long error the number may be cut off. SQL typed by hand may change it with any transition."""
        counted = _RETRIES.search(head)
        if counted is not None:
            self.retries = int(counted[1])
        elif type == "job_retrying" and len(head) >= HEAD:
            self.retries = None

    def _check_move(self, row: Row, old: Status | None, new: Status | None) -> None:
        version, type = row["version"], row["type"]
        if row["from_status"] != self.status:
            self._fault("log-chain", f"version {version} leaves {row['from_status']}, and it was {self.status}")
        elif old is None or new is None or new not in TRANSITIONS[old]:
            self._fault("log-illegal", f"version {version} goes from {row['from_status']} to {row['to_status']}")
        elif type != transition_event(old, new):
            self._fault("log-type", f"version {version} goes from {old} to {new} and is called {type}")

    def _add_up(self, type: str, version: int, head: str, inherited: bool) -> None:
        match type:
            case "node_finished" | "tool_returned":
                self._record(type, version, head, inherited)
            case "checkpoint_saved":
                self.checkpoint = version
                self.kept = True
            case _ if (
                inherited and type != "signal_received"
            ):  # of a fork that no worker has claimed: it was sent to the fork
                pass
            case (
                "wait_started"
                | "wait_completed"
                | "approval_requested"
                | "approval_decided"
                | "signal_received"
                | "agent_message"
            ):
                try:
                    self._coordinate(type, head)
                except (ValueError, TypeError, KeyError, AttributeError):
                    self._unreadable(type, version, head)
            case "usage_recorded":
                self.kept = True
                try:
                    used = json.loads(head)
                    self.tokens += int(used["tokens"])
                    self.cost = add_cost(self.cost, cost_of(used["cost"]))
                except (ValueError, TypeError, KeyError):
                    self._unreadable(type, version, head)
            case _:
                pass

    def _unreadable(self, type: str, version: int, head: str) -> None:
        self.unreadable = True
        if len(head) < HEAD:
            self._fault("log-payload", f"version {version} ({type}) lacks what such an event always has")

    def _record(self, type: str, version: int, head: str, inherited: bool) -> None:
        """The same step again is legitimate where a later attempt came with other arguments (on_change="rerun")."""
        found = _KEY.match(head)
        if found is None:
            if not inherited and '"key"' not in head and len(head) < HEAD:
                self._fault("log-payload", f"version {version} records a step or tool and does not say which")
            return
        key, digest = json.loads(found[1]), found[2]
        before = self._recorded.get((type, key))
        if before is not None and not inherited and (before[0] == self.attempt or before[1] == digest):
            self._fault("step-twice", f"version {version} records '{key}' again")
        self._recorded[type, key] = (self.attempt, digest)

    def _coordinate(self, type: str, head: str) -> None:
        key = _field("key", head)
        for of, open_wait in self.waits.items():
            if open_wait.key == key and answers(type, lambda name: _field(name, head), open_wait):
                self.answered.add(of)
        if type == "approval_decided":
            id = UUID(_found(_APPROVAL, head))
            self.decided[id] += 1
            if (decision := _DECISION.search(head)) is not None:
                self.decisions[id] = decision[1]
            return
        if type == "signal_received":
            self.signals.add(UUID(_found(_SIGNAL, head)))
            return
        if type == "agent_message":
            self.messages.add((json.loads(_found(_KEY, head)), UUID(_found(_MESSAGE, head))))
            return
        if type == "wait_completed":
            self.waits.pop((_field("kind", head) or TIMER.name, json.loads(_found(_KEY, head))), None)
            return
        if type == "approval_requested":
            self.asked.add(UUID(_found(_APPROVAL, head)))
        wait = opened_wait(type, lambda name: _field(name, head))
        if wait is not None:
            self.waits[wait.kind, wait.key] = wait
            self.answered.discard((wait.kind, wait.key))


def status_of(text: str | None) -> Status | None:
    """The status of this name; None where there is no such state."""
    return Status(text) if text is not None and text in Status.__members__ else None


def _field(name: str, head: str) -> str | None:
    """A text among the fields of a payload of which only the beginning is known."""
    found = re.search(rf'"{re.escape(name)}"\s*:\s*("(?:[^"\\]|\\.)*")', head)
    return None if found is None else json.loads(found[1])


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    if match is None:
        raise ValueError(text)
    return match[1]
