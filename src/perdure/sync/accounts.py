"""`client.accounts`, blocking."""

from __future__ import annotations

import builtins

from perdure.model.task_records import AccountInfo
from perdure.model.tooling import Account, CliRun
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.accounts import Accounts as AsyncAccounts


class Accounts:
    """See `perdure.Client.accounts`."""

    def __init__(self, accounts: AsyncAccounts, background: BackgroundLoop) -> None:
        self._accounts = accounts
        self._background = background

    def add(self, account: Account) -> None:
        """See `Accounts.add`."""
        self._background.run(self._accounts.add(account))

    def list(self) -> builtins.list[AccountInfo]:
        """See `Accounts.list`."""
        return self._background.run(self._accounts.list())

    def get(self, account_id: str) -> AccountInfo:
        """See `Accounts.get`."""
        return self._background.run(self._accounts.get(account_id))

    def enable(self, account_id: str) -> AccountInfo:
        """See `Accounts.enable`."""
        return self._background.run(self._accounts.enable(account_id))

    def disable(self, account_id: str) -> AccountInfo:
        """See `Accounts.disable`."""
        return self._background.run(self._accounts.disable(account_id))

    def set_limits(self, account_id: str, *, max_concurrency: int) -> AccountInfo:
        """See `Accounts.set_limits`."""
        return self._background.run(self._accounts.set_limits(account_id, max_concurrency=max_concurrency))

    def test(self, account_id: str) -> CliRun:
        """See `Accounts.test`."""
        return self._background.run(self._accounts.test(account_id))

    def remove(self, account_id: str) -> None:
        """See `Accounts.remove`."""
        self._background.run(self._accounts.remove(account_id))
