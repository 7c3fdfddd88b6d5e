"""Seeing and setting the limits of concurrency keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.errors import InvalidInput
from perdure.model.limits import Limit
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@operation("limits.list", role=Role.VIEWER)
async def list_limits(client: Client) -> list[Limit]:
    """The concurrency keys that jobs hold slots of, and those that were set by hand."""
    return await client.limits.list()


@operation("limits.get", role=Role.VIEWER, errors=(InvalidInput,))
async def get_limit(client: Client, key: str) -> Limit:
    """One concurrency key, with the jobs that hold its slots."""
    return await client.limits.get(key)


@operation("limits.set", role=Role.OPERATOR, errors=(InvalidInput,))
async def set_limit(client: Client, key: str, max: int | None = None, *, per_minute: int | None = None) -> Limit:
    """Let at most `max` jobs of a concurrency key run, whatever code says; 0: none. It ends no job. per_minute: so many may start
    in any minute."""
    return await client.limits.set(key, max, per_minute=per_minute)


@operation("limits.unset", role=Role.OPERATOR, errors=(InvalidInput,))
async def unset_limit(client: Client, key: str) -> Limit:
    """Let code say again how many jobs of a concurrency key run."""
    return await client.limits.unset(key)
