"""Taking tasks: jobs that run a coding CLI, each with a slot of an account. The twin of the PostgreSQL module."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.model.account_choice import TaskGroup, TaskKind, WaitingTask, assign_accounts, startable_groups
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.task_rows import account_of


async def startable(
    engine: Engine, tenant_id: str, lane: str, tasks: Mapping[str, TaskKind]
) -> list[tuple[TaskGroup, int]]:
    """The groups of tasks of which one could start: a look that takes no lock."""
    found = await engine.rows("task_groups", lane=lane, kinds=json.dumps([*tasks]))
    if not found:
        return []
    groups = [TaskGroup(row["kind"], row["wanted"]) for row in found]
    accounts = [account_of(row, CODEC) for row in await engine.rows("list_accounts", tenant_id=tenant_id)]
    return startable_groups(groups, accounts, tasks, CODEC.time(found[0]["now"]))


def choose_tasks(
    conn: sqlite3.Connection,
    now: int,
    *,
    tenant_id: str,
    lane: str,
    tasks: Mapping[str, TaskKind],
    groups: Sequence[TaskGroup],
    others: Sequence[str],
    limit: int,
) -> tuple[list[str], list[str], dict[str, str | None]]:
    """The tasks among the first `limit` due jobs that get an account: the ids of those without and with a concurrency key, and
    the account of each. others: the kinds of the same claim that are no tasks."""
    rows = conn.execute(SQL["list_accounts"], {"tenant_id": tenant_id})
    accounts = [account_of(row, CODEC) for row in rows]
    of: dict[str, Any] = {"tenant_id": tenant_id, "lane": lane, "now": now}
    fronts = [
        row
        for group, number in startable_groups(groups, accounts, tasks, CODEC.time(now))
        for row in conn.execute(SQL["task_fronts"], {**of, **group._asdict(), "limit": number})
    ]
    fronts.sort(key=lambda row: (-row["priority"], row["run_at"], row["job_id"]))
    waiting = [WaitingTask(TaskGroup(row["kind"], row["wanted"]), row["refused"], row) for row in fronts]
    plain: list[str] = []
    keyed: list[str] = []
    given: dict[str, str | None] = {}
    for number, (task, account) in enumerate(
        assign_accounts(waiting, accounts, tasks, limit=limit, now=CODEC.time(now))
    ):
        row = task.place
        place = {"priority": row["priority"], "run_at": row["run_at"], "lane": lane, "now": now, "limit": limit}
        if (
            others
            and conn.execute(SQL["ready_ahead"], {**place, "kinds": json.dumps(others)}).fetchone()[0] + number >= limit
        ):
            break
        (plain if row["key"] is None else keyed).append(row["job_id"])
        given[row["job_id"]] = account
    return plain, keyed, given
