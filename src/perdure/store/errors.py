"""The errors that both dialects raise, with one text each: what happened, why, what to do next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from perdure.model.agents import AgentInstance, NewState
from perdure.model.approvals import Decide
from perdure.model.errors import (
    AccountExists,
    AccountNotFound,
    AgentBusy,
    AgentExists,
    AgentInUse,
    AgentNotFound,
    AgentPaused,
    AlreadyDecided,
    AmbiguousId,
    ApprovalChanged,
    ApprovalExpired,
    ApprovalNotFound,
    ApprovalRuleNotFound,
    EntrySuperseded,
    ForeignDatabase,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    JobLeased,
    JobNotFound,
    LeaseLost,
    NotAssigned,
    NotFound,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    SessionChanged,
    SignalConflict,
    SignalTooLate,
    UniqueConflict,
    VersionMismatch,
    WorkerNotFound,
    WrongToken,
)
from perdure.model.ids import MIN_SUFFIX_DIGITS, short_id
from perdure.model.jobs import Enqueued, Lease, NewJob, Outcome
from perdure.model.messages import NewMessage
from perdure.model.signals import AgentSignal, NewAgentSignal, NewSignal, Signal
from perdure.model.states import Status
from perdure.model.tooling import Account


def job_not_found(text: UUID | str) -> JobNotFound:
    """No such job in this database and tenant."""
    return JobNotFound(
        f"no job has the id {text}", hint="perdure jobs ls shows the ids; check the database with perdure config ls"
    )


def approval_not_found(text: UUID | str) -> ApprovalNotFound:
    """No such approval."""
    return ApprovalNotFound(f"no approval has the id {text}", hint="perdure approvals ls shows those that are pending")


def worker_not_found(text: str) -> WorkerNotFound:
    """No such running worker."""
    return WorkerNotFound(f"no running worker has the id {text}", hint="perdure worker status shows the ids")


def account_not_found(text: str) -> AccountNotFound:
    """No such account."""
    return AccountNotFound(f"no account has the id or group name '{text}'", hint="perdure accounts ls shows them")


def memory_not_found(id: UUID | str) -> NotFound:
    """No such entry of long-term memory."""
    return NotFound(f"no entry of memory has the id '{id}'", hint="perdure memory ls shows them")


def entry_superseded(id: UUID, by: UUID) -> EntrySuperseded:
    """Another entry has replaced this one."""
    return EntrySuperseded(f"entry …{short_id(id)} of memory was superseded by entry …{short_id(by)}", by)


def ambiguous_memory(suffix: str) -> AmbiguousId:
    """Several entries of long-term memory."""
    return AmbiguousId(f"several entries of memory have ids that end in '{suffix}'", hint="give more digits")


def schedule_not_found(id: str) -> NotFound:
    """No such schedule."""
    return NotFound(f"no schedule has the id '{id}'", hint="perdure schedules ls shows them")


def account_exists(account: Account) -> AccountExists:
    """The id or the group name is taken."""
    return AccountExists(
        f"there is an account with the id or group name '{account.id}' or '{account.group_name}' already",
        hint=f"perdure accounts get {account.id}",
    )


def rule_not_found(text: object) -> ApprovalRuleNotFound:
    """No such rule."""
    return ApprovalRuleNotFound(f"no rule about a tool has the id '{text}'", hint="perdure approvals rules shows them")


def ambiguous_id(text: str) -> AmbiguousId:
    """More than one id ends in these digits."""
    return AmbiguousId(f"several ids end in '{text}'", hint="type more digits, or the full id")


def id_suffix(text: str) -> str | UUID:
    """A full id as UUID, else the suffix to search by: lower-case hex, 6 or more digits. Raises AmbiguousId, InvalidInput."""
    compact = text.strip().lstrip("…").replace("-", "").lower()
    if len(compact) == 32:
        try:
            return UUID(compact)
        except ValueError:
            pass
    if not compact or any(c not in "0123456789abcdef" for c in compact):
        raise InvalidInput(f"'{text}' is not an id", hint="an id is a UUID or its last 6 or more hex digits")
    if len(compact) < MIN_SUFFIX_DIGITS:
        raise AmbiguousId(f"'{text}' is too short to name one id", hint=f"type at least {MIN_SUFFIX_DIGITS} digits")
    return compact


def check_end(lease: Lease, outcome: Outcome) -> None:
    """Raise IllegalTransition unless this outcome gives up the lease."""
    if outcome.status.leased:
        raise IllegalTransition(
            f"an attempt of job …{short_id(lease.job_id)} cannot end {outcome.status}: that keeps its lease"
        )


def lease_lost(lease: Lease) -> LeaseLost:
    """The lease is not live, so nothing was written."""
    return LeaseLost(
        f"worker {lease.worker_id} no longer holds job …{short_id(lease.job_id)} (attempt {lease.attempt}); nothing was written"
    )


def job_leased(job_id: UUID, worker_id: str) -> JobLeased:
    """A worker holds the job, and only that may append."""
    return JobLeased(
        f"job …{short_id(job_id)} is held by worker {worker_id}: only it may append to the log",
        hint="wait until the job is parked, or cancel it",
    )


def finished(job_id: UUID, status: Status | str, wanted: str) -> IllegalTransition:
    """The job has ended."""
    return IllegalTransition(
        f"job …{short_id(job_id)} cannot be {wanted}: it is already {status}",
        hint=f"to run it again with the same input: perdure jobs rerun {short_id(job_id)}",
    )


def not_retryable(job_id: UUID, status: Status | str) -> IllegalTransition:
    """The job is in a state in which retry_now does nothing."""
    return IllegalTransition(
        f"job …{short_id(job_id)} is {status}: only a job in RETRY, or PENDING with a delay, can be made due now",
        hint=f"perdure jobs explain {short_id(job_id)} says what it waits for",
    )


def waits_for_batch(job_id: UUID) -> IllegalTransition:
    """The job is the callback of a batch, of which some jobs have not ended."""
    return IllegalTransition(
        f"job …{short_id(job_id)} is the callback of a batch: it starts when all jobs of the batch have ended",
        hint=f"perdure jobs batch {short_id(job_id)} shows them",
    )


def version_mismatch(job_id: UUID, expected: int, actual: int) -> VersionMismatch:
    """The last version of the log is another than expected."""
    return VersionMismatch(
        f"job …{short_id(job_id)} is at version {actual}, not {expected}", expected=expected, actual=actual
    )


def idempotency_conflict(job: NewJob, existing: UUID) -> IdempotencyConflict:
    """The idempotency key belongs to a job with another payload."""
    return IdempotencyConflict(
        f"idempotency key '{job.idempotency_key}' of kind '{job.kind}' already belongs to job …{short_id(existing)}, "
        "which has another payload",
        hint="use another key for another payload, or send the same payload again",
    )


def signal_too_late(job_id: UUID, status: Status) -> SignalTooLate:
    """The job has ended."""
    return SignalTooLate(
        f"job …{short_id(job_id)} takes no more signals: it is already {status}",
        hint=f"to run it again with the same input: perdure jobs rerun {short_id(job_id)}",
    )


def check_same_signal(before: Signal, new: NewSignal) -> Signal:
    """The signal that was sent before with this id. Raises SignalConflict if it is another one."""
    if _is_same(before, new):
        return before
    raise _signal_conflict(before, new, f"job …{short_id(new.job_id)}")


def check_same_agent_signal(before: AgentSignal, new: NewAgentSignal) -> AgentSignal:
    """As `check_same_signal`."""
    if _is_same(before, new):
        return before
    raise _signal_conflict(before, new, f"agent '{new.agent_id}'")


def _is_same(before: Signal | AgentSignal, new: NewSignal | NewAgentSignal) -> bool:
    payloads = (json.dumps(payload, sort_keys=True) for payload in (before.payload, json.loads(new.payload)))
    return before.key == new.key and len(set(payloads)) == 1


def _signal_conflict(before: Signal | AgentSignal, new: NewSignal | NewAgentSignal, whose: str) -> SignalConflict:
    return SignalConflict(
        f"the id '{new.caller_id}' was given to another signal of {whose} before, of key '{before.key}'",
        hint="use another id for another signal, or send the same key and payload again",
    )


def bad_cursor(cursor: str) -> InvalidInput:
    """The text is not a cursor."""
    return InvalidInput(f"'{cursor}' is not a cursor", hint="use the next_cursor of the page before")


def parse_cursor(cursor: str | None) -> UUID | None:
    """The id a page ended with. Raises InvalidInput."""
    if cursor is None:
        return None
    try:
        return UUID(cursor)
    except ValueError:
        raise bad_cursor(cursor) from None


def check_pending(
    approval_id: UUID, status: str, decided_by: str | None, expired: bool, expires_at: datetime | None
) -> None:
    """Raise AlreadyDecided or ApprovalExpired unless the approval can still be decided."""
    if status == "EXPIRED" or (status == "PENDING" and expired):
        raise ApprovalExpired(
            f"approval …{short_id(approval_id)} expired at {expires_at:%Y-%m-%d %H:%M:%S} UTC",
            hint="the job continues without it, or has failed, as its on_expiry says",
        )
    if status != "PENDING":
        by = f" by {decided_by}" if decided_by else ""
        raise AlreadyDecided(f"approval …{short_id(approval_id)} is already {status}{by}: the first decision counts")


def check_decision(
    decision: Decide,
    *,
    approval_id: UUID,
    kind: str,
    status: str,
    decided_by: str | None,
    expired: bool,
    expires_at: datetime | None,
    payload_digest: str,
    assignees: tuple[str, ...],
) -> None:
    """Raise if the decision is not allowed; called with the approval's row locked."""
    check_pending(approval_id, status, decided_by, expired, expires_at)
    if decision.expected_digest is not None and decision.expected_digest != payload_digest:
        raise ApprovalChanged(
            f"the payload of approval …{short_id(approval_id)} is not the one that was reviewed",
            hint=f"review it again: perdure approvals get {short_id(approval_id)}",
        )
    if decision.token_hash is None and assignees and decision.by not in assignees:
        raise NotAssigned(
            f"'{decision.by}' may not decide approval …{short_id(approval_id)}: it is for {', '.join(assignees)}",
            hint="decide as one of them (--by), or with the link's token",
        )
    if kind == "question" and decision.verdict == "approve" and not _is_answer(decision.edited_payload):
        raise InvalidInput(
            "this asks what happened to a side effect: approving needs an answer",
            hint="--outcome happened --result JSON, or --outcome retry; denying fails the job. From a program: "
            'edited={"outcome": "happened", "result": ...} or {"outcome": "retry"}',
        )


def _is_answer(edited_payload: str | None) -> bool:
    """Whether an edited payload says whether a side effect happened."""
    try:
        answer = None if edited_payload is None else json.loads(edited_payload)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("outcome") in ("happened", "retry")


def wrong_token() -> WrongToken:
    """No approval has this token; the message does not repeat it."""
    return WrongToken("no approval has this token", hint="it may have been replaced by a newer one")


def check_schema_version(current: int, needed: int, where: str) -> None:
    """Raise unless the schema is exactly the one this version of perdure works with."""
    if current == 0:
        raise SchemaMissing(f"{where} has no perdure schema yet", hint="create it: perdure db migrate")
    if current < needed:
        raise SchemaOutdated(
            f"{where} has schema version {current}, this perdure needs {needed}", hint="upgrade it: perdure db migrate"
        )
    if current > needed:
        raise SchemaTooNew(
            f"{where} has schema version {current}, newer than the {needed} that this perdure knows: nothing was changed",
            hint="upgrade perdure on this machine",
        )


def foreign_file(tables: Sequence[str], taken: Sequence[str], where: str) -> ForeignDatabase:
    """A file without perdure's schema, but with other tables. taken: names in it that the schema needs."""
    what = f"{where} is not perdure's: it has tables ({_few(tables)}), and no perdure schema"
    if taken:
        return ForeignDatabase(
            f"{what}; perdure's own would need these names: {_few(taken)}",
            hint="check the URL with perdure config ls; give perdure a file of its own, or rename what is in the way",
        )
    return ForeignDatabase(
        what,
        hint="check the URL with perdure config ls; to keep perdure's tables in the same file: perdure db migrate, "
        "or App(..., migrate=True)",
    )


def foreign_schema(tables: Sequence[str], where: str) -> ForeignDatabase:
    """A PostgreSQL schema named perdure, with other tables."""
    return ForeignDatabase(
        f"the schema perdure of {where} is not perdure's: it has tables ({_few(tables)}), and no migration of perdure's",
        hint="check the URL with perdure config ls; use another database, or rename that schema: "
        "alter schema perdure rename to ...",
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def agent_not_found(text: str) -> AgentNotFound:
    """No such agent."""
    return AgentNotFound(
        f"no agent has the id '{text}'", hint="perdure agents ls shows them; perdure agents create makes one"
    )


def agent_exists(text: str) -> AgentExists:
    """The id is taken."""
    return AgentExists(f"there is an agent '{text}' already", hint=f"perdure agents get {text}")


def agent_in_use(agent_id: str, used: Mapping[str, int]) -> AgentInUse:
    """It is not deleted. used: jobs that have not ended, and pending messages and signals."""
    what = ", ".join(f"{number:,} {name if number > 1 else name[:-1]}" for name, number in used.items() if number)
    return AgentInUse(
        f"agent '{agent_id}' has jobs that have not ended, or pending messages or signals: {what}",
        hint=f"perdure agents rm {agent_id} --force cancels its jobs",
    )


def agent_paused(agent: AgentInstance) -> AgentPaused:
    """It accepts no messages."""
    return AgentPaused(
        f"agent '{agent.id}' was paused at {agent.paused_at:%Y-%m-%d %H:%M:%S} UTC and accepts no messages",
        hint=f"perdure agents resume {agent.id}",
    )


def agent_busy(agent_id: str) -> AgentBusy:
    """It takes no message while it has a job."""
    return AgentBusy(
        f"agent '{agent_id}' has a job, and takes no message meanwhile (on_busy reject)",
        hint=f"perdure agents get {agent_id} shows what it does",
    )


def held_key(job: NewJob, existing: UUID) -> Enqueued | UniqueConflict:
    """What an enqueue gets whose unique key belongs to another job."""
    assert job.unique is not None
    if job.unique.on_conflict != "refuse":
        return Enqueued(existing, created=False)
    return UniqueConflict(
        f"the unique key '{job.unique.key}' of kind '{job.kind}' belongs to job …{short_id(existing)}", existing
    )


def session_changed(new: NewState, version: int, *, by_client: bool = False) -> SessionChanged:
    """Another one saved since it was read. by_client: what is refused comes from a client, and not from a job."""
    session = f"session '{new.session_id}'" if new.session_id else "the session"
    hint = "read it again with ctx.session.get() and save what follows from that"
    if by_client:
        option = f" --session {shlex.quote(new.session_id)}" if new.session_id else ""
        hint = f"read it again: perdure agents session {shlex.quote(new.agent_id)}{option}"
    return SessionChanged(
        f"{session} of agent '{new.agent_id}' is at version {version}, and "
        f"{new.expected} was {'expected' if by_client else 'read'}",
        hint=hint,
    )


def message_conflict(message: NewMessage, existing: UUID) -> IdempotencyConflict:
    """The idempotency key belongs to a message with another payload."""
    return IdempotencyConflict(
        f"idempotency key '{message.idempotency_key}' of agent '{message.to_agent_id}' already belongs to message "
        f"…{short_id(existing)}, which has another payload",
        hint="use another key for another payload, or send the same payload again",
    )
