"""What an attempt writes: its events while it runs, and its end. Many callers share each of these."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from perdure.model.errors import IllegalTransition, LeaseLost
from perdure.model.events import NewEvent
from perdure.model.ids import short_id
from perdure.model.jobs import Lease, Outcome, StatePatch, Wait
from perdure.model.states import FAILURES, Status
from perdure.store.errors import lease_lost
from perdure.store.group_commit.limits import text_of_outcome, text_of_record
from perdure.store.sqlite.engine.base import SQL, Base
from perdure.store.sqlite.engine.bulk import json_of, write_rows
from perdure.store.sqlite.engine.database import CODEC, micros, span
from perdure.store.sqlite.engine.writer import NEWS, WORK
from perdure.store.sqlite.leases.lease_check import Claim, Holder, held_heads, holds, live_claims

# What can be is prepared by the caller, in the event loop: the writer's time is what bounds a process.


class _Record(NamedTuple):
    """One call of `record`."""

    id: str
    lease: Lease
    events: list[tuple[str, str, str]]
    """Event id, type, payload."""
    state: StatePatch | None
    open_waits: Sequence[Wait]
    close_waits: Sequence[str]


class _End(NamedTuple):
    """One call of `finish`."""

    id: str
    lease: Lease
    outcome: Outcome
    ran: int


class Attempts(Base):
    """See `protocol.LeaseStore`."""

    async def record(
        self,
        lease: Lease,
        events: Sequence[NewEvent],
        *,
        state: StatePatch | None = None,
        open_waits: Sequence[Wait] = (),
        close_waits: Sequence[str] = (),
    ) -> int:
        """See `protocol.LeaseStore.record`."""
        rows = [(event.event_id, event.type, event.payload) for event in events]
        record = _Record(str(lease.job_id), lease, rows, state, open_waits, close_waits)
        return await self._join(self._record_each, record, NEWS, text_of_record(events, state))

    async def finish(self, lease: Lease, outcome: Outcome) -> Status:
        """See `protocol.LeaseStore.finish`."""
        if outcome.status.leased:
            raise IllegalTransition(
                f"an attempt of job …{short_id(lease.job_id)} cannot end {outcome.status}: that keeps its lease"
            )
        end = _End(str(lease.job_id), lease, outcome, span(outcome.ran))
        if outcome.status is Status.COMPLETED:
            return await self._join(self._complete_each, end, NEWS, text_of_outcome(outcome))
        return await self._join(self._settle_each, end, NEWS | WORK, text_of_outcome(outcome))

    # Rows are collected for all callers and written kind by kind: one call into SQLite's driver for each kind.

    def _record_each(self, conn: sqlite3.Connection, now: int, records: Sequence[_Record]) -> list[int | LeaseLost]:
        results: dict[int, int | LeaseLost] = {}
        events: list[tuple[Any, ...]] = []
        patches: list[tuple[Any, ...]] = []
        for holder, places in _by_holder(record.lease for record in records).items():
            heads = held_heads(conn, now, self.tenant_id, holder, [records[n].id for n in places])
            moved: dict[str, int] = {}  # where this batch leaves the log of a job
            for n in places:
                record = records[n]
                id = record.id
                if id not in heads:
                    results[n] = lease_lost(record.lease)
                    continue
                version = moved.get(id) or heads[id]
                for event in record.events:
                    version += 1
                    events.append((id, version, now, holder.attempt, *event))
                results[n] = moved[id] = version
                patch = record.state
                if patch is not None:
                    patches.append(
                        (id, patch.checkpoint, patch.progress, patch.progress_text, patch.tokens, patch.cost, now)
                    )
                for wait in record.open_waits:
                    opened = {
                        "job_id": id,
                        "key": wait.key,
                        "kind": wait.kind,
                        "subject_id": wait.subject_id,
                        "until": micros(wait.until),
                        "now": now,
                    }
                    conn.execute(SQL["open_wait"], opened)
                if record.close_waits:
                    write_rows(conn, "close_waits", [(id, key) for key in record.close_waits])
            write_rows(conn, "append_head", list(moved.items()), now)
        write_rows(conn, "append_many", events)
        if patches:
            conn.executemany(SQL["patch_state"], patches)
        return [results[n] for n in range(len(records))]

    def _complete_each(self, conn: sqlite3.Connection, now: int, ends: Sequence[_End]) -> list[Status | LeaseLost]:
        """Of those that returned all claims are dropped first, then the jobs move."""
        results: list[Status | LeaseLost] = [Status.COMPLETED] * len(ends)
        for holder, places in _by_holder(end.lease for end in ends).items():
            heads = held_heads(conn, now, self.tenant_id, holder, [ends[n].id for n in places])
            completed: list[tuple[str, int, str | None]] = []
            runs: dict[str, int] = {}
            for n in places:
                id, lease, outcome, ran = ends[n]
                head = heads.pop(id, None)
                if head is None:
                    results[n] = lease_lost(lease)
                    continue
                completed.append((id, head + 1, outcome.result))
                if outcome.started:
                    runs[id] = ran
            if completed:
                conn.execute(SQL["add_completed_runs"], (now, now, json.dumps(runs)))
                conn.execute(SQL["drop_claims"], (json_of(row[0] for row in completed),))
                write_rows(conn, "complete_many", completed, now, now, json.dumps({"worker": holder.worker_id}))
        return results

    def _settle_each(self, conn: sqlite3.Connection, now: int, ends: Sequence[_End]) -> list[Status | LeaseLost]:
        """Those that ended in any other way."""
        results: list[Status | LeaseLost] = []
        gone: list[str] = []
        settled: list[dict[str, Any]] = []
        runs: list[tuple[Any, ...]] = []
        claims = live_claims(conn, now, self.tenant_id, [end.id for end in ends])
        for id, lease, outcome, ran in ends:
            claim = claims.get(id)
            if not holds(claim, lease):
                results.append(lease_lost(lease))
                continue
            del claims[id]
            gone.append(id)
            end = _settle(conn, now, id, lease, outcome, claim)
            settled.append(end)
            status: Status = end["status"]
            if outcome.started:
                run = (id, lease.attempt, lease.worker_id, now - ran, now, status.value, end["told"], end["told_kind"])
                runs.append(run)
            results.append(status)
        if gone:
            conn.execute(SQL["drop_claims"], (json_of(gone),))
            conn.executemany(SQL["settle_many"], settled)
        write_rows(conn, "add_run", runs)
        return results


def _by_holder(leases: Iterable[Lease]) -> dict[Holder, list[int]]:
    """The places of these leases, by who has them: mostly one worker, in its first attempts."""
    places: dict[tuple[str, int], list[int]] = {}
    for n, (_, attempt, worker_id) in enumerate(leases):
        places.setdefault((worker_id, attempt), []).append(n)
    return {Holder(*holder): some for holder, some in places.items()}


def _settle(
    conn: sqlite3.Connection, now: int, id: str, lease: Lease, outcome: Outcome, claim: Claim
) -> dict[str, Any]:
    """The parameters of `settle_many`; `told` and `told_kind` are the error as the run row keeps it."""
    job = conn.execute(SQL["retries"], (id,)).fetchone()
    retries: int = job["retry_count"]
    status, error, error_kind = outcome.status, outcome.error, outcome.error_kind
    if claim.cancel_note is not None and not status.terminal:
        status = Status.CANCELLED
    if status is Status.RETRY and outcome.uses_retry:
        if retries >= job["max_retries"]:
            status = Status.DEADLETTER
        else:
            retries += 1
    if status in FAILURES:
        error = error or outcome.reason or "failed"
        error_kind = error_kind or ("fatal" if status is Status.FAILED else "exhausted")
    next_retry_at = now + span(outcome.delay) if status is Status.RETRY else None
    if status is Status.CANCELLED and claim.cancel_note is not None:
        note = claim.cancel_note
    else:
        said: dict[str, Any] = {
            "worker": lease.worker_id,
            "reason": outcome.reason,
            "error": error,
            "error_kind": error_kind,
        }
        if next_retry_at is not None:
            said |= {"retry_count": retries, "next_retry_at": CODEC.time(next_retry_at).isoformat()}
        note = json.dumps({key: value for key, value in said.items() if value is not None}, ensure_ascii=False)
    return {
        "id": id,
        "now": now,
        "status": status,
        "version": claim.version + 1,
        "retry_count": retries,
        "lost_starts": 0 if outcome.started else job["lost_starts"],
        "next_retry_at": next_retry_at,
        "finished_at": now if status.terminal else None,
        "error": error if status in FAILURES else None,
        "error_kind": error_kind if status in FAILURES else None,
        "note": note,
        "told": error,
        "told_kind": error_kind,
    }
