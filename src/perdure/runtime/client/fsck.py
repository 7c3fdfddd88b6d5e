"""The findings of one fsck: it checks that what is stored is consistent, and repairs what is safe."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Self

from perdure.memory.tokens import TOKENISER
from perdure.model.fsck_faults import OF_CONTENTS, OF_MEMORY, Finding
from perdure.runtime.client.memory_transfer import index_again
from perdure.runtime.embedders import HASH, Embedder
from perdure.store.protocol import Store

PAGE = 200


class Fsck(AsyncIterator[Finding]):
    """The findings of one check, one at a time. `jobs` is how many jobs were checked so far."""

    def __init__(
        self,
        open: Callable[[], Awaitable[Store]],
        *,
        fix: bool,
        deep: bool = False,
        embedder: Callable[[], Embedder] = lambda: HASH,
    ) -> None:
        self.jobs = 0
        self._embedder = embedder
        self._open = open
        self._fix = fix
        self._deep = deep
        self._after: str | None = None
        self._found: deque[Sequence[Finding]] = deque()
        self._ready: deque[Finding] = deque()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Finding:
        while not self._ready:
            if self._found:
                self._ready += await self._repaired(self._found.popleft())
            elif self._ended:
                raise StopAsyncIteration
            else:
                page = await (await self._open()).checks.check(after=self._after, limit=PAGE, deep=self._deep)
                self.jobs += page.jobs
                self._after = page.next
                self._ended = page.next is None
                # of the findings without a job, those that can be repaired are a group of their own
                groups = groupby(page.findings, lambda f: (f.job_id, f.job_id is None and f.fixable))
                self._found += [list(findings) for _, findings in groups]
        return self._ready.popleft()

    async def _repaired(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """The findings of one job, after the repairs, if they are wanted."""
        if not self._fix or not any(finding.fixable for finding in findings):
            return findings
        store = await self._open()
        repaired = await store.checks.repair(findings[0].job_id)
        if any(finding.code in OF_MEMORY for finding in repaired):
            await index_again(store, self._embedder(), None, (TOKENISER, None), wait=False)
            left = {found.code: found for found in await store.checks.repair(None) if not found.fixed}
            repaired = [replace(found, fixed=found.code not in left) for found in repaired]
            repaired += [left[code] for code in left if code not in {found.code for found in repaired}]
        return [*repaired, *(finding for finding in findings if finding.code in OF_CONTENTS)]
