"""The accounts of coding CLIs of one tenant as rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

from perdure.model.account_choice import AccountChoice, choose_account
from perdure.model.jobs import Lease
from perdure.model.task_records import AccountInfo
from perdure.model.tooling import Account
from perdure.store.errors import account_exists, account_not_found, lease_lost
from perdure.store.sqlite.engine.batch import NOTHING, WORK
from perdure.store.sqlite.engine.codec import CODEC, span
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.lease_check import held_claim
from perdure.store.task_rows import account_of, row_of_account


class SqliteAccounts:
    """See `protocol.AccountStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def add_account(self, account: Account) -> None:
        """See `protocol.AccountStore.add_account`."""
        values = row_of_account(account)

        def add(conn: sqlite3.Connection, now: int) -> None:
            if (
                conn.execute(SQL["add_account"], {**values, "tenant_id": self._tenant_id, "now": now}).fetchone()
                is None
            ):
                raise account_exists(account)

        await self._engine.write(add, WORK)

    async def list_accounts(self) -> list[AccountInfo]:
        """See `protocol.AccountStore.list_accounts`."""
        rows = await self._engine.rows("list_accounts", tenant_id=self._tenant_id)
        return [account_of(row, CODEC) for row in rows]

    async def get_account(self, text: str) -> AccountInfo:
        """See `protocol.AccountStore.get_account`."""
        row = await self._engine.row("find_account", tenant_id=self._tenant_id, text=text)
        if row is None:
            raise account_not_found(text)
        return account_of(row, CODEC)

    async def change_account(
        self, text: str, *, enabled: bool | None = None, max_concurrency: int | None = None
    ) -> AccountInfo:
        """See `protocol.AccountStore.change_account`."""

        def change(conn: sqlite3.Connection, now: int) -> Any:
            values = {"enabled": enabled, "max_concurrency": max_concurrency, "now": now}
            return conn.execute(SQL["change_account"], {**self._found(conn, text), **values}).fetchone()

        return await self.get_account((await self._engine.write(change, WORK))["id"])

    async def take_account(
        self,
        lease: Lease,
        tool: str,
        *,
        wanted: str | None,
        served: Collection[str] | None = None,
        avoid: Collection[str] = (),
    ) -> AccountChoice:
        """See `protocol.AccountStore.take_account`."""
        of = {"tenant_id": self._tenant_id, "tool": tool, "job_id": str(lease.job_id)}

        def take(conn: sqlite3.Connection, now: int) -> AccountChoice:
            if held_claim(conn, now, self._tenant_id, lease) is None:
                raise lease_lost(lease)
            accounts = [account_of(row, CODEC) for row in conn.execute(SQL["accounts_of_tool"], {**of, "now": now})]
            choice = choose_account(
                accounts,
                {info.account.id: info.used for info in accounts},
                tool=tool,
                wanted=wanted,
                served=served,
                avoid=avoid,
                now=CODEC.time(now),
                held=conn.execute(SQL["account_of_lease"], of).fetchone()["account_id"],
            )
            account_id = choice.account and choice.account.account.id
            conn.execute(SQL["give_account"], {"job_id": of["job_id"], "account_id": account_id})
            return choice

        return await self._engine.write(take, NOTHING)

    async def park_account(self, account_id: str, seconds: float, reason: str) -> None:
        """See `protocol.AccountStore.park_account`."""

        def park(conn: sqlite3.Connection, now: int) -> None:
            values = {"until": now + span(seconds), "reason": reason, "now": now}
            conn.execute(SQL["park_account"], {"id": account_id, "tenant_id": self._tenant_id, **values})

        await self._engine.write(park, NOTHING)

    async def note_probe(self, account_id: str, *, accepted: bool) -> bool:
        """See `protocol.AccountStore.note_probe`."""
        of = {"id": account_id, "tenant_id": self._tenant_id}

        def note(conn: sqlite3.Connection, now: int) -> bool:
            if accepted:
                conn.execute(SQL["note_accepted"], of)
                return False
            row = conn.execute(SQL["note_refused"], {**of, "now": now}).fetchone()
            return row is not None and not row["enabled"]

        return await self._engine.write(note, NOTHING)

    async def remove_account(self, text: str) -> None:
        """See `protocol.AccountStore.remove_account`."""
        await self._engine.write(
            lambda conn, _: conn.execute(SQL["remove_account"], self._found(conn, text)).fetchone(), WORK
        )

    def _found(self, conn: sqlite3.Connection, text: str) -> dict[str, Any]:
        row = conn.execute(SQL["find_account"], {"tenant_id": self._tenant_id, "text": text}).fetchone()
        if row is None:
            raise account_not_found(text)
        return {"id": row["id"], "tenant_id": self._tenant_id}
