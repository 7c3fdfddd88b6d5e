"""Explains a task that waits for a slot of an account."""

from __future__ import annotations

import shlex

from perdure.model.explanation import Move, NoAccount, Situation, Why
from perdure.model.ids import short_id
from perdure.model.timing import when
from perdure.runtime.explain.workers import Reason


def without_account(seen: Situation, account: NoAccount) -> Reason:
    """Why no account has a slot for it, until when, and which jobs hold the slots."""
    details = {
        "due_at": seen.job.due_at,
        "tool": account.tool,
        "account": account.wanted,
        "until": account.until,
        "holders": [str(id) for id in account.holders],
    }
    sentence = f"It waits for an account: {account.why}"
    if account.until is not None:
        sentence += f"; the first of them can be used again {when(account.until, seen.now)}"
    if account.holders:
        by = ", ".join(f"…{short_id(id)}" for id in account.holders)
        sentence += f"; jobs that run: {by}"
    look = tuple(
        Move("see what the oldest of them does", f"perdure jobs explain {short_id(id)}") for id in account.holders[:1]
    )
    add = Move(
        f"add an account of {account.tool}", f"perdure accounts add --id NAME --tool {shlex.quote(account.tool)}"
    )
    return Reason(Why.ACCOUNT, f"{sentence}.", details, (*look, Move("see all accounts", "perdure accounts ls"), add))
