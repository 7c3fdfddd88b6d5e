"""The accounts of coding CLIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure.model.errors import (
    AccountExists,
    AccountNotFound,
    InvalidAccount,
    SecretByValue,
    ToolRefused,
    UnknownTool,
)
from perdure.model.task_records import AccountInfo
from perdure.model.tooling import Account, CliRun
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@operation("accounts.add", role=Role.ADMIN, errors=(InvalidAccount, SecretByValue, UnknownTool, AccountExists))
async def add_account(
    client: Client,
    id: str,
    tool: str,
    *,
    group_name: str | None = None,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    cred_ref: str | None = None,
    max_concurrency: int = 1,
    dangerous: bool = False,
) -> AccountInfo:
    """Store an account. Secrets are given by reference: `env:NAME`, `file:PATH`, or a file or folder as cred_ref."""
    account = Account(
        id=id,
        tool=tool,
        group_name=group_name or "",
        name=name,
        env=dict(env or {}),
        cred_ref=cred_ref,
        max_concurrency=max_concurrency,
        dangerous=dangerous,
    )
    await client.accounts.add(account)
    return await client.accounts.get(id)


@operation("accounts.list", role=Role.VIEWER)
async def list_accounts(client: Client) -> list[AccountInfo]:
    """All accounts, by tool and id."""
    return await client.accounts.list()


@operation("accounts.get", role=Role.VIEWER, errors=(AccountNotFound,))
async def get_account(client: Client, id: str) -> AccountInfo:
    """One account, by its id or group name."""
    return await client.accounts.get(id)


@operation("accounts.enable", role=Role.OPERATOR, errors=(AccountNotFound,))
async def enable_account(client: Client, id: str) -> AccountInfo:
    """Let tasks run under an account."""
    return await client.accounts.enable(id)


@operation("accounts.disable", role=Role.OPERATOR, errors=(AccountNotFound,))
async def disable_account(client: Client, id: str) -> AccountInfo:
    """Let no more tasks start under an account; those that run go on."""
    return await client.accounts.disable(id)


@operation("accounts.set_limits", role=Role.OPERATOR, errors=(AccountNotFound, InvalidAccount))
async def set_account_limits(client: Client, id: str, *, max_concurrency: int) -> AccountInfo:
    """How many tasks run under an account at once."""
    return await client.accounts.set_limits(id, max_concurrency=max_concurrency)


@operation("accounts.test", role=Role.OPERATOR, errors=(AccountNotFound, ToolRefused, UnknownTool))
async def check_account(client: Client, id: str) -> CliRun:
    """Run the tool of an account once, on this machine, with a short prompt; what came of it."""
    return await client.accounts.test(id)


@operation("accounts.remove", role=Role.ADMIN, errors=(AccountNotFound,))
async def remove_account(client: Client, id: str) -> None:
    """Delete an account; the records of its runs stay."""
    await client.accounts.remove(id)
