"""What `fsck` finds: findings, and the list of all faults, with what each means and how it is repaired."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One line of the list: what is wrong, and either how it is repaired or what a person can do."""

    says: str
    repair: str | None = None
    """What `fsck --fix` does; None: nothing, because it is not known what is right."""
    advice: str = ""
    """What to do if it is not repaired."""


_SCHEMA = (
    "Restore it from `perdure db migrate --dump-sql`, then run fsck again: what was written meanwhile was not guarded."
)
_OFF = (
    "Switch it on (`alter table ... enable trigger ...`, or the setting), then run fsck again: what was written meanwhile was "
    "not guarded."
)
_LOG = (
    "Nothing of this job is changed, and its other faults are not repaired. `perdure jobs events ID` and `perdure jobs get ID` "
    "show both sides; `perdure jobs rerun ID` does the work again in a new job; a backup has what was there before."
)
_TWICE = (
    "Its effects may have happened twice: compare with the other side. The job itself goes on with the later record."
)
_EVIDENCE = "It is kept as evidence. Restore the job from a backup, or delete the rows by hand."

_CONTENT = (
    "Put the file back into `cli_blob_dir` from a backup. Where several machines use this database, that must be one directory "
    "which they share: run fsck on a worker's machine, with its settings."
)

FAULTS: MappingProxyType[str, FaultKind] = MappingProxyType(
    {
        "schema-lost": FaultKind("a table, view, index, constraint, function or trigger is gone", advice=_SCHEMA),
        "schema-changed": FaultKind("one of them is there and is not ours any more", advice=_SCHEMA),
        "schema-off": FaultKind("triggers are switched off (PostgreSQL only)", advice=_OFF),
        "memory-unindexed": FaultKind(
            "an entry of memory lacks its search terms or its vector: searches do not find it",
            "they are made again",
            "Vectors that an embedding endpoint did not give follow later; `perdure memory reindex` asks for them now.",
        ),
        "memory-sums": FaultKind(
            "a scope of memory does not have as many entries or terms as it says: its searches rank a little wrongly",
            "the numbers follow the entries, terms that are not whole are made again, and those of archived entries are deleted",
        ),
        "prune-left": FaultKind(
            "jobs are marked for deletion and no prune is running: their logs are unprotected", "the marks are removed"
        ),
        "log-missing": FaultKind("a job has no events at all", advice=_LOG),
        "log-gap": FaultKind("a version is missing from the log", advice=_LOG),
        "log-first": FaultKind("the log does not begin with `job_created`", advice=_LOG),
        "log-chain": FaultKind("a transition leaves another state than the one before it entered", advice=_LOG),
        "log-illegal": FaultKind("the state machine has no such transition", advice=_LOG),
        "log-type": FaultKind("an event has the name of another transition, or moves nothing", advice=_LOG),
        "log-payload": FaultKind("an event of perdure's own does not say what such an event always says", advice=_LOG),
        "log-time": FaultKind("an event has a time that no program can read", advice=_LOG),
        "log-after-end": FaultKind("something was written after the job had ended", advice=_LOG),
        "log-attempt": FaultKind("an event was written by an attempt other than the one that ran", advice=_LOG),
        "log-unleased": FaultKind("a worker's event was written while no worker held the job", advice=_LOG),
        "row-status": FaultKind("the job's status is not the one its log ends in", advice=_LOG),
        "row-version": FaultKind("the job's version is not the head of its log", advice=_LOG),
        "row-attempt": FaultKind("the job's attempt is not the number of attempts in its log", advice=_LOG),
        "row-retries": FaultKind("the job's retries are not those that its log has counted", advice=_LOG),
        "row-payload": FaultKind("the payload is not the one that the job was enqueued with", advice=_LOG),
        "row-created": FaultKind("the job was not created when its log began", advice=_LOG),
        "row-time": FaultKind(
            "a time of the job that no program can read",
            "it becomes the first or last time that can be read; not `created_at`, which its log has as well",
            _LOG,
        ),
        "row-id": FaultKind("the id of the job is no UUID (SQLite only): no worker can run it", advice=_EVIDENCE),
        "row-shape": FaultKind(
            "`finished_at`, an error, `next_retry_at`, a result or `pruned_at` that does not fit the status", advice=_LOG
        ),
        "step-twice": FaultKind("a step or tool was recorded twice with the same arguments", advice=_TWICE),
        "event-twice": FaultKind("the log has one event twice", advice=_TWICE),
        "job-missing": FaultKind("a log without a job", advice=_EVIDENCE),
        "orphan": FaultKind(
            "a claim, wait, signal, queue, state, failure, run, approval or file row of a job that does not exist, or a "
            "message that such a job has got",
            "it is deleted; run rows, runs of coding CLIs, approvals and messages, and all rows of a log that is still "
            "there, are kept",
            _EVIDENCE,
        ),
        "lane-differs": FaultKind(
            "the job is in another lane than that of its tenant and queue: no worker would ever claim it",
            "the job is put into the lane of its tenant and queue",
        ),
        "claim-missing": FaultKind(
            "RUNNING or WAITING without a lease: no worker could take the job over", "it gets a lease that has expired"
        ),
        "claim-stale": FaultKind("a lease on a job that is not RUNNING or WAITING", "the lease is deleted"),
        "claim-differs": FaultKind(
            "a lease of another attempt, version or tenant than the job's, that lasts too long, that holds no slot of the job's "
            "concurrency key, or one of an account of another tool",
            "the lease follows the job and its log"
        ),
        "lease-overdue": FaultKind(
            "a lease that expired long ago: a note, no damage", advice="Start a worker; any worker takes the job over."
        ),
        "wait-stale": FaultKind("a wait of a job that has ended", "the wait is deleted"),
        "wait-missing": FaultKind("the log has an open wait whose row is missing", "the wait is written again from the log"),
        "wait-unknown": FaultKind("a wait that is not in the log", "the wait is deleted, and the job resumes and opens it again"),
        "wait-differs": FaultKind("a wait for another time or subject than the log says", "the wait follows the log"),
        "wait-answer": FaultKind(
            "a wait is answered and its approval, signal or message is not there, or its children have not ended; or the reverse",
            "the wait follows the approval, the signal, the messages or the children",
        ),
        "approval-stale": FaultKind("a PENDING approval of a job that has ended", "the approval is closed as CANCELLED"),
        "approval-missing": FaultKind(
            "the log has an approval that does not exist", advice="`perdure jobs cancel ID`: it can no longer be answered."
        ),
        "approval-unknown": FaultKind(
            "an approval that is not in the log", advice="No job waits for it. Find out what wrote it."
        ),
        "approval-differs": FaultKind(
            "an approval and the log differ: on whether it was decided, on how, or on the tenant",
            advice="It is not known who decided. If the decision is not yours: `perdure jobs cancel ID`.",
        ),
        "signal-missing": FaultKind(
            "the log has a signal that does not exist", advice="If a wait has taken it, nothing is lost; else send it again."
        ),
        "signal-unknown": FaultKind(
            "a signal that is not in the log", advice="A wait takes it all the same. Find out what wrote it."
        ),
        "signal-differs": FaultKind(
            "a signal is of another tenant than its job", advice="No client sees it. Find out what wrote it."
        ),
        "signal-unbound": FaultKind("a wait for a signal is open while such a signal is pending", "the wait takes the signal"),
        "message-missing": FaultKind(
            "a job was started for a message that does not exist, or its log says that a wait has taken one that it has not",
            advice="One that was started for it has it in its payload. Else `perdure jobs cancel ID`, and send it again.",
        ),
        "message-unbound": FaultKind(
            "a job was started for a message that is still pending: another job would get it as well",
            "the job has got the message",
        ),
        "message-twice": FaultKind(
            "a job was started for a message that another job has got, or that was refused",
            advice="Compare what both jobs did: the effects of the message may have happened twice.",
        ),
        "message-unknown": FaultKind(
            "a message is bound to a wait of a job, and the job's log does not say so",
            advice="Send the message again if its work was not done.",
        ),
        "message-differs": FaultKind(
            "a message is of another tenant than the job that has got it", advice="No client sees it. Find out what wrote it."
        ),
        "message-undelivered": FaultKind(
            "messages are pending for an agent that is free, and nothing would look at its mailbox", "the mailbox is looked at"
        ),
        "agent-job-ended": FaultKind(
            "a job counts as one of its agent, and has ended or does not exist: messages would wait for it", "it no longer counts"
        ),
        "agent-unlisted": FaultKind("a job that has not ended is not counted as one of its agent", "it is counted"),
        "agent-signal-lost": FaultKind(
            "a signal to an agent counts as got by a job that does not have it, nor does the job's log", "it is pending again"
        ),
        "agent-signal-differs": FaultKind(
            "a signal to an agent is pending, or counts as got by another job than the one that has it",
            "the job that has it counts"
        ),
        "agent-signal-orphan": FaultKind(
            "a signal is pending for an agent that does not exist",
            advice="No job gets it. `perdure agents create ID` makes the agent; a job of it then gets the signal.",
        ),
        "agent-signal-unbound": FaultKind(
            "a job of an agent waits for a signal that is pending, and nothing would give it to the job",
            "the mailbox is looked at"
        ),
        "session-differs": FaultKind(
            "the state of a session is not one that the log of its job has saved",
            advice="The next job of the session goes on with it. Find out what wrote it.",
        ),
        "tag-missing": FaultKind("a job has a tag by which no list finds it", "lists find it"),
        "tag-stale": FaultKind("a tag is kept of a job that does not have it, or does not exist", "it is deleted"),
        "key-stale": FaultKind(
            "a job that has ended, or does not exist, holds a unique key: no other job of the key could be enqueued",
            "the key is free",
        ),
        "pause-differs": FaultKind(
            "the pause of a queue ended before it began", advice="It stops no claim. `perdure queues ls` shows the queue."
        ),
        "queue-missing": FaultKind("the job is due at some time and not in the queue: it would never start", "it is put there"),
        "queue-differs": FaultKind(
            "another lane, kind, priority, deadline, time, status, concurrency key or account in the queue than on the job",
            "the queue follows the job"
        ),
        "slot-unseen": FaultKind(
            "a job waits for a slot of its concurrency key, one is free, and nothing has seen that: it would wait up to a minute",
            "the next look at free slots finds the key"
        ),
        "queue-stale": FaultKind("a queue row of a job that is running or has ended", "the row is deleted"),
        "failure-missing": FaultKind("a FAILED, DEADLETTER or CANCELLED job that is not in the list of failures", "it is listed"),
        "failure-stale": FaultKind("a job in the list of failures that did not fail and was not cancelled", "it leaves the list"),
        "failure-differs": FaultKind("the list of failures has another status than the job", "the list follows the job"),
        "state-missing": FaultKind("the log has a checkpoint or usage, and the job has not", "both are computed from the log"),
        "state-differs": FaultKind("other tokens, cost or checkpoint than the log says", "they are computed from the log"),
        "content-lost": FaultKind("a file of a task has no content any more", advice=_CONTENT),
        "blob-missing": FaultKind("this machine does not have the blob of a file", advice=_CONTENT),
        "blob-damaged": FaultKind("the content of a file is not what was stored (`--deep` alone looks)", advice=_CONTENT),
        "file-differs": FaultKind("a file of another size than its content, or of another tenant than its job", advice=_EVIDENCE),
        "file-unknown": FaultKind("an output of an attempt that the job has not begun", advice=_EVIDENCE),
        "tool-run-unknown": FaultKind(
            "a run of a coding CLI, or its output, of an attempt that the job has not begun, or of another tenant",
            advice=_EVIDENCE,
        ),
        "run-missing": FaultKind(
            "an attempt that ran has no run row", advice="The log has the attempt; only `jobs get --show runs` lacks it."
        ),
        "run-unknown": FaultKind("a run row of an attempt that has not ended: it could not be written", "the row is deleted"),
        "run-differs": FaultKind(
            "a run row that differs from its attempt", advice="The log is right; `jobs get --show runs` is wrong."
        ),
    }
)  # fmt: skip
"""Every fault by its code. Codes are stable."""

OF_MEMORY = frozenset({"memory-unindexed", "memory-sums"})
"""Findings after whose repair entries of memory are to be indexed again."""

OF_CONTENTS = frozenset({"blob-missing", "blob-damaged"})
"""Findings that are not of the database but of the files next to it."""

NOTES = frozenset({"lease-overdue"})
"""Findings that are not damage."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault that `fsck` found. `job_id` is None for the schema. `text` is one line. `fixable`: `--fix` would repair it.
    `fixed`: it was repaired, and the repair is committed."""

    code: str
    job_id: UUID | None
    text: str
    fixable: bool
    fixed: bool = False

    @property
    def note(self) -> bool:
        """True if it is not damage."""
        return self.code in NOTES

    @property
    def advice(self) -> str:
        """What a person can do about it; empty if `--fix` repairs it."""
        return FAULTS[self.code].advice


@dataclass(frozen=True, slots=True)
class CheckPage:
    """One portion of a check: its findings, how many jobs were checked, and where the next one begins (None: it was the last)."""

    findings: tuple[Finding, ...]
    jobs: int
    next: str | None
