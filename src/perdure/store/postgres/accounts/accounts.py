"""The accounts of coding CLIs of one tenant as rows."""

from __future__ import annotations

from collections.abc import Collection

from perdure.model.account_choice import AccountChoice, choose_account
from perdure.model.jobs import Lease
from perdure.model.task_records import AccountInfo
from perdure.model.tooling import Account
from perdure.store.errors import account_exists, account_not_found, lease_lost
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.rows import Row
from perdure.store.task_rows import account_of, row_of_account


class PostgresAccounts:
    """See `protocol.AccountStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._notifier = engine.notifier
        self._tenant_id = tenant_id

    async def add_account(self, account: Account) -> None:
        """See `protocol.AccountStore.add_account`."""
        if not await self._database.rows("add_account", tenant_id=self._tenant_id, **row_of_account(account)):
            raise account_exists(account)
        self._notifier.notify(self._tenant_id, "work")

    async def list_accounts(self) -> list[AccountInfo]:
        """See `protocol.AccountStore.list_accounts`."""
        rows = await self._database.rows("list_accounts", tenant_id=self._tenant_id)
        return [account_of(row, CODEC) for row in rows]

    async def get_account(self, text: str) -> AccountInfo:
        """See `protocol.AccountStore.get_account`."""
        return account_of(await self._found(text), CODEC)

    async def change_account(
        self, text: str, *, enabled: bool | None = None, max_concurrency: int | None = None
    ) -> AccountInfo:
        """See `protocol.AccountStore.change_account`."""
        found = await self._found(text)
        row = await self._database.row(
            "change_account",
            tenant_id=self._tenant_id,
            id=found["id"],
            enabled=enabled,
            max_concurrency=max_concurrency,
        )
        if row is None:
            raise account_not_found(text)
        self._notifier.notify(self._tenant_id, "work")
        return await self.get_account(row["id"])

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
        of = {"tenant_id": self._tenant_id, "job_id": lease.job_id}

        async def take(tx: Transaction) -> AccountChoice:
            await tx.rows("lock_accounts", tenant_id=self._tenant_id, tools=[tool])
            rows = await tx.rows("accounts_of_tool", **of, tool=tool)
            held = await tx.row("account_of_lease", **of)
            [clock] = await tx.rows("time_of_transaction")
            choice = choose_account(
                [account_of(row, CODEC) for row in rows],
                {row["id"]: row["used"] for row in rows},
                tool=tool,
                held=None if held is None else held["account_id"],
                wanted=wanted,
                served=served,
                avoid=avoid,
                now=CODEC.time(clock["now"]),
            )
            given = await tx.rows(
                "give_account",
                account_id=choice.account and choice.account.account.id,
                tenant_id=self._tenant_id,
                job_id=lease.job_id,
                attempt=lease.attempt,
                worker_id=lease.worker_id,
            )
            if not given:
                raise lease_lost(lease)
            return choice

        return await self._database.transact(take)

    async def park_account(self, account_id: str, seconds: float, reason: str) -> None:
        """See `protocol.AccountStore.park_account`."""
        await self._database.rows(
            "park_account", tenant_id=self._tenant_id, id=account_id, seconds=seconds, reason=reason
        )

    async def note_probe(self, account_id: str, *, accepted: bool) -> bool:
        """See `protocol.AccountStore.note_probe`."""
        name = "note_accepted" if accepted else "note_refused"
        return bool(await self._database.rows(name, tenant_id=self._tenant_id, id=account_id))

    async def remove_account(self, text: str) -> None:
        """See `protocol.AccountStore.remove_account`."""
        found = await self._found(text)
        await self._database.rows("remove_account", tenant_id=self._tenant_id, id=found["id"])
        self._notifier.notify(self._tenant_id, "work")  # tasks that name it are to fail

    async def _found(self, text: str) -> Row:
        row = await self._database.row("find_account", tenant_id=self._tenant_id, text=text)
        if row is None:
            raise account_not_found(text)
        return row
