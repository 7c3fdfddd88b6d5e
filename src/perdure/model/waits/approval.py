"""The wait for an approval: a person decides, or it expires."""

from __future__ import annotations

import shlex
from typing import Any, Protocol
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus
from perdure.model.effects import Effect, withdraw_approval
from perdure.model.explanation import Move, Situation, Why, done_by_a_worker
from perdure.model.jobs import Wait
from perdure.model.states import Status
from perdure.model.timing import when
from perdure.model.waits.base import Facts, WaitFault, WaitKind, WaitLine

_THEN = {
    "fail": "then the job fails",
    "deny": "then it counts as denied",
    "continue": "then the job goes on without it",
}


class _Approvals(Protocol):
    async def get_approval(self, approval_id: UUID) -> Approval: ...


class HasApprovals(Protocol):
    """A store that has approvals."""

    @property
    def approvals(self) -> _Approvals:
        """The role that reads approvals."""
        ...


class ApprovalWait(WaitKind[HasApprovals, Approval]):
    """Its subject is an approval. The trigger `approvals_decided` answers it when that is decided."""

    name = "approval"
    noun = "an approval"
    status = Status.WAITING_FOR_APPROVAL
    opened_by = "approval_requested"
    subject_field = "approval"
    answered_by = "approval_decided"

    async def answer(self, store: HasApprovals, job_id: UUID, wait: Wait) -> Approval | None:
        """See `WaitKind.answer`."""
        del job_id
        approval = await store.approvals.get_approval(UUID(wait.subject_id))
        return None if approval.pending else approval

    def recorded(self, answer: Approval) -> dict[str, Any]:
        """See `WaitKind.recorded`."""
        return {"approval": str(answer.id), "decision": answer.status, "actor": answer.decided_by}

    def closes(self, wait: Wait, *, answered: bool) -> tuple[Effect, ...]:
        """See `WaitKind.closes`."""
        closed = super().closes(wait, answered=answered)
        return closed if answered or wait.subject_id is None else (withdraw_approval(UUID(wait.subject_id)), *closed)

    def line(self, wait: Wait, seen: Situation) -> WaitLine | None:
        """See `WaitKind.line`."""
        approval = _subject(wait, seen)
        if approval is None or not approval.pending:
            return None
        who = f" by {' or '.join(approval.assignees)}" if approval.assignees else ""
        short = (
            f"'{approval.title}' ({approval.kind} …{approval.short_id}, asked {when(approval.requested_at, seen.now)}) "
            f"is to be decided{who}"
        )
        moves: tuple[Move, ...] = self.ways_to_decide(approval)
        more = ""
        if approval.expires_at is not None and approval.expires_at <= seen.now:
            settled, moves = done_by_a_worker(seen, "settles that")
            more = f". It expired {when(approval.expires_at, seen.now)}: {settled}"
        elif approval.expires_at is not None:
            more = f"; it expires {when(approval.expires_at, seen.now)}, {_THEN[approval.on_expiry]}"
        fact = {
            "id": approval.id,
            "key": approval.key,
            "kind": approval.kind,
            "title": approval.title,
            "assignees": list(approval.assignees),
            "requested_at": approval.requested_at,
            "expires_at": approval.expires_at,
            "on_expiry": approval.on_expiry,
        }
        return WaitLine(
            Why.APPROVAL, f"It waits for a person: {short}{more}.", f"{short}{more}", "approvals", fact, moves
        )

    def ways_to_decide(self, approval: Approval) -> tuple[Move, ...]:
        """The commands that decide it."""
        id, by = approval.short_id, by_option(approval)
        return (
            Move("approve", f"perdure approvals approve {id}{by}"),
            Move("deny", f"perdure approvals deny {id}{by}"),
        )

    def woke(self, wait: Wait, seen: Situation) -> str | None:
        """See `WaitKind.woke`."""
        approval = _subject(wait, seen)
        if approval is None or approval.pending or approval.decided_at is None:
            return None
        by = f" by {approval.decided_by}" if approval.decided_by else ""
        return f"'{approval.key}' was {approval.status.lower()}{by} {when(approval.decided_at, seen.now)}, "

    def fault(self, wait: Wait, facts: Facts) -> WaitFault | None:
        """See `WaitKind.fault`."""
        for row in facts.rows("approvals"):
            if str(row["id"]) != wait.subject_id:
                continue
            pending = row["status"] == ApprovalStatus.PENDING
            if pending and wait.answered_at is not None:
                return WaitFault(f"its wait for '{wait.key}' is answered, and the approval is {row['status']}", None)
            if not pending and wait.answered_at is None:
                text = f"'{wait.key}' is {row['status']}, and its wait is not answered"
                return WaitFault(text, facts.time(row, "decided_at") or facts.now)
        return None


def by_option(approval: Approval) -> str:
    """The option --by of a command that decides as the first assignee; empty if any name may decide."""
    return f" --by {shlex.quote(approval.assignees[0])}" if approval.assignees else ""


def _subject(wait: Wait, seen: Situation) -> Approval | None:
    return next((a for a in seen.approvals if str(a.id) == wait.subject_id), None)


APPROVAL = ApprovalWait()
