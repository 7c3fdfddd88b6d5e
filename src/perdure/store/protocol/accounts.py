"""The accounts of coding CLIs. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from perdure.model.account_choice import AccountChoice
from perdure.model.jobs import Lease
from perdure.model.task_records import AccountInfo
from perdure.model.tooling import Account


class AccountStore(Protocol):
    """The accounts of coding CLIs, by id; a group name is accepted in its place."""

    async def add_account(self, account: Account) -> None:
        """Store a new account. Raises `AccountExists` if its id or its group name is taken."""
        ...

    async def list_accounts(self) -> list[AccountInfo]:
        """All accounts, by tool and id."""
        ...

    async def get_account(self, text: str) -> AccountInfo:
        """The account of this id or group name. Raises `AccountNotFound`."""
        ...

    async def change_account(
        self, text: str, *, enabled: bool | None = None, max_concurrency: int | None = None
    ) -> AccountInfo:
        """Change what is not None, and return the account as it is then. Raises `AccountNotFound`."""
        ...

    async def take_account(
        self,
        lease: Lease,
        tool: str,
        *,
        wanted: str | None,
        served: Collection[str] | None = None,
        avoid: Collection[str] = (),
    ) -> AccountChoice:
        """Choose an account for the attempt of this lease by `model.account_choice.choose_account`, and take a slot of it: the
        lease names it from then on. Slots in use are counted from live leases, in the same transaction; two calls never take the
        same slot. Raises `LeaseLost`, and then no slot was taken."""
        ...

    async def park_account(self, account_id: str, seconds: float, reason: str) -> None:
        """Let no task start under it for this time from now; a later end that is stored already stays. A missing account is no
        error: it was removed while a task ran under it."""
        ...

    async def note_probe(self, account_id: str, *, accepted: bool) -> bool:
        """Its credential was accepted or refused. The second refusal in a row disables the account; returns whether this one did.
        A missing account is no error."""
        ...

    async def remove_account(self, text: str) -> None:
        """Delete the account. Runs that name it stay. Raises `AccountNotFound`."""
        ...
