"""Whether a tool may be called: by the approval context of the job, and by a person who is asked.

An approval is for one call: its key holds that of the call and the digest of the arguments, so other arguments are asked about
again. It is used by that call, until the call returns; the event `tool_called` names it. A fork asks again for what it calls
again.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from perdure.model.approval_rules import ApprovalRule
from perdure.model.errors import ToolNotAllowed
from perdure.model.events import NewEvent
from perdure.model.tool_approvals import MARK, ApprovalContext, context_of, merged
from perdure.model.waits import APPROVAL
from perdure.runtime.context import approvals
from perdure.runtime.context.approvals import Question
from perdure.runtime.context.waits import recorded_answer
from perdure.runtime.run import Run
from perdure.runtime.shown_arguments import shown_arguments, whole_arguments

MOST_SHOWN = 256 * 1024
"""Characters of arguments, as JSON, that are shown uncut."""


class Asked(NamedTuple):
    """A call of a tool that is about to be made. name: of the tool. key: of the call."""

    name: str
    key: str
    digest: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def context_of_run(run: Run) -> ApprovalContext | None:
    """What the App, the handler and the job say together; None if none of them says anything."""
    stored = run.history.approval_context
    of_app = None if run.registry is None else run.registry.approval_context
    if stored is None and of_app is None and run.handler.policy.approval_context is None:
        return None
    own = None if stored is None else context_of(stored)
    return merged((of_app, run.handler.policy.approval_context, own))


async def admit(run: Run, context: ApprovalContext | None, call: Asked, assignees: tuple[str, ...]) -> str:
    """Wait until the call may be made. Returns what `tool_called` says of it: members of its payload as JSON, or nothing.
    Raises ToolNotAllowed, Denied, Suspended."""
    await _close_others(run, call)
    asked_before = call.key in run.history.asked_tools
    answer = "run" if context is None else context.answer(call.name)
    if answer == "refuse":
        raise ToolNotAllowed(
            f"tool '{call.name}' needs the approval of a person, and this job runs without one",
            hint="name it in ApprovalContext(autonomous=[...])",
        )
    rule = None
    if context is not None and context.need(call.name) != "never" and not asked_before:
        rule = await _rule_for(run, call.name)
    if rule is not None and rule.verdict == "deny":
        why = f": {rule.reason}" if rule.reason else ""
        raise ToolNotAllowed(f"rule …{rule.short_id} of {rule.created_by} denies tool '{call.name}'{why}")
    if rule is not None and answer == "ask":
        return f'"rule":"{rule.id}",'
    if answer == "run" and not asked_before:
        return ""
    return await _ask(run, context or ApprovalContext(), call, assignees, must=answer != "run")


async def _rule_for(run: Run, tool: str) -> ApprovalRule | None:
    """The rule that decides a call of this job's."""
    user = run.history.fields.user_id or run.store.tenant_id
    with run.busy():
        return await run.store.approvals.rule_for(tool, run.claimed.id, user)


async def _ask(run: Run, context: ApprovalContext, call: Asked, assignees: tuple[str, ...], *, must: bool) -> str:
    """must: ask if this was not asked before."""
    said = ""
    for turn in itertools.count(1):
        question = Question(
            key=f"{call.key}{MARK}{call.digest}]" + ("" if turn == 1 else f"#{turn}"),
            title=f"Call tool '{call.name}'?{said}",
            payload={
                "tool": call.name,
                "arguments": _shown(call),
                "digest": call.digest,
            },
            expires_in=context.expires_in,  # type: ignore[arg-type]  # seconds, once it is made
            assignees=tuple(context.assignees) or assignees,
            on_expiry="deny",
            on_deny=context.on_deny,
        )
        if run.history.unmet:
            run.history.meet(APPROVAL.name, question.key)
        _forget_anothers(run, question.key)
        of = APPROVAL.name, question.key
        if not must and of not in run.history.approvals and of not in run.history.answers:
            return ""
        decision = await approvals.approve(run, question, None, keep_changed=True)
        if not decision.edited:
            return f'"approval":"{decision.approval_id}",'
        said = " The last answer was not taken: it changed the arguments. Approve as asked, or deny."
    raise AssertionError("unreachable")


def _shown(call: Asked) -> dict[str, Any]:
    """Whole, so that a person sees all that they approve, unless that is more than a person reads; the digest is of all."""
    whole = whole_arguments(call.fn, call.args, call.kwargs)
    return whole if len(json.dumps(whole)) <= MOST_SHOWN else shown_arguments(call.fn, call.args, call.kwargs)


def _forget_anothers(run: Run, key: str) -> None:
    """What a fork brought along was decided for a call of the old job."""
    answer = recorded_answer(run, APPROVAL, key)
    if answer is not None and "recorded" in answer and UUID(answer["recorded"]["job_id"]) != run.claimed.id:
        del run.history.answers[APPROVAL.name, key]


async def _close_others(run: Run, call: Asked) -> None:
    """The call has other arguments than an earlier attempt asked about: that approval is withdrawn."""
    prefix, own = f"{call.key}{MARK}", f"{call.key}{MARK}{call.digest}]"
    for (kind, key), wait in list(run.history.rows.items()):
        if kind == APPROVAL.name and key.startswith(prefix) and not key.startswith(own):
            payload = {"key": key, "kind": kind, "approval": wait.subject_id, "closed": True}
            closing = APPROVAL.closes(wait, answered=False)
            await run.record([NewEvent("wait_completed", json.dumps(payload))], *closing)
            del run.history.rows[kind, key]
