"""Vectors of long-term memory compared by pgvector, where the extension is: exactly, with the same results as in the process."""

from __future__ import annotations

import time
from array import array
from collections.abc import Collection, Sequence

from perdure.model.errors import PerdureError
from perdure.model.memory import Ranked, ScopeHead
from perdure.store.memory_vectors import ERROR, SCALE, best_of, exact_score
from perdure.store.postgres.engine.database import Database

PAGE = 500
"""Vectors that are copied in a transaction."""
LOOK_AGAIN = 60.0
"""Seconds after which a process looks whether another one has made the copy."""


class PgVectors:
    """The copy of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._whole = False
        self._looked_at = float("-inf")

    async def whole(self) -> bool:
        """Whether searches can use it."""
        if not self._whole and time.monotonic() - self._looked_at > LOOK_AGAIN:
            self._looked_at = time.monotonic()
            row = await self._database.row("pgvectors_state")
            self._whole = row is not None and row["whole"]
        return self._whole

    async def make(self) -> bool:
        """Make the copy, if the extension is there or may be created. Return whether there is one."""
        state = await self._database.row("pgvectors_state")
        if state is None or state["whole"] or not state["wanted"]:
            return state is not None and bool(state["whole"])
        await self._database.rows("make_pgvectors")
        if await self._database.row("pgvectors_made") is None:
            return False
        no = chunk = 0
        while (last := await self._database.row("fill_pgvectors", no=no, chunk=chunk, limit=PAGE)) is not None:
            no, chunk = last["no"], last["chunk"]
        await self._database.rows("finish_pgvectors")
        self._whole = True
        return True

    async def nearest(
        self,
        scopes: Sequence[ScopeHead],
        embedder: str,
        vector: Sequence[float],
        limit: int,
        allowed: Collection[int] | None,
    ) -> list[Ranked] | None:
        """As `VectorCache.nearest`; None: it cannot say, for example because of vectors with other dimensions."""
        wanted = array("f", vector)
        looked_at = 2 * limit
        while True:
            try:
                rows = await self._database.rows(
                    "nearest_memories",
                    scopes=[scope.no for scope in scopes],
                    embedder=embedder,
                    query="[" + ",".join(map(repr, wanted)) + "]",
                    nos=None if allowed is None else list(allowed),
                    looked_at=looked_at,
                )
            except PerdureError:
                return None
            found = best_of(((row["no"], row["chunk"], exact_score(wanted, row["vector"])) for row in rows), limit)
            if len(rows) < looked_at or rows[-1]["near"] < 0:
                return found
            if len(found) == limit and rows[-1]["near"] < found[-1].score - ERROR - 1 / SCALE:
                return found
            looked_at *= 4
