"""Asking people from inside a job: approvals, and what happened to a side effect that a crash cut off."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeVar
from uuid import UUID

from perdure.model.approvals import (
    Approval,
    ApprovalStatus,
    NewApproval,
    OnDeny,
    OnExpiry,
    expired_text,
    from_record,
)
from perdure.model.errors import (
    AlreadyDecided,
    ApprovalExpired,
    Denied,
    InvalidInput,
    LeaseLost,
    NotifyFailed,
    StepChanged,
    Suspended,
    UnknownOutcome,
    Verdict,
)
from perdure.model.events import NewEvent
from perdure.model.ids import hash_json, hash_token, new_token, short_id, uuid7
from perdure.model.jobs import Outcome, Wait
from perdure.model.states import Status
from perdure.model.waits import APPROVAL, QUESTION
from perdure.runtime import codec
from perdure.runtime.context.waits import recorded_answer, reopen_if_lost
from perdure.runtime.outcomes import clean
from perdure.runtime.run import Run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """The answer to an approval. `payload` is what was approved, edited or as asked. With on_expiry="continue" an approval
    that ran out gives approved=False."""

    approved: bool
    payload: T
    edited: bool
    by: str | None
    at: datetime | None
    comment: str | None
    via: str | None
    approval_id: UUID


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What `notify` is given: everything for a message with a link. The token is in no log, event or list: pass it on now."""

    id: UUID
    job_id: UUID
    title: str
    payload: Any
    token: str = field(repr=False)
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, checked."""

    key: str
    title: str
    payload: Any
    expires_in: float | None
    assignees: tuple[str, ...]
    on_expiry: OnExpiry
    on_deny: OnDeny
    kind: str = "approval"


Notify = Callable[[ApprovalRequest], Awaitable[None] | None]


async def approve(run: Run, question: Question, notify: Notify | None, *, keep_changed: bool = False) -> Decision[Any]:
    """Ask once, wait, and return or raise what was decided; see `JobContext.approve`."""
    kind = QUESTION if question.kind == QUESTION.name else APPROVAL
    answer = recorded_answer(run, kind, question.key)
    if answer is not None:
        return verdict(run, await recorded_approval(run, question, answer, keep_changed=keep_changed), question)
    approval = await asked(run, question, notify, keep_changed=keep_changed)
    if approval.pending:
        approval = await run.waits.answer(kind, wait_for(approval)) or approval
    payload = {"key": question.key, "kind": question.kind} | kind.recorded(approval)
    closing = kind.closes(wait_for(approval), answered=True)
    await run.record([NewEvent("wait_completed", json.dumps(payload))], *closing)
    run.history.rows.pop((kind.name, question.key), None)
    if run.observer is not None:
        run.observer.approval_decided(run.claimed, approval)
    return verdict(run, approval, question)


async def asked(run: Run, question: Question, notify: Notify | None, *, keep_changed: bool) -> Approval:
    """The approval, requested by this attempt or before; its wait is open. Raises StepChanged."""
    text = codec.encode(question.payload, f"the payload of approval '{question.key}'")
    with run.busy():
        approval = await _ask(run, question, text, notify)
    _check_payload(approval, text, keep_changed=keep_changed)
    if approval.pending and (question.kind, question.key) in run.history.approvals:
        await reopen_if_lost(run, QUESTION if question.kind == QUESTION.name else APPROVAL, wait_for(approval))
    return approval


async def recorded_approval(run: Run, question: Question, answer: Mapping[str, Any], *, keep_changed: bool) -> Approval:
    """The approval whose answer an earlier attempt recorded. Raises StepChanged."""
    text = codec.encode(question.payload, f"the payload of approval '{question.key}'")
    # a fork brings the whole answer along: the approval belongs to another job, and may be gone with it
    recorded = answer.get("recorded")
    approval = from_record(recorded) if recorded else await run.store.approvals.get_approval(UUID(answer["approval"]))
    _check_payload(approval, text, keep_changed=keep_changed)
    return approval


def wait_for(approval: Approval) -> Wait:
    """The wait for its decision."""
    return Wait(approval.key, approval.kind, None, str(approval.id))


def _check_payload(approval: Approval, text: str, *, keep_changed: bool) -> None:
    if approval.payload_digest != hash_json(text) and not keep_changed:
        raise StepChanged(
            f"approval '{approval.key}' was asked for with another payload than now",
            hint="ask under another name, or record what you show in a step so that it stays the same",
        )


async def _ask(run: Run, question: Question, text: str, notify: Notify | None) -> Approval:
    token = new_token()
    known = run.history.approvals.get((question.kind, question.key))
    if known is None:
        if run.pending is not None:
            await run.record(())
        approval = await _guarded(
            run,
            run.store.approvals.request_approval(
                run.lease,
                NewApproval(
                    id=uuid7(),
                    key=question.key,
                    title=question.title,
                    payload=text,
                    payload_digest=hash_json(text),
                    requester=f"{run.claimed.kind} …{short_id(run.claimed.id)}",
                    kind=question.kind,
                    assignees=question.assignees,
                    expires_in=question.expires_in,
                    on_expiry=question.on_expiry,
                    on_deny=question.on_deny,
                    token_hash=hash_token(token) if notify else None,
                ),
            ),
        )
        if run.observer is not None:
            run.observer.approval_requested(run.claimed, approval)
    else:
        approval = await run.store.approvals.get_approval(known)
    if notify is None or (question.kind, question.key) in run.history.notified or not approval.pending:
        return approval
    if known is not None:  # a crash came between asking and telling: that token is lost, make another
        try:
            approval = await run.store.approvals.replace_token(approval.id, hash_token(token))
        except (AlreadyDecided, ApprovalExpired):  # this very moment
            return await run.store.approvals.get_approval(known)
    request = ApprovalRequest(
        approval.id, approval.job_id, approval.title, approval.payload, token, approval.expires_at
    )
    await _notify(notify, request)
    event = NewEvent("approval_notified", json.dumps({"key": question.key, "approval": str(approval.id)}))
    await run.record([event])
    # a person who was notified may have answered: then there is nothing to wait for
    return await run.store.approvals.get_approval(approval.id)


async def _notify(notify: Notify, request: ApprovalRequest) -> None:
    try:
        sent = notify(request)
        if inspect.isawaitable(sent):
            await sent
    except Verdict:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it is passed on
        # HTTP clients put the URL into what they raise, and errors go into the log of the job: not with the token
        said = str(error).replace(request.token, "***")
        raise NotifyFailed(f"notify raised {type(error).__name__}: {said}") from None


async def _guarded(run: Run, writing: Awaitable[Approval]) -> Approval:
    try:
        return await writing
    except LeaseLost:
        run.lease_lost()
        raise Suspended("lease lost") from None


def verdict(run: Run, approval: Approval, question: Question) -> Decision[Any]:
    """What the handler gets of a decision. Raises Denied, and Suspended where the job fails of it."""
    if approval.status is ApprovalStatus.EXPIRED and question.on_expiry == "fail":
        _fail(run, expired_text(approval.key), "expired")
    denied = approval.status is ApprovalStatus.DENIED or (
        approval.status is ApprovalStatus.EXPIRED and question.on_expiry == "deny"
    )
    if denied and question.on_deny == "fail":
        _fail(run, str(Denied(approval)), "denied")
    if denied:
        raise Denied(approval)
    shown = json.dumps(approval.final_payload)
    annotation = None if question.payload is None else type(question.payload)  # an edit keeps the type
    return Decision(
        approved=approval.status is ApprovalStatus.APPROVED,
        payload=codec.decode(shown, annotation, f"the approved payload of '{approval.key}'"),
        edited=approval.edited,
        by=approval.decided_by,
        at=approval.decided_at,
        comment=approval.comment,
        via=approval.decided_via,
        approval_id=approval.id,
    )


def _fail(run: Run, error: str, kind: str) -> NoReturn:
    """The policy says the job fails: whatever the handler would make of an exception does not matter."""
    run.stop(error, Outcome(Status.FAILED, error=error, error_kind=kind))
    raise Suspended(error)


async def ask_what_happened(
    run: Run, key: str, calls: int, shown: dict[str, Any], returns: Any, assignees: tuple[str, ...]
) -> tuple[str, Any] | None:
    """A crash cut off a tool call: a person says `{"outcome": "happened", "result": ...}` or `{"outcome": "retry"}`, or denies
    (the job fails). None means run it again; else the result as JSON, and as what the tool returns. shown: what is shown
    of the call.

    A result that does not fit is asked for again: were the job to fail of it, the only ways on would repeat the effect.
    """
    said = "The call was cut off before its outcome was recorded: by a crash, a timeout or a cancellation."
    for turn in itertools.count(1):
        question = Question(
            key=f"{key}?{calls}" if turn == 1 else f"{key}?{calls}#{turn}",
            title=f"Did '{key}' happen? {said}",
            payload={"tool": key, "call": calls, **shown},
            expires_in=None,
            assignees=assignees,
            on_expiry="fail",
            on_deny="fail",
            kind="question",
        )
        decision = await approve(run, question, None, keep_changed=True)
        match decision.payload.get("outcome"):
            case "happened":
                what = f"the result given for tool '{key}'"
                result = codec.encode(decision.payload.get("result"), what)
                try:
                    return result, codec.decode(result, returns, what)
                except InvalidInput as error:
                    said = f"The last answer was not taken: {clean(error.message)}."
            case "retry":
                return None
            case _:
                raise UnknownOutcome(f"what happened to tool '{key}' was not answered, so it is not called again")
    raise AssertionError("unreachable")
