"""The page of `approvals get`: the payload is shown whole."""

from __future__ import annotations

from rich.text import Text

from perdure.cli.format import Times, one_line, short
from perdure.cli.job_page import pretty
from perdure.cli.output import approval_cell
from perdure.model.approvals import Approval


def approval_page(approval: Approval, times: Times) -> Text:
    """An approval for people. Its payload is never cut: a person must see all that they approve."""
    text = Text()
    word, style = approval_cell(approval)
    text.append(word, f"bold {style}")
    text.append(f"  {one_line(approval.title)}  ", "bold")
    text.append(f"{approval.id}\n", "dim")
    facts = {
        "job": f"{short(approval.job_id)} {approval.job_kind or ''} {approval.job_status or ''}",
        "asked by": approval.requester,
        "asked": times.show(approval.requested_at),
        "expires": _expiry(approval, times),
        "if denied": "the job fails" if approval.on_deny == "fail" else "the job continues and learns of it",
        "may decide": ", ".join(approval.assignees) or "anyone",
        "digest": approval.payload_digest,
        "decided": times.show(approval.decided_at),
        "by": f"{approval.decided_by} ({approval.decided_via})" if approval.decided_by else "",
        "comment": approval.comment or "",
    }
    for name, value in facts.items():
        if value.strip():
            text.append(f"  {name:<12}", "dim")
            text.append(one_line(value) + "\n")
    _value(
        text,
        "What would be approved" if approval.pending else "What was asked",
        approval.payload,
    )
    if approval.edited:
        _value(text, "What was approved instead", approval.decision_payload)
    return text


def _value(text: Text, heading: str, value: object) -> None:
    text.append(f"\n{heading}\n", "bold")
    for line in pretty(value).split("\n"):
        text.append(f"  {line}\n")


def _expiry(approval: Approval, times: Times) -> str:
    if approval.expires_at is None:
        return ""
    then = {"fail": "the job fails", "deny": "it counts as denied", "continue": "the job continues without an answer"}
    return f"{times.show(approval.expires_at)}, then {then[approval.on_expiry]}"
