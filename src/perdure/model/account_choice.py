"""Which account a task runs under: the rule, for both dialects of the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from perdure.model.task_records import AccountInfo


class AccountChoice(NamedTuple):
    """The account that was chosen, or None and why.

    until: when the first of the parked ones may be used again, None if another event has to come first. fatal: waiting does not
    help: there is no such account, or it is disabled.
    """

    account: AccountInfo | None
    why: str = ""
    until: datetime | None = None
    fatal: bool = False


def choose_account(
    accounts: Sequence[AccountInfo],
    used: Mapping[str, int],
    *,
    tool: str,
    wanted: str | None,
    served: Collection[str] | None,
    avoid: Collection[str],
    now: datetime,
) -> AccountChoice:
    """The least loaded account with a free slot.

    accounts: those of the tool. used: live leases by account. wanted: the id or group name a task asks for, None for any.
    served: ids and group names that this worker serves, None for all. avoid: accounts that just refused this task; one of them
    is chosen only where there is no other that may come free.
    """
    named = [a for a in accounts if wanted in (None, a.account.id, a.account.group_name)]
    if not named:
        if wanted is None:
            return AccountChoice(None, f"there is no account for {tool}")
        return AccountChoice(None, f"no account of {tool} is named '{wanted}'", fatal=True)
    ours = [a for a in named if served is None or a.account.id in served or a.account.group_name in served]
    enabled = [a for a in ours if a.account.enabled]
    if not enabled:
        what = f"account '{wanted}' is" if wanted is not None else f"all accounts of {tool} are"
        return AccountChoice(None, f"{what} disabled, or not served by this worker")
    others = [a for a in enabled if a.account.id not in avoid] or enabled
    ready = [a for a in others if a.parked_until is None or a.parked_until <= now]
    if not ready:
        first = min(a.parked_until for a in others if a.parked_until is not None)
        return AccountChoice(None, f"every account of {tool} is parked: {others[0].parked_reason}", first)
    free = [a for a in ready if used.get(a.account.id, 0) < a.account.max_concurrency]
    if not free:
        return AccountChoice(None, f"every slot of the accounts of {tool} is in use")
    return AccountChoice(min(free, key=lambda a: (used.get(a.account.id, 0) / a.account.max_concurrency, a.account.id)))
