"""Whether a job's rows fit each other and its log: what is wrong, and what would repair it. The same for both dialects.

What the log says holds. Where the log itself or the job's own row is damaged, nothing that follows from them is repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.model.approvals import ApprovalStatus
from perdure.model.cost import cost_of, text_of_cost
from perdure.model.jobs import Wait, lane_of
from perdure.model.states import FAILURES, WITHOUT_RESULT, Status
from perdure.model.waits import CODE, WaitFault, kind_of
from perdure.store.fsck.case import Case, Fault, Repair
from perdure.store.fsck.files import faults_of_files
from perdure.store.fsck.log_check import status_of
from perdure.store.fsck.messages import faults_of_messages
from perdure.store.fsck.signals import faults_of_signals
from perdure.store.rows import Row

OVERDUE = timedelta(minutes=5)
"""A lease that ran out this long ago: no worker is about, or it would have been reaped within seconds."""
SLACK = timedelta(seconds=5)
"""What is due at once may be in the queue with a time slightly ahead: clocks of statements differ."""

_DECIDED = frozenset({ApprovalStatus.APPROVED, ApprovalStatus.DENIED, ApprovalStatus.EXPIRED})


def faults_of(case: Case) -> list[Fault]:
    """Everything that is wrong with this job, its repairs in the order in which they belong."""
    if case.job is None:
        found = list(_without_a_job(case))
        return found if case.id else [replace(f, text=f"{f.text}: '{case.key}'", repair=None) for f in found]
    found = [Fault(code, text) for code, text in case.log.faults()] + list(_of_the_row(case, case.job))
    sound = not any(fault.code.startswith(("log-", "row-")) for fault in found)
    status = status_of(case.job["status"])
    if status is None or case.job["odd"]:
        alone = all(fault.code == "row-time" for fault in found)
        return found if alone else [replace(fault, repair=None) for fault in found]
    parts = (
        _of_the_lane,
        _of_the_claim,
        _of_the_waits,
        _of_the_approvals,
        faults_of_signals,
        faults_of_messages,
        _of_the_agent,
        _of_the_tags,
        _of_the_queue,
        _of_the_failure,
        _of_the_state,
        _of_the_runs,
        faults_of_files,
    )
    found += [fault for part in parts for fault in part(case, case.job, status)]
    return found if sound else [replace(fault, repair=None) for fault in found]


def _without_a_job(case: Case) -> Iterator[Fault]:
    kept = case.log.count > 0
    if kept:
        yield Fault("job-missing", f"a log of {case.log.count} events, and no job")
    for what, part, statement in (
        ("a claim", "claims", "drop_claim"),
        ("a wait", "waits", "drop_waits"),
        ("a signal", "signals", "drop_signals"),
        ("a message", "messages", None),
        ("a queue row", "queue", "drop_queue"),
        ("a failure row", "failures", "drop_failure"),
        ("a state row", "state", "drop_state"),
        ("a run row", "runs", None),
        ("an approval", "approvals", None),
        ("a file", "files", "drop_files"),
        ("a run of a coding CLI", "tool_runs", None),
        ("output of a coding CLI", "tool_output", "drop_tool_output"),
    ):
        rows = case.rows(part)
        if part == "files":  # inputs are stored before their job is
            rows = [row for row in rows if row["stays"]]
        if rows:
            repair = None if statement is None or kept else Repair(statement, {"job_id": case.key})
            yield Fault("orphan", f"{what} of a job that does not exist", repair)


def _of_the_row(case: Case, job: Row) -> Iterator[Fault]:
    """The job's own row says what its log adds up to."""
    log, status = case.log, status_of(job["status"])
    if case.id is None:
        yield Fault("row-id", f"its id is no UUID, and no program can read it: '{case.key}'")
    if not log.count:
        yield Fault("log-missing", f"it is {job['status']} and has no events")
        return
    if log.status is None or status is not log.status:
        yield Fault("row-status", f"the row says {job['status']}, its log {log.status}")
    head = log.moved if status is not None and status.leased else log.head
    if job["version"] != head:
        yield Fault("row-version", f"the row is at version {job['version']}, its log at {head}")
    if job["attempt"] != log.attempt:
        yield Fault("row-attempt", f"the row counts {job['attempt']} attempts, its log {log.attempt}")
    if job["another_payload"]:
        yield Fault("row-payload", "its payload is not the one it was enqueued with: their hashes differ")
    if log.retries not in (None, job["retry_count"]):
        yield Fault("row-retries", f"the row counts {job['retry_count']} retries, its log {log.retries}")
    if job["odd"]:
        text = "a time of the row lies beyond the years 2 to 9998, and cannot be read"
        yield Fault("row-time", text, Repair("repair_times", {"job_id": case.key}))
        return
    if log.created_at not in (None, job["created_at"]):
        yield Fault(
            "row-created",
            f"the row was created {_shown(case, job['created_at'])}, its log {_shown(case, log.created_at)}",
        )
    if status is None:
        return
    for what, there, belongs in (
        ("finished_at", job["finished_at"] is not None, status.terminal),
        ("an error", bool(job["has_error"]), status in FAILURES),
        ("next_retry_at", job["next_retry_at"] is not None, status is Status.RETRY),
        ("pruned_at", job["pruned_at"] is not None, status.terminal and job["pruned_at"] is not None),
    ):
        if there != belongs:
            yield Fault("row-shape", f"it is {status} {'with' if there else 'without'} {what}")
    if job["has_result"] and status is not Status.COMPLETED:
        yield Fault("row-shape", f"it is {status} with a result")
    if not 0 <= job["retry_count"] <= (100 if job["max_retries"] is None else job["max_retries"]):
        yield Fault("row-shape", f"it counts {job['retry_count']} retries of at most {job['max_retries']}")


def _of_the_lane(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """A job waits where the workers of its tenant and queue look."""
    lane = lane_of(job["tenant_id"], job["queue"])
    if not status.terminal and job["lane"] != lane:
        text = f"it is of queue '{job['queue']}', and stands in lane '{job['lane']}', where no worker of that looks"
        yield Fault("lane-differs", text, Repair("repair_lane", {"job_id": case.key, "lane": lane}))


def _of_the_claim(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """A claim exists iff a worker holds the job, and is the head of the log meanwhile."""
    claim, log = case.row("claims"), case.log
    if claim is None:
        if status.leased:
            lease = {**_lease(case, job), "started": log.began}
            yield Fault("claim-missing", f"it is {status}, and no worker holds it", Repair("put_claim", lease))
        return
    if not status.leased:
        yield Fault(
            "claim-stale",
            f"{claim['worker_id']} holds it, and it is {status}",
            Repair("drop_claim", {"job_id": case.key}),
        )
        return
    claimed = (claim["tenant_id"], claim["attempt"], claim["version"])
    follows = Repair("repair_claim", _lease(case, job))
    if claimed != (job["tenant_id"], log.attempt, log.head):
        yield Fault(
            "claim-differs",
            f"the lease is of tenant {claimed[0]}, attempt {claimed[1]}, version {claimed[2]}, "
            f"the job of tenant {job['tenant_id']}, attempt {log.attempt}, version {log.head}",
            follows,
        )
    elif claim["endless"]:
        yield Fault("claim-differs", f"the lease of {claim['worker_id']} lasts for longer than it may", follows)
    elif claim["concurrency_key"] is None and job["concurrency_key"] is not None:
        yield Fault("claim-differs", f"the lease holds no slot of the job's key '{job['concurrency_key']}'", follows)
    elif claim["foreign_account"] is not None:
        text = f"the lease holds a slot of account '{claim['foreign_account']}', which is of another tool"
        yield Fault("claim-differs", text, follows)
    expires = case.time(claim, "expires_at")
    if expires is not None and expires < case.now - OVERDUE:
        yield Fault("lease-overdue", f"the lease of {claim['worker_id']} ran out {expires:%Y-%m-%d %H:%M:%S} UTC")


def _lease(case: Case, job: Row) -> dict[str, Any]:
    return {
        "job_id": case.key,
        "tenant_id": job["tenant_id"],
        "attempt": job["attempt"],
        "version": case.log.head,
    }


def _of_the_waits(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """The waits that are kept are those that the log has seen begin and not end."""
    del job
    waits = case.rows("waits")
    if status.terminal:
        if waits:
            yield Fault(
                "wait-stale",
                f"it is {status} and waits for '{waits[0]['key']}'",
                Repair("drop_waits", {"job_id": case.key}),
            )
        return
    if case.log.unreadable:
        return
    kept = {(row["kind"], row["key"]): row for row in waits}
    for of, wait in case.log.waits.items():
        row, key = kept.pop(of, None), wait.key
        if row is None:
            text = f"its log waits for '{key}', and nothing is kept of it"
            yield Fault("wait-missing", text, _rewrite(case, wait, _wait_fault(case, wait)))
        elif row["odd"] or replace(_wait_of(case, row), answered_at=None) != wait:
            text = f"it waits for another time or subject under '{key}' than its log"
            yield Fault("wait-differs", text, _rewrite(case, wait, _wait_fault(case, wait)))
        elif (fault := _wait_fault(case, _wait_of(case, row))) is not None:
            yield Fault("wait-answer", fault.text, _rewrite(case, wait, fault))
    for kind, key in kept:
        yield Fault(
            "wait-unknown",
            f"it waits for '{key}', of which its log says nothing",
            Repair("drop_wait", {"job_id": case.key, "kind": kind, "key": key}),
        )


def _wait_fault(case: Case, wait: Wait) -> WaitFault | None:
    """Whether a wait and its subject disagree on the answer. Where the log says that it was answered, it was."""
    fault = kind_of(wait.kind).fault(wait, case)
    if fault is not None and fault.answered_at is None and (wait.kind, wait.key) in case.log.answered:
        return None
    return fault


def _rewrite(case: Case, wait: Wait, fault: WaitFault | None) -> Repair:
    """Write a wait of the log again, with the answer that its subject has."""
    answered_at = None if fault is None else fault.answered_at
    row = {
        "job_id": case.key,
        "key": wait.key,
        "kind": wait.kind,
        "subject_id": wait.subject_id,
        "until": wait.until,
        "answered_at": answered_at,
    }
    return Repair("put_wait", row)


def _wait_of(case: Case, row: Row) -> Wait:
    return Wait(row["key"], row["kind"], case.time(row, "until"), row["subject_id"], case.time(row, "answered_at"))


def _of_the_approvals(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """Approvals are those that were asked for, decided iff the log says so, and none is open after the end."""
    rows = {case.codec.uuid(row["id"]): row for row in case.rows("approvals")}
    if not case.log.unreadable:
        for id in sorted(case.log.asked - rows.keys()):
            yield Fault("approval-missing", f"its log asked for approval {id}, which does not exist")
    for id, row in rows.items():
        decided = row["status"] in _DECIDED
        if not case.log.unreadable:
            if id not in case.log.asked:
                yield Fault("approval-unknown", f"approval {id} ('{row['key']}') was never asked for")
            elif case.log.decided[id] != decided:
                said = f"decided {case.log.decided[id]} times"
                yield Fault("approval-differs", f"approval '{row['key']}' is {row['status']}, and in its log {said}")
            elif decided and (logged := case.log.decisions.get(id, row["status"])) != row["status"]:
                yield Fault("approval-differs", f"approval '{row['key']}' is {row['status']}, and in its log {logged}")
        if row["another_payload"]:
            yield Fault("approval-differs", f"the payload of approval '{row['key']}' is not the one of its digest")
        if row["tenant_id"] != job["tenant_id"]:
            yield Fault("approval-differs", f"approval '{row['key']}' is of tenant {row['tenant_id']}, the job is not")
        if status.terminal and row["status"] == ApprovalStatus.PENDING:
            closed = Repair("close_approval", {"approval_id": row["id"]})
            yield Fault("approval-stale", f"approval '{row['key']}' is open, and it is {status}", closed)


def _of_the_agent(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """An agent counts its jobs that have not ended: so that messages find them."""
    if job["unlisted"]:
        counted = Repair("put_agent_job", {"job_id": case.key})
        yield Fault("agent-unlisted", f"it is {status}, and its agent does not count it", counted)


def _of_the_tags(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """Each of its tags has a row, by which lists find it."""
    del status
    if job["untagged"]:
        yield Fault("tag-missing", "lists by one of its tags do not show it", Repair("put_tags", {"job_id": case.key}))


def _of_the_queue(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """A queue row exists iff the job may start or wake by itself. One more or too early does no harm to a job that is
    suspended: it looks what woke it."""
    row = case.row("queue")
    if status.leased or status.terminal:
        if row is not None:
            yield Fault(
                "queue-stale", f"it is in the queue, and it is {status}", Repair("drop_queue", {"job_id": case.key})
            )
        return
    due, why, latest = _due(case, job, status)
    if row is None:
        if due is not None:
            place = _place(case, job, due)
            yield Fault("queue-missing", f"it is {status} and not in the queue: {why}", Repair("put_queue", place))
        return
    wrong = [name for name in ("lane", "kind", "priority", "deadline", "status") if row[name] != job[name]]
    key, placed = job["concurrency_key"], (row["tenant_id"], row["concurrency_key"])
    # without a key of its own it may have that of its handler
    if placed != (job["tenant_id"], key) and (key is not None or placed[0] not in (None, job["tenant_id"])):
        wrong.append("concurrency key")
    elif row["held"] and placed[1] is None:
        wrong.append("hold, without a key")
    if row["another_account"]:
        wrong.append("account")
    run_at = case.time(row, "run_at")
    exact = status is Status.RETRY or (status is Status.PENDING and not case.rows("waits"))
    if run_at is None:
        wrong.append("time")
        due = due or case.now
    elif due is not None and (run_at != due if exact else latest is not None and run_at > latest):
        wrong.append("time")
    else:
        due = run_at
    if wrong:
        place = _place(case, job, due)
        yield Fault(
            "queue-differs", f"it is in the queue with another {' and '.join(wrong)}", Repair("put_queue", place)
        )
    elif row["forgotten"]:
        text = f"it waits for a slot of '{row['concurrency_key']}', one is free, and nothing has seen that"
        yield Fault("slot-unseen", text, Repair("look_again", {"job_id": case.key}))


def _place(case: Case, job: Row, due: datetime | None) -> dict[str, Any]:
    return {
        "job_id": case.key,
        "lane": job["lane"],
        "kind": job["kind"],
        "priority": job["priority"],
        "run_at": due,
        "deadline": case.time(job, "deadline"),
        "status": job["status"],
    }


def _due(case: Case, job: Row, status: Status) -> tuple[datetime | None, str, datetime | None]:
    """When the job may start or wake by itself, if it may; why; and the latest time that its queue row may say."""
    if status is Status.RETRY or (status is Status.PENDING and not case.rows("waits")):
        due = case.time(job, "run_at" if status is Status.PENDING else "next_retry_at")
        return due, "it would never start", due
    waits = case.rows("waits")
    if not waits:
        return case.now, "it waits for nothing, and would never wake", case.now + SLACK
    if any(row["kind"] == CODE.name and row["answered_at"] is None for row in waits):
        deadline = case.time(job, "deadline")
        return deadline, "its deadline would not end it", deadline
    for row in waits:
        wait = _wait_of(case, row)
        fault = _wait_fault(case, wait)
        if (wait.answered_at if fault is None else fault.answered_at) is not None:
            return case.now, f"'{wait.key}' is answered, and it would not wake", case.now + SLACK
    times = [time for row in waits if (time := case.time(row, "until")) is not None]
    latest = min(times, default=None)
    deadline = case.time(job, "deadline")
    return min([*times, deadline] if deadline else times, default=None), "it would sleep for ever", latest


def _of_the_failure(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """The list of failures has exactly those that failed or were cancelled."""
    row, failed = case.row("failures"), status in WITHOUT_RESULT
    listed = Repair(
        "put_failure",
        {"job_id": case.key, "status": status.value, "finished_at": case.time(job, "finished_at")},
    )
    if row is None:
        if failed:
            yield Fault("failure-missing", f"it is {status}, and no list of failures shows it", listed)
    elif not failed:
        yield Fault(
            "failure-stale",
            f"it is listed as {row['status']}, and it is {status}",
            Repair("drop_failure", {"job_id": case.key}),
        )
    elif row["status"] != status:
        yield Fault("failure-differs", f"it is listed as {row['status']}, and it is {status}", listed)


def _of_the_state(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """Checkpoint, tokens and cost are what the log adds up to; but a checkpoint may have been pruned while the log was kept."""
    del status
    log, row = case.log, case.row("state")
    if log.unreadable:
        return
    checkpoint = log.checkpoint if job["pruned_at"] is None else None
    rebuilt = Repair("put_state", {"job_id": case.key, "version": checkpoint, "tokens": log.tokens, "cost": log.cost})
    if row is None:
        if log.kept:
            yield Fault("state-missing", "its log has a checkpoint or usage, and nothing is kept of it", rebuilt)
        return
    cost = cost_of(row["cost"])
    if row["tokens"] != log.tokens or cost != log.cost:
        used = f"its row has {row['tokens']} tokens at {text_of_cost(cost)}, its log {log.tokens} at {text_of_cost(log.cost)}"
        yield Fault("state-differs", used, rebuilt)
    if bool(row["has_checkpoint"]) != (checkpoint is not None):
        yield Fault(
            "state-differs",
            f"a checkpoint is {'kept' if row['has_checkpoint'] else 'not kept'}, unlike its log",
            rebuilt,
        )
    elif row["another_checkpoint"]:
        yield Fault("state-differs", "another checkpoint is kept than the last one of its log", rebuilt)


def _of_the_runs(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """A run row is of an attempt that has ended, and ended as it did; one that wrote something has a row."""
    del job, status
    for attempt in sorted(case.log.ran - {row["attempt"] for row in case.rows("runs")}):
        yield Fault("run-missing", f"attempt {attempt} ran and ended, and there is no run row of it")
    for row in case.rows("runs"):
        end = case.log.ends.get(row["attempt"])
        if end is None:
            gone = Repair("drop_run", {"job_id": case.key, "attempt": row["attempt"]})
            yield Fault("run-unknown", f"there is a run row of attempt {row['attempt']}, which has not ended", gone)
        elif row["outcome"] != end:
            yield Fault(
                "run-differs", f"attempt {row['attempt']} is said to have ended {row['outcome']}, its log says {end}"
            )


def _shown(case: Case, value: Any) -> str:
    return case.codec.time(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
