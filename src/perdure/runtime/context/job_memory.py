"""Long-term memory from inside a job: what it writes commits with its step, and what it finds is recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import Any
from uuid import UUID

from perdure.model.effects import Effect, write_memory
from perdure.model.errors import InvalidInput
from perdure.model.memory import MemoryEntry, MemoryFilter, MemoryHit, ScopeKind, parse_scope, scope_of, unknown_scope
from perdure.runtime.context.call_kinds import STEP
from perdure.runtime.context.calls import Caller
from perdure.runtime.context.options import CallOptions
from perdure.runtime.embedders import HASH, Embedder, with_vectors
from perdure.runtime.memory_checks import (
    check_k,
    check_memory_text,
    check_mode,
    check_query,
    check_tags,
    entry_id_of,
    leave_of,
    new_memory,
)
from perdure.runtime.memory_search import search
from perdure.runtime.run import Run
from perdure.runtime.validation import check_moment, check_text
from perdure.store.errors import memory_not_found

MOST_CONSOLIDATED = 1_000
Summarise = Callable[[list[MemoryEntry]], str | Iterable[str] | Awaitable[str | Iterable[str]]]
"""Makes of entries of memory the texts that replace them."""


class JobMemory:
    """`ctx.memory`: the long-term memory that a job may use.

    Its scopes: "job", "agent" (where the job has one), "user", "tenant", and "project:<name>". The entries of other jobs, agents
    and users are out of its reach.
    """

    def __init__(self, run: Run, caller: Caller, options: CallOptions) -> None:
        self._run = run
        self._caller = caller
        self._options = options

    async def write(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        source: str | None = None,
        kind: str | None = None,
        scope: str | None = None,
    ) -> UUID:
        """Write an entry, once, and return its id: entry, search terms and vector commit together with the record of this step,
        whose name is `memory_write`. Other jobs find it from then on. scope: default "agent" where the job has one, else
        "user". The rest as in `Memories.write`. The same text in the same scope is written once by a job.

        Raises InvalidInput, NotJson, StepChanged.
        """
        whose = self._scope(scope) if scope is not None else self._own()
        new = new_memory(
            text,
            scope=whose,
            created_by=f"job:{self._run.claimed.kind}",
            tags=tags,
            source=source,
            kind=kind,
            id_of=partial(entry_id_of, self._run.lease.job_id),
        )

        async def make() -> tuple[str, Sequence[Effect]]:
            [written] = await with_vectors(self._embedder, [new], [new.text])
            return str(new.id), write_memory(self._run.store.tenant_id, written)

        id = await self._caller.commit(
            self._options, "memory_write", (new.text, new.scope, new.tags, new.source, new.kind), make
        )
        return UUID(id)

    async def search(
        self,
        query: str,
        k: int = 5,
        *,
        mode: str = "hybrid",
        scope: str | Sequence[str] | None = None,
        tags: Sequence[str] = (),
        since: datetime | None = None,
        kind: str | None = None,
    ) -> list[MemoryHit]:
        """The k entries that fit a question best; a step named `memory_search`, so a replay finds the same. scope: by default
        the job's, its agent's and its user's. The rest as in `Memories.search`. Raises InvalidInput, NotJson, StepChanged;
        TooLarge, where what was found is more than 1 MiB."""
        wanted = self._scopes(scope)
        only = MemoryFilter(check_tags(tags), check_moment(since, "since"), check_text(kind, "kind", 100))
        checked = check_query(query), check_k(k), check_mode(mode)
        store, embedder = self._run.store, self._embedder

        async def memory_search(query: str, k: int, mode: str, *_: Any) -> list[MemoryHit]:
            return await search(store, embedder, wanted, query, k=k, mode=check_mode(mode), only=only)

        args = (*checked, wanted, only.tags, only.since, only.kind)
        found: list[MemoryHit] = await self._caller.call(STEP, self._options, "memory_search", memory_search, args, {})
        return found

    async def consolidate(
        self, fn: Summarise, *, scope: str | None = None, kind: str = "summary", tags: Sequence[str] = ()
    ) -> list[UUID]:
        """Replace what this job has written in a scope by what a function of yours makes of it, and return the ids of the new
        entries. fn: gets the entries (at most 1,000, oldest first) and returns a text or several; it may be async, and is
        called in
        a step named `memory_consolidate`. The new entries are written, then the others are archived. Without entries fn is not
        called. scope: as in `write`. Call it where a part of the job ends, or at its end.

        Raises what fn raises; InvalidInput, NotJson, StepChanged.
        """
        whose = self._scope(scope) if scope is not None else self._own()
        store, job_id = self._run.store, self._run.lease.job_id

        async def memory_consolidate(*_: Any) -> dict[str, list[str]]:
            found = await store.memories.list_memories(
                scopes=[whose], live=True, limit=MOST_CONSOLIDATED, job_id=job_id
            )
            entries = [entry for _, entry in reversed(found)]
            made = await self._run.call(fn, (entries,), {}, self._run.threads) if entries else []
            texts = [made] if isinstance(made, str) else list(made)
            return {"texts": [check_memory_text(text) for text in texts], "of": [str(entry.id) for entry in entries]}

        done = await self._caller.call(
            STEP, self._options, "memory_consolidate", memory_consolidate, (whose, kind, check_tags(tags)), {}
        )
        ids = [await self.write(text, tags=tags, kind=kind, scope=whose) for text in done["texts"]]
        with self._run.busy():  # again after a crash: what is archived stays so
            old = [await store.memories.get_memory(UUID(id)) for id in done["of"] if UUID(id) not in ids]
            await store.memories.change_memories(leave=[leave_of(entry.id, entry.text) for entry in old])
        return ids

    async def get(self, id: UUID) -> MemoryEntry:
        """One entry, as it is now: no step. Raises NotFound, also for an entry out of the job's reach."""
        await self._run.enter()
        with self._run.busy():
            entry = await self._run.store.memories.get_memory(id)
        kind, _, name = entry.scope.partition(":")
        if kind in (ScopeKind.JOB, ScopeKind.AGENT, ScopeKind.USER) and name != self._name(ScopeKind(kind)):
            raise memory_not_found(id)
        return entry

    def tools(self) -> list[Callable[[str], Coroutine[Any, Any, str]]]:
        """`memory_write(text)` and `memory_search(query)` as functions that an agent loop offers to its model: a text in, a text
        out. Their names and docstrings are for the model; each call is a step of the job."""

        async def memory_write(text: str) -> str:
            """Remember a fact, a preference or a solution for later conversations. Write whole sentences."""
            return f"remembered as {await self.write(text)}"

        async def memory_search(query: str) -> str:
            """Search what was remembered in earlier conversations. Ask in words or in a whole sentence."""
            found = await self.search(query)
            lines = [f"- {hit.passage} ({hit.entry.created_at:%Y-%m-%d})" for hit in found]
            return "\n".join(lines) or "nothing is remembered about that"

        return [memory_write, memory_search]

    @property
    def _embedder(self) -> Embedder:
        return HASH if self._run.registry is None else self._run.registry.choose_embedder()

    def _own(self) -> str:
        agent = self._name(ScopeKind.AGENT)
        return (
            scope_of(ScopeKind.USER, self._name(ScopeKind.USER)) if agent is None else scope_of(ScopeKind.AGENT, agent)
        )

    def _scopes(self, scope: str | Sequence[str] | None) -> list[str]:
        if scope is not None:
            given = [scope] if isinstance(scope, str) else list(scope)
            if not given:
                raise InvalidInput("no scope of memory is given", hint="leave scope out for job, agent and user")
            return list(dict.fromkeys(self._scope(one) for one in given))
        names = [(kind, self._name(kind)) for kind in (ScopeKind.JOB, ScopeKind.AGENT, ScopeKind.USER)]
        return [scope_of(kind, name) for kind, name in names if name is not None]

    def _scope(self, text: str) -> str:
        """A scope as a handler writes it: `user`, or in full. Raises InvalidInput."""
        kind, _, given = text.partition(":")
        if kind not in ("job", "agent", "user"):
            return parse_scope(text)
        name = self._name(ScopeKind(kind))
        if name is None:
            raise InvalidInput(
                "this job has no agent, so it has no memory of one", hint="scope='user', or start it with agent="
            )
        if (given and given != name) or (not given and ":" in text):
            raise InvalidInput(
                f"a job may not use the memory of another {kind}: {text!r:.120}", hint=f"scope='{kind}' is its own"
            )
        return scope_of(ScopeKind(kind), name)

    def _name(self, kind: ScopeKind) -> str | None:
        run = self._run
        match kind:
            case ScopeKind.JOB:
                return str(run.lease.job_id)
            case ScopeKind.AGENT:
                return None if run.of_agent is None else run.of_agent.agent_id
            case ScopeKind.USER:
                user_id = run.history.fields.user_id or run.store.tenant_id
                parse_scope(scope_of(ScopeKind.USER, user_id))  # as long and as printable as a scope may be
                return user_id
            case _:
                raise unknown_scope(kind)


class BlockingMemory:
    """`ctx.memory` of a plain (sync) handler."""

    def __init__(self, memory: JobMemory, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._memory = memory
        self._wait = wait

    def write(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        source: str | None = None,
        kind: str | None = None,
        scope: str | None = None,
    ) -> UUID:
        """See `JobMemory.write`."""
        id: UUID = self._wait(self._memory.write(text, tags=tags, source=source, kind=kind, scope=scope))
        return id

    def search(
        self,
        query: str,
        k: int = 5,
        *,
        mode: str = "hybrid",
        scope: str | Sequence[str] | None = None,
        tags: Sequence[str] = (),
        since: datetime | None = None,
        kind: str | None = None,
    ) -> list[MemoryHit]:
        """See `JobMemory.search`."""
        found: list[MemoryHit] = self._wait(
            self._memory.search(query, k, mode=mode, scope=scope, tags=tags, since=since, kind=kind)
        )
        return found

    def consolidate(
        self, fn: Summarise, *, scope: str | None = None, kind: str = "summary", tags: Sequence[str] = ()
    ) -> list[UUID]:
        """See `JobMemory.consolidate`."""
        ids: list[UUID] = self._wait(self._memory.consolidate(fn, scope=scope, kind=kind, tags=tags))
        return ids

    def get(self, id: UUID) -> MemoryEntry:
        """See `JobMemory.get`."""
        entry: MemoryEntry = self._wait(self._memory.get(id))
        return entry

    def tools(self) -> list[Callable[[str], str]]:
        """See `JobMemory.tools`."""
        return [_blocking(tool, self._wait) for tool in self._memory.tools()]


def _blocking(
    tool: Callable[[str], Coroutine[Any, Any, str]], wait: Callable[[Coroutine[Any, Any, Any]], Any]
) -> Callable[[str], str]:
    @wraps(tool)
    def call(text: str) -> str:
        said: str = wait(tool(text))
        return said

    return call
