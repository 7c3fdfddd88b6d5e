"""Documents from inside a job, for the adapters of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.model.documents import DocumentRange, NewDocument
from perdure.model.effects import Effect, add_document, remove_range
from perdure.model.errors import LeaseLost, Suspended
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.current_call import running_call
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


async def change_at_once(ctx: JobContext, put: Sequence[NewDocument] = (), remove: Sequence[DocumentRange] = ()) -> int:
    """Change documents under the lease of this attempt, without a record; return how many were removed. Raises Suspended in an
    attempt that has stopped."""
    run = ctx._run
    if running_call.get(None) is None:
        await run.enter()
    try:
        with run.busy():
            return await run.store.documents.change_documents(put=put, remove=remove, lease=run.lease)
    except LeaseLost:
        run.lease_lost()
        raise Suspended("lease lost") from None


def store_of(ctx: JobContext) -> Store:
    """The store of the job."""
    return ctx._run.store
