"""Documents from inside a job, for the adapters of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.model.documents import DocumentRange, NewDocument
from perdure.model.effects import Effect, add_document, remove_range
from perdure.model.jobs import Lease
from perdure.runtime.context.context import JobContext
from perdure.store.protocol import Store


async def change_in_step(
    ctx: JobContext,
    name: str,
    *,
    add: Sequence[NewDocument] = (),
    remove: Sequence[DocumentRange] = (),
    result: Any = None,
) -> Any:
    """A step that removes documents and adds others, in the transaction of its record. A replay
    changes nothing. Returns `result` (JSON), or what was recorded. Raises NotJson, TooLarge."""
    tenant = ctx._run.store.tenant_id

    async def make() -> tuple[Any, Sequence[Effect]]:
        removed = [remove_range(tenant, within) for within in remove]
        return result, [*removed, *(add_document(tenant, new) for new in add)]

    return await ctx._caller.commit(ctx._options, name, (), make)


def place_of(ctx: JobContext) -> tuple[Store, Lease]:
    """The store of the job, and the lease of this attempt."""
    return ctx._run.store, ctx._run.lease
