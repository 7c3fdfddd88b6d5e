"""Which account a task runs under: the rule, for both dialects of the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from perdure.model.explanation import NoAccount
from perdure.model.limits import SHOWN_HOLDERS
from perdure.model.task_payload import KIND_PREFIX
from perdure.model.task_records import AccountInfo

T = TypeVar("T")

MORE = 10
"""Tasks of a group that are looked at beyond those that could start: a few may have to wait for another account."""


class TaskKind(NamedTuple):
    """A kind of tasks, as a worker serves it. served: ids and group names of accounts, None for all."""

    tool: str
    served: Collection[str] | None = None


class TaskGroup(NamedTuple):
    """Tasks of a kind that ask for the same account. wanted: its id or group name, empty for any."""

    kind: str
    wanted: str


class WaitingTask(NamedTuple, Generic[T]):
    """A due task. refused: the account that refused its last run. place: its row."""

    group: TaskGroup
    refused: str | None
    place: T


class AccountChoice(NamedTuple):
    """The account that was chosen, or None and why.

    until: when the first of the parked ones may be used again, None if another event has to come first. fatal: waiting does not
    help: there is no account of this name.
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
    held: str | None = None,
) -> AccountChoice:
    """The least loaded account with a free slot.

    accounts: those of the tool. used: live leases by account. wanted: the id or group name a task asks for, None for any.
    served: ids and group names that this worker serves, None for all. avoid: accounts that just refused this task; one of them
    is chosen only where there is no other that may come free. held: the account whose slot the task has already; it is kept if
    tasks may start under it.
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
    for kept in ready:
        if kept.account.id == held:
            return AccountChoice(kept)
    free = [a for a in ready if used.get(a.account.id, 0) < a.account.max_concurrency]
    if not free:
        return AccountChoice(None, f"every slot of the accounts of {tool} is in use")
    return AccountChoice(min(free, key=lambda a: (used.get(a.account.id, 0) / a.account.max_concurrency, a.account.id)))


def startable_groups(
    groups: Iterable[TaskGroup], accounts: Sequence[AccountInfo], kinds: Mapping[str, TaskKind], now: datetime
) -> list[tuple[TaskGroup, int]]:
    """The groups of which a task may start now, with how many of its tasks are to be looked at. accounts: all, with their live
    leases. kinds: those that the worker serves."""
    found = []
    for group in groups:
        tool, served = kinds[group.kind]
        its = [
            a for a in accounts if a.account.tool == tool and group.wanted in ("", a.account.id, a.account.group_name)
        ]
        free = sum(
            max(0, a.account.max_concurrency - a.used)
            for a in its
            if a.account.enabled
            and (a.parked_until is None or a.parked_until <= now)
            and (served is None or a.account.id in served or a.account.group_name in served)
        )
        if free or (group.wanted and not its):  # one that names an account that does not exist is to fail
            found.append((group, free + MORE))
    return found


def without_account(
    accounts: Sequence[AccountInfo], group: TaskGroup, now: datetime, holders: Mapping[str, Sequence[UUID]]
) -> NoAccount | None:
    """Why a due task of this group does not start; None if it may. accounts: all, with their live leases. holders: the jobs that
    have slots, by account."""
    tool, wanted = group.kind.removeprefix(KIND_PREFIX), group.wanted or None
    choice = choose_account(
        [a for a in accounts if a.account.tool == tool],
        {a.account.id: a.used for a in accounts},
        tool=tool,
        wanted=wanted,
        served=None,
        avoid=(),
        now=now,
    )
    if choice.account is not None or choice.fatal:
        return None
    its = [
        id
        for a in accounts
        if wanted in (None, a.account.id, a.account.group_name)
        for id in holders.get(a.account.id, ())
    ]
    return NoAccount(tool, wanted, choice.why, choice.until, tuple(its[:SHOWN_HOLDERS]))


def assign_accounts(
    tasks: Iterable[WaitingTask[T]],
    accounts: Sequence[AccountInfo],
    kinds: Mapping[str, TaskKind],
    *,
    limit: int,
    now: datetime,
) -> list[tuple[WaitingTask[T], str | None]]:
    """The tasks that start now, at most `limit`, and the account of each; None for one that names an account that does not exist.

    tasks: in the order of a claim. One that has to wait does not keep those behind it.
    """
    used = {a.account.id: a.used for a in accounts}
    assigned: list[tuple[WaitingTask[T], str | None]] = []
    for task in tasks:
        if len(assigned) == limit:
            break
        tool, served = kinds[task.group.kind]
        choice = choose_account(
            [a for a in accounts if a.account.tool == tool],
            used,
            tool=tool,
            wanted=task.group.wanted or None,
            served=served,
            avoid=() if task.refused is None else (task.refused,),
            now=now,
        )
        if choice.account is not None:
            id = choice.account.account.id
            used[id] += 1
            assigned.append((task, id))
        elif choice.fatal:
            assigned.append((task, None))
    return assigned
