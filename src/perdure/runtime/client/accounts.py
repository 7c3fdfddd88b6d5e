"""`client.accounts`: the accounts of coding CLIs."""

from __future__ import annotations

import builtins

from perdure.model.task_records import AccountInfo
from perdure.model.tooling import Account, CliRun, RunClass
from perdure.model.tooling.account import check_max_concurrency
from perdure.runtime.client.base import ClientPart


class Accounts(ClientPart):
    """The accounts of coding CLIs. Where an id is asked for, a group name will do."""

    async def add(self, account: Account) -> None:
        """Store a new account. Workers that serve its tool use it within a heartbeat.

        Raises UnknownTool, and AccountExists if its id or group name is taken.
        """
        self._scope.holder.check_tool(account.tool)
        await (await self._store()).accounts.add_account(account)

    async def list(self) -> builtins.list[AccountInfo]:
        """All accounts, by tool and id."""
        return await (await self._store()).accounts.list_accounts()

    async def get(self, account_id: str) -> AccountInfo:
        """One account. Raises AccountNotFound."""
        return await (await self._store()).accounts.get_account(account_id)

    async def enable(self, account_id: str) -> AccountInfo:
        """Let tasks run under it. Raises AccountNotFound."""
        return await (await self._store()).accounts.change_account(account_id, enabled=True)

    async def disable(self, account_id: str) -> AccountInfo:
        """Let no more tasks start under it; those that run go on. Raises AccountNotFound."""
        return await (await self._store()).accounts.change_account(account_id, enabled=False)

    async def set_limits(self, account_id: str, *, max_concurrency: int) -> AccountInfo:
        """How many tasks run under it at once, 0 to 10,000. Those that run go on if it is lower than their number.

        Raises AccountNotFound, InvalidAccount.
        """
        check_max_concurrency(max_concurrency)
        return await (await self._store()).accounts.change_account(account_id, max_concurrency=max_concurrency)

    async def test(self, account_id: str) -> CliRun:
        """Run its tool once with a short prompt, on this machine and confined as a task is; what came of it. That uses a few
        tokens of the account. A refused credential is counted: the second in a row disables the account.

        Raises AccountNotFound, ToolMissing, ToolUnsupported, SecretMissing, SandboxTooWeak, DangerRefused.
        """
        store = (await self._store()).accounts
        account = (await store.get_account(account_id)).account
        run = await self._scope.holder.probe_account(account)
        if run.ok or run.outcome is RunClass.AUTH:
            await store.note_probe(account.id, accepted=run.ok)
        return run

    async def remove(self, account_id: str) -> None:
        """Delete the account; the records of its runs stay. Raises AccountNotFound."""
        await (await self._store()).accounts.remove_account(account_id)
