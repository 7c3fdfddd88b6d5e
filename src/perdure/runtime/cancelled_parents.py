"""Cancelling goes down: the children of cancelled jobs are cancelled, and theirs."""

from __future__ import annotations

import contextlib
import json

from perdure.model.errors import Conflict, NotFound
from perdure.model.ids import short_id
from perdure.store.protocol import Store

BATCH = 100
"""Jobs of one look."""


async def cancel_children(store: Store, actor: str, via: str) -> bool:
    """Cancel the children of every job that was cancelled since; a running one is asked to stop, and its own children follow once
    it has. Return whether there was any. Raises StoreError."""
    any_found = False
    while parents := await store.children.cancelled_parents(limit=BATCH):
        any_found = True
        for parent in parents:
            note = json.dumps(
                {
                    "actor": actor,
                    "via": via,
                    "reason": f"its parent …{short_id(parent)} was cancelled",
                    "parent": str(parent),
                },
                ensure_ascii=False,
            )
            while some := await store.children.children_to_cancel(parent, limit=BATCH):
                for child in some:
                    with contextlib.suppress(Conflict, NotFound):  # it has ended meanwhile
                        await store.jobs.cancel(child, note=note)
            await store.children.forget_cancelled(parent)
    return any_found
